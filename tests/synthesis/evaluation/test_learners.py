import numpy as np
import pytest

from privet.synthesis.evaluation.learners import LEARNERS, macro_auroc


@pytest.mark.parametrize("name", LEARNERS)
def test_a_planted_rule_is_learned_gaps_constants_and_empty_columns_beside(name):
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (600, 4))
    y = (x[:, 0] + 0.3 * rng.normal(0, 1, 600) > 0).astype(np.int64)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, 2], x[:, 3] = np.nan, 7.0
    predict = LEARNERS[name](x[:400], y[:400], 0)
    assert macro_auroc(predict(x[400:]), [0, 1], y[400:])["auroc"] > 0.9


def test_macro_auroc_is_the_mean_over_classes_and_unknown_classes_count():
    y = np.array([0, 0, 1, 1, 2, 2])
    perfect = np.eye(3)[y]
    assert macro_auroc(perfect, [0, 1, 2], y)["auroc"] == 1.0
    # the last class was never learned: no better than guessing there
    without = macro_auroc(perfect[:, :2], [0, 1], y)
    assert without["auroc"] == pytest.approx((1 + 1 + 0.5) / 3)


def test_two_classes_have_an_interval_and_one_has_nothing():
    y = np.array([0, 1] * 20)
    found = macro_auroc(np.stack([1 - y, y], axis=1) * 0.5, [0, 1], y)
    assert found["auroc"] == 1.0
    assert found["low"] > 0.8
    assert macro_auroc(np.ones((3, 1)), [0], np.zeros(3, dtype=np.int64))["auroc"] is None
