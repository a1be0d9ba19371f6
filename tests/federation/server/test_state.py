"""One table of tests for every database."""

import contextlib
import threading

import pytest

from privet.errors import FaultyEnvironment, InputError
from privet.federation.server.state import (
    App,
    Device,
    Event,
    Fate,
    PlanRow,
    RoundRow,
    SnapshotRow,
    Ticket,
    Version,
)
from privet.federation.wire import Reason


@pytest.fixture
def state(open_state):
    return open_state()


def _device(name, key="k", **changes):
    facts = {"phone": "Pixel 3", "system": "android-10", "since": 1.0}
    return Device(name=name, public_key=key, **(facts | changes))


def _ticket(name="t", device="d", number=0, **changes):
    facts = {"model": "m", "base_version": 0, "until": 10.0}
    return Ticket(ticket=name, device=device, round=number, **(facts | changes))


def test_apps_are_found_by_their_key_and_names_are_unique(state):
    state.add_app(App(name="a", key_digest="1" * 64, since=5.0), ["m", "n"])
    assert state.app_with_key("1" * 64) == App(name="a", key_digest="1" * 64, since=5.0)
    assert state.app_with_key("2" * 64) is None
    with pytest.raises(InputError, match="an app has this name"):
        state.add_app(App(name="a", key_digest="3" * 64, since=6.0))
    assert [app.name for app in state.apps()] == ["a"]
    assert state.models_of_app("a") == ["m", "n"]


def test_a_phone_of_two_apps_has_the_models_of_both_and_one_name(state):
    for name, digest, models in (("a", "1", ["m"]), ("b", "2", ["m", "n"]), ("c", "3", ["x"])):
        state.add_app(App(name=name, key_digest=digest, since=0.0), models)
    first = state.add_device(_device("d1"), "a")
    again = state.add_device(_device("d2", phone="Pixel 9"), "b")  # the same key
    assert (first.name, again.name, again.phone) == ("d1", "d1", "Pixel 9")
    assert state.models_of("d1") == ["m", "n"]
    state.add_device(_device("d3", key="other"), "c")
    assert state.devices_of("m") == ["d1"]
    assert state.device("d2") is None


def test_a_blocked_phone_is_not_among_those_that_are_asked(state):
    state.add_app(App(name="a", key_digest="1", since=0.0), ["m"])
    state.add_device(_device("d"), "a")
    state.block("d")
    assert state.devices_of("m") == []
    assert state.device("d").blocked
    state.add_device(_device("e"), "a")  # to register again is no way around it
    assert state.device("d").blocked
    state.block("d", blocked=False)
    assert state.devices_of("m") == ["d"]
    with pytest.raises(InputError, match="no such device"):
        state.block("nobody")


def test_a_nonce_is_new_once(state):
    assert state.remember_nonce("n", until=10.0)
    assert not state.remember_nonce("n", until=20.0)
    state.forget_nonces(before=9.0)
    assert not state.remember_nonce("n", until=20.0)
    state.forget_nonces(before=11.0)
    assert state.remember_nonce("n", until=20.0)


def test_of_many_threads_one_sees_a_nonce_as_new(state):
    new = []
    threads = [
        threading.Thread(target=lambda: new.append(state.remember_nonce("n", until=1.0)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(new) == [False] * 7 + [True]


def test_a_device_has_one_ticket_a_round_with_the_latest_deadline(state):
    assert state.give_ticket(_ticket("t1", until=10.0)).ticket == "t1"
    again = state.give_ticket(_ticket("t2", until=20.0))
    assert (again.ticket, again.until) == ("t1", 20.0)
    assert state.ticket("t2") is None
    assert state.give_ticket(_ticket("t3", number=1)).ticket == "t3"
    assert state.give_ticket(_ticket("t4", model="other")).ticket == "t4"
    assert {t.ticket for t in state.tickets_out("m")} == {"t1", "t3"}


def test_a_ticket_is_decided_once(state):
    state.give_ticket(_ticket())
    state.decide("t", Fate.REFUSED, Reason.MALFORMED)
    state.decide("t", Fate.ACCEPTED)
    kept = state.ticket("t")
    assert (kept.fate, kept.reason) == (Fate.REFUSED, Reason.MALFORMED)
    assert state.tickets_out("m") == []


def test_a_journal_has_one_event_of_each_number(state):
    for seq in range(3):
        state.append(Event(model="m", seq=seq, kind="update", at=seq / 3, fields={"n": [seq, "ü"]}))
    state.append(Event(model="other", seq=0, kind="opened", at=0.0, fields={}))
    assert [e.fields["n"] for e in state.events("m", after=0)] == [[1, "ü"], [2, "ü"]]
    assert state.events("m")[1].at == 1 / 3  # to the last bit
    assert len(state.events("m", most=2)) == 2
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        state.append(Event(model="m", seq=2, kind="deadline", at=9.0, fields={}))


def test_a_transaction_is_all_or_nothing(state, open_state):
    other = open_state()
    with contextlib.suppress(KeyError), state.transaction(durable=True):
        state.append(Event(model="m", seq=0, kind="opened", at=0.0, fields={}))
        state.give_ticket(_ticket())
        raise KeyError
    assert state.events("m") == []
    assert state.ticket("t") is None
    with state.transaction():
        state.append(Event(model="m", seq=0, kind="opened", at=0.0, fields={}))
        assert other.events("m") == []  # nobody else sees it before its end
    assert len(other.events("m")) == 1


def test_a_statement_that_fails_does_not_spoil_what_comes_after(state):
    for _ in range(3):
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            _append_twice(state)
    state.append(Event(model="m", seq=0, kind="opened", at=0.0, fields={}))
    assert len(state.events("m")) == 1


def _append_twice(state):
    with state.transaction():
        state.append(Event(model="m", seq=0, kind="opened", at=0.0, fields={}))
        state.append(Event(model="m", seq=0, kind="opened", at=0.0, fields={}))


def test_what_followed_is_written_once(state):
    row = Version(model="m", version=1, key="k", sha256="s", plan="p", at=0.1)
    for _ in range(2):
        state.put_version(row)
        state.put_round(
            RoundRow(model="m", round=1, at=0.1, how="published", updates=3, version=1, staleness=0)
        )
    assert state.versions("m") == [row]
    assert state.version("m", 1) == row
    assert state.version("m", 2) is None
    assert len(state.rounds("m")) == 1
    state.drop_version("m", 1)
    assert state.versions("m") == []


def test_the_newest_snapshot_counts(state):
    assert state.snapshot("m") is None
    for seq in (3, 7):
        state.put_snapshot(SnapshotRow(model="m", seq=seq, key=f"k{seq}", sha256="s"))
    assert state.snapshot("m").key == "k7"


def test_a_snapshot_is_refused_where_the_journal_has_gone_on(state):
    """Whoever has lost the model would put an older one, and delete what comes behind it."""
    for seq in (0, 1):
        state.append(Event(model="m", seq=seq, kind="deadline", at=0.0, fields={}))
    with pytest.raises(FaultyEnvironment, match="another process serves 'm'"):
        state.put_snapshot(SnapshotRow(model="m", seq=0, key="k0", sha256="s"))
    assert state.snapshot("m") is None


def test_rounds_are_the_last_ones_in_order(state):
    for n in range(1, 6):
        state.put_round(
            RoundRow(model="m", round=n, at=n, how="too few", updates=0, version=0, staleness=0.0)
        )
    assert [row.round for row in state.rounds("m", last=3)] == [3, 4, 5]


def test_a_device_reports_once_on_a_version(state):
    assert state.put_report("m", 1, "d", tried=20, right=15)
    assert not state.put_report("m", 1, "d", tried=20, right=20)
    assert state.put_report("m", 1, "e", tried=20, right=5)
    (row,) = state.reports("m")
    assert (row.version, row.devices, row.tried, row.right) == (1, 2, 40, 20)


def test_plans_and_counts(state):
    for revision in (0, 1):
        state.add_plan(PlanRow(model="m", revision=revision, digest=f"d{revision}", text="{}"))
    assert [p.digest for p in state.plans("m")] == ["d0", "d1"]
    assert state.models() == ["m"]
    state.add_count("m", "refused", "STALE")
    state.add_count("m", "refused", "STALE", 4)
    state.add_count("m", "accepted")
    assert state.counts("m") == {("refused", "STALE"): 5, ("accepted", ""): 1}


def test_one_at_a_time_serves_a_model(state, open_state):
    lease = state.lease("m")
    other = open_state()
    with pytest.raises(InputError, match="served by another process"):
        other.lease("m")
    other.lease("n").release()
    lease.release()
    other.lease("m").release()
