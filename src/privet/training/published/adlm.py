"""AdLM (Phan, Wu, Hu and Dou, ICDM 2017) as published: a claim, not a proof.

| paper             | here                     | meaning                                        |
|-------------------|--------------------------|------------------------------------------------|
| x in [0, 1]^d, y  | records                  | scaled by declared bounds; one of M classes    |
| h_0, h_(k), W_(k) | `models.adlm_net`        | first affine layer; last hidden layer; output  |
| R_j, R~_j         | `AdlmTrainer.relevance`  | mean relevance of input j; with noise          |
| beta_j            | `AdlmTrainer.beta`       | d |R~_j| / sum |R~|, floored; they add up to d |
| |L|, n            | `batch`, `nominal_size`  | records of a step; of the data                 |
| epsilon_1, 2, 3   | `adlm_budgets.Budgets`   | for relevance, affine layer, loss              |
| Delta_R, _h0, _F  | `adlm_budgets.Budgets`   | claimed sensitivities                          |
| N3                | `AdlmTrainer.loss_noise` | Lap(Delta_F / epsilon_3) / |L|, |h| x M        |

    1  train a network on D without noise; R(x_i) by layer-wise relevance propagation, brought to
       [0, 1] record by record; R~ = mean of R(x_i) + Lap(2d / (n epsilon_1))
    2  b_j = Delta_h0 / (|L| beta_j epsilon_2); identical noise (ILM, `adaptive` off): beta_j = 1
    3  layers on top of the affine one
    4  N3 once
    5  for t in 1 .. T, L the next batch of a shuffled epoch:
           nu ~ Lap(b): one draw for all of L, one for the whole run, or one for each record
           z = net(clip(x_i + nu, -10, 10))
           theta <- optimiser, mean over L of sum_l [log 2 + (1/2 - y_l) z_l + z_l^2 / 8] - <N3, W>
    6  statistics of batch normalisation anew, of records without noise
    predict: argmax z(x), without noise

Claim: (epsilon_1 + epsilon_2 + epsilon_3, 0)-differential privacy for one record replaced, whatever
T. It does not hold; see `GAPS`, and `privet audit mechanism adlm`.

Where text and program differ. Inputs are in [0, 1], as in the text. The noise of a step is shared
by its records, as the text's proof needs and the program has it; the text's loop draws it for each
record (`noise_sharing`). All records are averaged for relevance, and noise for n is added, as in
the text; the program averages 2,000. Only the label term of the loss is noised, by one matrix, as
in the program: the text noises each coefficient and lets the noise vanish in a mean. Delta_h0
counts one feature map, behind its pooling, as the program does. The split of epsilon is the
program's.

Deviations: the network that gives the relevance has the structure of the trained one, as the text
says; it is pre-trained by Adam at 1e-3 in batches of 128 (the program for CIFAR-10: another one, at
1e-4 in batches of 50). Inputs of all channels have relevances and noise of their own; no image is
augmented. No noise on the bias, which hides nothing. Line 6 (`statistics`) is ours: the programs
normalise by the test batch, and the running statistics of noised batches would leave nothing of
records without noise. Of the programs, not taken over: their first
weights (truncated normal 0.1 with biases of 0.1), weight decay 0.004 and the growing batches and
rates of CIFAR-10.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from privet.data.dataset import Dataset
from privet.engine.examples import Examples
from privet.engine.plain import Course
from privet.engine.turns import Turns
from privet.privacy.precision import find_precision
from privet.privacy.randomness import Randomness
from privet.training import unprotected
from privet.training.dpsgd import model_and_optimizer, require_device
from privet.training.published.adlm_budgets import Budgets
from privet.training.published.adlm_settings import AdlmPaperSettings
from privet.training.published.adlm_trainer import AdlmTrainer
from privet.training.published.pure_claim import pure_claim, require_single_records
from privet.training.unprotected import Unprotected

GAPS: Final = (
    "A1: the proof releases the noised sum of a batch, the network sees every record; all of them"
    " share one draw, so differences of records are exact, and normalisation takes the draw off."
    " Drawn for each record, this noise would have an epsilon of |L| epsilon2 d / Delta_h0",
    "A2: the coefficients of the loss are computed anew in each step from bare labels under one"
    " draw, and the draw has no derivative with respect to any layer below the last: those are"
    " trained on labels without any noise",
    "A3: the relevance is that of a network trained on the same records, so that one record may"
    " change all relevances: the sensitivity is up to d, not 2d / n",
    "A4: batches are drawn again in each epoch, and no step but the first is accounted for; noise"
    " drawn anew in each step averages out over thousands of epochs",
    "A5: shares of the budget are floored, which adds to their sum (here they are brought back to"
    " it), and rest on the relevances of A3",
    "A6: batch normalisation mixes the records of a batch, and the statistics that it predicts with"
    " are released as they are: means and variances of the training records, taken without noise on"
    " inputs or results; noise on the bias, which is a constant, protects nothing",
    "A7: the bound on what the Taylor polynomial leaves out holds for scores within [-1, 1], which"
    " nothing enforces, and one of its derivatives is wrong",
    "A8: it was compared with a DP-SGD that clips the mean of a batch and divides the noise by its"
    " size, which is not DP-SGD",
)


def build(data: Dataset, settings: AdlmPaperSettings) -> AdlmTrainer:
    """A trainer for filled settings, with fresh noise; it touches no record before its steps."""
    require_single_records(data)
    device = require_device(settings.device)
    model, optimizer = model_and_optimizer(data, settings, device)
    assert isinstance(model, nn.Sequential)
    seed = settings.noise_seed
    assert settings.batch is not None
    sampler, steps = Turns(
        sampler="shuffled",
        batch=settings.batch,
        nominal_size=data.nominal_size,
        epochs=settings.epochs,
    ).resolved()
    return AdlmTrainer(
        model=model,
        optimizer=optimizer,
        examples=Examples.of(data.train, data.bounds, device),
        plan=Course(steps=steps, sampler=sampler),
        budgets=Budgets.of(model, data.shape, settings, records=data.nominal_size),
        settings=settings,
        noise=(Randomness.fresh() if seed is None else Randomness.seeded(seed)).noise,
        public=Randomness.seeded(settings.init_seed).sampling,
        pretrained=partial(_fresh_network, data, settings, device),
        precision=find_precision(settings.precision, device),
    )


def _fresh_network(data: Dataset, settings: AdlmPaperSettings, device: torch.device) -> nn.Module:
    return model_and_optimizer(data, settings, device)[0]


def mechanism(trainer: AdlmTrainer, settings: AdlmPaperSettings) -> Mapping[str, Any]:
    """What the card says about the steps."""
    assert settings.noise_sharing is not None
    return {
        "contribution": 1,
        "noise": f"Laplace, {settings.noise_sharing.replace('_', ' ')}",
        "sampler": trainer.plan.sampler.name,
        "adaptive": settings.adaptive,
        **trainer.budgets.figures(),
    }


claims = partial(
    pure_claim,
    accountant="as published: epsilon1 + epsilon2 + epsilon3, for any number of steps",
    subject="adlm",
    gaps=GAPS,
)

ADLM: Final = Unprotected(
    method="adlm", settings=AdlmPaperSettings, build=build, mechanism=mechanism, claims=claims
)

run = partial(unprotected.run, ADLM)
resume = partial(unprotected.resume, ADLM)
