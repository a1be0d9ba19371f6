"""The same rounds on every database and every store: the same model, bit for bit."""

import hashlib
import sys
import threading
from pathlib import Path

import httpx
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from server_bench import Bench, plan_of, train, upload, vector, weights

from privet.errors import FaultyEnvironment, InputError
from privet.federation.server import model_keys
from privet.federation.server.updates import packed
from privet.privacy.randomness import Randomness, SecretStream

PLAN = {
    "rounds": {"rounds": 6},
    "privacy": {"epsilon": 8.0, "population": 50, "times": 3, "apart": 2, "bands": 2},
}
ENDS = []  # of the tests of this file, which must all be one


@pytest.fixture(autouse=True)
def _one_noise(monkeypatch):
    streams = {"sampling": SecretStream(bytes(32)), "noise": SecretStream(b"n" * 32)}
    known = Randomness(init_seed=0, secret=True, **streams)
    monkeypatch.setattr(model_keys, "fresh_randomness", lambda _: known)


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path, private=True)
    yield made
    made.close()


def test_rounds_restarts_and_a_roll_back_are_the_same_everywhere(bench, open_state, store):
    plan = plan_of(**PLAN)
    host = bench.open(plan, state=open_state(), store=store)
    train(host, bench.store, "a", 1.0)
    bench.now += 10
    host.tick()
    train(host, bench.store, "b", 2.0)
    bench.close()
    host = bench.open(plan, state=open_state(), store=store)
    train(host, bench.store, "c", 3.0)
    bench.now += 10
    host.tick()
    host.roll_back(1)
    assert train(host, bench.store, "a", 3.0).accepted
    bench.now += 10
    host.tick()
    assert host.version == 4
    assert list(store.list("updates/har/")) == []
    assert list(store.list("taken/har/")) == []
    ENDS.append(weights(host))
    assert torch.equal(ENDS[0], ENDS[-1])


def test_no_second_process_serves_a_model_whatever_the_database(bench, open_state, tmp_path):
    from privet.federation.server.store.folder import FolderStore

    bench.open(plan_of(**PLAN), state=open_state())
    other = Bench(tmp_path, private=True)
    with pytest.raises(InputError, match="served by another process"):
        other.open(plan_of(**PLAN), state=open_state(), store=FolderStore(tmp_path / "store"))


def test_a_phone_that_puts_again_after_its_commit_changes_nothing(bench, s3_store):
    """A presigned address is good until the deadline, whatever was committed meanwhile."""
    plan = plan_of(rounds={"quorum": 2})
    host = bench.open(plan, store=s3_store)
    given = host.ready("a", phone="p", system="s")
    where = s3_store.upload_url(given.key, seconds=given.seconds_left)
    content = packed(vector(1.0))
    assert httpx.put(where, content=content).status_code == 200
    digest = hashlib.sha256(content).hexdigest()
    assert host.commit(given.ticket, "a", digest).result(30).accepted
    assert httpx.put(where, content=packed(vector(-50.0))).status_code == 200
    bench.close()
    host = bench.open(plan, store=s3_store)
    first = weights(host)
    train(host, bench.store, "b", 1.0)
    bench.now += 10
    host.tick()
    torch.testing.assert_close(weights(host), first + torch.from_numpy(vector(1.0)))
    assert list(s3_store.list("updates/har/")) == []  # swept away when the model was opened


def _take_locks(database):
    """As a network that breaks does."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        locks = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        assert connection.execute(locks).fetchall() == [(True,)]


def test_a_server_that_lost_its_lock_counts_nothing_more(bench, database):
    from privet.federation.server.state.postgres import PostgresState

    plan = plan_of(rounds={"quorum": 2})
    host = bench.open(plan, state=PostgresState(database))
    train(host, bench.store, "a", 1.0)
    commit = upload(host, bench.store, "b", packed(vector(1.0)))
    _take_locks(database)
    with pytest.raises(FaultyEnvironment, match="lock on a model was lost"):
        host.commit(*commit).result(30)
    bench.close()
    host = bench.open(plan, state=PostgresState(database))
    assert host.standing()["waiting_updates"] == 1
    assert host.commit(*commit).result(30).accepted


def test_what_a_process_writes_that_has_lost_its_lock_is_refused(bench, database, monkeypatch):
    """It lost it while it took an update: another process goes on, and swept the copy away."""
    from privet.federation.server.state.postgres import PostgresState

    plan, held, go_on = plan_of(rounds={"quorum": 2}), threading.Event(), threading.Event()
    lost = PostgresState(database)
    slow = bench.open(plan, state=lost)
    commit = upload(slow, bench.store, "a", packed(vector(1.0)))
    put = bench.store.put

    def waiting(key, content):
        put(key, content)
        if key.startswith("taken/") and not held.is_set():
            held.set()
            assert go_on.wait(30)

    monkeypatch.setattr(bench.store, "put", waiting)
    answer = slow.commit(*commit)
    assert held.wait(30)
    _take_locks(database)
    quick = bench.open(plan, state=PostgresState(database), store=bench.store)
    go_on.set()
    with pytest.raises(Exception, match="events_pkey"):
        answer.result(30)
    assert quick.commit(*commit).result(30).accepted
    bench.close()
    lost.close()
    assert bench.open(plan, state=PostgresState(database)).standing()["waiting_updates"] == 1


def test_a_database_that_was_restarted_is_used_again(database):
    import psycopg

    from privet.federation.server.state.postgres import PostgresState

    state = PostgresState(database)
    with psycopg.connect(database, autocommit=True) as connection:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        mine = "pid <> pg_backend_pid() AND datname = current_database()"
        connection.execute(f"{others} WHERE {mine}")
    with pytest.raises(psycopg.OperationalError):
        state.models()
    assert state.models() == []
    state.close()
