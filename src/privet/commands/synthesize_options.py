"""The settings of generators on the command line; what is left out keeps the method's default."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter


@dataclass(frozen=True, kw_only=True)
class GeneratingOptions:
    """Settings of the method; numbers are those of autoregressive, then of igamt and its baselines.

    Attributes
    ----------
    holdout
        Share of the patients set aside, by a hash of their ids; evaluate compares with them.
        Default 0: none, and figures of fidelity then have no fair yardstick.
    epochs
        Expected passes over the patients; default 20; without privacy 30.
    batch
        Expected patients in a step; default: a fifth of the declared size, at most 1024; without
        privacy 200; igamt as published 32.
    learning_rate
        Highest learning rate; default 0.2; without privacy 0.005; igamt and its baselines 0.005,
        as published 0.0005.
    schedule
        How it goes on: linear (default) or cosine to zero, or constant.
    warmup
        Share of the steps in which it rises from zero; default 0.
    optimizer
        sgd (default) or adam; without privacy, and for igamt and its baselines, adam.
    momentum
        Of SGD; default 0.9.
    clip_norm
        Bound on one patient's gradient; default 1.
    clipping
        In which norm: per-layer (default), flat, weighted (by the sizes of the layers); igamt
        and its baselines: by-part (coders, each critic, ... by themselves, within one ball).
    contribution
        Most stays of one patient in a step; their mean is clipped as one; default 1.
    static_weight
        What static columns count in the objective; default 0.005; without privacy 1.
    habit_weight
        What it counts how often columns are measured; default 0.002; without privacy 0.1.
    row_weight
        What the rows of a stay count; default 0.02.
    outcome_weight
        What its outcomes count; default 0.027; without privacy 3.
    ema
        Decay of the moving average of weights that is released; default 0.95; 0: the last weights;
        without privacy 0.
    model
        rows-WIDTH-LAYERS: width of the transformer, in multiples of 16, and its layers; default
        rows-64-1; rows-16-0 has no attention and is the quickest. For igamt
        CODER-WIDTH-LAYERS-LATENT: transformer-64-1-8, as published transformer-128-2-128; for its
        baselines gru-64-1-16, as published gru-128-1-128.
    sampler
        poisson (default), cyclic-poisson, fixed-batches, shuffled.
    cycle
        Steps in which a patient has one turn, for the samplers with turns.
    bands
        Of correlated noise, with cyclic-poisson or fixed-batches; default 1: independent noise.
    init_seed
        Seed of the first weights; public; default 0.
    device
        cpu (default), cuda, ...
    precision
        Of gradients: float32 (default), tf32 (CUDA only) or bf16.
    compile
        Compile the network first: slow to start, faster steps.
    keep_keys
        Keep the secret keys until the run ends (default), to repeat lost steps exactly after a
        crash; without them lost steps are charged again.
    checkpoint_every
        Steps between checkpoints; default: every 20 seconds.
    canaries
        Made-up patients with gradients of their own by which the run is audited: a lower bound of
        epsilon in internal/audit.json. 5000 say something; costs no epsilon; default 0: none.
    noise_seed
        For tests only: known noise, so the release gets no epsilon.
    """

    holdout: float | None = None
    epochs: float | None = None
    batch: int | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    warmup: float | None = None
    optimizer: str | None = None
    momentum: float | None = None
    clip_norm: float | None = None
    clipping: str | None = None
    contribution: int | None = None
    static_weight: float | None = None
    habit_weight: float | None = None
    row_weight: float | None = None
    outcome_weight: float | None = None
    ema: float | None = None
    model: str | None = None
    sampler: str | None = None
    cycle: int | None = None
    bands: int | None = None
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
        return given_of(self)


@dataclass(frozen=True, kw_only=True)
class FamilyOptions:
    """Settings of igamt and its baselines under the sound analysis.

    Attributes
    ----------
    coder_share
        Share of the steps in which encoder and decoder learn; then the critics do; default 0.6.
    recon_weight
        What reconstructions count in the objective; default 0.01.
    value_weight
        What values count in them, beside masks; default 10.
    kl_weight
        What it counts that latents are near the standard normal law; default 1 for igamt, vae,
        vaegan; else 0, and latents are no law.
    start_weight
        What static columns and outcomes count; default 0.007.
    spread_weight
        What the deviations of values around what is said of them count; default 0.008.
    critic_weight
        What critics' terms count; default 0.15.
    free_steps
        Steps of generator and imitator after each private step of the critics: they cost time,
        no privacy; default 4.
    free_batch
        Stays that are made for one; default 128.
    free_rate
        Their highest learning rate, which falls as the other does; default 0.001.
    judged_weight
        What critics count in them; default 1.
    imitation_weight
        What it counts that the imitator stays near the decoder; default 1.
    anchor_weight
        What private means of values and masks count; default 5 for igamt; else 0: none are learned.
    settling
        Stays that are made to find the cut points of bins by private histograms; default 4096 for
        igamt; else 0: none are learned.
    """

    coder_share: float | None = None
    recon_weight: float | None = None
    value_weight: float | None = None
    kl_weight: float | None = None
    start_weight: float | None = None
    spread_weight: float | None = None
    critic_weight: float | None = None
    free_steps: int | None = None
    free_batch: int | None = None
    free_rate: float | None = None
    judged_weight: float | None = None
    imitation_weight: float | None = None
    anchor_weight: float | None = None
    settling: int | None = None

    def given(self) -> dict[str, Any]:
        """Only what the user set."""
        return given_of(self)


def given_of(options: Any) -> dict[str, Any]:
    """Only what the user set."""
    return {name: value for name, value in asdict(options).items() if value is not None}


Generating = Annotated[GeneratingOptions, Parameter(name="*")]
Family = Annotated[FamilyOptions, Parameter(name="*")]
