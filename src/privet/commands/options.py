"""The settings of training on the command line; what is left out keeps the method's default."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter

# What other tools call them, where the nearest spelling would mislead.
OTHER_NAMES: Final = {
    "--lr": "--learning-rate",
    "--max-grad-norm": "--clip-norm",
}


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Settings of the method.

    Attributes
    ----------
    recipe
        Settings that were found to work well; see `privet recipes`; what you set yourself wins.
    batch
        Expected units in a step; default: a fifth of the declared size, at most 2048; plain: 128.
    epochs
        Expected passes over the data; default 30.
    learning_rate
        Highest learning rate, in units of the clip norm; default 0.25; plain: 0.05, as it is.
    schedule
        How it goes on: linear (default) or cosine to zero, or constant.
    warmup
        Share of the steps in which it rises from zero; default 0.
    optimizer
        sgd (default) or adam.
    momentum
        Of SGD; default 0.9.
    clip_norm
        Bound on one unit's gradient; default 1.
    clipping
        In which norm: flat (default), per-layer, weighted (by the sizes of the layers).
    contribution
        Most records of one unit in a step, where a unit has several; default 8.
    augment
        Random views of every example, averaged (before clipping): none (default), shift, flip-crop.
    views
        How many views; default 1.
    input_noise
        Standard deviation of Gaussian noise on every view, inputs in [0, 1], not cut off: for
        certificates by smoothing; 0 (default): none.
    adversarial
        Train on adversarial examples: kurakin (clean and one-step ones side by side), madry
        (projected ascent from a random start, no clean ones), none (default). Costs no epsilon.
    adversarial_norm
        Of their perturbations: linf (default), l2, l1.
    adversarial_size
        Largest norm of a perturbation, inputs in [0, 1]; 0.1 if you do not say.
    adversarial_steps
        Gradients to find one; 1 for kurakin, 7 for madry, if you do not say.
    ema
        Decay of the moving average of weights that is released; 0 (default): the last weights.
    sampler
        poisson (default), cyclic-poisson, fixed-batches, shuffled.
    cycle
        Steps in which a unit has one turn, for the samplers with turns; default: as many batches as
        make up the data (cyclic-poisson with bands: the bands). Sets the batch of fixed-batches
        and shuffled.
    bands
        Of correlated noise, with cyclic-poisson or fixed-batches; default 1: independent noise.
    model
        Network, see `privet models`; default: by the shape of the examples.
    init_seed
        Seed of the first weights; public; default 0.
    device
        cpu (default), cuda, ...
    precision
        Of gradients: float32 (default), tf32 (CUDA only) or bf16: faster, coarser, clipped as well.
    compile
        Compile the model first: slow to start, faster steps; default: for long runs on CUDA.
    keep_keys
        Keep the secret keys until the run ends (default), to repeat lost steps exactly after a
        crash; without them lost steps are charged again.
    checkpoint_every
        Steps between checkpoints; default: every 20 seconds.
    canaries
        Made-up units with gradients of their own by which the run is audited: a lower bound of
        epsilon in internal/audit.json. 5000 say something; costs no epsilon; 0 (default): none.
    noise_seed
        For tests only: known noise, so the release gets no epsilon.
    """

    recipe: str | None = None
    batch: int | None = None
    epochs: float | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    warmup: float | None = None
    optimizer: str | None = None
    momentum: float | None = None
    clip_norm: float | None = None
    clipping: str | None = None
    contribution: int | None = None
    augment: str | None = None
    views: int | None = None
    input_noise: float | None = None
    adversarial: str | None = None
    adversarial_norm: str | None = None
    adversarial_size: float | None = None
    adversarial_steps: int | None = None
    ema: float | None = None
    sampler: str | None = None
    cycle: int | None = None
    bands: int | None = None
    model: str | None = None
    init_seed: int | None = None
    device: str | None = None
    precision: str | None = None
    compile: bool | None = None
    keep_keys: bool | None = None
    checkpoint_every: int | None = None
    canaries: int | None = None
    noise_seed: int | None = None

    def given(self) -> dict[str, Any]:
        """Only what the user set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


Options = Annotated[TrainingOptions, Parameter(name="*")]
