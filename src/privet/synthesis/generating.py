"""What all runs that learn to make records have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.training.ordinary import OrdinarySettings


@dataclass(frozen=True, kw_only=True)
class Generating(OrdinarySettings):
    """Ordinary settings, for records.

    Attributes:
        contribution: most stays of a patient in a step.
        holdout: share of the patients set aside, to compare with; see `data.records.parts`.
    """

    contribution: int = 1
    holdout: float = 0.0

    _shares: ClassVar[tuple[str, ...]] = (*OrdinarySettings._shares, "holdout")

    def _check_together(self) -> None:
        super()._check_together()
        if self.adversarial != "none" or self.augment != "none" or self.input_noise:
            raise InputError(
                "records are learned as they are",
                got="an option about images",
                fix="leave adversarial, augment and input_noise out",
            )


def schema_of(data: Dataset) -> Mapping[str, Any]:
    """The public facts of records; other data have none."""
    if data.schema is None:
        raise InputError(
            "these are no patient records",
            got=f"'{data.name}', examples with classes",
            fix="privet train; records come from privet.data.records",
        )
    return data.schema
