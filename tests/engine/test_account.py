"""A run's account and journal: free repetition, charged difference, torn and corrupt files."""

import contextlib

import dp_accounting as dp
import pytest

from privet.engine.account import RunAccount
from privet.errors import BudgetExceeded, CheckFailed, InputError


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "steps.log"


@pytest.fixture
def account(ledger, make_plan, journal):
    return RunAccount.open(ledger, "toy", make_plan(), label="t", private=True, journal=journal)


def again(account, journal):
    """The account as a resumed process opens it."""
    return RunAccount(account.ledger, account.run_id, journal)


def test_opening_reserves_the_whole_plan(account, ledger, make_plan):
    record = ledger.run(account.run_id)
    plan = make_plan()
    step = dp.PoissonSampledDpEvent(plan.sampling_rate, dp.GaussianDpEvent(plan.noise_multiplier))
    assert (record.planned, record.charged, record.committed) == (6, 0, 6)
    assert record.step_event == step


def test_a_run_with_known_noise_is_entered_as_not_private(ledger, make_plan):
    run = RunAccount.open(ledger, "toy", make_plan(), label="t", private=False, journal=None)
    assert ledger.run(run.run_id).step_event == dp.NonPrivateDpEvent()


def test_a_capped_data_set_refuses_a_run_with_known_noise(ledger, make_plan):
    ledger.cap("toy", 100.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        RunAccount.open(ledger, "toy", make_plan(), label="t", private=False, journal=None)


def test_the_same_update_again_is_free(account, journal):
    account.charge(0)
    account.confirm(0, "aa")
    later = again(account, journal)
    later.charge(0)
    later.confirm(0, "aa")
    assert later.redone_steps == 0
    assert journal.read_text() == "0 aa\n"


def test_another_update_is_charged_again_each_time(account, journal):
    account.confirm(0, "aa")
    again(account, journal).confirm(0, "bb")
    assert account.redone_steps == 1
    last = again(account, journal)
    last.confirm(0, "bb")  # the same as the last one: free
    assert last.redone_steps == 1
    last.confirm(0, "aa")  # back to the first: another release all the same
    assert last.redone_steps == 2


def test_redone_steps_stay_spent_after_the_run_is_settled(account, ledger):
    for step in range(3):
        account.charge(step)
        account.confirm(step, f"a{step}")
    account.confirm(1, "other")
    account.settle()
    assert ledger.run(account.run_id).committed == 3 + 1


@pytest.mark.parametrize("torn", ["1", "1 ", "1 b", "1 bb"])
def test_a_torn_last_line_is_ignored_and_does_not_spoil_the_next(account, journal, torn):
    """The update of a line without its end was never used: doing it again is free."""
    journal.write_text("0 aa\n" + torn)
    resumed = again(account, journal)
    resumed.confirm(0, "aa")
    resumed.confirm(1, "cc")
    assert resumed.redone_steps == 0
    assert journal.read_text() == "0 aa\n1 cc\n"
    third = again(account, journal)
    third.confirm(1, "dd")
    assert third.redone_steps == 1


def test_reading_a_torn_journal_does_not_touch_it(account, journal):
    journal.write_text("0 aa\n1 b")
    again(account, journal)
    assert journal.read_text() == "0 aa\n1 b"


@pytest.mark.parametrize(
    "content",
    [b"0 aa\nnonsense\n", b"x aa\n", b"0 aa extra\n", b"\n", b"\xff\xfe \x00\n", b"0 \xff\n"],
)
def test_a_corrupt_journal_is_bad_input(account, journal, content):
    journal.write_bytes(content)
    with pytest.raises(InputError, match="corrupt step journal"):
        again(account, journal)


def test_a_missing_journal_is_an_empty_one(account, journal):
    fresh = again(account, journal)
    fresh.confirm(3, "aa")
    assert fresh.redone_steps == 0


def test_steps_outside_the_reservation_are_refused(account):
    account.charge(5)
    with pytest.raises(CheckFailed):
        account.charge(6)


def test_a_cap_without_room_refuses_the_second_release(ledger, make_plan, journal):
    plan = make_plan()
    step = plan.event(1).event
    ledger.cap("toy", 50.0, 1e-5)
    account = RunAccount.open(ledger, "toy", plan, label="t", private=True, journal=journal)
    for steps in (10_000, 1000, 100, 10, 1):  # another run takes all the room that is left
        with contextlib.suppress(BudgetExceeded):
            while True:
                ledger.reserve("toy", label="filler", step_event=step, steps=steps)
    account.confirm(0, "aa")
    with pytest.raises(BudgetExceeded):
        account.confirm(0, "bb")
    assert account.redone_steps == 0
    assert journal.read_text() == "0 aa\n"
    account.confirm(0, "aa")  # the same update is still free
