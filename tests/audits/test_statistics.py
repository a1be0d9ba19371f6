"""Scores that are told, against densities; those that are learned, against the best there is."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from privet.audits.mechanism import audit_mechanism, scores_of
from privet.audits.statistics import LEARNERS, best_learned, learned, sampled_shift
from privet.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from estimating import gaussian_subject


def correlation(a, b):
    return np.corrcoef(a, b)[0, 1]


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_the_score_of_a_sampled_shift_is_the_log_ratio_of_densities(rate):
    rows = np.random.default_rng(0).standard_normal((5, 6))
    score = sampled_shift([0.6, 0.8], steps=3, rate=rate, shift=0.7, noise=1.3, base=-0.2)
    by_hand = []
    for row in rows:
        total = 0.0
        for step in range(3):
            x = 0.6 * row[2 * step] + 0.8 * row[2 * step + 1]
            without, moved = norm.pdf(x, -0.2, 1.3), norm.pdf(x, 0.5, 1.3)
            total += math.log(((1 - rate) * without + rate * moved) / without)
        by_hand.append(total)
    np.testing.assert_allclose(score(rows), by_hand, rtol=1e-12)


def test_means_are_weighed_by_their_variance():
    """The best direction sees sqrt(sum shift^2 / variance); the plain difference of means less."""
    shift, spread = np.array([1.0, 1.0, 0.0]), np.array([1.0, 5.0, 1.0])

    def sample(included, runs, seed):
        z = np.random.default_rng(seed).standard_normal((runs, 3)) * spread
        return z + shift if included else z

    scores = scores_of(gaussian_subject(shift, sample=sample), 100_000, seed=0, statistic="means")
    seen = (scores.with_.mean() - scores.without.mean()) / scores.without.std()
    assert seen == pytest.approx(math.hypot(1.0, 1 / 5), abs=0.015)  # 2/sqrt(26) = 0.39 if plain


def test_spreads_see_what_means_do_not():
    subject = gaussian_subject([0.0] * 20, spread=[1.5] * 20)
    blind = audit_mechanism(subject, runs=20_000, statistic="means")
    seeing = audit_mechanism(subject, runs=20_000, statistic="spreads")
    # One direction is wider with the record, too; all twenty together are much more so.
    assert seeing.epsilon > blind.epsilon + 2.0


def gaussians(n, seed):
    """Two worlds of correlated Gaussians, and the laws that they are drawn from."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((4, 4))
    shape = mixing @ mixing.T + 0.5 * np.eye(4)
    other = shape + 3.0 * np.outer(mixing[:, 0], mixing[:, 0])
    laws = [multivariate_normal([0.0] * 4, shape), multivariate_normal([0.3, 0, 0, -0.2], other)]
    return [law.rvs(n, random_state=rng) for law in laws], laws


def test_covariances_learn_the_log_ratio_of_gaussians():
    """The density ratio by scipy, which is the best score by Neyman and Pearson."""
    (without, with_), laws = gaussians(100_000, 0)
    rows = np.concatenate(gaussians(2000, 1)[0])
    best = laws[1].logpdf(rows) - laws[0].logpdf(rows)
    score = learned("covariances", without, with_)(rows)
    assert correlation(score, best) > 0.995
    assert correlation(learned("spreads", without, with_)(rows), best) < 0.98
    assert np.std(score) == pytest.approx(np.std(best), rel=0.05)  # not only in order


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_covariances_see_a_direction_without_noise(scale):
    """Two coordinates with one noise differ by nothing, or by a thousandth of it."""

    def sample(included, runs, seed):
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((runs, 1))
        joined = 1e-3 * included * (rng.random((runs, 1)) < 0.5)
        return scale * np.hstack([noise, noise + joined, rng.standard_normal((runs, 1))])

    subject = gaussian_subject([0.0], sample=sample)
    found = audit_mechanism(subject, runs=5000)
    assert "covariances" in found.attack
    assert found.epsilon > 4.0
    for name in ("means", "spreads", "peaks"):
        assert audit_mechanism(subject, runs=5000, statistic=name).epsilon < 0.5


def test_differences_that_chance_explains_do_not_count():
    """The same law in both worlds: all variances count as equal, and the score is linear."""
    rng = np.random.default_rng(0)
    score = learned("covariances", *rng.standard_normal((2, 2000, 30)))
    a, b = rng.standard_normal((2, 50, 30))
    np.testing.assert_allclose(score(a) + score(b), score(a + b) + score(0 * a), atol=1e-9)


def one_of_many(n, seed, *, places, shift):
    """N(0, 1) everywhere; with the record one place, anyone, is shifted."""
    rng = np.random.default_rng(seed)
    without, with_ = rng.standard_normal((2, n, places))
    place = rng.integers(places, size=n)
    with_[np.arange(n), place] += np.broadcast_to(shift, places)[place]
    return without, with_


def test_peaks_come_near_the_log_ratio_of_one_shifted_place():
    """The likelihood ratio is the mean of exp(3 z - 9/2) over the places."""
    worlds = one_of_many(40_000, 0, places=12, shift=3.0)
    rows = np.concatenate(one_of_many(4000, 1, places=12, shift=3.0))
    best = logsumexp(3.0 * rows, axis=1)
    kept = {name: correlation(learned(name, *worlds)(rows), best) for name in LEARNERS}
    assert kept["peaks"] > 0.97
    assert max(value for name, value in kept.items() if name != "peaks") < 0.93


SIGNS = np.where(np.arange(30) % 2, -1.0, 1.0)  # of places that stand out to either side


@pytest.mark.parametrize(
    ("without", "with_"), [(0.0, 3.0), (-3.0, 0.0), (0.0, 3.0 * SIGNS)], ids=["up", "less", "mixed"]
)
def test_peaks_find_what_others_miss(without, with_):
    """One of 30 places is shifted with the record, or without it, or to a side of its own."""

    def sample(included, runs, seed):
        return one_of_many(runs, seed, places=30, shift=with_ if included else without)[1]

    subject = gaussian_subject([0.0], sample=sample)
    found = {
        name: audit_mechanism(subject, runs=30_000, statistic=name).epsilon for name in LEARNERS
    }
    assert found["peaks"] > max(found["means"], found["spreads"], found["covariances"]) + 0.4
    told = lambda rows: logsumexp(with_ * rows, axis=1) - logsumexp(without * rows, axis=1)  # noqa: E731
    best = audit_mechanism(replace(subject, statistic=told), runs=30_000).epsilon
    assert found["peaks"] > best - 0.6
    assert scores_of(subject, 30_000, 1).statistic == "learned peaks"


def test_peaks_keep_to_the_side_to_which_each_coordinate_moves():
    """A small shift of all places, half of them up and half down: the sum of the signed ones."""
    rng = np.random.default_rng(0)
    without, with_ = rng.standard_normal((2, 20_000, 30))
    score = learned("peaks", without, with_ + 0.2 * SIGNS)
    rows = rng.standard_normal((5000, 30))
    assert correlation(score(rows), rows @ SIGNS) > 0.9


@pytest.mark.parametrize("width", [1, 2, 50])
@pytest.mark.parametrize("name", LEARNERS)
def test_few_runs_and_constant_coordinates_give_finite_scores(name, width):
    """Also where there are more coordinates than runs, and where both worlds are told apart."""
    rng = np.random.default_rng(0)
    without = rng.standard_normal((12, width))
    with_ = without + 5.0
    with_[:, -1], without[:, -1] = 1.0, 0.0
    score = learned(name, without, with_)
    assert np.isfinite(score(np.concatenate([without, with_]))).all()
    assert score(with_).min() > score(without).max()


def test_the_chosen_statistic_learns_from_all_runs():
    worlds = one_of_many(20_000, 3, places=30, shift=3.0)
    name, score = best_learned(*worlds, 1e-5)
    rows = worlds[1][:100]
    assert name == "peaks"
    np.testing.assert_array_equal(score(rows), learned("peaks", *worlds)(rows))


def test_an_unknown_statistic_is_refused():
    with pytest.raises(InputError, match="unknown statistic"):
        learned("medians", *np.zeros((2, 5, 1)))
