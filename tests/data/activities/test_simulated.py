"""The made-up phones: the same on every day, skewed, and hard as well as learnable."""

import numpy as np
import pytest

from privet.data import load
from privet.data.activities import simulated


def test_sizes_and_facts():
    data = load("activities")
    assert (data.shape, data.nominal_size, data.unit) == ((3, 100), 60, "user")
    assert (len(data.train), len(data.test)) == (6266, 953)
    assert len(set(data.classes)) == 5
    fresh = load("activities/new-users")
    assert (fresh.train.n_units, fresh.test.n_units) == (45, 15)
    assert (data.test_is_public, fresh.test_is_public) == (False, True)


def test_the_same_signals_whenever_they_are_made():
    again = simulated._of(7)
    made = [session for session in simulated.everyone() if session.user == 7]
    assert len(made) == simulated.BOUTS
    for one, other in zip(made, again, strict=True):
        assert np.array_equal(one.signal, other.signal)
        assert (one.rate, one.segments) == (other.rate, other.segments)


def test_gravity_is_one_g_and_running_is_rough():
    """Still phones measure a length of 1 g; nobody runs so."""
    lengths = {label: [] for label in range(5)}
    for session in simulated.everyone():
        size = np.linalg.norm(simulated.RANGE * session.signal, axis=1)
        lengths[session.segments[0].label].append((np.median(size), size.std()))
    middle, spread = (
        {label: np.median([pair[i] for pair in pairs]) for label, pairs in lengths.items()}
        for i in (0, 1)
    )
    assert middle[1] == pytest.approx(1.0, abs=0.02)
    assert spread[1] < spread[2] < spread[0] < spread[4]


def test_labels_are_skewed_by_user():
    data = load("activities")
    mixes = np.zeros((60, 5))
    np.add.at(mixes, (data.train.units, data.train.y), 1)
    assert (mixes == 0).any(1).mean() > 0.5, "most users lack an activity"
    largest = (mixes / mixes.sum(1, keepdims=True)).max(1)
    assert 0.4 < np.median(largest) < 0.8
    assert (mixes.sum(0) > 300).all(), "everything is done by somebody"


def test_statistics_of_a_window_tell_much_and_not_all():
    """A yardstick that no change of the networks moves: a forest on means and deviations."""
    from sklearn.ensemble import RandomForestClassifier

    data = load("activities/new-users")
    x, tested = (np.concatenate([p.x.mean(2), p.x.std(2)], 1) for p in (data.train, data.test))
    forest = RandomForestClassifier(60, min_samples_leaf=5, random_state=0).fit(x, data.train.y)
    assert 0.5 < forest.score(tested, data.test.y) < 0.9
