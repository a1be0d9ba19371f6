"""The classifiers of the measures: boosted trees and logistic regression on summaries of stays."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from privet.synthesis.evaluation.intervals import area
from privet.synthesis.evaluation.measure import Figures
from privet.synthesis.evaluation.side import Floats, Places

Predict = Callable[[Floats], Floats]
"""From summaries to a chance of each class that was learned."""

_EDGE: Final = 4.0  # standard deviations at which logistic regression stops looking


def boosted(x: Floats, y: Places, seed: int, rounds: int = 150) -> Predict:
    """Gradient boosting of small trees; gaps go wherever they fit best."""
    model = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=rounds,
        max_leaf_nodes=8,
        min_samples_leaf=min(40, max(5, len(y) // 20)),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    there = ~np.isnan(x).all(axis=0)  # scikit-learn cannot bin a column without any number
    model.fit(x[:, there], y)
    return lambda rows: np.asarray(model.predict_proba(rows[:, there]))


def logistic(x: Floats, y: Places, seed: int) -> Predict:
    """Logistic regression on standardised numbers, gaps as medians."""
    there = ~np.isnan(x).all(axis=0)
    middle = np.zeros(x.shape[1])
    middle[there] = np.nanmedian(x[:, there], axis=0)
    filled = np.where(np.isnan(x), middle, x)
    centre, scale = filled.mean(axis=0), filled.std(axis=0)
    scale = np.where(scale > 1e-12, scale, np.inf)  # what was constant says nothing

    def prepared(rows: Floats) -> Floats:
        numbers = np.where(np.isnan(rows), middle, rows)
        return np.asarray(np.clip((numbers - centre) / scale, -_EDGE, _EDGE))

    model = LogisticRegression(C=0.01, max_iter=500, random_state=seed).fit(prepared(x), y)
    return lambda rows: np.asarray(model.predict_proba(prepared(rows)))


LEARNERS: Final[dict[str, Callable[[Floats, Places, int], Predict]]] = {
    "boosting": boosted,
    "logistic": logistic,
}


def macro_auroc(chances: Floats, learned: Any, y: Places) -> Figures:
    """Mean over the classes of `y` of the area of each against the rest.

    A class that was never learned has chance 0. With two classes it is the ordinary area, and has
    an interval.
    """
    classes = np.unique(y)
    if len(classes) < 2:
        return {"auroc": None, "why": "the test records have one class only"}
    by_class = np.zeros((len(y), int(max(classes.max(), np.max(learned))) + 1))
    by_class[:, np.asarray(learned, dtype=np.int64)] = chances
    if len(classes) == 2:
        score = by_class[:, classes[1]] - by_class[:, classes[0]]
        return area(score[y == classes[1]], score[y == classes[0]])
    areas = [roc_auc_score(y == c, by_class[:, c]) for c in classes]
    return {"auroc": float(np.mean(areas)), "classes": len(classes)}
