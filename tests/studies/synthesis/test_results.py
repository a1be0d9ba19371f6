import pytest

from privet.studies.synthesis.results import (
    failures,
    over,
    rows_under,
    study_rows,
    yardstick_row,
)


def figures(distance, *, correlation=0.1, kl=0.5):
    features = {"pulse": {"kl_real_other": kl, "minkowski_sum": 2 * kl, "cosine_mean": 0.5,
                          "cells_error": 7.0}}  # fmt: skip
    return {
        "clusters": {"minkowski_sum": distance, "stays": [3, 4]},
        "dependence": {"rows_mean": correlation},
        "classes-of:dbp": {"percent": 40.0, "why": "words are no figure", "accuracy": {"low": 1}},
        "timing": {"gap_kl_real_other": 0.25, "time_unit": "minutes"},
        "marginals": {"features": features},
        "feature-clusters": {"features": features},
        "missing-rates": {"features": features},
    }


def record(name, seed, distance, *, epsilon=1.5, failed=None, proved=1.4, **rest):
    statement = {"epsilon": proved + 0.01 * seed, "delta": 1e-5, "adjacency": "add-remove"}
    private = {"add-remove": statement} if epsilon is not None else {}
    return {
        "cell": f"{name}-seed{seed}", "name": name, "epsilon": epsilon, "seed": seed,
        **({"failed": failed} if failed else {}),
        "privacy": {"claimed": None, "proved": private, "audited": None, "contradicted": False,
                    "withheld": []},
        "training": {"seconds": 10.0 + seed},
        "fidelity": {"figures": figures(distance, **rest), "sampling_seconds": 1.0,
                     "measure_seconds": {"clusters": 2.0, "timing": 1.0}},
    }  # fmt: skip


def test_means_and_ranges_over_seeds():
    (row,) = study_rows([record("vae", 0, 3.0), record("vae", 1, 5.0)])
    distance = row["figures"]["clusters.minkowski_sum"]
    assert (distance["mean"], distance["low"], distance["high"]) == (4.0, 3.0, 5.0)
    assert row["figures"]["classes-of.percent"]["values"] == [40.0, 40.0]
    assert "classes-of.why" not in row["figures"]
    assert "clusters.stays" not in row["figures"]
    assert row["columns"]["kl"] == {
        "time between rows": over([0.25, 0.25]), "pulse": over([0.5, 0.5])
    }  # fmt: skip
    assert row["columns"]["distance"]["pulse"]["mean"] == 1.0
    assert row["seconds"]["training"]["mean"] == 10.5
    assert row["seconds"]["measuring"]["mean"] == 3.0
    assert (row["base"], row["analysis"], row["basis"]) == ("vae", "sound", "proved")
    assert row["proved"]["add-remove"]["epsilon"] == pytest.approx(1.41)  # the largest


def test_a_seed_without_a_figure_leaves_the_row_without():
    """A mean over the seeds that have one would flatter."""
    (row,) = study_rows(
        [record("vae", 0, 3.0, correlation=None), record("vae", 1, 5.0, correlation=0.2)]
    )
    assert row["figures"]["dependence.rows_mean"] is None
    assert row["figures"]["clusters.minkowski_sum"]["mean"] == 4.0
    assert over([]) is None
    assert over([1.0, float("nan")]) is None


def test_failed_seeds_are_told_and_the_others_counted():
    records = [record("vae", 0, 3.0), record("vae", 1, 5.0, failed="out of memory")]
    (row,) = study_rows(records)
    assert row["seeds"] == [0]
    (failed,) = failures(records)
    assert (failed["name"], failed["seed"], failed["why"]) == ("vae", 1, "out of memory")
    assert study_rows(records[1:]) == []


def test_rows_of_an_analysis_at_a_budget():
    rows = study_rows(
        [
            record("vae", 0, 1.0), record("vae", 0, 1.0, epsilon=4.0),
            record("vae:paper", 0, 1.0), record("vae:none", 0, 1.0, epsilon=None),
        ]
    )  # fmt: skip
    assert [row["name"] for row in rows_under(rows, "sound", 1.5)] == ["vae"]
    assert [row["epsilon"] for row in rows_under(rows, "sound", 4.0)] == [4.0]
    assert [row["name"] for row in rows_under(rows, "none", 1.5)] == ["vae:none"]


def test_the_yardstick_is_a_row_without_epsilon():
    row = yardstick_row({"figures": figures(0.5)})
    assert (row["name"], row["basis"], row["epsilon"]) == ("real", "none", None)
    assert row["figures"]["clusters.minkowski_sum"]["mean"] == 0.5
