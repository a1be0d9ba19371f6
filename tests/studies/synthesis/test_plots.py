import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from privet.studies.synthesis.plots import WIDE, _last, _shares, all_plots

COLUMNS = {what: {"heartrate": 1.0, "sbp": 2.0} for what in ("kl", "distance", "cosine")}


def results(make_row, budgets=(1.5,), **figures):
    rows = [make_row(name, epsilon=e, columns=COLUMNS, **figures)
            for name in ("autoregressive", "igamt") for e in budgets]  # fmt: skip
    rows.append(make_row("vae:none", columns=COLUMNS))
    return {
        "rows": rows, "yardstick": make_row("real", columns=COLUMNS), "epsilon": 1.5,
        "time_unit": "minutes", "protocol": {"trajectories": ["heartrate"]},
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """What cells leave for plots."""
    rng = np.random.default_rng(0)
    for name in ("autoregressive", "igamt", "vae:none"):
        cell = tmp_path / "cells" / f"{name}-seed0"
        cell.mkdir(parents=True)
        kept = {}
        for which, shift in (("real", 0.0), ("other", 50.0)):
            kept[f"{which}_plane"] = rng.normal(shift, 1, (30, 2))
            kept[f"{which}_empty"] = rng.uniform(0, 1 + shift, 30)
            kept[f"{which}_gap"] = rng.uniform(0, 9, 30)
            kept[f"{which}_mean_heartrate"] = np.array([80.0, 81.0, np.nan])
        np.savez(cell / "fidelity.npz", **kept)
    return tmp_path


def words(svg):
    """All that is written in a plot."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return " ".join("".join(text.itertext()) for text in texts)


def test_all_that_was_asked_for_is_drawn(make_row, folder):
    plots = all_plots(results(make_row), folder)
    assert {"pca", "missing", "gaps", "seven_sound", "seven_none", "trajectories_sound",
            "kl_by_column_sound", "distance_by_column_none"} <= set(plots)  # fmt: skip
    assert not any("epsilon" in name for name in plots)  # one budget is no curve
    assert {name for name in plots if "epsilon" not in name} <= set(WIDE)
    said = words(plots["pca"][0])
    for word in ("no privacy", "proved", "autoregressive", "vae", "igamt", "100 % outside"):
        assert word in said
    assert "claimed" not in said  # nobody took part as published
    assert "minutes" in words(plots["gaps"][0])


def test_two_budgets_are_a_curve(make_row, folder):
    plots = all_plots(results(make_row, budgets=(1.5, 4.0)), folder)
    assert {"distance_by_epsilon_sound", "cosine_by_epsilon_sound"} <= set(plots)
    assert "igamt (proved)" in words(plots["distance_by_epsilon_sound"][0])
    assert "real (no ε)" in words(plots["cosine_by_epsilon_sound"][0])


def test_a_missing_figure_is_said_and_not_drawn_as_zero(make_row, folder):
    plots = all_plots(results(make_row, corr=None), folder)
    assert words(plots["seven_sound"][0]).count("no figure") == 2
    assert "no figure" not in words(plots["seven_none"][0])


def test_the_same_results_give_the_same_bytes(make_row, folder):
    assert all_plots(results(make_row), folder) == all_plots(results(make_row), folder)


def test_nobody_done_is_no_plot(make_row, folder):
    assert all_plots(results(make_row) | {"rows": []}, folder) == {}


def test_what_lies_beyond_is_in_the_last_bin():
    shares = _shares(np.array([0.5, 1.5, 1.5, 99.0]), np.linspace(0, 4, 5))
    assert shares.tolist() == [0.25, 0.5, 0.0, 0.25]


def test_rows_without_a_mean_are_not_waited_for():
    assert _last(np.array([1.0, 2.0, np.nan, np.nan])) == 2
