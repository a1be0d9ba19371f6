"""Privacy for the user: what all updates of one client together may tell.

| symbol | here         | meaning                                                               |
|--------|--------------|-----------------------------------------------------------------------|
| Delta  | `change`     | an update                                                             |
| C      | `clip`       | L2 norm to which each update is shortened                             |
| w      | weight       | of a stale update, at most 1                                          |
| z      | `multiplier` | noise N(0, (zC)^2 I) on the sum of each step                          |
| c      | `bands`      | coefficients of correlated noise, of norm at most 1; (1,): independent |
| k, b   | `Capped`     | a client is in at most k steps, any two of them at least b apart      |
| q, T   | `Sampled`    | in each of T steps the server asks every client with probability q    |
| m      | `divisor`    | the sum is divided by it, whoever came                                |

Proof note, `Capped`. Clients select themselves, by when they charge and by what they make of the
last model, so no sampling is accounted. Reveal everything but one client's updates to the observer:
the same with and without the client, since who else takes part, and when, follows from the clock
and from the published models alone (`Pacing.by_clock`; otherwise see below). Step t publishes
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

Where rounds do not end by the clock alone (a cohort that answers early, a buffer, a quorum), one
client more or fewer moves the moments at which all others are counted, and neither proof holds for
add/remove neighbours. What is left is zero-out: the client takes part at the same times, and its
updates are replaced by zero. When clients take part is not hidden then. Only this is stated.

In neither case is hidden from the server what a client sends: noise protects what is published.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, final

import dp_accounting as dp
from torch import Tensor

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent, calibrate, epsilon_of
from privet.privacy.correlated import BandedNoise, History
from privet.privacy.randomness import SecretStream

SELF_SELECTED: Final = "self-selected"
SERVER_SAMPLED: Final = "poisson"


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
        return dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), times)


@final
@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The server samples: in each of `steps` steps, every client with probability `rate`."""

    rate: float
    steps: int

    sampler = SERVER_SAMPLED

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError("bad sampling rate", got=self.rate, expected="0 < rate <= 1")
        if self.steps < 1:
            raise InputError("bad number of steps", got=self.steps, expected="at least 1")

    def event(self, multiplier: float) -> DpEvent:
        """What every client spends in all steps, asked or not."""
        step = dp.PoissonSampledDpEvent(self.rate, dp.GaussianDpEvent(multiplier))
        return dp.SelfComposedDpEvent(step, self.steps)


@final
@dataclass(frozen=True, kw_only=True)
class UserPrivacy:
    """How updates are clipped and hidden, and what that costs a client.

    Guarantee: all published models together cost a client `event`, under the neighbours that
    `adjacencies` names for the rule at hand; see the module.
    """

    clip: float
    multiplier: float
    participation: Capped | Sampled
    divisor: float
    bands: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        for name, value in (("clip norm", self.clip), ("divisor", self.divisor)):
            if not 0 < value < math.inf:
                raise InputError(f"bad {name}", got=value, expected="a positive, finite number")
        self.noise  # noqa: B018 - refuses bad bands and multipliers
        self._require_separated()

    @classmethod
    def calibrated(
        cls,
        *,
        epsilon: float,
        delta: float,
        participation: Capped | Sampled,
        clip: float,
        divisor: float,
        bands: tuple[float, ...] = (1.0,),
    ) -> Self:
        """With the least noise that keeps the target, add/remove (or zero-out) neighbours."""
        multiplier = calibrate(epsilon, delta, participation.event, what="these participations")
        return cls(
            clip=clip,
            multiplier=multiplier,
            participation=participation,
            divisor=divisor,
            bands=bands,
        )

    @property
    def noise(self) -> BandedNoise:
        """The noise of the sum of a step."""
        return BandedNoise(
            multiplier=self.multiplier, sensitivity=self.clip, coefficients=self.bands
        )

    @property
    def event(self) -> DpEvent:
        """What a client spends at most."""
        return self.participation.event(self.multiplier)

    def epsilon(self, delta: float, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> float:
        """Of a client that takes part as often as it may."""
        return epsilon_of(self.event, delta, adjacency)

    def odometer(self, delta: float, times: Mapping[str, int]) -> dict[str, float]:
        """What each client has spent so far, by how often it took part; zero-out neighbours.

        For the curator: that a client took part less often than it may is a fact about it.
        """
        if not isinstance(self.participation, Capped):
            raise InputError(
                "sampled clients all spend alike", fix="read epsilon, which holds for each"
            )
        event_of = self.participation.event_of
        spent = {
            n: epsilon_of(event_of(self.multiplier, n), delta) for n in {*times.values()} - {0}
        }
        return {client: spent.get(n, 0.0) for client, n in times.items()}

    def clipped(self, change: Tensor) -> Tensor:
        """The update, shortened to C, in double precision."""
        change = change.detach().double()
        return change * min(1.0, self.clip / max(float(change.norm()), 1e-300))

    def hidden(
        self, total: Tensor, *, step: int, stream: SecretStream, history: History
    ) -> tuple[Tensor, History]:
        """The sum of a step with its noise, and what later noise takes back of it."""
        return self.noise.add_to(total, step=step, stream=stream, history=history)

    def _require_separated(self) -> None:
        apart = self.participation.apart if isinstance(self.participation, Capped) else 1
        if len(self.bands) > apart:
            raise InputError(
                "correlated noise that outlasts the separation of a client's steps",
                got=f"{len(self.bands)} bands, steps {apart} apart",
                expected=f"at most {apart} bands",
                fix="ask for a larger separation, or for fewer bands",
            )


def adjacencies(*, by_clock: bool) -> tuple[Adjacency, ...]:
    """The neighbours for which the proof holds, by how rounds end."""
    if by_clock:
        return (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    return (Adjacency.ZERO_OUT,)


def state_of(history: History) -> dict[str, Any]:
    """Secret: what a killed server needs to go on."""
    return {
        "next_step": history.next_step,
        "draws": history.draws.clone(),
        "owner": history.owner.hex(),
    }


def history_from(state: Mapping[str, Any]) -> History:
    """The noise's past, as it was kept."""
    return History(
        next_step=int(state["next_step"]),
        draws=state["draws"],
        owner=bytes.fromhex(state["owner"]),
    )
