"""A plan: everything that decides the guarantee, fixed before the first record is touched."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final, Self

from privet.errors import InputError
from privet.guarantee import Adjacency, check_target
from privet.privacy.accounting import (
    COARSE_INTERVAL,
    DpEvent,
    calibrate,
    epsilon_of,
    sampled_gaussian,
)
from privet.privacy.noise import GaussianNoise
from privet.privacy.sampling import PoissonSampler

ASSUMPTIONS: Final = (
    "the sampling and noise keys stay secret",
    "AES-256 and keyed BLAKE2b are pseudo-random",
    "the model treats every example apart (probed on made-up batches)",
    "sums and noise in floating point behave as the real numbers they round",
    "the settings (model, learning rate, clip norm, steps) were not chosen on these records",
    "what the weights do is released, not the time or memory that training took",
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """DP-SGD steps: Poisson sample, clip each example, add Gaussian noise, divide by a constant.

    Guarantee: whoever sees every step's update learns no more than `event()` accounts, if each step
    is run by `PrivateTrainer` with these numbers. No field depends on the records: `normaliser` and
    `sampling_rate` come from the declared nominal size.
    """

    steps: int
    sampling_rate: float
    clip_norm: float
    noise_multiplier: float
    normaliser: float
    delta: float
    unit: str = "example"

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
        # Building the parts validates the rest.
        PoissonSampler(rate=self.sampling_rate)
        GaussianNoise(multiplier=self.noise_multiplier, sensitivity=self.clip_norm)

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
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
    ) -> Self:
        """The plan with the least noise that keeps the target.

        Args:
            epsilon: the target under `adjacency`.
            delta: of the target.
            nominal_size: the declared, public size of the data; the true one never enters.
            batch: expected batch at the nominal size; also the normaliser.
            epochs: expected passes over the nominal data.
            clip_norm: bound on one unit's gradient.
            unit: whose data one unit is.
            adjacency: the neighbouring relation of the target.
        """
        check_target(epsilon, delta)
        if not 1 <= batch <= nominal_size:
            raise InputError(
                "bad batch", got=batch, expected=f"1 to the nominal size {nominal_size}"
            )
        if not 0 < epochs < float("inf"):
            raise InputError(
                "bad number of epochs", got=epochs, expected="a positive, finite number"
            )
        rate = batch / nominal_size
        steps = max(1, round(epochs / rate))
        return cls(
            steps=steps,
            sampling_rate=rate,
            clip_norm=clip_norm,
            noise_multiplier=calibrate(epsilon, delta, rate=rate, steps=steps, adjacency=adjacency),
            normaliser=float(batch),
            delta=delta,
            unit=unit,
        )

    def event(self, steps: int | None = None) -> DpEvent:
        """What `steps` steps (all, if None) do to the data."""
        count = self.steps if steps is None else steps
        return sampled_gaussian(self.noise_multiplier, self.sampling_rate, count)

    def running_epsilon(self, steps: int) -> float:
        """Epsilon after `steps` steps, add/remove: a safe, slightly loose figure for displays."""
        if steps == 0:
            return 0.0
        return epsilon_of(self.event(steps), self.delta, interval=COARSE_INTERVAL)

    @cached_property
    def sampler(self) -> PoissonSampler:
        """The sampler that runs, and that `event` accounts."""
        return PoissonSampler(rate=self.sampling_rate)

    @cached_property
    def noise(self) -> GaussianNoise:
        """The noise that runs, and that `event` accounts."""
        return GaussianNoise(multiplier=self.noise_multiplier, sensitivity=self.clip_norm)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """Inverse of `to_json`; a malformed record is bad input."""
        try:
            return cls(**record)
        except TypeError as error:
            raise InputError("malformed plan", got=error) from None
