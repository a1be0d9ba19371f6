import importlib.util
import os

import pytest
import torch

from privet.studies.private_step.workloads import by_name

CPU = torch.device("cpu")


@pytest.fixture
def cpu():
    return CPU


@pytest.fixture
def tiny():
    """Two small convolutions, 9,930 parameters."""
    return by_name("cnn-tiny", (1, 8, 8))


@pytest.fixture
def opacus():
    """Present, or the test says why it could not run; in CI that is a failure."""
    if importlib.util.find_spec("opacus") is None:
        message = "opacus is not installed"
        if os.environ.get("PRIVET_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)
