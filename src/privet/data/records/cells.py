"""Cells of a file as numbers: each kind of column has a reader, which remembers what it must.

A reader is given the cells of a column, chunk after chunk. A cell it cannot use is a `BadCell`,
which says where and why but never repeats the cell: messages end in logs and tickets.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.chunks import Chunk
from privet.data.records.features import Categorical, Feature
from privet.data.units import NO_ID
from privet.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# What tables write where a value is missing.
BLANKS: Final = NO_ID
NO_TIME: Final = np.iinfo(np.int64).min  # NaT
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)


class BadCell(Exception):  # noqa: N818 - names the fault; an InputError is made of it
    """The cell in row `row` of a chunk cannot be used."""

    def __init__(self, row: int, what: str, expected: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.row, self.what, self.expected, self.fix = row, what, expected, fix


def read_column(
    chunk: Chunk, name: str, reader: Callable[[Sequence[Any]], NDArray[Any]]
) -> NDArray[Any]:
    """One column of a chunk; what is wrong with a cell is said with its line and column."""
    try:
        return reader(chunk.columns[name])
    except BadCell as bad:
        raise InputError(
            f"{chunk.place(bad.row)}, column '{name}': {bad.what}",
            expected=bad.expected,
            fix=bad.fix,
        ) from None


@final
class Numbers:
    """Numbers in double precision; NaN for blanks and for the words that mean "missing" here."""

    def __init__(self, missing: Sequence[str] = ()) -> None:
        self.missing = frozenset(missing)

    def __call__(self, cells: Sequence[Any]) -> Floats:
        """The numbers of the cells."""
        found = self._quick(cells)
        if found is None or np.isinf(found).any():
            found = np.array([self._number(row, cell) for row, cell in enumerate(cells)])
        return found

    def _quick(self, cells: Sequence[Any]) -> Floats | None:
        """The numbers where all cells are plain, as they nearly always are."""
        try:
            if hasattr(cells, "dtype"):
                return np.asarray(cells, dtype=np.float64)
            # 1_0 is ten to Python, and to no table.
            if self.missing or "_" in "".join(cells):
                return None
            nan = np.nan
            return np.array([float(cell) if cell else nan for cell in cells])
        except (ValueError, TypeError):
            return None

    def _number(self, row: int, cell: Any) -> float:
        if _is_blank(cell) or (isinstance(cell, str) and cell.strip() in self.missing):
            return float("nan")
        try:
            if isinstance(cell, str) and "_" in cell:
                raise ValueError
            number = float(cell)
        except (ValueError, TypeError):
            raise BadCell(row, "not a number", "a number, or blank where it is missing") from None
        if np.isinf(number):
            raise BadCell(row, "an infinite number", "a finite number, or blank")
        return number


@final
class Words:
    """Places of words in a declared vocabulary; NaN for blanks that are not words of it."""

    def __init__(self, values: Sequence[str], missing: Sequence[str] = ()) -> None:
        self.values = tuple(values)
        self.index: dict[Any, float] = {"": np.nan, None: np.nan}
        self.index |= dict.fromkeys(missing, np.nan)
        self.index |= {word: float(place) for place, word in enumerate(values)}

    def __call__(self, cells: Sequence[Any]) -> Floats:
        """The places of the cells' words."""
        try:
            return np.array([self.index[cell] for cell in cells])
        except (KeyError, TypeError):
            return np.array([self._place(row, cell) for row, cell in enumerate(cells)])

    def _place(self, row: int, cell: Any) -> float:
        word = cell if isinstance(cell, str) and cell in self.index else _as_text(cell)
        if word not in self.index and word.casefold() in BLANKS:
            return float("nan")
        if word not in self.index:
            raise BadCell(
                row,
                "not a word of the declared vocabulary",
                f"one of {', '.join(self.values[:20])}{', ...' if self.values[20:] else ''}",
                "declare the word in the schema, or correct the cell",
            )
        return self.index[word]


@final
class Ids:
    """Whose a row is: ids numbered as they first occur, in any file."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, cells: Sequence[Any]) -> Integers:
        """The numbers of the cells' ids."""
        found = [self.numbers.get(cell, -1) if isinstance(cell, str) else -1 for cell in cells]
        for row, (number, cell) in enumerate(zip(found, cells, strict=True)):
            if number < 0:
                found[row] = self._number(row, cell)
        return np.array(found, dtype=np.int64)

    def names(self) -> NDArray[np.str_]:
        """The ids, by number."""
        return np.array(list(self.numbers), dtype=np.str_)

    def _number(self, row: int, cell: Any) -> int:
        name = _as_text(cell)
        if name.casefold() in NO_ID:
            raise BadCell(row, "no id", "a text or a whole number", "fill it, or drop the row")
        return self.numbers.setdefault(name, len(self.numbers))


@final
class Texts:
    """Texts numbered as they first occur; a blank is a text too."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, cells: Sequence[Any]) -> Integers:
        """The numbers of the cells' texts."""
        numbers = self.numbers
        texts = (cell if isinstance(cell, str) else _as_text(cell) for cell in cells)
        return np.array([numbers.setdefault(t, len(numbers)) for t in texts], dtype=np.int64)

    def names(self) -> list[str]:
        """The texts, by number."""
        return list(self.numbers)


@final
class Times:
    """Times since a stay's start; NaN for blanks, which only rows without values may have."""

    def __init__(self) -> None:
        self._numbers = Numbers()

    def __call__(self, cells: Sequence[Any]) -> Floats:
        """The times of the cells."""
        times = self._numbers(cells)
        for row in np.flatnonzero(np.isnan(times)).tolist():
            if isinstance(cells[row], str) and cells[row].strip().casefold() == "nan":
                raise BadCell(row, "no time", "a finite number")
        negative = np.flatnonzero(times < 0)
        if len(negative):
            raise BadCell(
                int(negative[0]),
                "a negative time",
                "a time since the stay's start, at least 0",
                "count from the stay's first row, or declare timestamps",
            )
        return times


@final
class Dates:
    """Dates and times in ISO 8601 as microseconds since 1970; NO_TIME for blanks.

    Offsets from UTC are taken off. Either all dates have one or none: a mixture cannot be put
    in order. Digits beyond the microsecond are dropped.
    """

    def __init__(self) -> None:
        self.with_zone: bool | None = None

    def __call__(self, cells: Sequence[Any]) -> Integers:
        """The dates of the cells."""
        return np.array([self._date(row, cell) for row, cell in enumerate(cells)], dtype=np.int64)

    def _date(self, row: int, cell: Any) -> int:
        if _is_blank(cell):
            return NO_TIME
        moment = _moment(row, cell)
        zoned = moment.tzinfo is not None
        if self.with_zone is None:
            self.with_zone = zoned
        if zoned != self.with_zone:
            raise BadCell(
                row,
                "dates with and without a time zone are mixed",
                "an offset from UTC in all dates, or in none",
                "write all of them in UTC",
            )
        if zoned:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        return (moment - _EPOCH) // _MICROSECOND


@final
class Replaced:
    """Words that a source writes, put into ours before `reader` reads them.

    Blanks stay. A word that is not in `words` stays as well, or becomes `otherwise`, counted.
    """

    def __init__(
        self,
        reader: Callable[[Sequence[Any]], Floats],
        words: Mapping[str, str],
        otherwise: str | None = None,
    ) -> None:
        self.reader, self.words, self.otherwise = reader, words, otherwise
        self.unlisted = 0

    def __call__(self, cells: Sequence[Any]) -> Floats:
        """The reader's numbers of the replaced cells."""
        return self.reader([self._word(cell) for cell in cells])

    def _word(self, cell: Any) -> str:
        word = _as_text(cell)
        if word in self.words or self.otherwise is None or _is_blank(cell):
            return self.words.get(word, word)
        self.unlisted += 1
        return self.otherwise


@final
class Rated:
    """Numbers from `low` to `high` among free text; everything else is missing, and counted."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.unusable = 0

    def __call__(self, cells: Sequence[Any]) -> Floats:
        """The numbers of the cells."""
        return np.array([self._rating(cell) for cell in cells])

    def _rating(self, cell: Any) -> float:
        if _is_blank(cell):
            return float("nan")
        try:
            number = float(cell)
        except (ValueError, TypeError):
            number = float("nan")
        if self.low <= number <= self.high:
            return number
        self.unusable += 1
        return float("nan")


def value_reader(feature: Feature, missing: Sequence[str] = ()) -> Numbers | Words:
    """The reader of a declared column."""
    if isinstance(feature, Categorical):
        return Words(feature.values, missing)
    return Numbers(missing)


def _moment(row: int, cell: Any) -> datetime:
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    try:
        return datetime.fromisoformat(cell.strip())
    except (ValueError, AttributeError):
        raise BadCell(
            row, "not a date", "a date and time as in 2125-03-19 13:22:00, or with an offset"
        ) from None


def _is_blank(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().casefold() in BLANKS
    return cell is None or (isinstance(cell, float) and np.isnan(cell))


def _as_text(cell: Any) -> str:
    """A cell as text, alike from every format; whole numbers without a point."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        cell = int(cell)
    if isinstance(cell, bool):
        cell = int(cell)
    return "" if _is_blank(cell) and not isinstance(cell, str) else str(cell).strip()
