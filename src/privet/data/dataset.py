"""What every loader returns: arrays, and the public facts declared about them."""

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError

EXAMPLE: Final = "example"  # the unit that is one record
_BLOCK = 4096  # examples scaled at a time


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Public lower and upper bounds of the values: one pair for all features, or one each.

    Bounds are declared or learned privately, never read off the data: a maximum is a record.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        pairs = list(zip(self.low, self.high, strict=False))
        if len(self.low) != len(self.high) or not pairs:
            raise InputError(
                "bounds do not match",
                got=f"{len(self.low)} lower and {len(self.high)} upper",
                expected="one upper bound for each lower bound",
            )
        for low, high in pairs:
            # The width must be finite too, or everything would be scaled to zero.
            if not (low < high and math.isfinite(high - low)):
                raise InputError(
                    "bad bounds", got=f"[{low}, {high}]", expected="finite numbers, low < high"
                )

    def clamp_and_scale(self, x: NDArray[np.generic]) -> NDArray[np.float32]:
        """Map values to [0, 1] by the public bounds; values outside are clamped to them."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        scaled = np.empty(x.shape, dtype=np.float32)
        # In double precision, because narrow bounds around large values vanish in single
        # (1e9..1e9+1 has width 0 there); in blocks, so that images need not double in memory.
        for start in range(0, len(x), _BLOCK):
            block = np.clip(x[start : start + _BLOCK].astype(np.float64), low, high)
            scaled[start : start + _BLOCK] = (block - low) / (high - low)
        return scaled


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Examples `x` (first axis: examples) with integer labels `y` in 0..classes-1.

    `units` says whose each record is, numbered from 0 without gaps, where one unit of privacy (a
    user, a patient) has several records; None where every record is a unit. The numbers mean
    nothing outside their split.
    """

    x: NDArray[np.generic]
    y: NDArray[np.int64]
    units: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def part(self, chosen: NDArray[np.bool_]) -> "Split":
        """Only the chosen records."""
        if self.units is None:
            return Split(x=self.x[chosen], y=self.y[chosen])
        _, units = np.unique(self.units[chosen], return_inverse=True)
        return Split(x=self.x[chosen], y=self.y[chosen], units=units)

    @property
    def unit_of_record(self) -> NDArray[np.int64]:
        """Whose each record is; its own number where every record is a unit."""
        return np.arange(len(self.y)) if self.units is None else self.units

    @property
    def n_units(self) -> int:
        """How many units the records belong to. As private as the records."""
        return len(self.y) if self.units is None else len(np.unique(self.units))


@dataclass(frozen=True, kw_only=True)
class LearnedFact:
    """A public fact that was learned privately, and the pure epsilon it cost."""

    name: str
    epsilon: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Train and test arrays with the facts that may be published about them.

    `bounds`, `classes` and `nominal_size` are public: declared by whoever knows the data, or
    learned privately and listed in `learned`. Nothing in Privet that decides how a private
    mechanism runs ever looks at `len(train)` or at the values instead. `unit` names what is
    protected as one, and `nominal_size` counts it: records, or users where `train.units` is given.
    Data without labels have a `schema` in the place of `classes`; their y is 0.
    """

    name: str
    train: Split
    test: Split
    bounds: Bounds
    classes: tuple[str, ...]
    nominal_size: int
    licence: str
    source: str
    unit: str = EXAMPLE
    test_is_public: bool = False
    learned: tuple[LearnedFact, ...] = ()
    features: tuple[str, ...] = ()  # names of the columns, in order; empty for arrays
    parents: tuple[str, ...] = ()  # data sets in the ledger that this one was made from
    schema: Mapping[str, Any] | None = None  # public facts about records that are no examples
    originals: Collection[bytes] | None = None  # by which the ledger knows made-over records again

    def __post_init__(self) -> None:
        if len(self.classes) < 2 if self.labelled else self.classes:
            raise InputError(
                f"data set '{self.name}' declares too few classes",
                got=len(self.classes),
                expected="at least 2" if self.labelled else "none beside a schema",
            )
        if self.nominal_size < 1:
            raise InputError(
                f"data set '{self.name}' declares a bad nominal size",
                got=self.nominal_size,
                expected="a positive whole number",
            )
        if self.train.units is not None and self.unit == EXAMPLE:
            raise InputError(
                f"data set '{self.name}' has units of several records but no name for them",
                got=f"unit '{EXAMPLE}', which is one record",
                fix="say whose records they are, as in unit='user'",
            )
        for part, split in (("train", self.train), ("test", self.test)):
            check_split(f"{self.name}/{part}", split, n_classes=len(self.classes) or None)
        if self.train.x.shape[1:] != self.test.x.shape[1:]:
            raise InputError(
                f"data set '{self.name}': train and test examples differ in shape",
                got=f"{self.train.x.shape[1:]} and {self.test.x.shape[1:]}",
                expected="the same shape",
            )
        if len(self.bounds.low) > 1 and self.shape != (len(self.bounds.low),):
            raise InputError(
                f"data set '{self.name}': the bounds do not fit the examples",
                got=f"{len(self.bounds.low)} pairs for examples of shape {self.shape}",
                expected="one pair for all features, or one for each column of a table",
            )

    @property
    def labelled(self) -> bool:
        """Whether the records are examples of classes."""
        return self.schema is None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.train.x.shape[1:])

    def training_on(self, part: Split, *, nominal_size: int) -> "Dataset":
        """The same data, of which only `part` trains.

        The part is not checked again: it was drawn in secret, and to refuse it (empty, or all of
        one class) would tell something about it that nobody accounts for.
        """
        made = copy.copy(self)
        object.__setattr__(made, "train", part)
        object.__setattr__(made, "nominal_size", nominal_size)
        return made


def check_split(where: str, split: Split, *, n_classes: int | None) -> None:
    """Refuse arrays that cannot be trained on; say which and why. Without classes y is 0."""
    if len(split.x) != len(split.y):
        raise InputError(
            f"{where}: examples and labels differ in number",
            got=f"{len(split.x)} examples, {len(split.y)} labels",
            expected="one label for each example",
        )
    if len(split) == 0 and n_classes is None and where.endswith("/test"):
        return
    if len(split) == 0:
        raise InputError(f"{where} has zero examples", expected="at least one")
    _check_units(where, split)
    if split.x.dtype.kind not in "uif":
        raise InputError(f"{where}: values are not numbers", got=split.x.dtype)
    if split.x.dtype.kind == "f" and not np.isfinite(split.x).all():
        bad = int(np.argwhere(~np.isfinite(split.x))[0][0])
        raise InputError(
            f"{where}: NaN or infinite value in example {bad}",
            fix="fill or drop missing values before training",
        )
    labels = n_classes or 1
    if split.y.min() < 0 or split.y.max() >= labels:
        bad = int(np.argwhere((split.y < 0) | (split.y >= labels))[0][0])
        raise InputError(
            f"{where}: label out of range in example {bad}",
            got=int(split.y[bad]),
            expected=f"0..{labels - 1}",
        )
    if n_classes and where.endswith("/train") and (split.y == split.y[0]).all():
        raise InputError(
            f"{where}: every example has the same class",
            got=f"class {int(split.y[0])} only",
            expected="at least two classes",
        )


def _check_units(where: str, split: Split) -> None:
    if split.units is None:
        return
    if split.units.shape != (len(split.y),):
        raise InputError(
            f"{where}: records and their units differ in number",
            got=f"{len(split.y)} records, unit numbers of shape {split.units.shape}",
            expected="one unit number for each record",
        )
    # The range first: counting up to an id of twelve digits would not fit in memory.
    whole = split.units.dtype == np.int64
    within = whole and split.units.min() >= 0 and split.units.max() < len(split.y)
    if not within or (np.bincount(split.units) == 0).any():
        raise InputError(
            f"{where}: bad unit numbers",
            expected="whole numbers (int64) from 0 on, without gaps",
            fix="number the units, as np.unique(ids, return_inverse=True)[1] does",
        )
