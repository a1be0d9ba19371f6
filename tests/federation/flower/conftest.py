"""Flower, where it is installed; a table with nodes of paper, and a folder of a model."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

if importlib.util.find_spec("flwr") is None:
    if os.environ.get("PRIVET_REQUIRE_ALL"):
        raise RuntimeError("the extra 'flower' is not installed")
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def world(tmp_path):
    from flower_table import World

    return World(tmp_path)
