import sqlite3
import stat
import threading

import dp_accounting as dp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet.data.identity import enter_in_ledger
from privet.errors import BudgetExceeded, CheckFailed, FaultyEnvironment, InputError
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.privacy.accounting import epsilon_of
from privet.privacy.filters import RenyiFilter

STEP = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0))


def rows(*names):
    return [name.encode().ljust(16) for name in names]


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    yield book
    book.close()


def register(ledger, name, *records, parents=()):
    ledger.register(
        name, unit="example", snapshot=f"{name}:{records}", rows=rows(*records), parents=parents
    )


def spent(ledger, name):
    return ledger.account(name).spent_epsilon


def steps_that_fit(epsilon, delta):
    chosen = RenyiFilter.for_cap(epsilon, delta)
    return int(chosen.budget / chosen.cost(STEP))


def test_a_cap_admits_exactly_what_the_filter_admits(ledger):
    register(ledger, "d", "a")
    ledger.cap("d", 4.0, 1e-5)
    most = steps_that_fit(4.0, 1e-5)
    with pytest.raises(BudgetExceeded, match="cap of 'd'"):
        ledger.reserve("d", label="too much", step_event=STEP, steps=most + 1)
    ledger.reserve("d", label="fits", step_event=STEP, steps=most)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("d", label="one more", step_event=STEP, steps=1)


def test_runs_are_listed_as_they_came_also_within_one_second(ledger, monkeypatch):
    """Ids are random: 12 of them come out in this order once in 479 million."""
    monkeypatch.setattr("privet.ledger._now", lambda: "2026-01-01T00:00:00+00:00")
    register(ledger, "d", "a")
    labels = [f"run {number}" for number in range(12)]
    for label in labels:
        ledger.reserve("d", label=label, step_event=STEP, steps=1)
    assert [run.label for run in ledger.account("d").runs] == labels


def test_what_a_full_cap_admits_is_within_it_by_an_independent_accountant(ledger):
    most = steps_that_fit(4.0, 1e-5)
    assert epsilon_of(dp.SelfComposedDpEvent(STEP, most), 1e-5) <= 4.0


def test_a_refused_reservation_leaves_no_trace(ledger):
    register(ledger, "d", "a")
    ledger.cap("d", 1.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("d", label="x", step_event=STEP, steps=10**6)
    assert ledger.account("d").runs == ()
    assert spent(ledger, "d") == 0.0


def test_an_open_run_counts_whole_and_a_settled_one_what_it_charged(ledger):
    register(ledger, "d", "a")
    cap = ledger.cap("d", 8.0, 1e-5)
    run = ledger.reserve("d", label="x", step_event=STEP, steps=100)
    assert spent(ledger, "d") == pytest.approx(cap.epsilon_spent(100 * cap.cost(STEP)))
    for step in range(10):
        ledger.charge(run, step)
    ledger.settle(run)
    assert spent(ledger, "d") == pytest.approx(cap.epsilon_spent(10 * cap.cost(STEP)))


def test_charging_a_step_twice_costs_once_and_redoing_it_costs_again(ledger):
    register(ledger, "d", "a")
    run = ledger.reserve("d", label="x", step_event=STEP, steps=5)
    ledger.charge(run, 0)
    ledger.charge(run, 0)
    assert ledger.run(run).charged == 1
    ledger.recharge(run)
    ledger.settle(run)
    assert ledger.run(run).committed == 2


def test_no_step_beyond_the_plan_or_after_the_end(ledger):
    register(ledger, "d", "a")
    run = ledger.reserve("d", label="x", step_event=STEP, steps=5)
    with pytest.raises(CheckFailed):
        ledger.charge(run, 5)
    ledger.settle(run)
    with pytest.raises(CheckFailed):
        ledger.charge(run, 0)
    with pytest.raises(CheckFailed, match="closed"):
        ledger.recharge(run)


@pytest.mark.parametrize("steps", [0, -1000])
def test_a_reservation_gives_nothing_back(ledger, steps):
    register(ledger, "d", "a")
    with pytest.raises(InputError, match="number of steps"):
        ledger.reserve("d", label="x", step_event=STEP, steps=steps)


def test_a_release_says_of_its_data_only_what_the_key_can_read(ledger, tmp_path):
    """Two releases on the same records must look as different as on different ones."""
    one, other = ledger.commitment("s", "run1"), ledger.commitment("s", "run2")
    assert one != other
    stranger = Ledger(tmp_path / "stranger.db")
    assert stranger.commitment("s", "run1") != one
    stranger.close()


def test_the_facts_of_the_data_are_bound_to_its_records(ledger):
    """Whoever restates one needs another commitment, and has no key to make it."""
    stated = {"unit": "user", "learned": [{"name": "size", "epsilon": 0.5}]}
    one = ledger.commitment("s", "run1", facts=stated)
    assert one == ledger.commitment("s", "run1", facts=dict(reversed(stated.items())))
    for restated in ({}, stated | {"unit": "example"}, stated | {"learned": []}, None):
        assert ledger.commitment("s", "run1", facts=restated) != one


def test_a_lost_key_is_not_replaced_silently(tmp_path):
    Ledger(tmp_path / "ledger.db").close()
    (tmp_path / "ledger.key").unlink()
    with pytest.raises(InputError, match="key is missing"):
        Ledger(tmp_path / "ledger.db")


def test_redoing_a_step_needs_room_under_the_cap(ledger):
    register(ledger, "d", "a")
    ledger.cap("d", 4.0, 1e-5)
    run = ledger.reserve("d", label="x", step_event=STEP, steps=steps_that_fit(4.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        ledger.recharge(run)


def test_a_non_private_access_never_fits_a_cap(ledger):
    register(ledger, "d", "a")
    ledger.cap("d", 1000.0, 1e-5)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve("d", label="known noise", step_event=dp.NonPrivateDpEvent(), steps=1)
    assert "no cap has room for. Fix: train with privacy" in str(caught.value)
    assert "smaller epsilon" not in str(caught.value)


def test_after_a_non_private_access_no_private_run_fits_a_cap(ledger):
    """The cap was set under another name, before its records were known."""
    ledger.open_account("capped")
    ledger.cap("capped", 1000.0, 1e-5)
    register(ledger, "d", "a")
    run = ledger.reserve("d", label="in the open", step_event=dp.NonPrivateDpEvent(), steps=1)
    register(ledger, "capped", "a", "b")
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve("capped", label="x", step_event=STEP, steps=1)
    assert f"got run {run} (in the open)" in str(caught.value)
    assert "no epsilon is small enough" in str(caught.value)
    ledger.settle(run)  # it took no step: nothing was seen
    ledger.reserve("capped", label="x", step_event=STEP, steps=1)


def test_where_epsilon_is_the_matter_a_smaller_one_is_the_fix(ledger):
    register(ledger, "d", "a")
    ledger.cap("d", 1.0, 1e-5)
    with pytest.raises(BudgetExceeded, match="Fix: ask for a smaller epsilon"):
        ledger.reserve("d", label="x", step_event=STEP, steps=10**6)


def test_a_cap_can_be_set_before_anything_is_known_of_the_data(ledger):
    ledger.open_account("d")
    ledger.cap("d", 1.0, 1e-5)
    register(ledger, "d", "a")
    with pytest.raises(BudgetExceeded):
        ledger.reserve("d", label="x", step_event=STEP, steps=10**6)


def test_a_cap_below_what_is_spent_is_refused(ledger):
    register(ledger, "d", "a")
    ledger.reserve("d", label="x", step_event=STEP, steps=500)
    with pytest.raises(BudgetExceeded, match="already spent"):
        ledger.cap("d", 0.5, 1e-5)


@pytest.mark.parametrize(
    ("child", "inherits"),
    [(("a",), True), (("a", "b"), True), (("a", "z"), True), (("z",), False)],
    ids=["subset", "copy", "overlap", "disjoint"],
)
def test_shared_records_pay_for_both_data_sets(ledger, child, inherits):
    register(ledger, "parent", "a", "b")
    register(ledger, "child", *child)
    ledger.cap("child", 8.0, 1e-5)
    ledger.reserve("parent", label="x", step_event=STEP, steps=100)
    assert (spent(ledger, "child") > 0) == inherits


def test_a_cap_on_the_parent_stops_a_run_on_the_child(ledger):
    register(ledger, "parent", "a", "b")
    register(ledger, "child", "b")
    ledger.cap("parent", 1.0, 1e-5)
    with pytest.raises(BudgetExceeded, match="cap of 'parent'"):
        ledger.reserve("child", label="x", step_event=STEP, steps=1000)


def test_a_re_encoding_inherits_through_its_declared_parents(ledger):
    register(ledger, "raw", "a", "b")
    register(ledger, "encoded", "A", "B", parents=["raw"])
    ledger.reserve("raw", label="x", step_event=STEP, steps=100)
    ledger.cap("encoded", 8.0, 1e-5)
    assert spent(ledger, "encoded") > 0
    assert ledger.account("encoded").parents == ("raw",)


def test_a_merge_inherits_from_all_its_parents(ledger):
    register(ledger, "one", "a")
    register(ledger, "two", "b")
    register(ledger, "both", "A", "B", parents=["one", "two"])
    assert ledger.account("both").related == ("one", "two")


def test_disjoint_halves_of_a_split_do_not_pay_for_each_other(ledger):
    register(ledger, "whole", "a", "b")
    register(ledger, "left", "a", parents=["whole"])
    register(ledger, "right", "b", parents=["whole"])
    assert ledger.account("left").related == ("whole",)


def test_parents_declared_later_are_inherited_too(ledger):
    register(ledger, "raw", "a")
    register(ledger, "encoded", "A")
    register(ledger, "encoded", "A", parents=["raw"])
    assert ledger.account("encoded").related == ("raw",)


def test_new_records_under_a_known_name_are_added_to_it(ledger):
    register(ledger, "d", "a")
    register(ledger, "d", "b")
    register(ledger, "other", "a")
    register(ledger, "another", "b")
    assert ledger.account("d").related == ("another", "other")


def test_unknown_names_and_changed_units_are_refused(ledger):
    with pytest.raises(InputError, match="not in the ledger"):
        ledger.account("nobody")
    with pytest.raises(InputError, match="not in the ledger"):
        register(ledger, "child", "a", parents=["nobody"])
    register(ledger, "d", "a")
    with pytest.raises(InputError, match="another unit"):
        ledger.register("d", unit="patient", snapshot="s", rows=[])


def test_runs_started_together_cannot_jointly_exceed_a_cap(tmp_path):
    path = tmp_path / "ledger.db"
    book = Ledger(path)
    register(book, "d", "a")
    book.cap("d", 4.0, 1e-5)
    steps, outcomes, gate = steps_that_fit(4.0, 1e-5), [], threading.Barrier(8)

    def compete():
        own = Ledger(path)
        gate.wait()
        try:
            own.reserve("d", label="x", step_event=STEP, steps=steps)
            outcomes.append("ran")
        except BudgetExceeded:
            outcomes.append("refused")
        finally:
            own.close()

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    book.close()
    assert sorted(outcomes) == ["ran"] + ["refused"] * 7


@settings(max_examples=25, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(
    runs=st.lists(
        st.tuples(st.floats(0.7, 5.0), st.floats(0.01, 0.5), st.integers(1, 300)), max_size=6
    )
)
def test_whatever_the_ledger_admits_stays_within_the_cap(tmp_path_factory, runs):
    """For plans fixed beforehand the exact epsilon (PLD) is an oracle for the filter."""
    book = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db")
    register(book, "d", "a")
    book.cap("d", 3.0, 1e-5)
    admitted = []
    for multiplier, rate, steps in runs:
        step = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier))
        try:
            book.reserve("d", label="x", step_event=step, steps=steps)
            admitted.append(dp.SelfComposedDpEvent(step, steps))
        except BudgetExceeded:
            pass
    book.close()
    if admitted:
        assert epsilon_of(dp.ComposedDpEvent(admitted), 1e-5, interval=1e-3) <= 3.0


def test_the_key_is_the_owners_alone_and_stays_the_same(tmp_path):
    first = Ledger(tmp_path / "ledger.db")
    mode = stat.S_IMODE((tmp_path / "ledger.key").stat().st_mode)
    second = Ledger(tmp_path / "ledger.db")
    assert mode == 0o600
    assert first.digest_key == second.digest_key
    first.close()
    second.close()


def test_records_are_recognised_in_other_clothes_but_not_stored(tmp_path, make_data, ledger):
    data = make_data()
    enter_in_ledger(data, ledger)
    renamed = make_data(name="renamed", train=data.test)
    enter_in_ledger(renamed, ledger)
    assert ledger.account("renamed").related == ("made-up",)
    stored = b"".join(p.read_bytes() for p in tmp_path.glob("ledger.db*"))
    assert data.train.x[0].tobytes() not in stored


def test_a_folder_that_cannot_be_written_is_the_environments_fault(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FaultyEnvironment, match=r"cannot make a folder.*PRIVET_HOME"):
        Ledger(tmp_path / "file" / "ledger.db")


def test_a_corrupt_ledger_is_bad_input(tmp_path):
    (tmp_path / "ledger.key").write_bytes(b"k" * 32)
    (tmp_path / "ledger.db").write_bytes(b"not a database, whatever it was before" * 100)
    with pytest.raises(InputError, match="corrupt ledger"):
        Ledger(tmp_path / "ledger.db")


def test_charges_survive_a_connection_that_is_never_closed(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    register(book, "d", "a")
    run = book.reserve("d", label="x", step_event=STEP, steps=5)
    book.charge(run, 0)
    other = sqlite3.connect(tmp_path / "ledger.db")
    assert other.execute("SELECT charged, planned FROM runs").fetchall() == [(1, 5)]
    other.close()
    book.close()


def test_records_are_counted_for_one_unit_only(ledger):
    """Checked where the money is reserved: two runs that start together cannot both pass."""
    event = dp.GaussianDpEvent(2.0)
    for name, unit in (("visits", "example"), ("patients", "patient")):
        ledger.register(name, unit=unit, snapshot=name, rows=[b"0" * 16, b"1" * 16])
    ledger.require_one_unit("patients")  # nothing is spent yet
    ledger.reserve("visits", label="t", step_event=event, steps=1)
    with pytest.raises(InputError, match="with another unit"):
        ledger.reserve("patients", label="t", step_event=event, steps=1)
    with pytest.raises(InputError, match="with another unit"):
        ledger.cap("patients", 1.0, 1e-5)
    ledger.reserve("visits", label="t", step_event=event, steps=1)


SHARED = rows("0", "1")


def grouped(ledger, name, *, by_column):
    ledger.register(name, unit="patient", grouped=by_column, snapshot=name, rows=SHARED)


@pytest.mark.parametrize("first_by_column", [True, False])
def test_a_name_alone_does_not_make_one_unit_of_records_and_patients(ledger, first_by_column):
    """Record by record under the name of a patient costs a patient with many records more."""
    grouped(ledger, "first", by_column=first_by_column)
    grouped(ledger, "second", by_column=not first_by_column)
    ledger.reserve("first", label="t", step_event=STEP, steps=1)
    with pytest.raises(InputError, match="with another unit") as caught:
        ledger.reserve("second", label="t", step_event=STEP, steps=1)
    fix = str(caught.value).partition("Fix: ")[2]
    wanted = "--unit-column COLUMN" if first_by_column else "no --unit-column"
    assert f"--unit patient {'' if first_by_column else 'and '}{wanted}" in fix
    with pytest.raises(InputError, match=r"registered with another unit.*--unit-column"):
        grouped(ledger, "first", by_column=not first_by_column)
    grouped(ledger, "third", by_column=first_by_column)
    ledger.reserve("third", label="t", step_event=STEP, steps=1)


@pytest.mark.parametrize("by_column", [True, False])
def test_an_account_opened_early_takes_the_grouping_of_its_first_records(ledger, by_column):
    ledger.open_account("d", unit="patient")
    assert ledger.account("d").unit.grouped is None
    ledger.cap("d", 1.0, 1e-5)
    grouped(ledger, "d", by_column=by_column)
    assert ledger.account("d").unit.grouped is by_column
    with pytest.raises(InputError, match="another unit"):
        grouped(ledger, "d", by_column=not by_column)


def test_a_refused_entry_leaves_nothing_behind(ledger):
    grouped(ledger, "patients", by_column=True)
    ledger.reserve("patients", label="t", step_event=STEP, steps=1)
    with pytest.raises(InputError, match="with another unit"):
        register(ledger, "visits", "0")
    assert ledger.names() == ["patients"]
    assert ledger.account("patients").related == ()
    assert ledger.snapshots("visits") == []


def test_only_what_nothing_rests_on_can_be_withdrawn(ledger):
    for name, record in (("run", "a"), ("capped", "b"), ("parent", "c"), ("idle", "d")):
        register(ledger, name, record)
    ledger.settle(ledger.reserve("run", label="t", step_event=STEP, steps=1))
    ledger.cap("capped", 1.0, 1e-5)
    register(ledger, "child", "x", parents=["parent"])
    for name in ("run", "capped", "parent", "child", "idle"):
        ledger.withdraw(name)
    assert ledger.names() == ["capped", "parent", "run"]
    register(ledger, "again", "d", "x")
    assert ledger.account("again").related == (), "its records are forgotten too"
    assert ledger.account("parent").related == ()


def test_a_ledger_of_version_0_1_0_counts_single_records_whatever_their_unit_is_called(tmp_path):
    """That version had no unit columns; the tables below are as it made them."""
    Ledger(tmp_path / "ledger.db").close()
    old = sqlite3.connect(tmp_path / "ledger.db")
    old.executescript(
        "DROP TABLE datasets; CREATE TABLE datasets (name TEXT PRIMARY KEY, unit TEXT NOT NULL,"
        " registered TEXT NOT NULL);"
        "INSERT INTO datasets VALUES ('used', 'patient', 'then'), ('opened', 'patient', 'then');"
        "INSERT INTO snapshots VALUES ('used', 's');"
    )
    old.close()
    for _ in range(2):  # the second time it is up to date
        book = Ledger(tmp_path / "ledger.db")
        found = {name: book.account(name).unit.grouped for name in ("used", "opened")}
        assert found == {"used": False, "opened": None}
        with pytest.raises(InputError, match="another unit"):
            grouped(book, "used", by_column=True)
        book.close()


# --- caps are for add/remove neighbours ---------------------------------------------------------

TURN = dp.GaussianDpEvent(20.0)  # of shuffled batches, and of fixed ones: the same event


def shuffled_run(ledger, name="d"):
    return ledger.reserve(
        name, label="shuffled", step_event=TURN, steps=2, adjacency=Adjacency.ZERO_OUT
    )


def test_a_cap_admits_no_run_that_proves_nothing_for_its_neighbours(ledger):
    register(ledger, "d", "a")
    register(ledger, "part", "a")
    ledger.cap("d", 8.0, 1e-5)
    for name in ("d", "part"):
        with pytest.raises(InputError, match=r"cap of 'd'.*zero-out.*fixed-batches"):
            shuffled_run(ledger, name)
    assert spent(ledger, "d") == 0
    ledger.reserve("d", label="fixed", step_event=TURN, steps=2)
    assert 0 < spent(ledger, "d") < 8


def test_no_cap_is_set_over_such_a_run_unless_nothing_of_it_was_used(ledger):
    register(ledger, "d", "a")
    run = shuffled_run(ledger)
    assert ledger.run(run).adjacency is Adjacency.ZERO_OUT
    with pytest.raises(InputError, match=rf"run {run} \(shuffled\).*zero-out"):
        ledger.cap("d", 8.0, 1e-5)
    ledger.settle(run)  # none of its turns was charged
    ledger.cap("d", 8.0, 1e-5)
    assert spent(ledger, "d") == 0


def test_such_a_run_that_turns_out_to_be_on_the_same_records_leaves_no_room(ledger):
    register(ledger, "d", "a")
    register(ledger, "other", "b")
    ledger.cap("d", 8.0, 1e-5)
    shuffled_run(ledger, "other")
    register(ledger, "d", "b")  # found under this name only now
    assert spent(ledger, "d") == float("inf")
    with pytest.raises(BudgetExceeded, match=r"\(shuffled\) on some of its records"):
        ledger.reserve("d", label="x", step_event=STEP, steps=1)


def test_runs_of_version_0_1_0_are_proved_for_add_remove(tmp_path):
    """It knew Poisson sampling alone, and no column that says so."""
    book = Ledger(tmp_path / "ledger.db")
    register(book, "d", "a")
    run = book.reserve("d", label="x", step_event=STEP, steps=3)
    book.close()
    old = sqlite3.connect(tmp_path / "ledger.db")
    old.execute("ALTER TABLE runs DROP COLUMN adjacency")
    old.close()
    for _ in range(2):  # the second time it is up to date
        book = Ledger(tmp_path / "ledger.db")
        assert book.run(run).adjacency is Adjacency.ADD_REMOVE
        book.cap("d", 8.0, 1e-5)
        book.close()
