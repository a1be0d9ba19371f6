from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.clusters import by_feature, cluster_similarity, compare
from privet.synthesis.evaluation.side import Side


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


def test_whole_records_and_single_columns(make_records, beside):
    records = make_records(150)
    assert compare(beside(records, records)).figures["minkowski_sum"] == pytest.approx(0, abs=1e-6)
    shifted = replace(records, values=records.values + np.array([40.0, 0, 0, 0]))
    found = by_feature(Side(records), Side(shifted), ["pulse", "below"])
    assert found["pulse"]["minkowski_sum"] > 0.5
    assert found["below"]["minkowski_sum"] == pytest.approx(0, abs=1e-6)
