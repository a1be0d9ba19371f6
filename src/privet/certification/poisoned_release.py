"""What changed training records can do to the accuracy of releases: from their cards.

| symbol | here             | meaning                                                           |
|--------|------------------|-------------------------------------------------------------------|
| f      | `training_curve` | trade-off function of one training run, from the recorded events  |
| k      | `records`        | units of the training data that were changed                      |
| p      | `accuracy`       | lower bound of the mean accuracy over the randomness of training  |

The mathematics, its assumptions and what it does not say are in `poisoning`. A *changed* unit is
one step of a replace-one curve, or two steps of an add/remove curve: out and in again, other than
it was. Where a card proves both, both bounds hold and the better one is given. Where a card's
epsilon does not come from one curve (facts learned first, the best of several runs), its (epsilon,
delta) statement is all that is used.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from privet.certification.poisoning import (
    accuracy_after_poisoning,
    check_level,
    mean_lower,
    runs_for_mean,
)
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis, Privacy
from privet.privacy.accounting import accountant_for, tradeoff_of
from privet.privacy.events import from_json, of_several_lifetimes
from privet.privacy.tradeoff import Stated, TradeOff

SAYS_NOT: Final = (
    "This is about the mean over the randomness of training. It says nothing about the one model "
    "that was trained: it is a draw. The records are chosen before training, the test set is fixed."
)


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """Least mean accuracy after so many units were changed, or added or removed."""

    records: int
    changed: float
    added_or_removed: float | None


@final
@dataclass(frozen=True, kw_only=True)
class PoisoningTable:
    """Least mean accuracy by the number of poisoned units.

    Guarantee: that of `poisoning.accuracy_after_poisoning` for the curve that the card's events
    give. With several releases it fails with probability at most alpha; from an assumed accuracy it
    follows without fail, if the assumption holds.

    Attributes:
        rows: one for each number of units.
        accuracy: p.
        basis: where p comes from, in words.
        unit: what one record is.
        curve: for which neighbours a curve is proved.
        alpha: chance that p is above the mean; None where p is assumed.
        releases: how many.
        caution: that there are too few of them for a bound worth having; "" otherwise.
    """

    rows: tuple[Row, ...]
    accuracy: float
    basis: str
    unit: str
    curve: str
    alpha: float | None
    releases: int
    caution: str = ""

    def summary(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "threat": "poisoning",
            "releases": self.releases,
            "unit": self.unit,
            "accuracy": self.accuracy,
            "accuracy_basis": self.basis,
            "alpha": self.alpha,
            "curve": self.curve,
            "least_mean_accuracy": list(self.dictionaries()),
            "says_not": SAYS_NOT,
            **({"caution": self.caution} if self.caution else {}),
        }

    def dictionaries(self) -> Iterator[dict[str, Any]]:
        """One for each row."""
        for row in self.rows:
            yield {
                "records": row.records,
                "changed": row.changed,
                "added_or_removed": row.added_or_removed,
            }

    def to_csv(self, path: str | Path) -> None:
        """Write the rows."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["records", "changed", "added_or_removed"])
            writer.writeheader()
            writer.writerows(self.dictionaries())


def poisoning_table(
    cards: Sequence[Mapping[str, Any]],
    records: Sequence[int],
    *,
    accuracy: float | None = None,
    alpha: float = 0.001,
) -> PoisoningTable:
    """Least mean accuracy after k changed units, for one release or several of the same plan.

    Args:
        cards: `trust` of each release; several must have the same plan and data, and runs of their
            own.
        records: numbers of units.
        accuracy: a mean accuracy to assume; default: with several releases the lower confidence
            bound of the mean of their test accuracies, with one its own test accuracy, as an
            assumption.
        alpha: chance that the confidence bound is wrong.
    """
    if not cards:
        raise InputError("no release to read", expected="one or more")
    if not records or min(records) < 0:
        raise InputError("bad numbers of records", got=list(records), expected="0 or more each")
    check_level(alpha)
    _require_one_plan(cards)
    mean, basis, caution = _mean_accuracy(cards, accuracy, alpha)
    curves = {adjacency: training_curve(cards[0], adjacency) for adjacency in _proved(cards[0])}
    return PoisoningTable(
        rows=tuple(_row(curves, k, mean) for k in records),
        accuracy=mean,
        basis=basis,
        unit=str(cards[0]["data"]["unit"]),
        curve=" or ".join(sorted(curves)),
        alpha=alpha if accuracy is None and len(cards) > 1 else None,
        releases=len(cards),
        caution=caution,
    )


def training_curve(card: Mapping[str, Any], adjacency: Adjacency) -> TradeOff:
    """The trade-off function that a card's proved statement under this adjacency rests on."""
    stated = _proved(card)[adjacency]
    if not card["events"]:
        raise InputError(
            "a card without events says nothing about poisoning",
            got="an epsilon, and nothing that it comes from",
            fix="see privet verify",
        )
    event = from_json(card["events"][-1]["event"])
    one_kind = len(card["events"]) == 1 and not of_several_lifetimes(card)
    if one_kind and accountant_for(event) == "pld":
        return tradeoff_of(event, adjacency)
    return Stated(stated.epsilon, stated.delta)


def _row(curves: Mapping[Adjacency, TradeOff], records: int, mean: float) -> Row:
    """All bounds that the card proves, and the better one of a change."""
    one_step, by_steps = (curves.get(a) for a in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE))
    changed, added = [], None
    if one_step is not None:
        changed.append(accuracy_after_poisoning(one_step, records, mean))
    if by_steps is not None:
        changed.append(accuracy_after_poisoning(by_steps, 2 * records, mean))
        added = accuracy_after_poisoning(by_steps, records, mean)
    return Row(records=records, changed=max(changed), added_or_removed=added)


def _proved(card: Mapping[str, Any]) -> dict[Adjacency, Privacy]:
    """The proved statements, by the two adjacencies that count records; refused without any."""
    stated = [Privacy.from_json(record) for record in card["privacy"]]
    usable: dict[Adjacency, Privacy] = {
        g.adjacency: g
        for g in stated
        if g.basis is Basis.PROVED and g.adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    }
    if not usable or card["withheld"]:
        raise InputError(
            "a release without a proved epsilon says nothing about poisoning",
            got="; ".join(card["withheld"]) or "no proved statement",
        )
    return usable


def _mean_accuracy(
    cards: Sequence[Mapping[str, Any]], accuracy: float | None, alpha: float
) -> tuple[float, str, str]:
    """The mean accuracy, on what basis, and a caution where the bound is hardly one."""
    if accuracy is not None:
        if not 0 <= accuracy <= 1:
            raise InputError("bad --accuracy", got=accuracy, expected="between 0 and 1")
        return accuracy, f"assumed: mean accuracy is at least {accuracy:g}", ""
    measured = [card["utility"].get("test_accuracy") for card in cards]
    if None in measured:
        raise InputError(
            "a release without a test accuracy", fix="say --accuracy, the mean to assume"
        )
    if len(cards) == 1:
        own = float(measured[0])
        return own, f"assumed: mean accuracy is at least this release's, {own:g}", ""
    values = [float(value) for value in measured]
    lower = mean_lower(values, alpha)
    words = f"lower bound from {len(cards)} releases, confidence {1 - alpha:g}"
    return lower, words, _caution(values, lower, alpha)


def _caution(values: Sequence[float], lower: float, alpha: float) -> str:
    """What to say of a bound below half of the average: it is the number of releases that speaks.

    With n values nothing but their independence is known: even n accuracies of one do not exclude
    a mean of alpha^(1/n).
    """
    average = math.fsum(values) / len(values)
    if average == 0.0 or lower >= average / 2:
        return ""
    half, most = (runs_for_mean(average, part * average, alpha) for part in (0.5, 0.9))
    return (
        f"{len(values)} releases are too few at alpha {alpha:g}: their mean is {average:.3g}, what "
        f"they prove is {_down(lower)}. With the same mean {half} would prove {average / 2:.3g}, "
        f"{most} would prove {0.9 * average:.3g}; or say --accuracy, the mean to assume."
    )


def _down(value: float) -> str:
    return f"{math.floor(1e4 * value) / 1e4:g}"


def _require_one_plan(cards: Sequence[Mapping[str, Any]]) -> None:
    """Several releases must be independent draws of one training algorithm on the same data."""
    runs = [card["provenance"].get("run") for card in cards]
    if len(cards) > 1 and (None in runs or len(set(runs)) < len(runs)):
        raise InputError(
            "releases of the same run", got=f"{len(set(runs))} runs", expected="one each"
        )
    for card in cards[1:]:
        different = [name for name, of in _PLAN.items() if of(card) != of(cards[0])]
        if different:
            raise InputError(
                "releases of different plans",
                got=f"other {', '.join(different)}",
                expected="the same data, settings and test set",
            )


_PLAN: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "method": lambda card: (card["method"], card["analysis"]),
    "data": lambda card: card["data"],
    "mechanism": lambda card: card["mechanism"],
    "events": lambda card: card["events"],
    "settings": lambda card: {
        k: v for k, v in card["provenance"].get("config", {}).items() if k != "init_seed"
    },
    "test set": lambda card: card["utility"].get("test_examples"),
}
"""What must agree. First weights may differ: the mean is then over them as well."""
