"""Measures of forgetting: a table by hand, and what must hold of every table."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.errors import InputError
from privet.lifelong.metrics import (
    compare_curves,
    compare_seeds,
    paired_test,
    score,
    summarise,
)

# Task 2 was better after task 3 than when it was learned; task 1 has its best in the middle.
TABLE = [
    [0.9],
    [0.95, 0.6],
    [0.7, 0.8, 0.5],
    [0.8, 0.7, 0.75, 0.4],
]


@st.composite
def tables(draw, least=1):
    m = draw(st.integers(least, 6))
    cells = st.integers(0, 100).map(lambda n: n / 100)
    return [draw(st.lists(cells, min_size=tau + 1, max_size=tau + 1)) for tau in range(m)]


def test_a_table_by_hand():
    scores = score(TABLE)
    assert scores.average_accuracy == pytest.approx((0.9, 0.775, 2 / 3, 0.6625))
    assert scores.forgetting[0] == ()
    assert scores.forgetting[1] == pytest.approx((-0.05,))
    assert scores.forgetting[2] == pytest.approx((0.25, -0.2))
    assert scores.forgetting[3] == pytest.approx((0.15, 0.1, -0.25))
    assert scores.average_forgetting == pytest.approx((0.0, -0.05, 0.025, 0.0))
    assert scores.learning_curve_area == pytest.approx((0.9 + 0.775 + 2 / 3 + 0.6625) / 4)
    assert not scores.curves


def test_the_learning_curve_is_averaged_over_tasks_and_batches():
    scores = score(TABLE, curves=[[0.1, 0.5], [0.1, 0.6], [0.2, 0.4], [0.0, 0.3]])
    assert scores.learning_curve_area == pytest.approx((0.1 + 0.45) / 2)
    assert scores.curves


def test_accuracy_on_tasks_not_yet_seen_counts_for_nothing():
    """A network that knew task 2 better before it was taught has not forgotten it."""
    known_before = [
        [0.9, 0.99, 0.99, 0.99],
        [0.95, 0.6, 0.99, 0.99],
        [0.7, 0.8, 0.5, 0.99],
        TABLE[3],
    ]
    assert score(known_before) == score(TABLE)


@given(st.integers(1, 8), st.integers(0, 100))
def test_a_constant_predictor_forgets_nothing(m, percent):
    scores = score([[percent / 100] * m] * m)
    assert scores.average_forgetting == (0.0,) * m
    assert scores.average_accuracy == pytest.approx((percent / 100,) * m)


@given(tables())
def test_forgetting_is_bounded_and_agrees_with_the_definition(table):
    scores = score(table)
    for tau, row in enumerate(scores.forgetting):
        for t, lost in enumerate(row):
            assert lost == max(table[earlier][t] - table[tau][t] for earlier in range(t, tau))
            assert -1 <= lost <= 1
    assert all(0 <= a <= 1 for a in scores.average_accuracy)


@given(tables(least=3), st.randoms(use_true_random=False))
def test_the_order_of_earlier_rows_below_a_task_does_not_matter_to_the_last(table, random):
    """Of task 0 the best is sought in all earlier rows, wherever it is."""
    column = [row[0] for row in table[:-1]]
    random.shuffle(column)
    shuffled = [[value, *row[1:]] for value, row in zip(column, table, strict=False)] + table[-1:]
    assert score(shuffled).forgetting[-1] == score(table).forgetting[-1]


@given(tables(least=2), st.integers(0, 5), st.integers(0, 5))
def test_a_higher_last_row_never_raises_forgetting(table, place, percent):
    place %= len(table)
    better = [list(row) for row in table]
    better[-1][place] = min(1.0, better[-1][place] + percent / 100)
    assert score(better).average_accuracy[-1] >= score(table).average_accuracy[-1]
    assert score(better).average_forgetting[-1] <= score(table).average_forgetting[-1]


@given(tables(least=2))
def test_what_comes_later_changes_nothing_before(table):
    whole, first = score(table), score(table[:-1])
    assert whole.average_accuracy[:-1] == first.average_accuracy
    assert whole.average_forgetting[:-1] == first.average_forgetting


@pytest.mark.parametrize(
    ("table", "curves", "message"),
    [
        ([], None, "no accuracies"),
        ([[0.5], [0.5]], None, "after task 2 are missing"),
        ([[]], None, "after task 1 are missing"),
        ([[1.2]], None, "bad accuracy"),
        ([[math.nan]], None, "bad accuracy"),
        ([[-0.1]], None, "bad accuracy"),
        ([[0.5]], [], "bad learning curves"),
        ([[0.5]], [[]], "bad learning curves"),
        ([[0.5]], [[0.1], [0.2]], "bad learning curves"),
        ([[0.5], [0.5, 0.5]], [[0.1], [0.2, 0.3]], "bad learning curves"),
        ([[0.5]], [[50.0]], "bad accuracy"),
    ],
)
def test_bad_tables_are_refused(table, curves, message):
    with pytest.raises(InputError, match=message):
        score(table, curves)


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_the_paired_test_is_that_of_scipy(n, seed):
    one, other = np.random.default_rng(seed).uniform(size=(2, n))
    expected = stats.ttest_rel(one, other)
    found = paired_test(one.tolist(), other.tolist())
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.pairs, found.difference) == (n, pytest.approx((one - other).mean()))
    assert paired_test(other.tolist(), one.tolist()).p_value == pytest.approx(found.p_value)


def test_pairs_are_kept_together():
    """Each a little better, over a wide spread: plain to a paired test, hidden to any other."""
    other = [0.1, 0.3, 0.5, 0.7, 0.9]
    one = [0.11, 0.315, 0.51, 0.715, 0.91]
    assert paired_test(one, other).p_value < 0.001 < 0.9 < stats.ttest_ind(one, other).pvalue


def test_differences_without_spread_are_certain_or_nothing():
    assert paired_test([0.5, 0.6], [0.5, 0.6]).p_value == 1.0
    for sign in (1, -1):
        found = paired_test([0.5, 0.6, 0.9], [0.5 - 0.1 * sign, 0.6 - 0.1 * sign, 0.9 - 0.1 * sign])
        assert (found.statistic, found.p_value) == (sign * math.inf, 0.0)


@pytest.mark.parametrize(("one", "other"), [([0.1], [0.2]), ([0.1, 0.2], [0.1]), ([], [])])
def test_too_few_pairs_are_refused(one, other):
    with pytest.raises(InputError, match="pair by pair"):
        paired_test(one, other)


def runs(seed, bonus=0.0):
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.01, size=(6, 3, 3))
    return [score(np.clip(0.5 + bonus + n, 0, 1).tolist()) for n in noise]


def test_curves_and_seeds_are_compared_by_the_same_test():
    one, other = runs(0, bonus=0.2), runs(1)
    last = [[run.average_accuracy[-1] for run in group] for group in (one, other)]
    assert compare_seeds(one, other) == paired_test(*last)
    assert compare_seeds(one, other).p_value < 1e-5
    lost = [[run.average_forgetting[-1] for run in group] for group in (one, other)]
    assert compare_seeds(one, other, of="average_forgetting") == paired_test(*lost)
    assert compare_curves(one[0], other[0]) == paired_test(
        one[0].average_accuracy, other[0].average_accuracy
    )
    with pytest.raises(InputError, match="unknown measure"):
        compare_seeds(one, other, of="accuracy")


def test_a_summary_has_the_interval_of_students_t():
    group = runs(0)
    found = summarise(group, of="learning_curve_area")
    values = [run.learning_curve_area for run in group]
    low, high = stats.t.interval(0.95, 5, np.mean(values), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.mean, found.deviation) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert found.seeds == 6
    with pytest.raises(InputError, match="too few runs"):
        summarise(group[:1])
