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

The proof is in `privacy.participation`. Noise protects what is published; what a client sends is
not hidden from the server.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent, calibrate, epsilon_of
from privet.privacy.correlated import BandedNoise, History
from privet.privacy.participation import Capped, Sampled
from privet.privacy.randomness import SecretStream


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

        For the curator alone. That a client took part less often than it may is a fact about it.
        And of a client that goes by what it sees when it decides to stop, only the cap is proved:
        a figure that is read off when the outputs look a certain way is no bound (Rogers et al.,
        2016).
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
        """The update, shortened to C, in double precision; zero if it is not finite.

        To refuse such an update would tell that its client took part.
        """
        change = change.detach().double()
        norm = float(change.norm())
        if not math.isfinite(norm):
            return torch.zeros_like(change)
        return change * min(1.0, self.clip / max(norm, 1e-300))

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
