from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.marginals import compare


def test_records_against_themselves_are_nothing_apart(make_records, beside):
    records = make_records(100)
    figures = compare(beside(records, records)).figures
    assert [figures[f"mean_{k}"] for k in ("wasserstein", "kl_real_other", "kl_other_real")] == [
        0
    ] * 3
    assert list(figures["features"]) == ["age", "sex", "pulse", "above", "below", "rhythm", "died"]
    assert [c["kind"] for c in figures["features"].values()].count("temporal") == 4


def test_a_shifted_column_is_off_by_its_shift_and_no_other_is(make_records, beside):
    records = make_records(100)
    shifted = replace(records, values=records.values + np.array([20.0, 0, 0, 0]))
    features = compare(beside(records, shifted)).figures["features"]
    assert features["pulse"]["wasserstein"] == pytest.approx(0.1)  # 20 of a range of 200
    assert features["pulse"]["kl_real_other"] > 0.1
    assert features["above"]["wasserstein"] == features["died"]["wasserstein"] == 0


def test_an_outcome_turned_round_is_seen(make_records, beside):
    records = make_records(100)
    died = records.outcomes.mean()
    turned = replace(records, outcomes=1 - records.outcomes)
    found = compare(beside(records, turned)).figures["features"]["died"]
    assert found["wasserstein"] == pytest.approx(abs(1 - 2 * died))


def test_a_column_that_is_never_made_counts_as_the_whole_range(make_records, beside):
    records = make_records(40)
    values = records.values.copy()
    values[:, 1] = np.nan
    empty = replace(records, values=values)
    found = compare(beside(records, empty)).figures["features"]["above"]
    assert found["wasserstein"] == 1.0
    assert found["kl_real_other"] > 0.5
    neither = compare(beside(empty, empty)).figures
    assert neither["features"]["above"]["wasserstein"] is None
    assert neither["mean_wasserstein"] == 0
