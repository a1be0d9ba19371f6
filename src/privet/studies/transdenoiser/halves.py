"""The two halves of a public data set: one declared public, the other taken for private."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from privet.data.catalogue import HALVES
from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.ledger import Ledger
from privet.studies.robust_private.public import public_data
from privet.studies.robust_private.training import School, Watch
from privet.studies.transdenoiser.cells import Cell


def halves_of(name: str, data_dir: Path | None) -> dict[str, Dataset]:
    """Both halves of a data set of the catalogue, by their names there."""
    if "/" in name and not Path(name).suffix:
        raise InputError(
            "the study halves the data itself",
            got=f"'{name}'",
            fix=f"--data {name.partition('/')[0]}",
        )
    public_data(name, data_dir)
    return {half: public_data(f"{name}/{half}", data_dir) for half in HALVES}


@final
@dataclass(frozen=True)
class Schools:
    """One for each half."""

    by_half: Mapping[str, School]

    def asked(self, cell: Cell) -> dict[str, Any]:
        """What decides on a cell's training."""
        return self._of(cell).asked(cell)

    def train(self, cell: Cell, folder: Path, watch: Watch) -> str:
        """As `School.train`, on the cell's half."""
        return self._of(cell).train(cell, folder, watch)

    def _of(self, cell: Cell) -> School:
        return self.by_half[cell.contender.half]


def schools(halves: Mapping[str, Dataset], ledger: Ledger, data_dir: Path | None) -> Schools:
    """For the two halves, with one ledger."""
    where = data_dir and str(data_dir.resolve())
    return Schools(
        {
            half: School(data=data, ledger=ledger, reference={"name": data.name, "data_dir": where})
            for half, data in halves.items()
        }
    )
