"""One set of records as the measures see it: within public bounds, what many need computed once."""

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privet.data.records.features import Categorical, Feature, Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
T = TypeVar("T")


@final
class Side:
    """Records of which the first `schema.max_steps` rows count, values cut off at the bounds.

    A generator cannot make more rows or other values, so nobody is to be blamed for them.
    """

    def __init__(self, records: PatientRecords) -> None:
        most = records.schema.max_steps
        longest = int(records.lengths.max(initial=0))
        self.records = records.first_steps(most) if longest > most else records
        self._kept: dict[tuple[Callable[..., Any], tuple[Hashable, ...]], Any] = {}

    def __len__(self) -> int:
        return len(self.records)

    def once(self, make: Callable[..., T], *given: Hashable) -> T:
        """`make(self, *given)`, computed the first time and then kept."""
        if (make, given) not in self._kept:
            self._kept[make, given] = make(self, *given)
        found: T = self._kept[make, given]
        return found

    @property
    def schema(self) -> Schema:
        """The public facts."""
        return self.records.schema

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """(rows, temporal columns)."""
        return np.isnan(self.records.values)

    @cached_property
    def stay_of_row(self) -> Places:
        """Which stay each row belongs to."""
        return self.records.stay_of_row

    @cached_property
    def gaps(self) -> Floats:
        """Between rows, cut off at the longest that counts."""
        return np.clip(self.records.gaps, 0.0, self.schema.max_gap)

    def temporal(self, place: int) -> Floats:
        """A temporal column, NaN where not measured."""
        return within(self.schema.temporal[place], self.records.values[:, place])

    def columns(self) -> Iterator[tuple[str, Feature, Floats]]:
        """Every column with its kind; a value for each row, or for each stay."""
        for kind, features, values in (
            ("static", self.schema.static, self.records.static),
            ("temporal", self.schema.temporal, self.records.values),
            ("outcome", self.schema.outcomes, self.records.outcomes),
        ):
            for place, feature in enumerate(features):
                yield kind, feature, within(feature, values[:, place])

    def part(self, chosen: Places) -> "Side":
        """Some stays."""
        return Side(self.records.part(chosen))

    def at_most(self, n: int, rng: np.random.Generator) -> "Side":
        """So many stays drawn at random, or all where there are no more."""
        return self if len(self) <= n else self.part(np.sort(rng.permutation(len(self))[:n]))


def within(feature: Feature, values: Floats) -> Floats:
    """Values cut off at the public bounds; NaN stays."""
    if isinstance(feature, Numeric):
        return np.clip(values, feature.low, feature.high)
    return np.asarray(values)


def on_unit_scale(feature: Feature, values: Floats) -> Floats:
    """Values on the column's own scale, from 0 to 1; places of words spread evenly; NaN stays."""
    if isinstance(feature, Numeric):
        return feature.share(within(feature, values))
    return np.asarray(values / (feature.levels - 1))


def one_stay_each(side: Side, rng: np.random.Generator) -> Side:
    """One stay of each patient, drawn at random: stays of one patient are not independent."""
    order = rng.permutation(len(side))
    _, first = np.unique(side.records.patients[order], return_index=True)
    return side if len(first) == len(side) else side.part(np.sort(order[first]))


def numbers_of(feature: Feature, values: Floats) -> Iterator[tuple[str, Floats]]:
    """A column as numbers on [0, 1]: itself, or for each word whether it is that (NaN stays)."""
    if not isinstance(feature, Categorical):
        yield feature.name, on_unit_scale(feature, values)
        return
    words = feature.values[1:] if feature.levels == 2 else feature.values
    for word in words:
        is_it = (values == feature.values.index(word)).astype(np.float64)
        yield f"{feature.name}={word}", np.where(np.isnan(values), np.nan, is_it)


def sums_by_group(groups: Places, n: int, matrix: NDArray[np.generic]) -> Floats:
    """(n, columns): the sum of the rows of each group."""
    rows = len(groups)
    picks = sparse.csr_matrix((np.ones(rows), groups, np.arange(rows + 1)), shape=(rows, n))
    return np.asarray(picks.T @ matrix.astype(np.float64))
