"""What the lead keeps: begun, taken back, and resumed by as many processes. See also test_ranks."""

import contextlib

import pytest

from privet.data.identity import enter_in_ledger
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
    data = make_data()
    books = Books.begin({"method": "dpsgd"}, data, out=tmp_path / "run", ledger=ledger)
    assert ledger.names() == ["made-up"]
    assert ledger.account("made-up").runs == ()
    books.open_account(data, PLAN, method="dpsgd", private=True)
    books.folder.checkpoint.write_bytes(b"made before the first step")
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
        books.open_account(data, PLAN, method="dpsgd", private=True)
        assert ledger.run(books.run_id).committed == 3
    books.discard()
    assert not (tmp_path / "run").exists()
    assert ledger.names() == (["made-up"] if reserved else []), (
        "no entry where nothing was reserved"
    )
    assert not reserved or ledger.run(books.run_id).committed == 0


def test_data_that_were_in_the_ledger_before_stay_there(ledger, make_data):
    enter_in_ledger(make_data(), ledger)
    Books.begin({}, make_data(), out=None, ledger=ledger).discard()
    assert ledger.names() == ["made-up"]


def test_a_run_whose_folder_cannot_be_made_leaves_no_entry(ledger, make_data, tmp_path):
    (tmp_path / "full").write_text("in the way")
    with pytest.raises(InputError, match="not a folder"):
        Books.begin({}, make_data(), out=tmp_path / "full", ledger=ledger)
    assert ledger.names() == []


def reopened(folder, ledger):
    with contextlib.ExitStack() as held:
        return Books.reopen(folder, ledger=ledger, held=held)


def test_a_run_killed_before_its_reservation_cost_nothing_and_says_so(ledger, make_data, tmp_path):
    books = Books.begin({}, make_data(), out=tmp_path / "run", ledger=ledger)
    with pytest.raises(InputError, match="nothing was trained and nothing is charged") as caught:
        reopened(tmp_path / "run", ledger)
    assert f"delete {tmp_path / 'run'} and start again" in str(caught.value)
    assert "settle" not in str(caught.value)
    books.folder.checkpoint.write_bytes(b"trained, by another ledger")
    with pytest.raises(InputError, match="the ledger does not know the run"):
        reopened(tmp_path / "run", ledger)


def test_a_run_killed_before_its_first_step_names_its_reservation(ledger, make_data, tmp_path):
    data = make_data()
    books = Books.begin({}, data, out=tmp_path / "run", ledger=ledger)
    books.open_account(data, PLAN, method="dpsgd", private=True)
    with pytest.raises(InputError, match=f"none is charged.*ledger settle {books.run_id}"):
        reopened(tmp_path / "run", ledger)
    ledger.charge(books.run_id, 0)  # then the checkpoint was lost, and something was charged
    reopened(tmp_path / "run", ledger)


def test_a_finished_run_without_its_manifest_is_not_to_be_trained_again(
    ledger, make_data, tmp_path
):
    data = make_data()
    books = Books.begin({}, data, out=tmp_path / "run", ledger=ledger)
    books.open_account(data, PLAN, method="dpsgd", private=True)
    ledger.charge(books.run_id, 0)
    ledger.settle(books.run_id)
    with pytest.raises(InputError, match=r"manifest is gone.*would be charged again"):
        reopened(tmp_path / "run", ledger)


def test_a_lost_ledger_does_not_make_a_run_free(ledger, make_data, tmp_path):
    Books.begin({}, make_data(), out=tmp_path / "run", ledger=ledger)
    record = tmp_path / "run" / "internal" / "run.json"
    record.write_text(record.read_text().replace("ledger.db", "elsewhere.db"))
    with pytest.raises(InputError, match="ledger of the run is not there"):
        reopened(tmp_path / "run", None)
    assert not (tmp_path / "elsewhere.db").exists()


@pytest.mark.parametrize(
    ("size", "began_with", "fix"), [(1, 2, "--nproc-per-node 2"), (3, 2, "2"), (2, 1, "without")]
)
def test_another_number_of_processes_is_refused(size, began_with, fix):
    with pytest.raises(InputError, match=f"got {size}, expected {began_with}.*{fix}"):
        require_as_many(Ranks(size=size), began_with)
    require_as_many(Ranks(size=began_with), began_with)
