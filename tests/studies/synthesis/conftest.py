"""A small study of simulated records, and rows of made-up ones."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from record_study import laboratory, planned, run_study

from privet.studies.robust_private.results import spread
from privet.studies.synthesis.contenders import CONTENDERS
from privet.studies.synthesis.fidelity import SEVEN


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The reference with and without privacy, two seeds."""
    folder = tmp_path_factory.mktemp("study")
    cells = planned(("autoregressive", "autoregressive:none"))
    yardstick = laboratory().yardstick(folder)
    records = run_study(folder, cells)
    return SimpleNamespace(folder=folder, cells=cells, records=records, yardstick=yardstick)


@pytest.fixture(scope="session")
def make_row():
    """A row of results; `figures` by the short names of the seven, as lists over seeds."""

    def make(name, *, epsilon=1.5, others=None, columns=None, **figures):
        one = CONTENDERS.get(name)
        analysis = one.analysis if one else "none"
        stated = {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove", "gaps": ["a gap"]}
        given = {m.key: figures.get(m.short.strip("."), [1.0]) for m in SEVEN}
        by_key = {key: None if values is None else spread(values) for key, values in given.items()}
        by_key |= {key: spread(values) for key, values in (others or {}).items()}
        return {
            "name": name,
            "base": one.base if one else name,
            "analysis": analysis,
            "epsilon": None if analysis == "none" else epsilon,
            "seeds": [0],
            "cells": [f"{name}-seed0"],
            "basis": {"sound": "proved", "paper": "claimed", "none": "none"}[analysis],
            "claimed": stated if analysis == "paper" else None,
            "proved": {
                "add-remove": stated if analysis == "sound" else None, "replace-one": None
            },
            "audited": None,
            "contradicted": False,
            "withheld": [],
            "audit_skipped": "",
            "warnings": [],
            "figures": by_key,
            "columns": {
                what: {c: spread([v]) for c, v in (columns or {}).get(what, {}).items()}
                for what in ("kl", "distance", "cosine", "empty")
            },
            "seconds": dict.fromkeys(("training", "sampling", "measuring"), spread([1.0])),
        }  # fmt: skip

    return make
