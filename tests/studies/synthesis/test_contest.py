"""Verdicts against SciPy's own interval, closed forms, and rows that were made to win or lose."""

import math
import statistics

import pytest
from scipy import stats

from privet.studies.robust_private.results import spread
from privet.studies.synthesis.contest import (
    against,
    contest,
    duel,
    elapsed_ratio,
    welch_interval,
)
from privet.studies.synthesis.fidelity import SEVEN

DISTANCE, COSINE = SEVEN[0], SEVEN[1]


def test_the_interval_is_welchs():
    """By its own formula: degrees of freedom after Welch and Satterthwaite."""
    a, b = [1.0, 1.3, 0.9, 1.2], [1.9, 2.8, 2.1]
    va, vb = (statistics.variance(x) / len(x) for x in (a, b))
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = stats.t.ppf(0.975, freedom) * math.sqrt(va + vb)
    apart = statistics.fmean(a) - statistics.fmean(b)
    assert welch_interval(a, b) == pytest.approx((apart - half, apart + half))


def test_values_that_never_vary_have_no_width():
    assert welch_interval([1.0, 1.0], [3.0, 3.0]) == (-2.0, -2.0)
    assert welch_interval([1.0], [3.0, 3.0]) is None
    low, high = welch_interval([1.0, 1.0, 1.0], [3.0, 3.1, 2.9])
    assert low < -2.0 < high < 0


@pytest.mark.parametrize(
    ("measure", "ours", "theirs", "verdict", "ahead"),
    [
        (DISTANCE, [1.0, 1.1, 0.9], [2.0, 2.1, 1.9], "won", True),
        (COSINE, [1.0, 1.1, 0.9], [2.0, 2.1, 1.9], "lost", False),  # there more is better
        (DISTANCE, [1.0, 3.0], [1.5, 3.5], "tie", True),
        (DISTANCE, [1.0], [2.0], "tie", True),  # one seed decides nothing
        (DISTANCE, [1.0, 1.0], [1.0, 1.0], "tie", False),  # the same is not ahead
        (DISTANCE, [1.0, 1.0], [2.0, 2.0], "won", True),
    ],
)
def test_verdicts(measure, ours, theirs, verdict, ahead):
    found = duel(measure, spread(ours), spread(theirs))
    assert (found["verdict"], found["ahead"]) == (verdict, ahead)
    back = duel(measure, spread(theirs), spread(ours))
    assert back["verdict"] == {"won": "lost", "lost": "won", "tie": "tie"}[verdict]


def test_who_has_no_figure_has_lost():
    some = spread([5.0, 5.0])
    assert duel(DISTANCE, None, some)["verdict"] == "lost"
    assert duel(DISTANCE, some, None)["verdict"] == "won"
    assert duel(DISTANCE, None, None) == {
        "ahead": False, "by": None, "interval": None, "verdict": "tie"
    }  # fmt: skip


def test_of_equal_rivals_one_in_twenty_is_won_or_lost():
    """The interval covers: what is promised about ties holds for normal figures."""
    drawn = stats.norm.rvs(size=(2000, 2, 3), random_state=0)
    decided = [
        duel(DISTANCE, spread(list(a)), spread(list(b)))["verdict"] != "tie" for a, b in drawn
    ]
    assert 0.02 < statistics.fmean(decided) < 0.065


def rows(make_row, *, igamt, baselines):
    others = [make_row(name, **figures) for name, figures in baselines.items()]
    return [*others, make_row("igamt", **igamt)]


def test_counts_against_each_and_against_all(make_row):
    """Ahead of each baseline on most measures, yet of all of them together on fewer."""
    good, bad = [1.0, 1.01, 0.99], [5.0, 5.01, 4.99]
    ours = {"dist": good, "KL": good, "empty": good, "time": good, "corr": good,
            "cos": good, "acc": bad}  # fmt: skip
    low = {"dist": bad, "KL": bad, "empty": bad, "time": bad, "corr": bad, "cos": bad, "acc": good}
    vae = low | {"dist": [0.1, 0.1, 0.1], "cos": good}
    found = contest(rows(make_row, igamt=ours, baselines={"vae": vae, "gan": low}), 1.5)
    by = {one["rival"]: one for one in found["rivals"]}
    assert (by["vae"]["won"], by["vae"]["ties"], by["vae"]["lost"]) == (5, 1, 1)
    assert (by["gan"]["won"], by["gan"]["ties"], by["gan"]["lost"]) == (6, 0, 1)
    every = found["every_baseline"]
    assert every["baselines"] == ["vae", "gan"]
    assert every["ahead_of_all"] == every["won_against_all"] == [
        "KL by column", "empty cells", "elapsed time", "correlations", "accuracy"
    ]  # fmt: skip
    assert every["enough_against_each"]
    found = contest(rows(make_row, igamt=ours, baselines={"vae": vae | {"KL": [0.1] * 3}}), 1.5)
    assert found["rivals"][0]["ahead"] == 4
    assert not found["every_baseline"]["enough_against_each"]


def test_only_sound_rows_at_the_budget_take_part(make_row):
    """Neither published nor unprotected rows, nor those with a larger budget."""
    lines = [
        make_row("vae"), make_row("vae", epsilon=8.0), make_row("vae:paper"), make_row("gan:none"),
        make_row("dgamt"), make_row("autoregressive"), make_row("igamt"), make_row("igamt:none"),
    ]  # fmt: skip
    found = contest(lines, 1.5)
    assert [one["rival"] for one in found["rivals"]] == ["vae", "dgamt", "autoregressive"]
    assert found["every_baseline"]["baselines"] == ["vae"]
    assert "no row under the sound analysis" in contest(lines, 3.0)["why"]


def test_without_baselines_nothing_is_ahead_of_all(make_row):
    every = contest([make_row("autoregressive"), make_row("igamt")], 1.5)["every_baseline"]
    assert every["ahead_of_all"] == every["won_against_all"] == []
    assert not every["enough_against_each"]


def test_the_ratio_is_of_geometric_means_to_the_best(make_row):
    ours = make_row("igamt", time=[1.0, 4.0])
    found = elapsed_ratio(
        ours, [make_row("vae", time=[30.0, 30.0]), make_row("gan", time=[8.0, 8.0])]
    )
    assert found["best"] == "gan"
    assert found["ratio"] == pytest.approx(2.0 / 8.0)
    low, high = found["interval"]
    assert math.sqrt(low * high) == pytest.approx(0.25)
    logs = [math.log(1.0), math.log(4.0)]
    half = stats.t.ppf(0.975, 1) * statistics.stdev(logs) / math.sqrt(2)
    assert high == pytest.approx(0.25 * math.exp(half))
    assert elapsed_ratio(make_row("igamt", time=[1.0]), [make_row("gan")])["interval"] is None
    assert "why" in elapsed_ratio(make_row("igamt", time=None), [make_row("gan")])
    assert "why" in elapsed_ratio(ours, [])


def test_all_seven_are_compared(make_row):
    assert list(against(make_row("igamt"), make_row("vae"))["measures"]) == [m.name for m in SEVEN]
