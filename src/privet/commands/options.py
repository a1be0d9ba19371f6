"""The settings of training on the command line; what is left out keeps the method's default."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
        How many views; default 1; transdenoiser: 4, each with noise of its own.
    input_noise
        Standard deviation of Gaussian noise on every view, inputs in [0, 1], not cut off: for
        certificates by smoothing; 0 (default): none.
    adversarial
        Train on adversarial examples: kurakin (clean and one-step ones side by side), madry
        (projected ascent from a random start, no clean ones), none (default); of stobatch also
        ensemble (several attacks, beside the clean ones; its default); ain (by a network that was
        trained to attack, beside the clean ones), ain-madry (by both). Costs no epsilon, but for a
        private attacker's.
    adversarial_norm
        Of their perturbations: linf (default), l2, l1.
    adversarial_size
        Largest norm of a perturbation, inputs in [0, 1]; 0.1 if you do not say.
    adversarial_steps
        Gradients to find one; 1 for kurakin, 7 otherwise, if you do not say.
    attacker
        For ain and ain-madry: folder of a release of `privet train ain`.
    public_attacker
        Your statement, in words, that the private records had no part in the attacker, nor in the
        classifier that it was trained against. Private methods need it, or --private-attacker; it
        is recorded.
    private_attacker
        Say so if the attacker was trained on these very records with a proof (privet train ain
        --analysis sound). Its cost is then composed with the run's: --epsilon is the target of
        both together. The ledger is charged for the run; for the attacker it was already.
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
    attacker: str | None = None
    public_attacker: str | None = None
    private_attacker: bool | None = None
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


@dataclass(frozen=True, kw_only=True)
class OwnOptions:
    """Settings that one method or a few have, and no other.

    Attributes
    ----------
    xi
        stobatch, dpal: what an adversarial example counts beside a clean one; default 1, and
        as in the papers under their analysis.
    hidden_noise
        stobatch, dpal: deviation of Gaussian noise behind the first linear map, whose norm is then
        kept within 1; certify with --noise own; default 0.
    epsilon2
        stobatch, dpal: under the paper analysis, the part of epsilon for the labels.
    psi
        stobatch, dpal: under the paper analysis, noise is so many times smaller at prediction.
    label_noise
        stobatch, dpal: under the paper analysis, vector (the text, default) or matrix (the
        authors' program).
    reconstruction
        stobatch, dpal: under the paper analysis, bounded (the program, default) or linear (the
        text, which has no minimum).
    weight_decay
        stobatch, dpal: under the paper analysis, of fully connected layers.
    trainers
        stobatch: under the paper analysis, local trainers in a step; 0: batch by batch.
    shards
        stobatch: under the paper analysis, parts of a trainer's batches.
    relevance_share
        adlm: share of epsilon for the relevance of inputs; default 0.1; as published 0.25 (colour
        images 0.1).
    relevance_power
        adlm: how much noise follows relevance, from 0 (not at all) to below 1; default 0.25.
    adaptive
        adlm: under the paper analysis, less noise on relevant inputs (default), or on all alike.
    noise_sharing
        adlm: under the paper analysis, shared_per_step (default),
        shared_fixed (default for colour images), per_example.
    affine_share
        adlm: under the paper analysis, share of epsilon for the affine layer; default 0.25
        (colour images 0.6).
    pretraining_epochs
        adlm: under the paper analysis, of the network for relevance; default 12 (colour images
        50).
    features
        stobatch-fm: how many fixed features are kept, by a public projection; default 256.
    ridge
        stobatch-fm: what holds the weights back, in units of the size of the noise; default 1.
    pool
        stobatch-ldp: cells a side that images are averaged to; 0: as they are; default: at most 8.
    record_norm
        stobatch-ldp: L1 norm to which a record is shortened; default: an eighth of its numbers.
    label_share
        stobatch-ldp: share of epsilon for the labels; default 0.25.
    attack_bound
        pixeldp, securesgd: attack that the hidden noise is made for, inputs in [0, 1]; default 0.1
        and 0.2.
    robust_epsilon
        pixeldp, securesgd: closeness of the noisy layer under it; less is more noise; default 1
        and 4.
    robust_delta
        pixeldp, securesgd: delta of the same; default 0.05 and 1e-5.
    noise_norm
        pixeldp: l2 (Gaussian noise, default) or l1 (Laplace).
    noise_layer
        pixeldp: hidden (behind the first linear map, default) or input.
    calibration
        securesgd: of the hidden noise: hgm (the paper's formula, default) or analytic.
    redistribution
        securesgd: of the hidden noise: uniform (default), or made-up: by the vulnerability of the
        first weights to made-up inputs.
    hidden_share
        securesgd: share of the variance that is redistributed; default 0.5.
    warmup_epochs
        securesgd: under the paper analysis, passes before the redistribution; default 9.
    classifier
        transdenoiser, ain, atn, advgan: the fixed classifier: a release's folder, an .onnx file,
        or a network of `privet models`, torchvision:NAME or timm:NAME, with its weights.
    classifier_weights
        transdenoiser, ain, atn, advgan: of a network: .safetensors, .npz, .pt or .pth.
    classifier_low
        transdenoiser, ain, atn, advgan: what an input of 0 means to the classifier; default 0.
    classifier_high
        transdenoiser, ain, atn, advgan: what an input of 1 means to it; default 1.
    classifier_mean
        transdenoiser, ain, atn, advgan: of its normalisation, a number a channel, separated by
        commas.
    classifier_std
        transdenoiser, ain, atn, advgan: the same for the deviation.
    public_classifier
        transdenoiser, ain, atn, advgan: your statement, in words, that the private records had no
        part in the classifier: where it is from. Recorded; the guarantee rests on it.
    private_classifier
        transdenoiser, ain, atn, advgan: say instead that they may have had one: then the guarantee
        covers the denoiser only, and the whole has no epsilon.
    denoiser
        transdenoiser: unet-W (a small U-Net of width W; default unet-16) or conv (the paper's, for
        28x28 and 32x32).
    sigma
        transdenoiser: deviation of the noise that the denoiser takes away and that certify adds,
        inputs in [0, 1]; default 0.25.
    start
        transdenoiser: a release of this method on public records whose denoiser is the first one.
    public_start
        transdenoiser: your statement, in words, that the private records had no part in the start.
    mse_weight
        transdenoiser: of the reconstruction; default 1.
    stability
        transdenoiser: weight of the classifier's loss on denoised images; default 0.
    stability_target
        transdenoiser: classifier (its answer to the clean image, default) or labels.
    slices
        transdenoiser: which parts of the denoiser are trained: all (default), or some of
        first,middle,last.
    noise_at
        transdenoiser: where training draws its noise: image (default), or layer, behind the first
        convolution, whose norm is kept at one, as SecureSGD has it.
    ablation
        transdenoiser: under the paper analysis, none (default), nodp (no noise on gradients, no
        claim, no --epsilon), sepdp (full noise, nothing credited), inp_0.1 (sigma 0.1).
    xi_up
        transdenoiser: under the paper analysis, full noise in units of the clip norm; default: the
        least for which its accountant makes the claim.
    xi_low
        transdenoiser: under the paper analysis, what is credited below it does not count.
    credited_steps
        transdenoiser: under the paper analysis, what credit is multiplied with; default: the steps.
    credited_examples
        transdenoiser: under the paper analysis, images of a batch that credit is computed from;
        default: one in 32.
    credit
        transdenoiser: under the paper analysis, clipped (the text, default) or unclipped (the
        authors' program).
    perturber
        ain, atn, advgan: the network that attacks: ain-W (default ain-12), ain-published, atn-W,
        advgan; ain-W-without-attention (-residual, -label, -noise) for ablations.
    bounds
        ain, atn, advgan: largest changes of a pixel, inputs in [0, 1], separated by commas; default
        0.2 (advgan: 0.3; atn has none).
    target
        ain, atn, advgan: the class to reach; default: any wrong one.
    first_bound
        ain: the bound that training begins with, at least the largest of --bounds; default 0.8.
    decay
        ain: how it tightens: adaptive (default), exponential, step, time, none.
    distance
        ain, atn: weight of the length of perturbations; default 0.01 and 0.1.
    pixels
        ain: weight of the imitation of images; default 0.1.
    logits
        ain: weight of the imitation of scores; default 0.1.
    margin
        ain, advgan: weight of the classifier's margin; default 1 and 10.
    fooling
        ain: what fooling is measured by: margin (of scores, default) or entropy (cross entropy).
    confidence
        ain: lead of scores beyond which a margin wins nothing more; default 2.
    imitation_steps
        ain: of the i-FGSM that is imitated; default 50.
    boost
        atn: how much likelier than the likeliest class the target is to be; default 1.5.
    realism
        advgan: weight of what the discriminator says; default 1.
    hinge
        advgan: weight of lengths beyond free_length; default 1.
    free_length
        advgan: l2 norm of a perturbation that costs nothing; default 3.
    """

    xi: float | None = None
    hidden_noise: float | None = None
    epsilon2: float | None = None
    psi: float | None = None
    label_noise: str | None = None
    reconstruction: str | None = None
    weight_decay: float | None = None
    trainers: int | None = None
    shards: int | None = None
    attack_bound: float | None = None
    robust_epsilon: float | None = None
    robust_delta: float | None = None
    noise_norm: str | None = None
    noise_layer: str | None = None
    calibration: str | None = None
    redistribution: str | None = None
    hidden_share: float | None = None
    warmup_epochs: float | None = None
    features: int | None = None
    ridge: float | None = None
    pool: int | None = None
    record_norm: float | None = None
    label_share: float | None = None
    relevance_share: float | None = None
    relevance_power: float | None = None
    adaptive: bool | None = None
    noise_sharing: str | None = None
    affine_share: float | None = None
    pretraining_epochs: float | None = None
    classifier: str | None = None
    classifier_weights: str | None = None
    classifier_low: float | None = None
    classifier_high: float | None = None
    classifier_mean: str | None = None
    classifier_std: str | None = None
    public_classifier: str | None = None
    private_classifier: bool | None = None
    denoiser: str | None = None
    sigma: float | None = None
    start: str | None = None
    public_start: str | None = None
    mse_weight: float | None = None
    stability: float | None = None
    stability_target: str | None = None
    slices: str | None = None
    noise_at: str | None = None
    ablation: str | None = None
    xi_up: float | None = None
    xi_low: float | None = None
    credited_steps: int | None = None
    credited_examples: int | None = None
    credit: str | None = None
    perturber: str | None = None
    bounds: str | None = None
    target: str | None = None
    first_bound: float | None = None
    decay: str | None = None
    distance: float | None = None
    pixels: float | None = None
    logits: float | None = None
    margin: float | None = None
    fooling: str | None = None
    confidence: float | None = None
    imitation_steps: int | None = None
    boost: float | None = None
    realism: float | None = None
    hinge: float | None = None
    free_length: float | None = None


def given(*options: "DataclassInstance") -> dict[str, Any]:
    """Only what the user set."""
    return {
        name: value for part in options for name, value in asdict(part).items() if value is not None
    }


Options = Annotated[TrainingOptions, Parameter(name="*")]
Own = Annotated[OwnOptions, Parameter(name="*", group="Settings of single methods")]
