"""A small study on digits, and records of made-up ones."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_study import QUICK, WHOLE, planned, run_study

from privet.data import load


@pytest.fixture(scope="session")
def digits():
    return load("digits")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, digits):
    """Two methods, two budgets, two seeds."""
    folder = tmp_path_factory.mktemp("study")
    settings = {"all": QUICK["all"] | {"epochs": 4}, **WHOLE}
    cells = planned(digits, ("dpsgd", "stobatch"), settings, epsilons=(2.0, 50.0))
    heard = []
    records = run_study(folder, cells, digits, watch=lambda done, what: heard.append((done, what)))
    return SimpleNamespace(folder=folder, cells=cells, records=records, heard=heard)


@pytest.fixture
def make_record():
    """A record as the study writes it, with chosen accuracies by size."""

    def make(name, seed, worst, *, epsilon=1.0, basis="proved", published=None, why=""):
        stated = {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove", "gaps": ["a gap"]}
        certified = [{"radius": 0.25, "accuracy": worst[0]}]
        return {
            "cell": f"{name}-{epsilon}-{seed}",
            "name": name,
            "epsilon": None if basis == "none" else epsilon,
            "seed": seed,
            "privacy": {
                "claimed": stated if basis == "claimed" else None,
                "proved": {"add-remove": stated} if basis == "proved" else {},
                "audited": None,
                "contradicted": False,
                "withheld": [] if basis == "proved" else ["nothing is proved"],
            },
            "attacks": {
                "sizes": [0.05, 0.1],
                "clean_accuracy": 0.95,
                "attacks": [{"attack": "fgsm", "accuracy": [w + 0.01 for w in worst]}],
                "robust_accuracy": list(worst),
                "warnings": [],
            },
            "certificates": {"why": why}
            if why
            else {"certified_accuracy": certified, "curve": certified},
            "published_certificate": published or {"why": "the method has none"},
        }

    return make
