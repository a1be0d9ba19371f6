"""Cards of small releases, one for each way of sampling and counting; each test gets a copy."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet.data.dataset import LearnedFact, Split
from privet.ledger import Ledger
from privet.training import train

MADE = {
    "poisson": {},
    "shuffled": {"sampler": "shuffled"},
    "fixed-batches": {"sampler": "fixed-batches"},
    "banded": {"sampler": "cyclic-poisson", "cycle": 4, "bands": 3},
    "grouped": {"contribution": 2},
    "learned": {},
    "coarse": {"precision": "bf16"},
}


@pytest.fixture(scope="session")
def house(tmp_path_factory):
    """Where the cards of this session are kept, with the ledgers that were charged for them."""
    return tmp_path_factory.mktemp("cards")


@pytest.fixture
def card(house, make_data) -> Callable[[str], dict[str, Any]]:
    def data_of(name):
        if name == "learned":
            return make_data(learned=(LearnedFact(name="nominal size", epsilon=0.5),))
        if name == "grouped":
            records = make_data().train
            users = Split(x=records.x, y=records.y, units=np.arange(80) // 2)
            return make_data(train=users, unit="user", nominal_size=40)
        return make_data()

    def made(name):
        kept = house / f"{name}.json"
        if not kept.exists():
            with contextlib.closing(Ledger(house / f"{name}.db")) as book:
                options = {"epochs": 2, "batch": 10, "model": "linear"} | MADE[name]
                release = train("dpsgd", data_of(name), epsilon=3.0, ledger=book, **options)
            kept.write_text(json.dumps(release.trust))
        return json.loads(kept.read_text())

    return made


@pytest.fixture
def ledger_of(house):
    """The ledger that was charged for a card, by the card's name."""
    with contextlib.ExitStack() as opened:
        yield lambda name: opened.enter_context(contextlib.closing(Ledger(house / f"{name}.db")))


@pytest.fixture(params=MADE)
def sound(request, card):
    """Every card as it was made."""
    return card(request.param)


@pytest.fixture
def against():
    """What the findings of a check say against the card."""
    return lambda findings: "; ".join(f.detail for f in findings if not f.ok)
