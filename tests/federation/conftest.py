"""A small federation, and what is needed to run it."""

import contextlib

import pytest

from privet.ledger import Ledger


@pytest.fixture
def book(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture
def quick():
    """Settings of a run of a second: eight made-up clients, a linear model."""
    return {
        "clients": 8,
        "rounds": 6,
        "model": "linear",
        "local_epochs": 1,
        "batch": 5,
        "client_rate": 0.5,
    }
