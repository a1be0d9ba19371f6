"""Train on the candidate, test on real records: what a model of an outcome is worth.

The candidate (synthetic records; real training records as the yardstick, as many of them) trains a
classifier of each categorical outcome from summaries of stays; held-out real records test it.
"""

from typing import Final

import numpy as np

from privet.data.records.features import Categorical
from privet.synthesis.evaluation.learners import LEARNERS, macro_auroc
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
    mean_of,
)
from privet.synthesis.evaluation.side import Side
from privet.synthesis.evaluation.summaries import summaries


def compare(comparison: Comparison) -> Outcome:
    """Macro AUROC by outcome and learner, and the mean over outcomes of each learner."""
    outcomes: Figures = {}
    for place, feature in enumerate(comparison.test.schema.outcomes):
        if isinstance(feature, Categorical):
            outcomes[feature.name] = {
                learner: _auroc(comparison.candidate, comparison.test, place, learner, seed)
                for learner, seed in ((name, comparison.seed) for name in LEARNERS)
            }
    figures: Figures = {
        learner: mean_of(found[learner]["auroc"] for found in outcomes.values())
        for learner in LEARNERS
    }
    return Outcome(figures=figures | {"outcomes": outcomes, "stays": len(comparison.candidate)})


def _auroc(train: Side, test: Side, place: int, learner: str, seed: int) -> Figures:
    x, y = _labelled(train, place)
    x_test, y_test = _labelled(test, place)
    classes = np.unique(y)
    if len(classes) < 2:
        return {"auroc": 0.5, "why": "the training records have one class only"}
    if len(y_test) == 0:
        return {"auroc": None, "why": "no test record has this outcome"}
    predict = LEARNERS[learner](x, y, seed)
    return macro_auroc(predict(x_test), classes, y_test)


def _labelled(side: Side, place: int) -> "tuple[np.ndarray, np.ndarray]":
    labels = side.records.outcomes[:, place]
    known = ~np.isnan(labels)
    return side.once(summaries)[1][known], labels[known].astype(np.int64)


MEASURE: Final = Measure(
    name="downstream",
    says="Whether a model of the outcomes, learned from synthetic records, works on real patients.",
    compare=compare,
    headlines=(
        Headline(figure="boosting", says="outcomes by boosted trees, AUROC", best=None),
        Headline(figure="logistic", says="outcomes by logistic regression, AUROC", best=None),
    ),
)
