from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.clusters import cluster_similarity
from privet.synthesis.evaluation.feature_clusters import ELAPSED, compare
from privet.synthesis.evaluation.flattened import sequences
from privet.synthesis.evaluation.side import Side


def test_each_column_by_itself(make_records, beside):
    """What is moved in one column is seen there and nowhere else; words are no course."""
    records = make_records(150)
    moved = replace(records, values=records.values + np.array([40.0, 0, 0, 0]))
    found = compare(beside(records, moved)).figures
    assert list(found["features"]) == [ELAPSED, "pulse", "above", "below"]
    apart = {name: figures["minkowski_sum"] for name, figures in found["features"].items()}
    assert apart["pulse"] > 0.5
    assert apart["below"] == pytest.approx(0, abs=1e-6)
    assert found["minkowski_sum"] == pytest.approx(np.mean(list(apart.values())))


def test_times_are_a_column(make_records, beside):
    records = make_records(150)
    slow = replace(records, times=records.times * 3)
    apart = compare(beside(records, slow)).figures["features"]
    assert apart[ELAPSED]["minkowski_sum"] > 0.1
    assert apart["pulse"]["minkowski_sum"] == pytest.approx(0, abs=1e-6)


def test_a_column_is_clustered_as_whole_records_are(make_records, beside):
    """Oracle: `clusters`, of the rows of that column alone."""
    real, other = make_records(120), make_records(130, seed=1)
    cells = [sequences(Side(r))[:, :, 3] for r in (real, other)]
    expected = cluster_similarity(*cells, seed=0)
    found = compare(beside(real, other)).figures["features"]["below"]
    assert found["minkowski_sum"] == pytest.approx(expected["minkowski_sum"])
    assert found["cosine_mean"] == pytest.approx(expected["cosine_mean"])


def test_of_many_stays_the_same_part_is_drawn_for_the_same_seed(make_records, beside):
    real, other = make_records(2_300), make_records(2_200, seed=1)
    found = [compare(beside(real, other, seed=s)).figures for s in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0] != found[2]
