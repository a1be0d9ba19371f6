"""The result: abstentions are errors, radii count from below, rows and summaries agree."""

import csv
import json

import numpy as np
import pytest

from privet.certification import ABSTAIN, Certificates, Gaussian, Laplace


@pytest.fixture
def five():
    return Certificates(
        label=np.array([1, 1, 0, 2, 2]),
        prediction=np.array([1, ABSTAIN, 0, 1, 2]),
        radius=np.array([0.5, 0.0, 0.25, 0.9, 0.1]),
        p_lower=np.array([0.98, 0.4, 0.84, 0.999, 0.65]),
        samples=np.array([100, 200, 300, 400, 500]),
        noise=Gaussian(0.25),
        dimension=784,
        terms={"alpha": 0.001, "n0": 100, "n": 1000, "mode": "curve"},
    )


def test_certified_accuracy(five):
    assert five.correct.tolist() == [True, False, True, False, True]
    accuracy = five.certified_accuracy([0.0, 0.1, 0.25, 0.26, 0.5, 0.6])
    assert accuracy.tolist() == [0.6, 0.6, 0.4, 0.2, 0.2, 0.0]


def test_other_norms(five):
    assert five.radii("linf") == pytest.approx(five.radius / 28)
    assert five.certified_accuracy([0.25 / 28 * (1 - 1e-9)], "linf").tolist() == [0.4]
    assert five.radii("l2") is five.radius


def test_rows_and_file(five, tmp_path):
    rows = list(five.rows())
    assert rows[1] == {
        "image": 1,
        "label": 1,
        "prediction": -1,
        "correct": False,
        "radius": 0.0,
        "p_lower": 0.4,
        "samples": 200,
    }
    five.to_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(r["radius"]) for r in read] == five.radius.tolist()
    assert list(read[0]) == list(rows[0])


def test_summary_is_json(five):
    summary = json.loads(json.dumps(five.summary([0.0, 0.25])))
    assert summary["abstained"] == 1
    assert summary["samples"] == 1500
    assert summary["norm"] == "l2"
    assert summary["alpha"] == 0.001
    assert summary["certified_accuracy"] == [
        {"radius": 0.0, "accuracy": 0.6},
        {"radius": 0.25, "accuracy": 0.4},
    ]


def test_nothing_certifies_nothing():
    none = np.array([], dtype=int)
    empty = Certificates(
        label=none,
        prediction=none,
        radius=np.array([]),
        p_lower=np.array([]),
        samples=none,
        noise=Laplace(1.0),
        dimension=1,
        terms={},
    )
    assert empty.summary([0.0])["certified_accuracy"] == [{"radius": 0.0, "accuracy": 0.0}]
