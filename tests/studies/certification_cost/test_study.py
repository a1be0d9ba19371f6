import dataclasses
import io

import pytest
import torch
from rich.console import Console
from torch import nn

from privet.classifiers import open_classifier
from privet.errors import InputError
from privet.studies.certification_cost.results import plot, tables
from privet.studies.certification_cost.study import OURS, Study, Terms


@pytest.fixture
def study():
    """A half-space with margins from -1 to 6 sigma."""
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0] * 3, [1.0, 0.0, 0.0]]))
        model.bias.copy_(torch.tensor([0.5, 0.0]))
    sigma = 0.05
    x = torch.full((40, 3), 0.5)
    x[:, 0] += sigma * torch.linspace(-1, 6, 40)
    terms = Terms(sigma=sigma, n=2000, n0=200, batch=500, cohen_batch=200)
    return Study(
        classifier=open_classifier(model, shape=(3,)), x=x, y=torch.ones(40).long(), terms=terms
    )


def test_votes_are_counted_against_n_for_everyone(study):
    found = study.votes([0.5, 2.0])
    assert found["reference_votes"] == 40 * 2200
    assert [(r["mode"], r["radius_in_sigma"]) for r in found["modes"]] == [
        (m, r) for r in (0.5, 2.0) for m in ("decision", "curve")
    ]
    for row in found["modes"]:
        assert row["times_fewer"] == pytest.approx(40 * 2200 / row["votes"])
        assert row["votes"] < 40 * 2200
    # Margins are known: images 0.5 (2) sigma inside are certified, but for those very near: of 40
    # up to four, as the draws are secret (two are usual).
    wide, deep = found["modes"][0], found["modes"][2]
    exact = [(torch.linspace(-1, 6, 40) >= r).double().mean().item() for r in (0.5, 2.0)]
    assert exact[0] - 0.1 <= wide["certified_accuracy"] <= exact[0]
    assert exact[1] - 0.1 <= deep["certified_accuracy"] <= exact[1]
    assert wide["points_lost"] == pytest.approx(
        100 * (wide["reference_accuracy"] - wide["certified_accuracy"])
    )


def test_a_radius_out_of_reach_is_refused_before_the_reference(study):
    seen = []
    asked = dataclasses.replace(study, watch=seen.append)
    with pytest.raises(InputError, match="n=2000 votes cannot prove"):
        asked.votes([0.5, 3.0])
    assert seen == []


def test_lost_points_of_a_curve_are_the_worst_up_to_its_radius(study, monkeypatch):
    reference, _ = study._timed(reference=True)
    worse, _ = study._timed(reference=True)
    inside = worse.radius < 0.5 * study.terms.sigma
    worse.radius[inside] = 0.0  # as if small radii had been lost
    worse.prediction[inside] = -1
    lost = study._lost(reference, worse, 2.0, "curve")
    assert lost == pytest.approx((inside & reference.correct).mean())
    assert study._lost(reference, worse, 2.0, "decision") == pytest.approx(0.0, abs=0.03)


def test_the_pace_is_of_images_done(study, monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(now)))  # every run takes a second
    rows = {row["contestant"]: row for row in study.pace(images=30, rounds=2)}
    assert rows[OURS]["images_per_minute"] == 60 * 30
    loops = [row for name, row in rows.items() if name != OURS]
    assert len(loops) == 2
    for row in loops:
        assert row["images_per_minute"] == 60 * 3
        assert row["privet_times_faster"] == 10
        assert len(row["rounds"]) == 2


def test_table_and_plot_say_what_the_record_says(study):
    record = vars(study.terms) | study.votes([1.0]) | {"pace": study.pace(10, 1)}
    console = Console(width=120, file=io.StringIO())
    console.print(tables(record))
    text = console.file.getvalue()
    for row in record["modes"]:
        assert f"{row['times_fewer']:.1f}" in text
    assert plot(record).startswith(b"<?xml")
