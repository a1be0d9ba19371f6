"""A host and its phones: every transition of a round, and whatever phones may send."""

import hashlib
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from server_bench import SIZE, Bench, held, plan_of, put, train, upload, vector, weights

from privet.errors import InputError
from privet.federation.server import served
from privet.federation.server.host import Given, NotNow
from privet.federation.server.updates import packed
from privet.federation.server.versions import packed_weights
from privet.federation.wire import Reason
from privet.ledger import Ledger
from privet.models import create

PRIVACY = {"epsilon": 8.0, "population": 100, "times": 2}


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def private(tmp_path):
    made = Bench(tmp_path, private=True)
    yield made
    made.close()


def _ready(host, device="a", phone="p", system="s"):
    return host.ready(device, phone=phone, system=system)


def _later(bench, host, seconds):
    bench.now += seconds
    return host.tick()


def _commit(host, commit):
    return host.commit(*commit).result(30)


def _refused(host, commit):
    decision = _commit(host, commit)
    assert not decision.accepted
    return decision.reason


class TestARound:
    def test_open_accepts_and_the_deadline_publishes_the_mean(self, bench):
        host = bench.open(plan_of(rounds={"server_rate": 0.5}))
        first = weights(host)
        for device, value in (("a", 1.0), ("b", 3.0)):
            assert train(host, bench.store, device, value).accepted
        assert _later(bench, host, 9.9) <= 0.11
        assert host.version == 0
        _later(bench, host, 0.1)
        assert host.version == 1
        expected = first.numpy() + 0.5 * (vector(1.0) + vector(3.0)) / 2
        np.testing.assert_allclose(weights(host), expected, atol=1e-6)

    def test_below_its_quorum_a_round_is_given_up_and_its_updates_are_carried_over(self, bench):
        host = bench.open(plan_of(rounds={"quorum": 2}))
        first = weights(host)
        train(host, bench.store, "a", 1.0)
        _later(bench, host, 10)
        assert torch.equal(weights(host), first)
        assert (host.version, host.standing()["waiting_updates"]) == (0, 1)
        assert _ready(host, "a") == NotNow(reason=Reason.REPEATED, retry_after=10.0)
        train(host, bench.store, "b", 3.0)
        _later(bench, host, 10)
        expected = first.numpy() + (vector(1.0) + vector(3.0)) / 2
        np.testing.assert_allclose(weights(host), expected, atol=1e-6)
        assert [row["how"] for row in host.standing()["history"]] == ["too few", "published"]

    def test_a_version_that_is_not_acceptable_is_dropped_with_its_updates(self, bench):
        host = bench.open(plan_of(), accept=lambda w: float(w.abs().max()) < 5)
        first = weights(host)
        train(host, bench.store, "a", 100.0)
        _later(bench, host, 10)
        assert torch.equal(weights(host), first)
        assert host.standing()["history"][-1]["how"] == "rejected"
        train(host, bench.store, "a", 1.0)
        _later(bench, host, 10)
        assert host.version == 1

    def test_after_the_last_round_training_is_over(self, bench):
        host = bench.open(plan_of(rounds={"rounds": 1}))
        commit = upload(host, bench.store, "a", packed(vector(1.0)))
        _later(bench, host, 10)
        assert host.stopped
        assert _ready(host).reason is Reason.STOPPED
        assert _refused(host, commit) in (Reason.LATE, Reason.STOPPED)
        assert host.standing()["state"] == "over"

    def test_between_the_deadline_and_the_tick_nobody_gets_a_ticket(self, bench):
        host = bench.open(plan_of())
        bench.now += 10
        assert _ready(host) == NotNow(reason=Reason.CLOSED, retry_after=1.0)
        host.tick()
        assert isinstance(_ready(host), Given)

    def test_while_a_version_is_being_written_nobody_gets_a_ticket(self, bench, monkeypatch):
        host = bench.open(plan_of())
        train(host, bench.store, "a", 1.0)
        seen = []
        whole = type(bench.store).put

        def slowly(self, key, content):
            if key.startswith("versions/"):
                seen.append((_ready(host, "b"), host.version))
            whole(self, key, content)

        monkeypatch.setattr(type(bench.store), "put", slowly)
        _later(bench, host, 10)
        assert seen == [(NotNow(reason=Reason.CLOSED, retry_after=1.0), 0)]

    def test_a_buffer_steps_when_it_is_full_also_in_the_midst_of_a_batch(self, bench):
        host = bench.open(plan_of(rounds={"rule": "fedbuff", "buffer": 2, "stale": 5}))
        first = weights(host)
        commits = [upload(host, bench.store, d, packed(vector(1.0))) for d in "abcde"]
        with held(host):
            answers = [host.commit(*commit) for commit in commits]
        assert all(answer.result(30).accepted for answer in answers)
        assert (host.version, host.standing()["waiting_updates"]) == (2, 1)
        expected = first.numpy() + vector(1.0) * (1 + 2**-0.5)  # the second step is one behind
        np.testing.assert_allclose(weights(host), expected, atol=1e-6)

    def test_rounds_that_nobody_attended_are_not_made_up_for(self, private):
        plan = plan_of(rounds={"rounds": 5}, privacy=PRIVACY)
        host = private.open(plan)
        train(host, private.store, "a", 1.0)
        private.close()
        private.now += 1000  # the server was away for a hundred rounds
        host = private.open(plan)
        standing = host.standing()
        assert (standing["round"], host.version) == (1, 1)
        assert standing["deadline"] == pytest.approx(1010)

    def test_a_long_round_keeps_no_more_updates_than_a_restart_may_read(self, bench, monkeypatch):
        monkeypatch.setattr(served, "MOST_KEPT_BYTES", 3 * len(packed(vector(0.0))))
        host = bench.open(plan_of())
        first = weights(host)
        for value in range(1, 11):
            assert train(host, bench.store, f"d{value}", float(value)).accepted
            host.tick()  # the writer has put things in order
            assert len([*bench.store.list("taken/har/")]) <= 2
        bench.close()
        host = bench.open(plan_of())
        _later(bench, host, 10)
        np.testing.assert_allclose(weights(host), first.numpy() + vector(5.5), atol=1e-6)

    def test_updates_that_a_restart_has_read_again_are_put_away_too(self, bench, monkeypatch):
        host = bench.open(plan_of())
        for device in "abc":
            train(host, bench.store, device, 1.0)
        bench.close()
        monkeypatch.setattr(served, "MOST_KEPT_BYTES", 3 * len(packed(vector(0.0))))
        host = bench.open(plan_of())
        train(host, bench.store, "d", 1.0)
        host.tick()
        assert not [*bench.store.list("taken/har/")]
        assert host.standing()["waiting_updates"] == 4

    def test_the_mean_is_the_same_in_any_order(self, tmp_path):
        rng, ends = np.random.default_rng(0), []
        changes = {f"d{i}": rng.normal(size=SIZE).astype(np.float32) for i in range(40)}
        for order in (sorted(changes), sorted(changes, reverse=True)):
            bench = Bench(tmp_path / str(len(ends)))
            bench.folder.mkdir()
            host = bench.open(plan_of())
            first = weights(host)
            for device in order:
                train(host, bench.store, device, packed(changes[device]))
            _later(bench, host, 10)
            ends.append(weights(host))
            bench.close()
        exact = first.double().numpy() + np.mean(np.stack([*changes.values()]).astype(float), 0)
        for end in ends:
            np.testing.assert_allclose(end, exact, atol=1e-6)


class TestTickets:
    def test_to_ask_again_is_to_get_the_same_ticket(self, bench):
        host = bench.open(plan_of())
        first, again, other = _ready(host, "a"), _ready(host, "a"), _ready(host, "b")
        assert first == again
        assert other.ticket != first.ticket
        assert len(first.ticket) >= 32

    def test_a_ticket_survives_a_restart(self, bench):
        host = bench.open(plan_of())
        given = _ready(host, "a")
        put(bench.store, given.key, packed(vector(1.0)))
        bench.close()
        host = bench.open(plan_of())
        assert _ready(host, "a").ticket == given.ticket
        digest = hashlib.sha256(packed(vector(1.0))).hexdigest()
        assert _commit(host, (given.ticket, "a", digest)).accepted

    def test_a_ticket_ends_with_its_round(self, bench):
        host = bench.open(plan_of())
        commit = upload(host, bench.store, "a", packed(vector(1.0)))
        assert _ready(host, "a").seconds_left == 10.0
        _later(bench, host, 11)
        assert _refused(host, commit) is Reason.LATE
        host.tick()
        assert list(bench.store.list("updates/har/")) == []
        assert host.standing()["refused"] == {"LATE": 1}

    def test_an_upload_that_came_a_second_late_does_not_count(self, bench):
        host = bench.open(plan_of(rounds={"quorum": 5}))  # so the version stays the same
        commit = upload(host, bench.store, "a", packed(vector(1.0)))
        bench.now += 11
        assert _refused(host, commit) is Reason.LATE
        assert host.standing()["waiting_updates"] == 0

    def test_a_commit_counts_by_when_it_came_not_by_when_it_is_looked_at(self, bench):
        host = bench.open(plan_of())
        commit = upload(host, bench.store, "a", packed(vector(1.0)))
        bench.now += 9.9
        with held(host):
            answer = host.commit(*commit)
            bench.now += 5
        assert answer.result(30).accepted

    def test_a_quota_is_of_tickets_that_are_out(self, bench):
        host = bench.open(plan_of(phones={"quota": 2}))
        train(host, bench.store, "a", 1.0)
        assert isinstance(_ready(host, "b"), Given)
        assert isinstance(_ready(host, "c"), Given)
        assert _ready(host, "d") == NotNow(reason=Reason.QUOTA, retry_after=60.0)
        assert isinstance(_ready(host, "b"), Given)  # the same one
        _later(bench, host, 10)
        assert isinstance(_ready(host, "d"), Given)

    def test_phones_that_are_not_known_to_work_are_denied(self, bench):
        host = bench.open(plan_of(phones={"kinds": ["Pixel 3"], "systems": ["android-10"]}))
        assert _ready(host, "a", "Pixel 2", "android-10").reason is Reason.UNFIT
        assert _ready(host, "a", "Pixel 3", "android-9").reason is Reason.UNFIT
        assert isinstance(_ready(host, "a", "Pixel 3", "android-10"), Given)

    def test_a_foreign_or_unknown_ticket_counts_nothing(self, bench):
        host = bench.open(plan_of())
        ticket, _, digest = upload(host, bench.store, "a", packed(vector(1.0)))
        assert _refused(host, (ticket, "b", digest)) is Reason.UNKNOWN
        assert _refused(host, ("x" * 32, "a", digest)) is Reason.UNKNOWN
        assert _commit(host, (ticket, "a", digest)).accepted


class TestUpdates:
    def _given(self, host, bench, content, device="a"):
        return upload(host, bench.store, device, content)

    def test_to_commit_again_is_to_be_told_the_same(self, bench):
        host = bench.open(plan_of())
        commit = self._given(host, bench, packed(vector(1.0)))
        with held(host):
            twice = [host.commit(*commit), host.commit(*commit)]
        assert [answer.result(30).accepted for answer in twice] == [True, True]
        bench.close()
        host = bench.open(plan_of())
        assert _commit(host, commit).accepted
        standing = host.standing()
        assert (standing["accepted"], standing["waiting_updates"]) == (1, 1)

    def test_two_tickets_of_one_device_that_are_shown_at_once_count_once(self, bench):
        """Two counted events of which the second is none would stop the model for good."""
        plan = plan_of(rounds={"rule": "fedbuff", "buffer": 2, "stale": 5})
        host = bench.open(plan)
        old = upload(host, bench.store, "a", packed(vector(1.0)))
        for device in "bc":
            train(host, bench.store, device, 1.0)
        new = upload(host, bench.store, "a", packed(vector(2.0)))
        assert old[0] != new[0]
        with held(host):
            answers = [host.commit(*commit) for commit in (old, new)]
        assert [answer.result(30).reason for answer in answers] == [None, Reason.REPEATED]
        assert host.standing()["waiting_updates"] == 1

    def test_two_tickets_of_one_device_count_once_in_a_step(self, bench):
        host = bench.open(plan_of(rounds={"quorum": 3}))
        commit = self._given(host, bench, packed(vector(1.0)))
        assert _commit(host, commit).accepted
        _later(bench, host, 10)
        assert _ready(host, "a").reason is Reason.REPEATED

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (packed(vector(1.0))[:-4], Reason.MALFORMED),
            (packed(np.zeros(SIZE + 1, dtype=np.float32)), Reason.MALFORMED),
            (packed(np.full(SIZE, np.nan, dtype=np.float32)), Reason.MALFORMED),
            (packed(np.full(SIZE, np.inf, dtype=np.float32)), Reason.MALFORMED),
            (packed(vector(1.0)).replace(b"change", b"chance"), Reason.MALFORMED),
            (packed(vector(1.0)).replace(b"F32", b"I32"), Reason.MALFORMED),
            (b"\x80\x04\x95", Reason.MALFORMED),
            (b"", Reason.MALFORMED),
            (b"\xff" * 8 + bytes(100), Reason.MALFORMED),
            (packed(vector(1.0)) + bytes(2000), Reason.MALFORMED),
            (packed(vector(1000.0)), Reason.TOO_LONG),
        ],
    )
    def test_what_is_no_update_is_refused_for_good_and_leaves_nothing(self, bench, content, reason):
        host = bench.open(plan_of(phones={"longest": 100.0}))
        first = weights(host)
        commit = self._given(host, bench, content)
        assert _refused(host, commit) is reason
        assert _refused(host, commit) is reason
        assert _ready(host, "a").reason is reason  # no second try in this round
        host.tick()
        assert host.standing()["refused"] == {reason.name: 1}
        assert [*bench.store.list("updates/har/"), *bench.store.list("taken/har/")] == []
        train(host, bench.store, "b", 1.0)
        _later(bench, host, 10)
        np.testing.assert_allclose(weights(host), first.numpy() + vector(1.0), atol=1e-6)

    def test_bytes_that_were_spoilt_on_the_way_may_be_sent_again(self, bench):
        host = bench.open(plan_of())
        content = packed(vector(1.0))
        ticket, device, _ = self._given(host, bench, content[:30])
        commit = (ticket, device, hashlib.sha256(content).hexdigest())
        assert _refused(host, commit) is Reason.BROKEN
        put(bench.store, _ready(host, "a").key, content)
        assert _commit(host, commit).accepted

    def test_a_commit_without_an_upload_is_broken_too(self, bench):
        host = bench.open(plan_of())
        given = _ready(host, "a")
        assert _refused(host, (given.ticket, "a", "0" * 64)) is Reason.BROKEN

    def test_what_a_phone_writes_after_it_was_accepted_changes_nothing(self, bench):
        plan = plan_of(rounds={"quorum": 2})
        host = bench.open(plan)
        given = _ready(host, "a")
        assert train(host, bench.store, "a", 1.0).accepted
        put(bench.store, given.key, packed(vector(-99.0)))
        bench.close()
        host = bench.open(plan)  # plays the journal again
        first = weights(host)
        train(host, bench.store, "b", 1.0)
        _later(bench, host, 10)
        np.testing.assert_allclose(weights(host), first.numpy() + vector(1.0), atol=1e-6)

    def test_an_accepted_update_is_not_kept_longer_than_needed(self, bench):
        host = bench.open(plan_of())
        train(host, bench.store, "a", 1.0)
        assert len(list(bench.store.list("taken/har/"))) == 1
        _later(bench, host, 10)
        assert list(bench.store.list("taken/har/")) == []

    def test_an_update_that_was_changed_in_the_store_stops_the_model(self, bench):
        host = bench.open(plan_of())
        train(host, bench.store, "a", 1.0)
        (key,) = bench.store.list("taken/har/")
        bench.close()
        bench.store.put(key, packed(vector(2.0)))
        with pytest.raises(InputError, match="changed in the store"):
            bench.open(plan_of())


class TestPrivacy:
    def test_what_is_not_finite_counts_as_zero_and_is_not_refused(self, private):
        host = private.open(plan_of(privacy=PRIVACY, rounds={"rounds": 5}))
        assert train(host, private.store, "a", float("nan")).accepted
        assert host.standing()["waiting_updates"] == 1
        assert float(host._served().coordinator._gathering.total.abs().sum()) == 0.0

    def test_a_long_update_is_clipped(self, private):
        host = private.open(plan_of(privacy=PRIVACY, rounds={"rounds": 5}))
        train(host, private.store, "a", 1e6)
        total = host._served().coordinator._gathering.total
        assert float(total.norm()) == pytest.approx(1.0)

    def test_caps_hold_over_restarts(self, private):
        plan = plan_of(privacy={**PRIVACY, "apart": 2}, rounds={"rounds": 9})
        host = private.open(plan)
        train(host, private.store, "a", 1.0)
        for expected in (Reason.TOO_SOON, None):
            _later(private, host, 10)
            private.close()
            host = private.open(plan)
            answer = _ready(host, "a")
            assert (answer.reason if isinstance(answer, NotNow) else None) is expected
        train(host, private.store, "a", 1.0)
        _later(private, host, 20)
        assert _ready(host, "a").reason is Reason.SPENT

    @pytest.mark.parametrize("lost", ["all but the ledger", "state and store", "the model"])
    def test_an_old_backup_gives_no_device_its_participations_back(self, private, lost):
        """By then all turns are charged, so that the charges alone would not tell."""
        plan = plan_of(privacy=PRIVACY, rounds={"rounds": 10})
        host = private.open(plan)
        train(host, private.store, "a", 1.0)
        for _ in range(3):
            _later(private, host, 10)
        private.close()
        backup = {p: p.read_bytes() for p in _files(private, lost)}
        host = private.open(plan)
        train(host, private.store, "a", 1.0)
        _later(private, host, 10)
        assert _ready(host, "a").reason is Reason.SPENT
        private.close()
        for path in _files(private, lost):
            path.unlink()
        if lost == "the model":
            (private.folder / "secrets" / "har" / "steps.journal").unlink()
        else:
            for path, content in backup.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        with pytest.raises(InputError, match="older than what was published of it: got 1 devices"):
            private.open(plan)

    def test_another_ledger_is_no_way_round_what_was_spent(self, private):
        plan = plan_of(privacy=PRIVACY, rounds={"rounds": 5})
        private.open(plan)
        private.close()
        for path in private.folder.glob("ledger.*"):
            path.rename(path.with_name(f"old-{path.name}"))
        with pytest.raises(InputError, match="does not know of 'har', which has begun"):
            private.open(plan)

    def test_a_ledger_from_a_backup_is_told_what_was_spent_since(self, private):
        plan = plan_of(privacy=PRIVACY, rounds={"rounds": 2})
        host = private.open(plan)
        _later(private, host, 10)
        private.close()
        kept = (private.folder / "ledger.db").read_bytes()
        host = private.open(plan)
        train(host, private.store, "a", 1.0)
        _later(private, host, 10)
        assert host.stopped
        private.close()
        (private.folder / "ledger.db").write_bytes(kept)
        private.open(plan)
        ledger = Ledger(private.folder / "ledger.db")
        (run,) = ledger.account("fleet:server").runs
        assert (run.charged, run.status) == (2, "settled")
        assert list(ledger.participations(run.id).values()) == [1]
        ledger.close()

    def test_what_is_noted_of_a_sum_is_on_disk_before_it_is_used(self, private, monkeypatch):
        """Else a power cut leaves a snapshot that knows of a sum of which nothing is noted."""
        host = private.open(plan_of(privacy=PRIVACY, rounds={"rounds": 5}))
        journal = private.folder / "secrets" / "har" / "steps.journal"
        flushed, fsync = [], os.fsync

        def noting(descriptor):
            fsync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").resolve()
            flushed.append((path, path.stat().st_size))

        monkeypatch.setattr(os, "fsync", noting)
        _later(private, host, 10)
        paths = [path for path, _ in flushed]
        noted = flushed.index((journal, journal.stat().st_size))
        published = next(i for i, path in enumerate(paths) if path.match("*/versions/har/*"))
        assert noted < published
        assert journal.parent in paths[noted:published]

    def test_the_same_journal_leads_to_the_same_noise_and_to_no_second_charge(self, private):
        plan = plan_of(privacy=PRIVACY, rounds={"rounds": 5})
        host = private.open(plan)
        train(host, private.store, "a", 1.0)
        keep = host._served().state.snapshot("har"), _objects(private)
        _later(private, host, 10)
        first = weights(host)
        private.close()
        _go_back(private, keep)
        host = private.open(plan)
        assert torch.equal(weights(host), first)
        assert host.version == 1

    def test_no_secret_is_in_database_or_store(self, private):
        bands = {**PRIVACY, "apart": 2, "bands": 2}
        host = private.open(plan_of(privacy=bands, rounds={"rounds": 5}))
        train(host, private.store, "a", 1.0)
        _later(private, host, 10)
        keys = host._served().keys
        draws = host._served().coordinator._noise.draws.numpy()
        assert draws.size
        secret = [keys.randomness.noise.key, keys.snapshots, draws.tobytes()[:64]]
        secret += [part.hex().encode() for part in secret[:2]]
        private.close()
        files = [*private.folder.glob("state.db*"), *(private.folder / "store").rglob("*")]
        for path in files:
            content = path.read_bytes() if path.is_file() else b""
            assert not any(part in content for part in secret), path
        for path in (private.folder / "secrets").rglob("*"):
            assert path.stat().st_mode & 0o077 == 0 or path.suffix == ".journal"

    def test_without_its_keys_a_model_does_not_go_on(self, private):
        plan = plan_of(privacy=PRIVACY, rounds={"rounds": 5})
        private.open(plan)
        private.close()
        (private.folder / "secrets" / "har" / "keys.json").unlink()
        with pytest.raises(InputError, match="the keys of 'har' are gone"):
            private.open(plan)

    def test_without_what_is_noted_of_its_sums_a_model_does_not_go_on(self, private):
        """It could not be told whether one came out different, which is a second release."""
        plan = plan_of(privacy=PRIVACY, rounds={"rounds": 5})
        _later(private, private.open(plan), 10)
        private.close()
        (private.folder / "secrets" / "har" / "steps.journal").unlink()
        with pytest.raises(InputError, match="the journal lacks a step"):
            private.open(plan)

    def test_a_private_model_needs_a_ledger(self, bench):
        with pytest.raises(InputError, match="needs a ledger"):
            bench.open(plan_of(privacy=PRIVACY))


class TestOperators:
    def test_a_roll_back_is_a_new_version_of_old_weights(self, bench):
        host = bench.open(plan_of())
        first = weights(host)
        train(host, bench.store, "a", 1.0)
        late = upload(host, bench.store, "b", packed(vector(5.0)))
        _later(bench, host, 10)
        commit = upload(host, bench.store, "c", packed(vector(9.0)))
        assert host.roll_back(0) == host.version == 2
        assert torch.equal(weights(host), first)
        assert host.manifest(2).sha256 == host.manifest(0).sha256
        assert _refused(host, commit) is Reason.STALE  # it came from what was wrong
        assert _refused(host, late) is Reason.LATE
        assert train(host, bench.store, "c", 1.0).accepted
        with pytest.raises(InputError, match="no such version"):
            host.roll_back(77)

    def test_what_was_rolled_back_to_may_go_and_the_model_stays(self, bench):
        """The oldest version that is kept is the first to be pruned: nothing may need it then."""
        rounds = {"rule": "fedbuff", "buffer": 1, "stale": 0}
        plan = plan_of(model={"keep_versions": 2}, rounds=rounds)
        host = bench.open(plan)
        for device in "abc":
            train(host, bench.store, device, 1.0)
        bench.now += 2
        train(host, bench.store, "d", 1.0)  # with this one there is a snapshot
        oldest = bench.state.versions("har")[0].version
        host.roll_back(oldest)
        assert bench.state.version("har", oldest) is None
        before = weights(host)
        bench.close()
        assert torch.equal(weights(bench.open(plan)), before)

    def test_dying_twice_over_a_roll_back_does_not_lose_what_it_goes_back_to(
        self, bench, monkeypatch
    ):
        rounds = {"rule": "fedbuff", "buffer": 1, "stale": 0}
        plan = plan_of(model={"keep_versions": 2}, rounds=rounds)
        host = bench.open(plan)
        for device in "abc":
            train(host, bench.store, device, 1.0)
        bench.now += 2
        train(host, bench.store, "d", 1.0)  # with this one there is a snapshot
        oldest = bench.state.versions("har")[0].version
        expected = host._served().versions.weights(oldest)

        def dies(*_):
            raise OSError("no more")

        for owner, name in ((bench.state, "put_round"), (served.ServedModel, "written_snapshot")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, dies)
                with pytest.raises(OSError, match="no more"):
                    host.roll_back(oldest) if name == "put_round" else bench.open(plan)
            bench.close()
        assert torch.equal(weights(bench.open(plan)), expected)

    def test_a_version_that_cannot_be_read_does_not_get_into_the_journal(self, bench):
        host = bench.open(plan_of())
        train(host, bench.store, "a", 1.0)
        _later(bench, host, 10)
        bench.store.put(host.weights_key(0), packed_weights(torch.zeros(SIZE)))
        with pytest.raises(InputError, match="changed in the store"):
            host.roll_back(0)
        assert host.version == 1
        assert train(host, bench.store, "a", 1.0).accepted
        bench.close()
        assert bench.open(plan_of()).standing()["waiting_updates"] == 1

    def test_no_buffer_takes_updates_of_what_was_rolled_back(self, bench):
        host = bench.open(plan_of(rounds={"rule": "fedbuff", "buffer": 1, "stale": 9}))
        train(host, bench.store, "a", 1.0)
        commit = upload(host, bench.store, "b", packed(vector(1.0)))
        host.roll_back(0)
        assert _refused(host, commit) is Reason.STALE
        assert train(host, bench.store, "b", 1.0).accepted

    def test_a_revision_begins_with_the_next_round(self, bench):
        host = bench.open(plan_of())
        host.revise(plan_of(rounds={"seconds": 100}, work={"epochs": 1}))
        assert host.plan.work().epochs == 5
        _later(bench, host, 10)
        assert host.plan.work().epochs == 1
        assert host.standing()["deadline"] == 110.0
        bench.close()
        host = bench.open(host.plan)
        assert host.plan.settings.seconds == 100
        with pytest.raises(InputError, match="cannot change in this"):
            host.revise(plan_of(rounds={"rule": "fedbuff"}))

    def test_more_rounds_may_follow_the_last_one(self, bench):
        host = bench.open(plan_of(rounds={"rounds": 1}))
        _later(bench, host, 50)
        assert host.stopped
        host.revise(plan_of(rounds={"rounds": 2}))
        assert not host.stopped
        assert train(host, bench.store, "a", 1.0).accepted

    def test_a_stopped_model_waits_and_loses_nothing(self, bench):
        host = bench.open(plan_of())
        train(host, bench.store, "a", 1.0)
        commit = upload(host, bench.store, "b", packed(vector(3.0)))
        host.stop()
        assert host.stopped
        assert _ready(host, "c").reason is Reason.CLOSED
        assert _refused(host, commit) is Reason.CLOSED
        _later(bench, host, 5)
        bench.close()
        host = bench.open(plan_of())
        assert host.stopped
        host.resume()
        assert _commit(host, commit).accepted
        assert host.standing()["deadline"] == 15.0
        _later(bench, host, 10)
        assert host.standing()["history"][-1]["updates"] == 2

    def test_old_versions_go_and_the_newest_stay(self, bench):
        host = bench.open(plan_of(model={"keep_versions": 2}))
        for _ in range(4):
            train(host, bench.store, "a", 1.0)
            _later(bench, host, 10)
        kept = [int(key.rpartition("/")[2]) for key in bench.store.list("versions/har/")]
        assert kept == [3, 4]
        with pytest.raises(InputError, match="no such version"):
            host.manifest(1)

    def test_a_manifest_is_of_the_weights_that_are_there(self, bench):
        host = bench.open(plan_of())
        manifest, content = host.manifest(), bench.store.get(host.weights_key(0))
        assert manifest.sha256 == hashlib.sha256(content).hexdigest()
        assert content == packed_weights(weights(host))
        assert (manifest.weights, manifest.plan) == (SIZE, host.plan.digest)
        drawn = create("linear", (4,), 2, init_seed=0)
        assert torch.equal(weights(host)[:8].reshape(2, 4), next(drawn.parameters()).detach())

    def test_whoever_waits_is_told_of_a_new_version(self, bench):
        host = bench.open(plan_of())
        assert host.wait_for(0, 0.01) == 0
        seen = []
        waiter = threading.Thread(target=lambda: seen.append(host.wait_for(0, 30)))
        waiter.start()
        train(host, bench.store, "a", 1.0)
        _later(bench, host, 10)
        waiter.join(30)
        assert seen == [1]

    def test_reports_count_once_and_only_as_the_plan_asks(self, bench):
        host = bench.open(plan_of(evaluation={"records": 20}))
        assert host.report("a", 0, 20, 15)
        assert not host.report("a", 0, 20, 20)
        assert not host.report("b", 0, 19, 15)
        assert not host.report("b", 0, 20, 21)
        assert not host.report("b", 1, 20, 1)
        said = host.standing()["reports"]
        assert said == [{"version": 0, "devices": 1, "tried": 20, "right": 15}]


class TestCohorts:
    def test_a_cohort_is_chosen_among_those_who_wait(self, bench):
        host = bench.open(plan_of(rounds={"rule": "fedavg", "cohort": 2, "seconds": 100}))
        for device in "ab":
            assert _ready(host, device).reason is Reason.UNASKED
        host.tick()
        assert isinstance(_ready(host, "a"), Given)
        assert isinstance(_ready(host, "b"), Given)
        assert _ready(host, "c").reason is Reason.UNASKED
        bench.close()
        host = bench.open(host.plan)
        assert train(host, bench.store, "a", 1.0).accepted
        assert host.version == 0
        assert train(host, bench.store, "b", 1.0).accepted
        host.tick()
        assert host.version == 1  # all have answered

    def test_a_snapshot_in_the_midst_of_a_round_knows_who_was_chosen(self, bench, monkeypatch):
        monkeypatch.setattr(served, "MOST_KEPT_BYTES", 1)
        host = bench.open(plan_of(rounds={"rule": "fedavg", "cohort": 2, "seconds": 100}))
        for device in "ab":
            _ready(host, device)
        host.tick()
        assert train(host, bench.store, "a", 1.0).accepted
        host.tick()
        assert not [*bench.store.list("taken/har/")]
        bench.close()
        host = bench.open(host.plan)
        for device in "cd":
            assert _ready(host, device).reason is Reason.UNASKED
        host.tick()
        assert _ready(host, "c").reason is Reason.UNASKED
        assert train(host, bench.store, "b", 1.0).accepted
        host.tick()
        assert host.version == 1

    def test_a_smaller_cohort_begins_when_no_more_come(self, bench):
        host = bench.open(plan_of(rounds={"rule": "fedavg", "cohort": 5, "seconds": 100}))
        _ready(host, "a")
        _later(bench, host, 49)
        assert _ready(host, "a").reason is Reason.UNASKED
        _later(bench, host, 1)
        assert isinstance(_ready(host, "a"), Given)

    def test_the_servers_coins_are_each_devices_own_and_stay_the_same(self, private):
        from privet.federation.server.state import App, Device

        plan = plan_of(
            rounds={"rule": "fedavg", "rate": 0.3, "rounds": 4},
            privacy={"epsilon": 8.0, "population": 200},
        )
        host = private.open(plan)
        private.state.add_app(App(name="app", key_digest="0", since=0.0), ["har"])
        for i in range(200):
            device = Device(name=f"d{i:03d}", public_key=str(i), phone="p", system="s", since=0.0)
            private.state.add_device(device, "app")
        _later(private, host, 10)
        asked = host._served().coordinator.asked
        assert 30 < len(asked) < 95
        model = host._served()
        again = model.drawn(0.3)
        assert set(again) == asked
        private.state.block("d000")
        assert set(model.drawn(0.3)) == asked - {"d000"}  # nobody else's coin changes
        some = min(asked)
        other = min({f"d{i:03d}" for i in range(200)} - asked)
        assert isinstance(_ready(host, some), Given)
        assert _ready(host, other).reason is Reason.UNASKED


class TestSums:
    def _open(self, bench):
        cohort = {"rule": "fedavg", "cohort": 3, "patient": True, "seconds": 10, "rounds": 5}
        plan = plan_of(rounds={**cohort, "secure_sum": True}, phones={"longest": 100.0})
        host = bench.open(plan)
        for device in "abc":
            _ready(host, device)
        host.tick()
        return host

    def test_a_sum_counts_for_all_its_devices_or_not_at_all(self, bench):
        host = self._open(bench)
        plan = host.plan
        first = weights(host)
        total = (vector(1.0) + vector(3.0)).astype(np.float64)
        assert host.take_sum(total, ["a", "b"], 0).result(30).accepted
        again = host.take_sum(total, ["c", "b"], 0).result(30)
        assert again.reason is Reason.REPEATED
        assert host.take_sum(total, ["c"], 5).result(30).reason is Reason.STALE
        assert host.take_sum(total, ["d"], 0).result(30).reason is Reason.UNASKED
        bench.close()
        host = bench.open(plan)
        _later(bench, host, 10)
        np.testing.assert_allclose(weights(host), first.numpy() + vector(2.0), atol=1e-6)
        assert host.standing()["history"][-1]["updates"] == 2

    def test_a_sum_that_is_no_number_is_refused(self, bench):
        host = self._open(bench)
        with pytest.raises(InputError, match="not a number"):
            host.take_sum(np.full(SIZE, np.nan), ["a"], 0).result(30)
        with pytest.raises(InputError):
            host.take_sum(np.zeros(SIZE + 1), ["a"], 0).result(30)
        assert host.take_sum(np.zeros(SIZE), ["a"], 0).result(30).accepted


class TestFaults:
    def test_two_processes_cannot_serve_one_model(self, bench, tmp_path):
        bench.open(plan_of())
        other = Bench(tmp_path)
        with pytest.raises(InputError, match="served by another process"):
            other.open(plan_of())
        other.close()

    def test_two_models_live_side_by_side(self, bench):
        one, two = bench.open(plan_of("one")), bench.open(plan_of("two"))
        starts = weights(one), weights(two)
        train(one, bench.hosts and one._place.store, "a", 1.0)
        train(two, two._place.store, "a", 2.0)
        bench.now += 10
        one.tick()
        two.tick()
        for host, start, value in ((one, starts[0], 1.0), (two, starts[1], 2.0)):
            np.testing.assert_allclose(weights(host), start.numpy() + vector(value), atol=1e-6)
        ticket, device, digest = upload(one, one._place.store, "b", packed(vector(1.0)))
        assert _refused(two, (ticket, device, digest)) is Reason.UNKNOWN

    def test_a_store_that_fails_for_a_while_loses_and_doubles_nothing(self, bench, monkeypatch):
        host = bench.open(plan_of())
        first = weights(host)
        commit = upload(host, bench.store, "a", packed(vector(1.0)))
        whole = type(bench.store).put

        def broken(*_):
            raise OSError("503")

        monkeypatch.setattr(type(bench.store), "put", broken)
        with pytest.raises(OSError, match="503"):
            host.commit(*commit).result(30)
        monkeypatch.setattr(type(bench.store), "put", whole)
        assert _commit(host, commit).accepted
        monkeypatch.setattr(type(bench.store), "put", broken)
        bench.now += 10
        with pytest.raises(OSError, match="503"):
            host.tick()
        monkeypatch.setattr(type(bench.store), "put", whole)
        host.tick()
        assert host.version == 1
        np.testing.assert_allclose(weights(host), first.numpy() + vector(1.0), atol=1e-6)

    def test_a_database_that_fails_after_a_commit_does_not_count_twice(self, bench, monkeypatch):
        host = bench.open(plan_of())
        commit = upload(host, bench.store, "a", packed(vector(1.0)))
        whole, state = type(bench.state)._end, type(bench.state)

        def lost(self, connection, *, commit):
            whole(self, connection, commit=commit)
            raise OSError("connection lost")

        with held(host):
            answer = host.commit(*commit)
            monkeypatch.setattr(state, "_end", lost)
        with pytest.raises(OSError, match="connection lost"):
            answer.result(30)
        monkeypatch.setattr(state, "_end", whole)
        assert _commit(host, commit).accepted
        assert host.standing()["waiting_updates"] == 1

    def test_an_event_is_flushed_to_disk_before_anybody_is_told(self, bench, monkeypatch):
        """No killed process could tell: its kernel lives on, and writes what was not flushed."""
        host, levels = bench.open(plan_of()), []
        append = bench.state.append

        def noting(event):
            append(event)
            connection = bench.state._here.connection
            levels.append((event.kind, connection.execute("PRAGMA synchronous").fetchone()[0]))

        monkeypatch.setattr(bench.state, "append", noting)
        train(host, bench.store, "a", 1.0)
        _later(bench, host, 10)
        host.stop()
        full = 2
        assert levels == [("update", full), ("deadline", full), ("stopped", full)]

    def test_a_model_that_is_closed_says_so(self, bench):
        host = bench.open(plan_of())
        host.close()
        with pytest.raises(InputError, match="not served any more"):
            host.commit("t" * 32, "a", "0" * 64)
        with pytest.raises(InputError, match="not served any more"):
            host.tick()


def _files(bench, lost):
    """Of a server's folder, but for the ledger."""
    places = ["state.db*", "store/**/*"] + ["secrets/**/*"] * (lost == "all but the ledger")
    return [p for place in places for p in bench.folder.glob(place) if p.is_file()]


def _objects(bench):
    root = bench.folder / "store"
    return {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def _go_back(bench, kept):
    """As if the process had died when the last round was closed, before that was written."""
    snapshot, objects = kept
    for path, content in objects.items():
        (bench.folder / "store" / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.folder / "store" / path).write_bytes(content)
    state = type(bench.state)(bench.folder / "state.db")
    row = "UPDATE snapshots SET seq = ?, key = ?, sha256 = ? WHERE model = ?"
    state._do(row, snapshot.seq, snapshot.key, snapshot.sha256, snapshot.model)
    state.close()
