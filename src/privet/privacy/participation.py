"""What a client spends that takes part in some steps of a federation, and which are not known.

| symbol | here         | meaning                                                                |
|--------|--------------|------------------------------------------------------------------------|
| C      | `clip`       | L2 norm to which each update Delta is shortened                        |
| w      | weight       | of a stale update, at most 1                                           |
| z      | `multiplier` | noise N(0, (zC)^2 I) on the sum of each step                           |
| c      | `bands`      | coefficients of correlated noise, of norm at most 1; (1,): independent |
| k, b   | `Capped`     | a client is in at most k steps, any two of them at least b apart       |
| q, T   | `Sampled`    | in each of T steps the server asks every client with probability q     |

Proof note, `Capped`. Clients select themselves, by when they charge and by what they make of the
last model, so no sampling is accounted. Reveal everything but one client's updates to the observer:
the same with and without the client, since who else takes part, and when, follows from the clock,
from the published models and from draws by a key of its own (`federation.clients.keys_of`; not by
its place, which would move) alone (`Pacing.by_clock`; otherwise see below). Step t publishes
S_t + sC zhat_t with S_t the sum of the others' updates, a function of what was published before,
and C zhat = z for the banded, lower triangular strategy matrix of `privacy.correlated`. Multiplying
by it publishes y_t = sum_j c_j x_(t-j) + zC z_t with independent normal z_t. Given all before, the
client moves the mean of y_t by c_j w Delta, where t - j is its last step: never more than one, as
its steps are b apart. That shift is known before y_t is drawn, and over all rows the squares sum to
at most k |c|^2 C^2 <= k C^2, whatever the client decides on the way. Adaptive Gaussian mechanisms
whose squared shifts, each chosen on seeing the outputs before, sum to at most B^2 in units of the
noise are B-GDP (Smith and Thakurta, 2022; Koskela, Tobaben and Honkela, 2023).
So all steps together are mu-GDP, mu = sqrt(k)/z: the event is k Gaussians of multiplier z, and
nothing is lost to adaptivity.

Replace-one: the other client has the same caps. Where both take part in the same steps the shifts
are twice as long; in steps of their own, shorter in sum. So mu is at most 2 sqrt(k)/z.

Proof note, `Sampled`. The coins are the server's, secret and independent of everything else; a
client that was asked and does not answer adds zero. That is a Poisson-sampled Gaussian, T times.
What a client sends may follow from its earlier coins (by how often it was asked before), which stay
hidden: given all that was published its update has some law, and both worlds of a step are mixtures
over it with one coin. Mixtures are no further apart than the worst pair of their parts.

Where rounds do not end by the clock alone (a cohort that answers early, a buffer, a quorum), one
client more or fewer moves the moments at which all others are counted, and the proof of `Capped`
does not hold for add/remove neighbours. What is left is zero-out: the client takes part at the same
times, and its updates are replaced by zero. When clients take part is not hidden then, nor what
that tells of how many records they train on. Only this is stated. For `Sampled` nothing is left: a
round that waits for those who were asked shows by its length, and by who can train after it,
whether a slow one was. So that is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import dp_accounting as dp

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent

SELF_SELECTED: Final = "self-selected"
SERVER_SAMPLED: Final = "server-sampled"
FEDERATED: Final = (SELF_SELECTED, SERVER_SAMPLED)
FEDERATION: Final = "federation"  # the field of a card that is of one


@final
@dataclass(frozen=True, kw_only=True)
class Capped:
    """Clients select themselves: at most `times` steps of each, any two at least `apart`."""

    times: int
    apart: int = 1

    sampler = SELF_SELECTED

    def __post_init__(self) -> None:
        for name, value in (("participations", self.times), ("separation", self.apart)):
            if value < 1:
                raise InputError(f"bad number: {name}", got=value, expected="at least 1")

    def event(self, multiplier: float) -> DpEvent:
        """What a client spends that takes part as often as it may."""
        return self.event_of(multiplier, self.times)

    def event_of(self, multiplier: float, times: int) -> DpEvent:
        """What a client spends that took part so often."""
        return dp.SelfComposedDpEvent(self.turn_event(multiplier), times)

    @property
    def turns(self) -> int:
        """How often a client is charged at most."""
        return self.times

    def turn_event(self, multiplier: float) -> DpEvent:
        """One of its steps."""
        return dp.GaussianDpEvent(multiplier)

    def turn_of(self, step: int) -> int:
        """The last turn that any client may have had, once this step is over."""
        return min(step // self.apart, self.times - 1)

    def to_json(self) -> dict[str, Any]:
        """For a card."""
        return {"sampler": self.sampler, "participations": self.times, "apart": self.apart}


@final
@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The server samples: in each of `steps` steps, every client with probability `rate`."""

    rate: float
    steps: int

    sampler = SERVER_SAMPLED
    apart = 1  # a client may be asked in steps that follow one another

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError("bad sampling rate", got=self.rate, expected="0 < rate <= 1")
        if self.steps < 1:
            raise InputError("bad number of steps", got=self.steps, expected="at least 1")

    def event(self, multiplier: float) -> DpEvent:
        """What every client spends in all steps, asked or not."""
        return self.event_of(multiplier, self.steps)

    def event_of(self, multiplier: float, times: int) -> DpEvent:
        """What every client spends in so many steps."""
        return dp.SelfComposedDpEvent(self.turn_event(multiplier), times)

    @property
    def turns(self) -> int:
        """Every step charges every client."""
        return self.steps

    def turn_event(self, multiplier: float) -> DpEvent:
        """One step."""
        return dp.PoissonSampledDpEvent(self.rate, dp.GaussianDpEvent(multiplier))

    def turn_of(self, step: int) -> int:
        """Its own."""
        return step

    def to_json(self) -> dict[str, Any]:
        """For a card."""
        return {"sampler": self.sampler, "sampling_rate": self.rate, "steps": self.steps}


def participation_of(mechanism: Mapping[str, Any]) -> Capped | Sampled:
    """What a card states."""
    if mechanism["sampler"] == SELF_SELECTED:
        return Capped(times=mechanism["participations"], apart=mechanism["apart"])
    return Sampled(rate=mechanism["sampling_rate"], steps=mechanism["steps"])


def adjacencies(*, by_clock: bool) -> tuple[Adjacency, ...]:
    """The neighbours for which the proof holds, by how rounds end."""
    if by_clock:
        return (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    return (Adjacency.ZERO_OUT,)
