"""What the lead keeps: begun, taken back, and resumed by as many processes. See also test_ranks."""

import contextlib

import pytest

from privet.engine.plan import Plan
from privet.engine.ranks import Ranks
from privet.errors import InputError
from privet.ledger import Ledger
from privet.training.books import Books, require_as_many

PLAN = Plan(
    steps=3, sampling_rate=0.5, clip_norm=1.0, noise_multiplier=1.0, normaliser=40.0, delta=1e-5
)


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


def test_beginning_enters_the_data_and_reserves_nothing(ledger, make_data, tmp_path):
    books = Books.begin({"method": "dpsgd"}, make_data(), out=tmp_path / "run", ledger=ledger)
    assert ledger.names() == ["made-up"]
    assert ledger.account("made-up").runs == ()
    with contextlib.ExitStack() as held:
        again, record = Books.reopen(tmp_path / "run", ledger=ledger, held=held)
        assert again.run_id == books.run_id == record["run"]
        assert record["method"] == "dpsgd"
        with pytest.raises(InputError, match="another process"), contextlib.ExitStack() as other:
            Books.reopen(tmp_path / "run", ledger=ledger, held=other)


@pytest.mark.parametrize("reserved", [True, False])
def test_a_run_that_did_not_begin_leaves_neither_folder_nor_reservation(
    ledger, make_data, tmp_path, reserved
):
    data = make_data()
    books = Books.begin({}, data, out=tmp_path / "run", ledger=ledger)
    if reserved:
        books.open_account(data, PLAN, private=True)
        assert ledger.run(books.run_id).committed == 3
    books.discard()
    assert not (tmp_path / "run").exists()
    assert sum(run.committed for run in ledger.account("made-up").runs) == 0


@pytest.mark.parametrize(
    ("size", "began_with", "fix"), [(1, 2, "--nproc-per-node 2"), (3, 2, "2"), (2, 1, "without")]
)
def test_another_number_of_processes_is_refused(size, began_with, fix):
    with pytest.raises(InputError, match=f"got {size}, expected {began_with}.*{fix}"):
        require_as_many(Ranks(size=size), began_with)
    require_as_many(Ranks(size=began_with), began_with)
