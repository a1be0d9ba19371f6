from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.nearness import compare


def test_copies_of_training_records_are_always_nearer_to_them(make_records, beside):
    train, test = make_records(200, seed=1), make_records(200)
    figures = compare(beside(test, train, train)).figures
    assert figures["share"] == figures["excess"] == figures["beyond_luck"] == 1.0
    assert figures["low"] > 0.98
    assert figures["median_to_train"] == 0 < figures["median_to_test"]


@pytest.mark.parametrize("sizes", [(300, 300), (400, 200)])
def test_fresh_draws_are_as_near_as_chance_has_it(make_records, beside, sizes):
    train, test = make_records(sizes[0], seed=1), make_records(sizes[1], seed=2)
    figures = compare(beside(test, make_records(400, seed=3), train)).figures
    assert figures["chance"] == sizes[0] / sum(sizes)
    assert figures["by_luck"][0] <= figures["share"] <= figures["by_luck"][1]
    assert figures["low"] <= figures["chance"] <= figures["high"]
    assert figures["beyond_luck"] == 0


def test_half_copies_stand_beyond_luck(make_records, beside):
    train, test = make_records(200, seed=1), make_records(200)
    fresh = make_records(200, seed=3)
    keep = train.first_steps(3)
    mixed = replace(
        fresh.first_steps(3),
        values=np.where(
            (keep.stay_of_row < 100)[:, None], keep.values, fresh.first_steps(3).values
        ),
        times=np.where(keep.stay_of_row < 100, keep.times, fresh.first_steps(3).times),
        static=np.where((np.arange(200) < 100)[:, None], keep.static, fresh.static),
    )
    figures = compare(beside(test.first_steps(3), mixed, keep)).figures
    assert figures["share"] == pytest.approx(0.75, abs=0.08)
    assert 0.3 < figures["beyond_luck"] < 0.6


def test_a_hub_widens_luck_but_not_the_binomial_interval(make_records, beside):
    """One empty real record is the nearest of nearly all sparse candidates."""
    train, test = make_records(100, seed=1), make_records(100)
    values = train.values.copy()
    values[train.stay_of_row == 0] = np.nan
    hub = replace(train, values=values)
    candidate = make_records(300, seed=2)
    sparse = candidate.values.copy()
    sparse[np.random.default_rng(0).random(sparse.shape) < 0.9] = np.nan
    figures = compare(beside(test, replace(candidate, values=sparse), hub)).figures
    width = figures["by_luck"][1] - figures["by_luck"][0]
    assert width > 3 * (figures["high"] - figures["low"])
    assert figures["beyond_luck"] < 0.05


def test_records_equally_near_to_both_decide_nothing(make_records, beside):
    records = make_records(50)
    figures = compare(beside(records, records, records)).figures
    assert figures["ties"] == 50
    assert figures["share"] is None
    assert figures["beyond_luck"] == 0
