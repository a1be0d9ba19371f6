import numpy as np
import pytest
from scipy.spatial.distance import cdist

from privet.synthesis.evaluation import neighbours
from privet.synthesis.evaluation.neighbours import nearest


def test_the_nearest_are_those_of_all_distances(monkeypatch):
    monkeypatch.setattr(neighbours, "AT_ONCE", 200)
    rng = np.random.default_rng(0)
    a, b = rng.random((50, 7), dtype=np.float32), rng.random((40, 7), dtype=np.float32)
    places, distances = nearest(a, b, k=3)
    exact = cdist(a, b)
    assert np.array_equal(places, np.argsort(exact, axis=1)[:, :3])
    assert distances == pytest.approx(np.sort(exact, axis=1)[:, :3], abs=1e-6)


def test_a_copy_is_at_distance_zero_however_long_the_vectors():
    b = np.random.default_rng(0).random((30, 900), dtype=np.float32) * 50
    places, distances = nearest(b[::-1].copy(), b)
    assert np.array_equal(places[:, 0], np.arange(30)[::-1])
    assert not distances.any()
    assert nearest(b, b[:2], k=5)[0].shape == (30, 2)  # no more than there are
