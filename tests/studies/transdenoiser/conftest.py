"""A small study on digits, and records of made-up ones."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from denoiser_study import planned, run_study

from privet.attacks import judging


@pytest.fixture(scope="module", autouse=True)
def _quick_judges():
    """What is not decided after 25 draws counts as fallen; a thousand would take minutes."""
    judging._enough()  # kept for the whole process, which has other tests: of all draws
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(judging, "MOST", 25)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory, _quick_judges):
    """Five contenders, two seeds."""
    folder = tmp_path_factory.mktemp("study")
    cells = planned(folder, ("td-start", "paper-inp_0.1", "dpcert"))
    heard = []
    records = run_study(folder, cells, watch=lambda done, what: heard.append((done, what)))
    return SimpleNamespace(folder=folder, cells=cells, records=records, heard=heard)


@pytest.fixture
def make_record():
    """A record as the study writes it, with chosen accuracies."""

    def make(name, seed, certified, *, epsilon=1.0, basis="proved", half="second", why=""):
        stated = {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove", "gaps": ["a gap"]}
        curve = [{"radius": 0.25, "accuracy": certified}, {"radius": 0.5, "accuracy": 0.0}]
        found = {
            "sizes": [1.0, 2.0],
            "clean_accuracy": 0.9,
            "attacks": [{"attack": "pgd", "accuracy": [0.6, 0.4]}],
            "robust_accuracy": [0.55, 0.35],
            "warnings": [],
        }
        return {
            "cell": f"{name}-{epsilon}-{seed}",
            "name": name,
            "epsilon": epsilon if basis in ("proved", "claimed") else None,
            "seed": seed,
            "asked": {"data": f"digits/{half}"},
            "privacy": {
                "claimed": stated if basis == "claimed" else None,
                "proved": {"add-remove": stated} if basis == "proved" else {},
                "audited": None,
                "contradicted": False,
                "withheld": [],
            },
            "attacks": found,
            "crafted": found
            | {"quiet_accuracy": 0.95, "scale": 0.25, "robust_accuracy": [0.8, 0.7]},
            "certificates": {"why": why} if why else {"certified_accuracy": curve, "curve": curve},
        }

    return make
