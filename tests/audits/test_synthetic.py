"""Generators under audit: one that copies, one that forgets, one with noise of a known epsilon."""

import numpy as np
import pytest

from privet.audits import two_worlds, violates
from privet.audits.synthetic import nearest, targeted
from privet.errors import InputError
from privet.privacy.tradeoff import Laplace

OTHERS = np.random.default_rng(0).normal(size=(60, 3))
OUTLIER = np.array([9.0, 9.0, 9.0])


def copying(records, seed):
    rng = np.random.default_rng(seed)
    return records[rng.integers(0, len(records), 80)] + rng.normal(0, 0.01, (80, 3))


def forgetting(records, seed):
    return np.random.default_rng(seed).normal(size=(80, 3))


def counting(records, seed):
    """Pure epsilon 1: a noisy count of records far out; so many synthetic ones lie there."""
    rng = np.random.default_rng(seed)
    far = (np.abs(records) > 6).any(1).sum() + rng.laplace(0, 1.0)
    return np.full((3, 3), far)  # a public function of the noisy count


def test_a_generator_that_copies_is_found_out():
    without, with_ = targeted(copying, OTHERS, OUTLIER, runs=150)
    assert two_worlds(without, with_, delta=1e-5).epsilon > 1.5
    assert with_.max() > -0.5 > without.max()


def test_one_that_forgets_is_not():
    without, with_ = targeted(forgetting, OTHERS, OUTLIER, runs=300)
    assert two_worlds(without, with_, delta=1e-5).epsilon == 0


def test_a_sound_generator_keeps_its_claim_and_breaks_a_smaller_one():
    without, with_ = targeted(counting, OTHERS, OUTLIER, runs=3000)
    assert violates(Laplace(1.0), without, with_) is None
    assert violates(Laplace(0.2), without, with_) is not None


def test_every_run_draws_apart_and_differs_in_the_target_alone():
    calls = []

    def noting(records, seed):
        calls.append((len(records), seed))
        return forgetting(records, seed)

    targeted(noting, OTHERS, OUTLIER, runs=20)
    assert [n for n, _ in calls] == [60, 61] * 20
    assert len({seed for _, seed in calls}) == 40


def test_nearness_of_copies_and_of_fresh_records():
    rng = np.random.default_rng(1)
    training, others, fresh = (rng.normal(size=(400, 3)) for _ in range(3))
    copies = nearest(training[:200], training, others)
    assert (copies.copies, copies.to_training) == (1.0, 0.0)
    assert copies.nearer_to_training == 1.0
    made = nearest(fresh, training, others)
    assert made.copies == 0
    assert made.nearer_to_training == pytest.approx(0.5, abs=0.1)  # 4 standard errors
    assert made.to_training == pytest.approx(made.to_others, rel=0.15)
    assert "not for release" in made.to_json()["private"]


def test_the_distance_is_that_to_the_nearest_by_brute_force():
    rng = np.random.default_rng(2)
    made, training, others = (rng.normal(size=(n, 4)) for n in (30, 50, 40))
    found = nearest(made, training, others)
    each = np.linalg.norm(made[:, None] - training[None], axis=2).min(1)
    assert found.to_training == pytest.approx(np.median(each))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": [1.0, 2.0]}, "no such record"),
        ({"records": [[np.nan, 0, 0]]}, "no table of numbers"),
        ({"generate": lambda records, seed: [1.0, 2.0]}, "no table of numbers"),
        ({"k": 81}, "too few records"),
    ],
)
def test_bad_input(change, said):
    given = {"generate": copying, "records": OTHERS, "target": OUTLIER, "runs": 1} | change
    with pytest.raises(InputError, match=said):
        targeted(**given)
