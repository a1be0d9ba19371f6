"""Broken federations, each wrong in one way, for the auditor to catch; see `federated`.

Each is the right coordinator with one thing exchanged. C is the clip norm, z the noise multiplier.

| mutant                   | lets the canary                                                     |
|--------------------------|---------------------------------------------------------------------|
| federation-uncapped      | be in all twelve steps, under noise for three                       |
| federation-weighted      | move a sum by three C: it has three times the usual records         |
| federation-stale         | move a sum by two C with an update that is three versions behind    |
| federation-arrivals      | change what noisy sums are divided by                               |
| federation-mean-noise    | move a sum by C under noise of zC / 2, which was made for the mean  |
| federation-self-selected | be in every step, under noise for one that a coin asks now and then |
| federation-adjacent      | be in neighbouring steps, under noise that one takes back of another|
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
from torch import Tensor

from privet.audits.federated import (
    CANARY,
    RATE,
    STEPS,
    TIMES,
    Canaries,
    broken,
    by_deadline,
    every_step,
    in_steps,
    privacy_for,
)
from privet.audits.mechanism import Entry, Floats, Subject
from privet.federation import Coordinator, UserPrivacy, rule_named
from privet.privacy.accounting import tradeoff_of
from privet.privacy.correlated import History
from privet.privacy.participation import Capped, Sampled

RECORDS: Final = 3.0  # of the canary, in those of another client
BEHIND: Final = 3  # versions; sqrt(1 + 3) = 2
WIDE: Final = 20  # numbers of a run, by whose spread noise is measured
SAME: Final = (0.5, 0.5, 0.5, 0.5)  # bands of one sign: neighbouring steps add up
LONG: Final = 12  # steps


class Instead:
    """Something of the right coordinator, with one of its attributes exchanged."""

    def __init__(self, right: object, **changed: Any) -> None:
        self._right, self._changed = right, changed

    def __getattr__(self, name: str) -> Any:
        return self._changed[name] if name in self._changed else getattr(self._right, name)


class ByArrivals(Instead):
    """Privacy whose divisor is how many updates are here."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator.privacy)
        self._coordinator = coordinator

    @property
    def divisor(self) -> float:
        """A fact about who came, without noise."""
        return float(max(1, self._coordinator.count))


def spoil_caps(coordinator: Coordinator) -> None:
    """Nobody counts in how many steps a client was."""
    _exchange(coordinator, participation=Capped(times=10**6))


def spoil_clipping(coordinator: Coordinator) -> None:
    """A clipped update is multiplied by its number of records."""
    right = _privacy(coordinator)
    _exchange(coordinator, clipped=lambda change: RECORDS * right.clipped(change))


def spoil_weights(coordinator: Coordinator) -> None:
    """The weight of a stale update is turned upside down."""
    coordinator.rule = cast(
        Any, Instead(coordinator.rule, weight=lambda stale: math.sqrt(1.0 + stale))
    )


def spoil_divisor(coordinator: Coordinator) -> None:
    """The noisy sum is divided by how many came."""
    coordinator.privacy = cast(Any, ByArrivals(coordinator))


def spoil_noise(coordinator: Coordinator) -> None:
    """The noise is that of the mean, and is added to the sum."""
    right = _privacy(coordinator)

    def hidden(total: Tensor, **address: Any) -> tuple[Tensor, History]:
        noisy, history = right.hidden(total, **address)
        return total + (noisy - total) / right.divisor, history

    _exchange(coordinator, hidden=hidden)


def _privacy(coordinator: Coordinator) -> UserPrivacy:
    assert coordinator.privacy is not None
    return coordinator.privacy


def _exchange(coordinator: Coordinator, **changed: Any) -> None:
    coordinator.privacy = cast(Any, Instead(_privacy(coordinator), **changed))


def uncapped() -> Subject:
    """The cap is accounted and nobody keeps it."""
    run = replace(_deadline(spoil_caps), uploads=every_step(LONG))
    return broken(
        "federation-uncapped",
        run,
        in_steps(range(LONG), count=LONG),
        flaw=_flaw(spoil_caps),
        pair="a canary that comes in all twelve steps.",
        runs=400_000,
    )


def weighted() -> Subject:
    """FedAvg as published weighs by the number of records: after clipping that is more than C."""
    return broken(
        "federation-weighted",
        _deadline(spoil_clipping),
        in_steps(range(TIMES)),
        flaw=_flaw(spoil_clipping),
        pair="a canary with three times the records of another.",
        runs=100_000,
    )


def stale() -> Subject:
    """A canary whose update is three versions behind, in a buffer of one."""
    steps = [[(f"other {number}", 0)] for number in range(BEHIND)]
    run = Canaries(
        privacy=privacy_for(Capped(times=1), divisor=1.0),
        rule=rule_named("fedbuff", buffer=1, stale=BEHIND),
        uploads=[*steps, [(CANARY, BEHIND)]],
        zeroed=True,
        spoil=spoil_weights,
    )
    return broken(
        "federation-stale",
        run,
        in_steps([BEHIND], count=BEHIND + 1),
        flaw=_flaw(spoil_weights),
        pair="a canary whose update is three versions behind, and the same with an update of zero.",
        runs=400_000,
    )


def arrivals() -> Subject:
    """One other client: with the canary the noise is divided by two, not by one."""
    return broken(
        "federation-arrivals",
        replace(_deadline(spoil_divisor), dimensions=WIDE),
        _quiet,
        flaw=_flaw(spoil_divisor),
        pair="one other client, and weights that nobody touches: the spread of what is published "
        "there tells how many came.",
        runs=20_000,
    )


def mean_noise() -> Subject:
    """The divisor is two."""
    return broken(
        "federation-mean-noise",
        _deadline(spoil_noise),
        in_steps(range(TIMES)),
        flaw=_flaw(spoil_noise),
        pair="the same as for the right one.",
        runs=400_000,
    )


def self_selected() -> Subject:
    """Accounted as sampled; the canary is asked by no coin, it comes."""
    privacy = privacy_for(Sampled(rate=RATE, steps=STEPS))
    driven = replace(privacy, participation=Capped(times=STEPS))
    run = Canaries(privacy=driven, rule=by_deadline(), uploads=every_step())
    subject = broken(
        "federation-self-selected",
        run,
        in_steps(range(STEPS)),
        flaw="Sampling is accounted where clients choose themselves.",
        pair="a canary that chooses to be in every step.",
        runs=400_000,
    )
    return replace(subject, claim=tradeoff_of(privacy.event))


def adjacent() -> Subject:
    """Neighbouring steps share a row of the strategy: there the canary moves 2 c C, not c C."""
    privacy = privacy_for(Capped(times=len(SAME), apart=len(SAME)), bands=SAME)
    run = Canaries(
        privacy=privacy,
        rule=by_deadline(),
        uploads=every_step(LONG),
        spoil=lambda c: _exchange(c, participation=Capped(times=len(SAME))),
    )
    return broken(
        "federation-adjacent",
        run,
        in_steps(range(len(SAME)), bands=SAME, count=LONG),
        flaw="Noise is correlated over four steps, and nobody keeps a client's steps apart.",
        pair="a canary in four steps that follow one another.",
        runs=400_000,
    )


def _deadline(spoil: Any) -> Canaries:
    return Canaries(
        privacy=privacy_for(Capped(times=TIMES)),
        rule=by_deadline(),
        uploads=every_step(),
        spoil=spoil,
    )


def _quiet(rows: Floats) -> Floats:
    """Minus the spread of what nobody touches, in the first steps: less with the canary."""
    seen = rows.reshape(len(rows), STEPS, WIDE)[:, :TIMES, 2:]
    return -np.asarray(np.einsum("rtw,rtw->r", seen, seen))


def _flaw(spoil: Any) -> str:
    return str(spoil.__doc__).strip().splitlines()[0]


def _entry(make: Any, summary: str) -> Entry:
    return Entry(kind="federation", summary=summary, make=make)


FEDERATED_MUTANTS: Final[Mapping[str, Entry]] = {
    "federation-uncapped": _entry(uncapped, "A federation that does not keep its caps."),
    "federation-weighted": _entry(weighted, "A federation that weighs clipped updates by records."),
    "federation-stale": _entry(stale, "A buffer that gives stale updates more weight."),
    "federation-arrivals": _entry(arrivals, "A federation that divides by how many came."),
    "federation-mean-noise": _entry(mean_noise, "A federation with a mean's noise on its sum."),
    "federation-self-selected": _entry(
        self_selected, "Sampling accounted where clients choose themselves."
    ),
    "federation-adjacent": _entry(adjacent, "Correlated noise over neighbouring steps of clients."),
}
