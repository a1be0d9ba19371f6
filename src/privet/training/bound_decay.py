"""How the bound on perturbations tightens while a network learns to make them (AIN).

A network that begins under the bound it is meant for finds nothing that fools, and has no slope to
follow. So training begins under a loose bound, which is then tightened, epoch by epoch.

| paper            | here          | meaning                                                     |
|------------------|---------------|-------------------------------------------------------------|
| B_0, B_final     | `first`, the last of `stops` | first and last bound                         |
| B_i              | `bound`       | that of epoch i                                             |
| d, v             | by `epochs`   | decay rate, epochs between steps                            |
| S_0, S_1         | `success`     | share of validation images that are fooled, before and now  |
| T_up, T_low      | `TOO_MUCH`, `HARDLY` | a relative loss of success that is too much, or none |
| gamma_1, gamma_2 | `SLOWER`, `FASTER` | what the speed is multiplied with                      |

    step          B_i = B_0 d^floor(i / v)
    exponential   B_i = B_0 exp(-s i)
    time          B_i = B_0 / (1 + d i)
    none          B_i = B_final
    adaptive      B <- B exp(-s); s follows from what the last epoch lost:

        r = (S_0 - S_1) / S_1
        r > T_up, and more than the tolerance is lost, and there were not too many rollbacks:
            weights and B of the epoch before;  s <- s / 2;  B <- B exp(-s)
        otherwise:
            s <- 1.5 s if r < T_low;  keep weights, B and S_1;  B <- B exp(-s)

Rates are chosen so that the last bound is reached after `epochs` epochs. A bound of `stops` is not
jumped over: the next epoch trains under it, so that the network of that moment can be kept. Once
there are no more epochs than stops to come, each goes on to the next stop.

Deviations. The printed rule changes d so that exponential decay gets faster where it should slow
down, and restores the weights but not the bound: the speed form above does both. T_up is below what
validation images can resolve, hence the tolerance. Toward the end of the epochs adaptive decay is
never slower than what is needed to arrive.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final, final

from privet.errors import InputError

KINDS: Final = ("adaptive", "exponential", "step", "time", "none")
EVERY: Final = 5  # v, epochs between steps
TOO_MUCH: Final = 1e-4
HARDLY: Final = 1e-5
TOLERANCE: Final = 0.005
SLOWER: Final = 0.5
FASTER: Final = 1.5
ROLLBACKS: Final = 3  # at one bound
HURRY: Final = 4  # in the last of so many parts of the epochs
DRIFT: Final = 4.0  # of the speed, from the first one, either way


@final
@dataclass(kw_only=True)
class BoundDecay:
    """The bound of the epoch that comes next, and what the epochs before have shown.

    Attributes:
        kind: one of `KINDS`.
        first: B_0.
        stops: bounds that are wanted, the largest first.
        epochs: after which the last of them is reached.
        bound: B of the coming epoch.
        epoch: how many are over.
        speed: s.
        rollbacks: since the bound last moved on.
        kept_bound, kept_success: of the last epoch that was not taken back; S_0 is 1 at first.
    """

    kind: str
    first: float
    stops: tuple[float, ...]
    epochs: int
    bound: float = field(default=0.0)
    epoch: int = 0
    speed: float = field(default=0.0)
    rollbacks: int = 0
    kept_bound: float = field(default=0.0)
    kept_success: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                "unknown decay", got=f"'{self.kind}'", expected=f"one of {', '.join(KINDS)}"
            )
        self.stops = tuple(sorted(self.stops, reverse=True))
        if not self.stops or not 0 < self.stops[-1] <= self.stops[0] <= self.first <= 1:
            raise InputError(
                "bad bounds",
                got=f"{', '.join(map('{:g}'.format, self.stops))}, beginning with {self.first:g}",
                expected="above 0, at most the first one, which is at most 1",
            )
        if not self.bound:
            self.bound = self.stops[-1] if self.kind == "none" else self.first
            self.kept_bound, self.speed = self.bound, self._usual_speed

    @property
    def last(self) -> float:
        """B_final."""
        return self.stops[-1]

    @property
    def _usual_speed(self) -> float:
        return math.log(self.first / self.last) / max(self.epochs, 1)

    def after(self, success: float) -> bool:
        """End an epoch with this success; whether it is to be taken back."""
        self.epoch += 1
        if self.kind != "adaptive":
            self._keep(success)
            self.bound = self._not_past(self._scheduled(self.epoch))
            return False
        loss = self.kept_success - success
        relative = loss / max(success, 1e-6)
        if relative > TOO_MUCH and loss > TOLERANCE and self._can_slow_down():
            self.rollbacks += 1
            return True
        if relative < HARDLY:
            self._turn(FASTER)
        self._keep(success)
        self.bound = self._next()
        return False

    def _can_slow_down(self) -> bool:
        """Whether a slower step from the bound before stays above this one; then it is taken."""
        failed, speed = self.bound, self.speed
        self.bound = self.kept_bound
        self._turn(SLOWER)
        self.bound = self._next()
        if self.rollbacks < ROLLBACKS and self.bound > failed:
            return True
        self.bound, self.speed = failed, speed
        return False

    def _next(self) -> float:
        return self._not_past(self.bound * math.exp(-self._enough()))

    def _keep(self, success: float) -> None:
        self.kept_bound, self.kept_success, self.rollbacks = self.bound, success, 0

    def _turn(self, factor: float) -> None:
        usual = self._usual_speed
        self.speed = min(max(self.speed * factor, usual / DRIFT), usual * DRIFT)

    def _enough(self) -> float:
        """The speed, or what is needed to arrive in time."""
        left = max(self._left, 1)
        if left * HURRY >= self.epochs:
            return self.speed
        return max(self.speed, math.log(self.bound / self.last) / left)

    @property
    def _left(self) -> int:
        """How many times the bound may still move, this time among them."""
        return self.epochs - self.epoch + 1

    def _scheduled(self, epoch: int) -> float:
        ratio, share = self.first / self.last, min(epoch / max(self.epochs, 1), 1.0)
        if self.kind == "step":
            taken = math.floor(epoch / EVERY) / max(math.floor(self.epochs / EVERY), 1)
            share = min(taken, 1.0)
        elif self.kind == "time":
            return self.first / (1 + (ratio - 1) * share)
        elif self.kind == "none":
            return self.last
        return float(self.first * ratio**-share)

    def _not_past(self, wanted: float) -> float:
        """The wanted bound, or the next stop on the way to it; that stop where time is short."""
        ahead = [stop for stop in self.stops if stop < self.bound]
        if not ahead:
            return self.last
        return ahead[0] if self._left <= len(ahead) else max(wanted, ahead[0])

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return asdict(self) | {"stops": list(self.stops)}
