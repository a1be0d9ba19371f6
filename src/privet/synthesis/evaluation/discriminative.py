"""Can a classifier tell real stays from others? 0.5: it cannot; 1: always.

Boosted trees on summaries and outcomes, cross-validated; all stays of a patient are in one fold.
"""

from typing import Final

import numpy as np

from privet.synthesis.evaluation.intervals import area
from privet.synthesis.evaluation.learners import boosted
from privet.synthesis.evaluation.measure import Comparison, Headline, Measure, Outcome
from privet.synthesis.evaluation.side import Floats, Places, Side
from privet.synthesis.evaluation.summaries import summaries

MOST: Final = 2_000  # stays of either side, drawn at random, as many of both
FOLDS: Final = 3
ROUNDS: Final = 60


def compare(comparison: Comparison) -> Outcome:
    """Area under the curve of out-of-fold scores."""
    rng = comparison.rng("discriminative")
    n = min(MOST, len(comparison.test), len(comparison.candidate))
    drawn = [_drawn(side, n, rng) for side in (comparison.test, comparison.candidate)]
    x, fold = (np.concatenate(part) for part in zip(*drawn, strict=True))
    y = np.repeat([0, 1], n)
    scores = np.zeros(len(y))
    for k in range(FOLDS):
        predict = boosted(x[fold != k], y[fold != k], comparison.seed, ROUNDS)
        scores[fold == k] = predict(x[fold == k])[:, 1]
    return Outcome(figures=area(scores[y == 1], scores[y == 0]))


def _drawn(side: Side, n: int, rng: np.random.Generator) -> tuple[Floats, Places]:
    """Numbers and folds of n stays."""
    chosen = rng.permutation(len(side))[:n]
    numbers = np.concatenate([side.once(summaries)[1], side.records.outcomes], axis=1)
    patient = side.records.patient_of_stay
    fold = rng.permutation(int(patient.max()) + 1)[patient] % FOLDS
    return numbers[chosen], fold[chosen]


MEASURE: Final = Measure(
    name="discriminative",
    says="Whether a classifier can tell synthetic from real stays.",
    compare=compare,
    headlines=(Headline(figure="auroc", says="told from real stays, AUROC", best=0.5),),
)
