"""Membership inference: known answers, and an attack that finds what it should."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from privet.audits.membership import confidence, lira, roc
from privet.errors import InputError


def test_the_curve_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.7, 1, 301).round(1), rng.normal(0, 1, 200).round(1)  # with ties
    found = roc(members, others)
    labels = np.r_[np.ones(301), np.zeros(200)]
    scores = np.r_[members, others]
    assert found.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert found.fpr == pytest.approx(fpr)
    assert found.tpr == pytest.approx(tpr)
    assert found.tpr_at(0.01) == max(t for f, t in zip(fpr, tpr, strict=True) if f <= 0.01)


def test_the_rates_of_two_normals():
    rng = np.random.default_rng(1)
    found = roc(rng.normal(2, 1, 200_000), rng.normal(0, 1, 200_000))
    for rate in (0.001, 0.01):
        truth = norm.sf(norm.isf(rate) - 2)
        assert found.tpr_at(rate) == pytest.approx(truth, abs=0.02)
    assert found.auc == pytest.approx(norm.cdf(2 / np.sqrt(2)), abs=0.003)


@pytest.mark.parametrize("empty", [([], [1.0]), ([1.0], [])])
def test_both_kinds_of_scores_are_needed(empty):
    with pytest.raises(InputError, match="too few scores"):
        roc(*empty)


def test_confidence_is_the_logit_of_the_true_class():
    scores = np.array([[0.0, 1.0, -2.0], [3.0, 3.0, 3.0]])
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    own = np.array([p[0, 1], p[1, 2]])
    assert confidence(scores, [1, 2]) == pytest.approx(np.log(own) - np.log1p(-own))
    sure = confidence([[0.0, 60.0]], [1])  # 1 - p is lost in a double; the logit is not
    assert sure[0] == pytest.approx(60.0)


def shadows(models, records, lift, seed=0):
    """Confidences with a level of each record's own, and a lift for members."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 5, records)  # what drowns the plain loss attack
    member = rng.random((models, records)) < 0.5
    return level + lift * member + rng.normal(0, 1, (models, records)), member


@pytest.mark.parametrize("models", [16, 128], ids=["one variance", "a variance each"])
def test_lira_finds_members_that_the_loss_does_not(models):
    confidences, member = shadows(models, 2000, lift=2.0)
    ratios = lira(confidences, member)
    assert np.isfinite(ratios).mean() > 0.995
    known = np.isfinite(ratios)
    best = roc(ratios[member & known], ratios[~member & known])
    plain = roc(confidences[member], confidences[~member])
    # Known levels would give two normals 2 apart; learned from 8 or 64 models a little less.
    assert 0.88 < best.auc < norm.cdf(2 / np.sqrt(2)) + 0.01
    assert plain.auc < 0.65
    assert best.tpr_at(0.01) > 8 * plain.tpr_at(0.01)


def test_a_record_that_too_few_others_saw_has_no_ratio():
    confidences, member = shadows(6, 4, lift=1.0)
    member[:, 2] = [True, True, False, False, False, False]
    ratios = lira(confidences, member)
    assert np.isnan(ratios[:2, 2]).all()  # one other model is left that saw it
    assert np.isfinite(ratios[2:, 2]).all()


def test_lira_of_models_that_learned_nothing_is_guessing():
    confidences, member = shadows(16, 4000, lift=0.0)
    ratios = np.nan_to_num(lira(confidences, member))
    assert roc(ratios[member], ratios[~member]).auc == pytest.approx(0.5, abs=0.01)


def test_a_model_is_not_among_its_own_shadows():
    """Leave-one-out, by a loop."""
    confidences, member = shadows(24, 30, lift=1.0, seed=3)
    ratios = lira(confidences, member)
    for k in (0, 7):
        rest = np.arange(24) != k
        variances = {}
        for side, chosen in (("in", member), ("out", ~member)):
            each = [confidences[rest & chosen[:, i], i].var(ddof=1) for i in range(30)]
            variances[side] = np.nanmean(each)
        for i in (3, 21):
            means = [confidences[rest & chosen[:, i], i].mean() for chosen in (member, ~member)]
            expected = norm.logpdf(confidences[k, i], means[0], variances["in"] ** 0.5)
            expected -= norm.logpdf(confidences[k, i], means[1], variances["out"] ** 0.5)
            assert ratios[k, i] == pytest.approx(expected)
