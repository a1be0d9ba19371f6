"""A plan: everything that decides the guarantee, fixed before the first record is touched."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from privet.engine.arguments import require_numbers
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.guarantee import Adjacency, check_target
from privet.privacy.accounting import COARSE_INTERVAL, DpEvent, calibrate, epsilon_of
from privet.privacy.correlated import BandedNoise
from privet.privacy.noise import GaussianNoise
from privet.privacy.sampling import Sampler, make_sampler


@dataclass(frozen=True, kw_only=True)
class Plan:
    """DP-SGD steps: sample units, clip each one, add Gaussian noise, divide by a constant.

    Guarantee: whoever sees every step's update learns no more than `event()` accounts, if each step
    is run by `PrivateTrainer` with these numbers. No field depends on the records: `normaliser` and
    `sampling_rate` come from the declared nominal size.

    `sampler` and `cycle` name the sampler (`privacy.sampling`); `bands` are the coefficients of
    correlated noise (`privacy.correlated`), none for independent noise.
    """

    steps: int
    sampling_rate: float
    clip_norm: float
    noise_multiplier: float
    normaliser: float
    delta: float
    unit: str = "example"
    sampler_name: str = "poisson"
    cycle: int = 1
    bands: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_target(1.0, self.delta)
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise InputError(
                "bad number of steps", got=self.steps, expected="a whole number, at least 1"
            )
        if not 0 < self.normaliser < float("inf"):
            raise InputError(
                "bad normaliser", got=self.normaliser, expected="a positive, finite number"
            )
        self.sampler, self.noise  # noqa: B018 - building the parts validates the rest

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        nominal_size: int,
        batch: int,
        epochs: float,
        clip_norm: float = 1.0,
        unit: str = "example",
        sampler: str = "poisson",
        cycle: int | None = None,
        bands: tuple[float, ...] = (),
        adjacency: Adjacency | None = None,
        whole: Callable[[DpEvent], DpEvent] | None = None,
    ) -> Self:
        """The plan with the least noise that keeps the target.

        Args:
            epsilon: the target under `adjacency`.
            delta: of the target.
            nominal_size: the declared, public number of units; the true one never enters.
            batch: expected units in a step at the nominal size; also the normaliser.
            epochs: expected passes over the nominal data.
            clip_norm: bound on one unit's gradient.
            unit: whose data one unit is.
            sampler: by name, see `privacy.sampling`.
            cycle: steps of which a unit joins at most one; see `sampling.sampler_for`.
            bands: coefficients of correlated noise.
            adjacency: the neighbouring relation of the target; default: the sampler's first.
            whole: where the target must cover more than one run, the event of all, from one's.
        """
        require_numbers(epsilon=epsilon, delta=delta, clip_norm=clip_norm)
        check_target(epsilon, delta)
        drawn, steps = Turns(
            sampler=sampler,
            batch=batch,
            nominal_size=nominal_size,
            epochs=epochs,
            cycle=cycle,
            bands=len(bands),
        ).resolved()
        turns = drawn.turns(steps)
        multiplier = calibrate(
            epsilon,
            delta,
            lambda z: drawn.event(z, turns) if whole is None else whole(drawn.event(z, turns)),
            drawn.adjacencies[0] if adjacency is None else adjacency,
            what=f"{steps} steps at rate {drawn.rate:g}",
        )
        return cls(
            steps=steps,
            sampling_rate=drawn.rate,
            clip_norm=clip_norm,
            noise_multiplier=multiplier,
            normaliser=drawn.rate * nominal_size,
            delta=delta,
            unit=unit,
            sampler_name=sampler,
            cycle=drawn.cycle,
            bands=bands,
        )

    @property
    def turns(self) -> int:
        """In how many steps one unit can take part: what is charged."""
        return self.sampler.turns(self.steps)

    def event(self, turns: int | None = None) -> DpEvent:
        """What `turns` turns (all, if None) do to the data."""
        count = self.turns if turns is None else turns
        return self.sampler.event(self.noise_multiplier, count)

    def running_epsilon(self, steps: int) -> float:
        """Epsilon after `steps` steps: a safe, slightly loose figure for displays."""
        if steps == 0:
            return 0.0
        event = self.event(self.sampler.turns(steps))
        return epsilon_of(event, self.delta, self.sampler.adjacencies[0], interval=COARSE_INTERVAL)

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler that runs, and that `event` accounts."""
        return make_sampler(self.sampler_name, rate=self.sampling_rate, cycle=self.cycle)

    @cached_property
    def noise(self) -> GaussianNoise | BandedNoise:
        """The noise that runs, and that `event` accounts."""
        if not self.bands:
            return GaussianNoise(multiplier=self.noise_multiplier, sensitivity=self.clip_norm)
        noise = BandedNoise(
            multiplier=self.noise_multiplier, sensitivity=self.clip_norm, coefficients=self.bands
        )
        noise.require_valid_with(self.sampler_name, self.cycle)
        return noise

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """Inverse of `to_json`; a malformed record is bad input."""
        try:
            return cls(**record | {"bands": tuple(record.get("bands", ()))})
        except TypeError as error:
            raise InputError("malformed plan", got=error) from None
