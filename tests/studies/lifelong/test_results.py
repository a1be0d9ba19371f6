"""Figures over seeds, tests, tables and plots of made-up records."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

sys.path.insert(0, str(Path(__file__).parent))
from task_study import made_up, streams_of

from privet.studies.lifelong import results
from privet.studies.lifelong.plots import all_plots
from privet.studies.lifelong.tables import all_tables, chosen_places, published_table, summary
from privet.studies.lifelong.writing import as_csv, results_of

TOLD = {
    "data": "permuted-mnist",
    "seeds": [0, 1],
    "delta": 1e-5,
    "command": "c",
    "together": {"note": "n"},
}
OURS = [[[0.9], [0.7, 0.9]], [[0.8], [0.7, 0.8]], [[0.9], [0.8, 0.9]]]
THEIRS = [[[0.8], [0.2, 0.8]], [[0.8], [0.3, 0.8]], [[0.7], [0.1, 0.7]]]


@pytest.fixture
def records():
    return [
        *made_up("l2dp-objective", OURS),
        *made_up("naive", THEIRS),
        *made_up("l2dp:paper", THEIRS, basis="claimed"),
        *made_up("joint", [[[0.6]], [[0.65]], [[0.62]]]),
        *made_up("agem", OURS, epsilon=None, basis="none"),
    ]


def shown(records):
    return results_of(records, streams=streams_of("permuted-mnist"), epsilon=2.0, told=TOLD)


def test_a_row_has_what_the_seeds_say(records):
    row = results.study_rows(records)[0]
    assert (row["name"], row["seeds"], row["tasks"], row["basis"]) == (
        "l2dp-objective", [0, 1, 2], 2, "proved",
    )  # fmt: skip
    assert row["accuracy"]["values"] == pytest.approx([0.8, 0.75, 0.85])
    assert row["forgetting"]["values"] == pytest.approx([0.2, 0.1, 0.1])
    assert row["area"]["mean"] == pytest.approx(np.mean([0.85, 0.775, 0.875]))
    assert row["by_task"][0]["mean"] == pytest.approx(np.mean([0.7, 0.7, 0.8]))


def test_the_hero_meets_all_others_in_pairs(records):
    tests = results.tests_of(results.study_rows(records))["rows"]
    assert [(t["one"], t["other"]) for t in tests] == [
        ("l2dp-objective", other) for other in ("naive", "l2dp:paper", "joint", "agem")
    ]
    t, p = ttest_rel([0.8, 0.75, 0.85], [0.5, 0.55, 0.4])
    assert (tests[0]["t"], tests[0]["p"]) == pytest.approx((t, p))
    found = ttest_rel([0.8, 0.75, 0.85], [0.5, 0.55, 0.4]).confidence_interval(0.95)
    assert tests[0]["interval"] == pytest.approx([100 * found.low, 100 * found.high])
    assert tests[0]["points"] == pytest.approx(100 * np.mean([0.3, 0.2, 0.45]))
    assert tests[2]["p_over_tasks"] is None  # one figure is no curve
    assert (tests[3]["p"], tests[3]["t"]) == (1.0, 0.0)  # the same figures


def test_another_budget_is_another_family(records):
    more = [*records, *made_up("naive", OURS, epsilon=8.0)]
    tests = results.tests_of(results.study_rows(more))["rows"]
    assert len(tests) == 4  # naive at 8 meets nobody


def test_holm_steps_down():
    """By hand: 0.01*3, 0.02*2, and no smaller than the one before: 0.03*1."""
    tests = [{"p": 0.03}, {"p": 0.01}, {"p": 0.02}]
    assert [one["p_holm"] for one in results.with_holm(tests)] == pytest.approx([0.04, 0.03, 0.04])
    assert [one["p_holm"] for one in results.with_holm([{"p": 0.7}, {"p": 0.8}])] == [1.0, 1.0]


def test_one_seed_has_no_test(records):
    told = results.tests_of(results.study_rows([r for r in records if r["seed"] == 0]))
    assert told["rows"] == []
    assert "2 seeds" in told["skipped"]


def test_the_thesis_stands_beside_ours(records):
    found = published_table("permuted-mnist", results.study_rows(records))
    by_who = {(row[0], row[1]): row[2:] for row in found.rows}
    assert by_who["l2dp:paper", "2"] == ["23.7 ± 0.6", "60.0 (50.0 to 70.0)"] or (
        by_who["l2dp:paper", "2"][0] == "23.7 ± 0.6"
    )
    assert by_who["l2dp:paper", "0.5"] == ["30.5 ± 0.9", "-"]
    assert by_who["agem", "-"][0] == "16.2 ± 1.1"
    assert published_table("permuted-digits", results.study_rows(records)) is None


def test_tables_and_plots_show_every_contender(records):
    told = shown(records)
    text = "\n".join(table.markdown() for table in all_tables(told))
    for row in told["rows"]:
        assert f"| {row['name']} |" in text
    assert "80.0 (75.0 to 85.0)" in text
    assert "p, Holm" in text
    assert len(summary(told)[0].rows) == 5
    plots = all_plots(told)
    assert set(plots) == {"accuracy-permuted-mnist", "forgetting-permuted-mnist"}
    assert b"l2dp-objective (proved)" in plots["accuracy-permuted-mnist"][0]
    assert b"joint" in plots["accuracy-permuted-mnist"][0]
    assert b"joint" not in plots["forgetting-permuted-mnist"][0]


def test_the_csv_has_every_point_of_every_seed(records):
    lines = as_csv(results.study_rows(records)).splitlines()
    assert len(lines) == 1 + 2 * 3 * (2 * 4 + 1)
    assert "permuted-mnist,l2dp-objective,2.0,proved,0,2,accuracy,0.800000" in lines


@pytest.mark.parametrize(
    ("tasks", "places"),
    [(1, [1]), (3, [1, 2, 3]), (6, [1, 2, 3, 4, 5, 6]), (20, [1, 5, 9, 12, 16, 20])],
)
def test_curves_are_shown_from_their_first_point_to_their_last(tasks, places):
    assert chosen_places(tasks) == places
