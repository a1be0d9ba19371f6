"""Programs are made once: each export takes seconds."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made_up_phones import BATCH, SHAPES, handed

from privet.federation.on_device.writing import made
from privet.files import write_json


@pytest.fixture(scope="session")
def executorch():
    """What trains on phones; its absence is told."""
    if importlib.util.find_spec("executorch") is None:
        reason = "the extra 'phone' is not installed"
        if os.environ.get("PRIVET_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def folder_of(executorch, tmp_path_factory):
    """The folder of a network for phones, by its name."""
    there = {}

    def find(name):
        if name not in there:
            place = tmp_path_factory.mktemp(name)
            files, manifest = made(handed(name, SHAPES[name]), formats="executorch", batch=BATCH)
            for file, content in files.items():
                (place / file).write_bytes(content)
            write_json(place / "manifest.json", manifest)
            there[name] = place
        return there[name]

    return find
