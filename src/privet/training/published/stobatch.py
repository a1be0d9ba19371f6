"""DPAL (Phan et al., 2019) and StoBatch (Phan et al., 2020) as published: a claim, not a proof.

| papers             | here                    | meaning                                           |
|--------------------|-------------------------|---------------------------------------------------|
| x in [-1, 1]^d, y  | records                 | scaled to [0, 1], centred by the network          |
| theta1, theta2     | `Noised.first`, the rest | first layer (auto-encoder), classifier           |
| h_pi, W_pi         | `Noised.above`, `last`  | last hidden layer, in [-1, 1]; output weights     |
| chi1, chi2, chi3   | `budgets.Draws`         | Laplace noise, drawn once for the whole run       |
| epsilon_1, 2, gammas | `budgets.Budgets`     | how the total is split                            |
| R-bar, L-bar       | `costs`                 | Taylor polynomials with noise in them             |
| A, mu_t, T_mu      | `crafting`              | attacks; random size; steps                       |
| B_i                | `batches.Dealt`         | fixed disjoint batches of m records               |
| xi, psi            | `settings`              | adversarial weight; divisor of noise at inference |

    draw chi1, chi2, chi3 once; x-bar = x + chi1/m for all records
    for t in 1 .. T:
        A (DPAL; StoBatch with trainers = 0): benign B_t, source B_{t+1}
        B (StoBatch): some of N/(2m) local trainers at random, each with its own (benign, source)
        mu_t ~ U(0, 1]; adversarial examples of the source, by three attacks in equal parts
        theta1 <- theta1 - rho grad R-bar(benign and adversarial)     first layer + 2 chi2/m
        theta2 <- theta2 - rho grad L-bar(benign and adversarial)     label term + chi3/m

In B the gradients of the trainers are averaged; `torchrun` shares trainers and shards of their
batches out (`stobatch_trainer`).

Claim: (epsilon, 0)-differential privacy for one record replaced, whatever T. It does not hold; see
`GAPS`, and `privet audit mechanism stobatch` for counter-examples. What is released has chi1 and
chi2 in it, with which the papers predict. `certification.verified_inference` has their certificate.

Deviations. Both gradients are taken at the same weights. Where the text is silent, the authors'
programs are followed: |theta1| of the first weights, Adam for theta1, weight decay for CIFAR-10,
the middle 28x28 pixels of its images (the programs: a random part of them). Where they differ, the
text is: adversarial examples are made of noised inputs (the programs: of clean ones), inputs are
not cut off at +-10, chi3 is one vector and subtracted (the programs for colour images add its
absolute value), theta1 follows R-bar alone, the first layer is linear and its transpose
reconstructs (the programs rectify and normalise it, and reconstruct by another convolution),
neither it nor the output has a bias. Batches are dealt in a public random order. No augmentation,
dropout, epochs of the auto-encoder alone, pre-trained weights, nor normalisation by the mean and
deviation of the data. Batch normalisation predicts with the statistics of the training records at
the last weights (`statistics`); the programs use the test batch's. In training both attacks and
costs see those of the batch, so that an attack follows at each row the gradient of the losses of
all rows that are attacked together; the programs attack a network with no batch normalisation, nor
any hidden noise, where the rows do not concern each other.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from privet.data.dataset import Dataset
from privet.engine.examples import Examples
from privet.engine.plain import Course
from privet.engine.ranks import Ranks
from privet.models import create
from privet.models.published_noised import Noised
from privet.privacy.precision import find_precision
from privet.privacy.randomness import Randomness
from privet.training import unprotected
from privet.training.dpsgd import require_device
from privet.training.published.batches import Dealt
from privet.training.published.budgets import Budgets, Draws
from privet.training.published.pure_claim import pure_claim, require_single_records
from privet.training.published.stobatch_settings import (
    DpalSettings,
    PublishedSettings,
    StobatchSettings,
)
from privet.training.published.stobatch_trainer import StobatchTrainer
from privet.training.unprotected import Unprotected

GAPS: Final = (
    "the sensitivity of a record is taken to be 1, a ratio; for inputs in [-1, 1]^d it is 2d, so"
    " noise of this scale, even fresh for each record, would have hundreds of times the epsilon",
    "all records get the same draw of noise: the difference of two noised records is that of the"
    " records themselves, so no epsilon is finite",
    "the coefficients of the reconstruction cost change with the weights, so noise on them is no"
    " functional mechanism; its noise vanishes where the mean of a pixel is 1/2",
    "every epoch asks the same batches again under the same draw, and the draw is common to all"
    " batches, so neither composition nor disjointness is accounted for",
    "the noise on the labels has no derivative with respect to the layers below the last one: they"
    " are trained on labels without any noise",
    "adversarial examples are trained on with true labels, which no noise hides: that is no"
    " post-processing",
    "the budget is computed from the norm of the first layer before training, which changes it",
    "the released network contains two of the three draws of noise: whoever has it takes them off",
    "batch normalisation mixes the records of a batch, and the statistics that it predicts with are"
    " released as they are: means and variances of the training records, with no noise but the"
    " draws that all of them share",
)


def build(data: Dataset, settings: PublishedSettings, ranks: Ranks = Ranks()) -> StobatchTrainer:  # noqa: B008 - frozen
    """A trainer for filled settings, with fresh noise."""
    require_single_records(data)
    device = require_device(ranks.device(settings.device))
    assert settings.batch is not None
    assert settings.epsilon2 is not None
    assert settings.model is not None
    model = create(settings.model, data.shape, len(data.classes), init_seed=settings.init_seed)
    assert isinstance(model, Noised)
    budgets = Budgets.of(
        model, epsilon=settings.epsilon, epsilon2=settings.epsilon2, batch=settings.batch
    )
    seed = settings.noise_seed
    secret = Randomness.fresh() if seed is None else Randomness.seeded(seed)
    draws = Draws.drawn(budgets, model, settings.label_noise, secret.noise)
    dealt = Dealt.of(data.nominal_size, settings.batch)
    pairing = settings.pairing(dealt.groups)
    public = Randomness.seeded(settings.init_seed).sampling
    model.to(device)
    return StobatchTrainer(
        model=model,
        optimizers=_optimizers(model, settings),
        examples=Examples.of(data.train, data.bounds, device),
        batches=dealt.batches(len(data.train), public),
        pairing=pairing,
        draws=draws,
        budgets=budgets,
        plan=Course(steps=max(1, round(settings.epochs * pairing.each_epoch)), sampler=dealt),
        settings=settings,
        stream=public,
        precision=find_precision(settings.precision, device),
        ranks=ranks,
    )


def _optimizers(
    model: Noised, settings: PublishedSettings
) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """Adam for theta1; for theta2 what was chosen, with decay on fully connected layers."""
    rate, decay = settings.learning_rate, settings.weight_decay or 0.0
    dense = [m for m in (*model.hidden.modules(), model.last) if isinstance(m, nn.Linear)]
    decayed = [m.weight for m in dense]
    chosen = {id(weight) for weight in decayed}
    upper = [*model.hidden.parameters(), model.last.weight]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in upper if id(p) not in chosen]},
        {"params": decayed, "weight_decay": decay},
    ]
    encoder = torch.optim.Adam([model.first.weight], lr=rate)
    if settings.optimizer == "adam":
        return encoder, torch.optim.Adam(groups, lr=rate)
    return encoder, torch.optim.SGD(groups, lr=rate, momentum=settings.momentum)


def mechanism(trainer: StobatchTrainer, settings: PublishedSettings) -> Mapping[str, Any]:
    """What the card says about the steps."""
    return {
        "contribution": trainer.contribution,
        "noise": "Laplace, drawn once",
        "sampler": trainer.plan.sampler.name,
        "psi": settings.psi,
        **trainer.budgets.figures(),
    }


claims = partial(
    pure_claim,
    accountant="as published: epsilon1 (1 + 1/gamma_x + 1/gamma) + epsilon2, for any steps",
    subject="stobatch",
    gaps=GAPS,
)

DPAL: Final = Unprotected(
    method="dpal", settings=DpalSettings, build=build, mechanism=mechanism, claims=claims
)
STOBATCH: Final = Unprotected(
    method="stobatch",
    settings=StobatchSettings,
    build=build,
    mechanism=mechanism,
    claims=claims,
    shared=True,
)

run_dpal = partial(unprotected.run, DPAL)
resume_dpal = partial(unprotected.resume, DPAL)
run_stobatch = partial(unprotected.run, STOBATCH)
resume_stobatch = partial(unprotected.resume, STOBATCH)
