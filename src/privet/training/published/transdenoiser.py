"""TransDenoiser as published: a denoiser whose noise on images is counted as noise on gradients.

| paper              | here                     | meaning                                       |
|--------------------|--------------------------|-----------------------------------------------|
| h, g               | `classifier`, `denoiser` | fixed, and trained in front of it             |
| sigma              | `sigma`                  | deviation of the noise b on an image          |
| B, q = B/N         | `batch`                  | expected images of a Poisson sample; its rate |
| C                  | `clip_norm`              | bound on the gradient of one image            |
| xi_up              | `xi_up`                  | full noise, in units of C                     |
| xi_low             | `xi_low`                 | credit below it does not count                |
| T of T S_min       | `credited_steps`         | what the credit is multiplied with            |
| o, A, M, S_min     | `transformation`         | see there; sigma-bar, too                     |
| theta_1 .. theta_3 | `slices`                 | first layer, all between, last layer          |

The loop (Algorithm 3, with mini-batches, clipping and slices) is `transdenoiser_trainer.py`:

    in each step, for a Poisson sample of rate q:
        z_i = x_i + b_i,   b_i ~ N(0, sigma^2 I), fresh
        non, neg <- images by the sign of o_i = l(z_i) - l(x_i) - b_i' grad_x l(x_i)
        g_i = grad_theta |g(z_i) - x_i|^2, shortened to C by a_i
        theta_1 and theta_3, each by itself:
            sigma-bar <- the rule, of S_min(1/B^2 sum over non of a_i^2 A_i A_i')
            G = (sum over non of g_i + sigma-bar C n) + (sum over neg of g_i + xi_up C n')
        theta_2:  G = sum of all g_i + xi_up C n''
        theta <- optimiser(theta, G / B)

The claim: (epsilon, delta)-DP of g, by the moments accountant with noise xi_up in every step; xi_up
is the least that it allows, unless it is given. `GAPS` says what is missing. What is left without
the transformation, the ablation 'sepdp', is DP-SGD: `--analysis sound` proves it, and more.

The rule on real denoisers. Their first layer is followed by a normalisation, which does not see the
length of its weights: S_min of the first slice is zero but for the small constant in the divisor.
With clip factors, as Lemma 5 has it, little is credited to the last one; without, as the public
program has it (`credit` 'unclipped'), as much as T allows.

Ablations: 'sepdp' (xi_up everywhere, nothing is transformed), 'nodp' (no noise on gradients: no
claim), 'inp_0.1' (sigma is 0.1).

Deviations from the text. Where no image is negative there is no G_neg, and no noise for it. xi_low
has no number there; here it is a twentieth of xi_up, a credit that would save 0.13 % of the noise.
M is of the first images of a batch, a 32nd of it by default: fewer terms make S_min smaller, so
less is credited, at a cost of a few plain steps (1.8 to 4.6 on one CPU thread, 13 on an H200)
instead of hundreds (`credited_examples`). Noise is in units of C, and all parameters of an image
are clipped as one. A and o are computed without dropout. The accountant has 256 moments, not 32.
Slices share one optimiser, which treats each parameter by itself.

Deviations from the public program, which differs from the text as well: it adds xi_up -
sigma sqrt(T S_min) / C, accounts the larger of that credit and xi_up, leaves negative images out
of M alone, clips means of eight images tensor by tensor, differentiates the target, cuts z off at
[0, 1], lets sigma grow during training, and adds penalties on the weights. From it are batch, rate
and Adam; `--optimizer sgd` is the update of the text.
"""

from functools import partial
from typing import Any, Final

from privet.data.dataset import Dataset
from privet.engine.examples import Examples, made_up_batch
from privet.engine.handover import KNOWN_NOISE
from privet.guarantee import REFUTED, Adjacency, Basis, Privacy
from privet.models.denoisers import Denoiser
from privet.privacy.clipping import make_clipper
from privet.privacy.separation import require_separate_examples
from privet.training import unprotected
from privet.training.dpsgd import fresh_randomness, model_and_optimizer, require_device
from privet.training.published.transdenoiser_settings import PublishedTransDenoiser
from privet.training.published.transdenoiser_trainer import TransDenoiserTrainer
from privet.training.published.transformation import squared_errors
from privet.training.unprotected import Unprotected

GAPS: Final = (
    f"{REFUTED}`privet audit mechanism transdenoiser` tells neighbours apart in every run",
    "a loss above its tangent says nothing about the distribution of its gradient, which the noise"
    " on images does not make Gaussian; choosing images by the remainder conditions their noise",
    "the clean image is the target of the loss: however large the noise on the input, the gradient"
    " shows it",
    "the factor T multiplies the noise of one step by the number of steps, which the accountant"
    " composes all the same",
    "the covariance of the credited noise is computed from the records: a record that is taken away"
    " takes its noise with it",
    "first and last slice are credited with one and the same draw of noise, as if they were"
    " independent",
    "the explicit noise is computed from the records, shows in every update, and may be zero",
    "the clip factors are taken for constants; they depend on the noise, and a clipped gradient is"
    " not Gaussian",
)
GAPS_WITHOUT: Final = (
    "no gap is known: without the transformation this is DP-SGD. But this loop is not the engine's,"
    " which accounts every step: `--analysis sound` proves it",
)
SEEN: Final = (
    "the classifier may have seen the records, and is released as it is: the claim is of the"
    " denoiser alone"
)


def _trainer(data: Dataset, settings: PublishedTransDenoiser) -> TransDenoiserTrainer:
    device = require_device(settings.device)
    denoiser, optimizer = model_and_optimizer(data, settings, device)
    assert isinstance(denoiser, Denoiser)
    probe, _ = made_up_batch(data, device)
    require_separate_examples(denoiser, probe)
    course = settings.course_for(data)
    assert settings.batch is not None
    return TransDenoiserTrainer(
        denoiser,
        optimizer,
        Examples.of(data.train, data.bounds, device),
        make_clipper(denoiser, squared_errors, settings.clip_norm, probe=(probe, probe.flip(0))),
        released=settings.whole(denoiser, data).to(device),
        plan=course,
        batch=settings.batch,
        sigma=settings.sigma,
        noise=settings.noise_for(data, course),
        randomness=fresh_randomness(settings),
    )


def _mechanism(trainer: TransDenoiserTrainer, settings: PublishedTransDenoiser) -> dict[str, Any]:
    noise = trainer.noise
    facts: dict[str, Any] = {
        "contribution": 1,
        "sampler": trainer.plan.sampler.name,
        "sampling_rate": trainer.plan.sampler.rate,
        "clip_norm": settings.clip_norm,
        "input_scale": settings.sigma,
        "noise": "Gaussian, in full" if noise.xi_up else "none on gradients",
    }
    if noise.xi_up:
        facts["noise_multiplier"] = noise.xi_up
    if noise.rule is not None:
        facts |= {
            "noise": "Gaussian; on first and last layer less, by what noise on images is"
            " credited with",
            "xi_low": noise.rule.xi_low,
            "credited_steps": noise.rule.steps,
            "credited_examples": noise.images,
            "credit": settings.credit,
        }
    return facts


def _claims(
    data: Dataset, settings: PublishedTransDenoiser, trainer: TransDenoiserTrainer
) -> tuple[Privacy, ...]:
    if settings.epsilon is None:
        return ()
    seen = (SEEN,) if settings.private_classifier else ()
    known = () if settings.noise_seed is None else (KNOWN_NOISE,)
    return (
        Privacy(
            epsilon=settings.epsilon,
            delta=settings.delta,
            unit=data.unit,
            adjacency=Adjacency.ADD_REMOVE,
            basis=Basis.CLAIMED,
            accountant="moments",
            sampler=trainer.plan.sampler.name,
            assumptions=tuple(p.assumption for p in settings.fixed_parts(data) if p.public),
            gaps=(*(GAPS if settings.transforms else GAPS_WITHOUT), *seen, *known),
        ),
    )


PUBLISHED: Final = Unprotected(
    method="transdenoiser",
    settings=PublishedTransDenoiser,
    build=_trainer,
    mechanism=_mechanism,
    claims=_claims,
)


run = partial(unprotected.run, PUBLISHED)
resume = partial(unprotected.resume, PUBLISHED)
