"""Whose records these are: the ids in a user's file, numbered and then forgotten.

Ids serve to split, and to compare two files. Nothing below this room ever sees one: a `Split` has
numbers, which say what belongs together and nothing more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Split
from privet.errors import InputError

# What tables write where an id is missing. All such rows would pass for one unit.
NO_ID: Final = frozenset({"", "na", "n/a", "nan", "<na>", "nat", "null", "none"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """What a file holds; `ids` are those of unit 0, 1, ... where a unit column was named."""

    split: Split
    ids: tuple[str, ...] = ()

    def part(self, chosen: NDArray[np.bool_]) -> "Records":
        """Only the chosen records, and the ids of their units."""
        split = self.split.part(chosen)
        if self.split.units is None:
            return Records(split=split)
        kept = np.unique(self.split.units[chosen]).tolist()
        return Records(split=split, ids=tuple(self.ids[unit] for unit in kept))


def grouped(path: Path, split: Split, column: str, cells: Sequence[object]) -> Records:
    """The records with their units, numbered from 0 as they first occur in the unit column."""
    numbers: dict[str, int] = {}
    units = np.empty(len(split), dtype=np.int64)
    for row, cell in enumerate(cells):
        name = _id(cell)
        if name.casefold() in NO_ID:
            raise InputError(
                f"{path}: the cell in row {row + 1}, column '{column}' is no id",
                expected="a text or a whole number",
                fix="fill it, or drop the row: it must be known whose a record is",
            )
        units[row] = numbers.setdefault(name, len(numbers))
    return Records(split=replace(split, units=units), ids=tuple(numbers))


def require_apart(train: Records, test: Records, unit: str) -> None:
    """Refuse a unit that is in both files; for test records whose figures are published.

    Taking such a unit out would change those figures, and nothing is charged for them.
    """
    if not set(train.ids).isdisjoint(test.ids):
        raise InputError(
            f"a {unit} of the training records is also in the public test records",
            expected=f"test records of other {unit}s",
            fix=f"bring all records of a {unit} to one side, or set test_is_public = false",
        )


def place_of(name: str) -> int:
    """Hash an id to a whole number in 0..2^64-1, alike on every machine and in every format."""
    raw = name.encode("utf-8", "surrogatepass")
    digest = blake2b(raw, digest_size=8, person=b"privet units")
    return int.from_bytes(digest.digest(), "little")


def _id(cell: object) -> str:
    """An id as text, alike from every format; empty if it cannot be one."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        cell = int(cell)  # whole numbers often come as floats; beyond 2^53 those fall together
    usable = isinstance(cell, str | int) and not isinstance(cell, bool)
    return str(cell).strip() if usable else ""
