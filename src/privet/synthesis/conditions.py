"""What synthetic records are asked to be: conditions on static columns and outcomes, in words.

    age >= 60        gender = F        disposition = died, admitted

Conditions are met exactly, by drawing again, so a rare one takes longer; see `sampling`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.features import Categorical, Feature, Floats
from privet.data.records.schema import Schema
from privet.errors import InputError

_FORM: Final = re.compile(r"\s*(.+?)\s*(>=|<=|=|>|<)\s*(.+?)\s*")
_EXAMPLES: Final = "as in 'age>=60' or 'gender=F,M'"


@final
@dataclass(frozen=True, kw_only=True)
class Condition:
    """One column compared with a number, or with words of its vocabulary."""

    column: str
    sign: str
    numbers: tuple[float, ...]

    def met(self, values: Floats) -> NDArray[np.bool_]:
        """By which values of the column; never by missing ones."""
        first = self.numbers[0]
        with np.errstate(invalid="ignore"):
            if self.sign == "=":
                return np.isin(values, self.numbers)
            compared = {
                ">=": values >= first,
                "<=": values <= first,
                ">": values > first,
                "<": values < first,
            }
        return compared[self.sign]


@final
@dataclass(frozen=True, kw_only=True)
class Conditions:
    """All that is asked for, by the kind of column."""

    schema: Schema
    all: tuple[Condition, ...] = ()

    @classmethod
    def read(cls, words: Sequence[str], schema: Schema) -> "Conditions":
        """From the words of a user; what cannot be met is bad input."""
        return cls(schema=schema, all=tuple(_read(text, schema) for text in words))

    def met_by_static(self, static: Floats) -> NDArray[np.bool_]:
        """Which stays may begin."""
        return self._met(self.schema.static, static)

    def met_by_outcomes(self, outcomes: Floats) -> NDArray[np.bool_]:
        """Which stays may be kept."""
        return self._met(self.schema.outcomes, outcomes)

    def _met(self, features: tuple[Feature, ...], values: Floats) -> NDArray[np.bool_]:
        good = np.ones(len(values), dtype=bool)
        places = {feature.name: place for place, feature in enumerate(features)}
        for condition in self.all:
            if condition.column in places:
                good &= condition.met(values[:, places[condition.column]])
        return good


def _read(text: str, schema: Schema) -> Condition:
    found = _FORM.fullmatch(text)
    if found is None:
        raise InputError("cannot read a condition", got=f"'{text}'", expected=_EXAMPLES)
    name, sign, value = found.groups()
    feature = schema.feature(name)
    if feature in schema.temporal:
        raise InputError(
            "conditions are on static columns and outcomes",
            got=f"'{name}', which is measured again and again",
            expected=", ".join(f.name for f in (*schema.static, *schema.outcomes)) or "none",
        )
    words = [word.strip() for word in value.split(",")]
    if isinstance(feature, Categorical):
        return Condition(column=name, sign=sign, numbers=_places(feature, sign, words, text))
    return Condition(column=name, sign=sign, numbers=_numbers(feature, sign, words, text))


def _places(feature: Categorical, sign: str, words: list[str], text: str) -> tuple[float, ...]:
    unknown = [word for word in words if word not in feature.values]
    if sign != "=" or unknown:
        raise InputError(
            "cannot be met",
            got=f"'{text}'",
            expected=f"'{feature.name}=' and some of {', '.join(feature.values)}",
        )
    return tuple(float(feature.values.index(word)) for word in words)


def _numbers(feature: Feature, sign: str, words: list[str], text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        raise InputError("no number", got=f"'{text}'", expected=_EXAMPLES) from None
    if sign != "=" and len(numbers) > 1:
        raise InputError("compared with several numbers", got=f"'{text}'", expected=_EXAMPLES)
    low, high = feature.low, feature.high  # type: ignore[union-attr]
    reachable = {
        "=": all(low <= number <= high for number in numbers),
        ">=": numbers[0] <= high,
        ">": numbers[0] < high,
        "<=": numbers[0] >= low,
        "<": numbers[0] > low,
    }
    if not reachable[sign]:
        raise InputError(
            "cannot be met",
            got=f"'{text}'",
            expected=f"a number within the bounds of '{feature.name}', {low:g} to {high:g}",
        )
    return numbers
