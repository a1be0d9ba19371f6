"""Flower, where it is installed; a table with nodes of paper, and a folder of a model."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "server"), str(HERE.parents[1])]

if importlib.util.find_spec("flwr") is None and os.environ.get("PRIVET_REQUIRE_ALL"):
    raise RuntimeError("the extra 'flower' is not installed")
pytest.importorskip("flwr", reason="needs the extra 'flower'")


@pytest.fixture
def world(tmp_path):
    from flower_table import World

    return World(tmp_path)
