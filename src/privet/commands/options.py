"""The settings of training on the command line; what is left out keeps the method's default."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Settings of the method.

    Attributes
    ----------
    batch
        Expected batch; default: a fifth of the declared size, at most 2048.
    epochs
        Expected passes over the data; default 30.
    learning_rate
        First learning rate, in units of the clip norm; falls linearly to zero; default 0.25.
    momentum
        Of SGD; default 0.9.
    clip_norm
        Bound on one example's gradient; default 1.
    model
        Network; default: by the shape of the examples.
    init_seed
        Seed of the first weights; public; default 0.
    device
        cpu (default), cuda, ...
    keep_keys
        Keep the secret keys until the run ends (default), to repeat lost steps exactly after a
        crash; without them lost steps are charged again.
    checkpoint_every
        Steps between checkpoints; default: every 20 seconds.
    noise_seed
        For tests only: known noise, so the release gets no epsilon.
    """

    batch: int | None = None
    epochs: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    clip_norm: float | None = None
    model: str | None = None
    init_seed: int | None = None
    device: str | None = None
    keep_keys: bool | None = None
    checkpoint_every: int | None = None
    noise_seed: int | None = None

    def given(self) -> dict[str, Any]:
        """Only what the user set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


Options = Annotated[TrainingOptions, Parameter(name="*")]
