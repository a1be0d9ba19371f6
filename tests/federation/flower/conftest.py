"""Flower, where it is installed; a table with nodes of paper, and a folder of a model."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "server"), str(HERE.parents[1])]

ABSENT = "the extra 'flower' is not installed"


class Absent(pytest.Module):
    """Tests that cannot even be read without Flower."""

    def collect(self):
        if os.environ.get("PRIVET_REQUIRE_ALL"):
            pytest.fail(ABSENT)
        pytest.skip(ABSENT, allow_module_level=True)


if importlib.util.find_spec("flwr") is None:

    def pytest_pycollect_makemodule(module_path, parent):
        return Absent.from_parent(parent, path=module_path)


@pytest.fixture
def world(tmp_path):
    from flower_table import World

    return World(tmp_path)
