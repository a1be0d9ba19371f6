"""SecureSGD as published (Phan et al., IJCAI 2019): DP-SGD whose noise layer looked at the records.

The symbols are those of `training/securesgd.py`, which has the sound form and its proof; the loop
is `securesgd_trainer.py`.

    W warm-up steps of DP-SGD, without noise in the network                 uncharged
    r_i <- |mean over `RECORDS` records of the sign of d loss / d h_i|      uncharged
    back to the first weights; then T steps, records sampled at rate q:
        h_i   = first(x_i) + deviations(r) * z_i
        g_i   = gradient of CE(rest(h_i), y_i), shortened to C
        theta <- optimiser(theta, (sum of g_i + N(0, sigma^2 C^2)) / B)
        first <- first / max(1, bound of its norm)

The claim: (epsilon, delta)-DP of the T steps by the moments accountant; sigma is the least that it
allows. The gaps:

- r is computed from raw records, and the noise of every later step has its shape: no noise hides
  r, and nothing is charged for it. Whoever knows the shape of the noise, as anyone must who wants
  to predict with it, knows r, a mean that one record moves by 2/n.
- The W steps that lead to r are not charged. (They have the noise of the others: they could be.)

No gaps are: clipping, which is of each record, and the lots, which are Poisson samples, as the text
says and the accountant assumes. The public program has neither, and draws the noise of the layer
once for all steps; `privet audit mechanism securesgd` refutes what it claims.

Deviations: batch normalisation leaves no gradient of one record, so the network is `published-gn`.
The warm-up is counted in epochs; the program's 4,000 steps of 125 records are 9. Sigma follows from
the epochs, where the program stops once a sigma of 4 has spent the budget. C is 1 and no longer a
thousandth, the clip norm of the program's means. The accountant has 256 moments, not 32: below
epsilon = 0.36 it could claim nothing otherwise. The first map is kept within norm 1, and a share of
the noise is not redistributed, as there.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

from scipy.optimize import brentq

from privet.data.dataset import Dataset
from privet.engine.arguments import require_fitting
from privet.engine.examples import Examples, made_up_batch
from privet.engine.handover import KNOWN_NOISE
from privet.engine.plain import Course
from privet.engine.prepare import left_for_training
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis, Privacy, check_target
from privet.privacy import moments
from privet.privacy.clipping import cross_entropy, make_clipper
from privet.privacy.noise import GaussianNoise
from privet.privacy.separation import require_separate_examples
from privet.training import unprotected
from privet.training.dpsgd import fresh_randomness, model_and_optimizer, require_device
from privet.training.noise_layer import noise_facts
from privet.training.ordinary import OrdinarySettings
from privet.training.published.securesgd_trainer import SecureTrainer
from privet.training.securesgd import CALIBRATIONS, SecureSGDNoise, deviations
from privet.training.unprotected import Unprotected

MOMENTS: Final = 256
GAPS: Final = (
    "the shape of the hidden noise is computed from the records, without noise and uncharged",
    "the warm-up steps before it are not charged",
)
UNKNOWN: Final = {"augment": "none", "input_noise": 0.0, "adversarial": "none", "ema": 0.0,
                  "precision": "float32"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PublishedSecureSGD(SecureSGDNoise):
    """What a user may choose; the defaults are the public program's, where it has any.

    Attributes:
        epsilon: claimed, add/remove neighbours.
        delta: of the claim.
        batch: expected records in a step; 125, or the nominal size where that is smaller.
        clip_norm: C.
        warmup_epochs: W, in passes over the data.
        noise_seed: for tests: known noise.
    """

    epsilon: float
    delta: float = 1e-5
    learning_rate: float = 0.1
    schedule: str = "constant"
    momentum: float = 0.0
    clip_norm: float = 1.0
    warmup_epochs: float = 9.0
    noise_seed: int | None = None

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **OrdinarySettings._choices,
        "calibration": CALIBRATIONS,
    }
    _positive: ClassVar[tuple[str, ...]] = (
        *OrdinarySettings._positive,
        "clip_norm",
        "warmup_epochs",
    )
    _shares: ClassVar[tuple[str, ...]] = (*OrdinarySettings._shares, "hidden_share")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_target(self.epsilon, self.delta)

    def _check_together(self) -> None:
        super()._check_together()
        for name, unset in UNKNOWN.items():
            if getattr(self, name) != unset:
                raise InputError(
                    "SecureSGD as published does not know this",
                    got=f"{name} {getattr(self, name)}",
                    fix="leave it out, or --analysis sound",
                )

    def _batch_for(self, nominal_size: int) -> int:
        return min(125, nominal_size)

    def course_for(self, data: Dataset, epochs: float) -> Course:
        """So many passes of Poisson samples, of filled settings."""
        assert self.batch is not None
        sampler, steps = Turns(
            sampler="poisson", batch=self.batch, nominal_size=data.nominal_size, epochs=epochs
        ).resolved()
        return Course(steps=steps, sampler=sampler)


@lru_cache
def least_multiplier(epsilon: float, delta: float, *, rate: float, steps: int) -> float:
    """The least sigma for which the moments accountant says at most epsilon; rounded up."""

    def excess(log_multiplier: float) -> float:
        says = moments.epsilon(
            noise_multiplier=math.exp(log_multiplier),
            rate=rate,
            steps=steps,
            delta=delta,
            moments=MOMENTS,
        )
        return says - epsilon

    low, high = math.log(0.05), math.log(1e6)
    if not excess(high) < 0 < excess(low):
        raise InputError(
            "a claim that the moments accountant cannot make",
            got=f"epsilon={epsilon:g}, delta={delta:g}, {steps} steps at rate {rate:g}",
            fix="a larger --epsilon, or --analysis sound",
        )
    return math.exp(float(brentq(excess, low, high, xtol=1e-9))) * (1.0 + 1e-8)


def _trainer(data: Dataset, settings: PublishedSecureSGD) -> SecureTrainer:
    device = require_device(settings.device)
    model, optimizer = model_and_optimizer(data, settings, device)
    probe = made_up_batch(data, device)
    require_fitting(model, cross_entropy, data, probe)
    require_separate_examples(model, probe[0])
    charged = settings.course_for(data, settings.epochs)
    warmup = settings.course_for(data, settings.warmup_epochs).steps
    multiplier = least_multiplier(
        left_for_training(settings.epsilon, data),
        settings.delta,
        rate=charged.sampler.rate,
        steps=charged.steps,
    )
    assert settings.batch is not None
    return SecureTrainer(
        model,
        optimizer,
        Examples.of(data.train, data.bounds, device, contribution=settings.contribution),
        make_clipper(model, cross_entropy, settings.clip_norm, probe=probe),
        plan=Course(steps=warmup + charged.steps, sampler=charged.sampler),
        warmup=warmup,
        batch=settings.batch,
        noise=GaussianNoise(multiplier=multiplier, sensitivity=settings.clip_norm),
        spread=partial(deviations, settings.noise_scale, share=settings.hidden_share),
        randomness=fresh_randomness(settings),
    )


def _mechanism(trainer: SecureTrainer, settings: PublishedSecureSGD) -> Mapping[str, Any]:
    return {
        "contribution": trainer.contribution,
        **noise_facts(settings),
        "hidden_most": float(trainer.layer.scale.max()),
        "sampler": trainer.plan.sampler.name,
        "sampling_rate": trainer.plan.sampler.rate,
        "uncharged_steps": trainer.warmup,
        "noise_multiplier": trainer.noise.multiplier,
        "clip_norm": settings.clip_norm,
    }


def _claims(
    data: Dataset, settings: PublishedSecureSGD, trainer: SecureTrainer
) -> tuple[Privacy, ...]:
    seeded = settings.noise_seed is not None
    return (
        Privacy(
            epsilon=settings.epsilon,
            delta=settings.delta,
            unit=data.unit,
            adjacency=Adjacency.ADD_REMOVE,
            basis=Basis.CLAIMED,
            accountant="moments",
            sampler=trainer.plan.sampler.name,
            gaps=(*GAPS, *((KNOWN_NOISE,) if seeded else ())),
        ),
    )


PUBLISHED: Final = Unprotected(
    method="securesgd",
    settings=PublishedSecureSGD,
    build=_trainer,
    mechanism=_mechanism,
    claims=_claims,
)

run = partial(unprotected.run, PUBLISHED)
resume = partial(unprotected.resume, PUBLISHED)
