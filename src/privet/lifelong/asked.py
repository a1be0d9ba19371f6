"""What a caller asks of a named stream, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from privet.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class Asked:
    """A stream's name and how it is to be cut.

    Attributes:
        name: of the stream, without its order.
        order: words behind the colon of a name: which tasks, in which order; empty for the usual.
        n_tasks: how many.
        records: for each task; None for all that there are.
        shared: whether the same units are in every task.
        seed: of permutations. Public.
        data_dir: where files lie that are not in the usual places.
    """

    name: str
    order: tuple[str, ...]
    n_tasks: int
    records: int | None
    shared: bool
    seed: int
    data_dir: str | Path | None

    def require_no_order(self) -> None:
        """For streams whose tasks have nothing to choose."""
        if self.order:
            raise InputError(
                f"the tasks of '{self.name}' have no order to choose",
                got=f"'{self.name}:{'-'.join(self.order)}'",
                fix=f"write '{self.name}'",
            )

    def require_at_most(self, most: int) -> None:
        """For streams that have so many tasks and no more."""
        if self.n_tasks > most:
            raise InputError(
                f"'{self.name}' has not so many tasks", got=self.n_tasks, expected=f"1..{most}"
            )

    def reference(self) -> Mapping[str, Any]:
        """The arguments of `load_stream` that give the same stream again."""
        return {
            "name": f"{self.name}:{'-'.join(self.order)}" if self.order else self.name,
            "n_tasks": self.n_tasks,
            "records": self.records,
            "shared": self.shared,
            "seed": self.seed,
            "data_dir": None if self.data_dir is None else str(Path(self.data_dir).resolve()),
        }


def whole_number(what: str, given: Any, *, least: int = 1, most: int | None = None) -> int:
    """`given`, if it is a whole number in its range."""
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole or given < least or (most is not None and given > most):
        bounds = f"at least {least}" if most is None else f"{least}..{most}"
        raise InputError(f"bad {what}", got=given, expected=f"a whole number, {bounds}")
    return int(given)
