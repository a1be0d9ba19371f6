from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from privet.synthesis.evaluation.clusters import (
    centres_by_seed,
    cluster_similarity,
    compare,
    similarity,
)


def kinds(rng, order=(0, 1, 2), shift=0.0):
    """Three far kinds of vectors, in an order of their own."""
    centres = np.array([[0, 0, 9.0], [9, 0, 0], [0, 9, 0]])[list(order)]
    return (np.repeat(centres, 40, axis=0) + rng.normal(0, 0.1, (120, 3)) + shift).astype(
        np.float32
    )


def test_centres_are_paired_whatever_their_order():
    rng = np.random.default_rng(0)
    found = cluster_similarity(kinds(rng), kinds(rng, order=(2, 0, 1)))
    assert found["minkowski_sum"] < 0.3
    assert found["cosine_mean"] > 0.999


def test_a_shift_is_three_times_its_length():
    rng = np.random.default_rng(0)
    real = kinds(rng)
    found = cluster_similarity(real, real + np.float32([1, 0, 0]))
    assert found["minkowski_sum"] == pytest.approx(3.0, abs=1e-4)
    assert found["minkowski_sd"] == pytest.approx(0.0, abs=1e-4)


def test_whole_records(make_records, beside):
    records = make_records(150)
    assert compare(beside(records, records)).figures["minkowski_sum"] == pytest.approx(0, abs=1e-6)
    shifted = replace(records, values=records.values + np.array([40.0, 0, 0, 0]))
    assert compare(beside(records, shifted)).figures["minkowski_sum"] > 0.5


def test_pairs_are_the_best_of_all_that_can_be():
    """Brute force over all pairings: nearest first would take a costlier one."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        real, other = rng.normal(0, 1, (3, 2)), rng.normal(0, 1, (3, 2))
        found = similarity((real,) * 2, (other,) * 2)
        pairings = [other[list(order)] for order in permutations(range(3))]
        best = min(pairings, key=lambda p: np.linalg.norm(real - p, axis=1).sum())
        lengths = np.linalg.norm(real, axis=1) * np.linalg.norm(best, axis=1)
        cosines = (real * best).sum(axis=1) / lengths
        assert found["minkowski_sum"] == pytest.approx(np.linalg.norm(real - best, axis=1).sum())
        assert found["cosine_mean"] == pytest.approx(cosines.mean())


def test_there_are_three_clusters_and_five_seeds():
    rng = np.random.default_rng(0)
    centres = centres_by_seed(kinds(rng), 7)
    assert [c.shape for c in centres] == [(3, 3)] * 5
    assert sorted(centres[0].argmax(axis=1)) == [0, 1, 2]
