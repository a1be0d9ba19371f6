"""A process that dies at any operation whatever: the model ends as if nothing had happened.

Every scenario is run once undisturbed, which counts the operations on database and store. Then it
is run once for each of them, dying there; the host is opened again, and phones and operators try
again what they had no answer to.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from server_bench import Bench, Crash, Fuse, held, plan_of, put, vector, weights

from privet.federation.server import served
from privet.federation.server.host import Given
from privet.federation.server.updates import packed
from privet.privacy.randomness import Randomness, SecretStream

FLSYS = {"rounds": {"quorum": 2, "rounds": 8}}
BUFFER = {"rounds": {"rule": "fedbuff", "buffer": 2, "stale": 3, "rounds": 8}}
PRIVATE = {
    "rounds": {"rounds": 8},
    "privacy": {"epsilon": 8.0, "population": 50, "times": 3, "apart": 2, "bands": 2},
}


class Train:
    """Devices that commit at one moment; each tries again with the ticket that it has."""

    def __init__(self, **values):
        self.values, self.given = values, {}

    def __call__(self, bench, host):
        for device in self.values:
            if device not in self.given:
                given = host.ready(device, phone="p", system="s")
                assert isinstance(given, Given), given
                self.given[device] = given
        commits = []
        for device, given in self.given.items():
            content = packed(vector(self.values[device]))
            put(bench.store, given.key, content)
            commits.append((given.ticket, device, hashlib.sha256(content).hexdigest()))
        with held(host):
            answers = [host.commit(*commit) for commit in commits]
        assert all(answer.result(30).accepted for answer in answers)


class Clock:
    def __init__(self, to):
        self.to = to

    def __call__(self, bench, host):
        bench.now = 1000.0 + self.to
        host.tick()


class RollBack:
    """An operator looks whether it has happened before trying again."""

    def __init__(self, to, becomes):
        self.to, self.becomes = to, becomes

    def __call__(self, bench, host):
        if host.version < self.becomes:
            assert host.roll_back(self.to) == self.becomes


class Revise:
    def __init__(self, **rounds):
        self.rounds = rounds

    def __call__(self, bench, host):
        bench.plan = plan_of(rounds={**FLSYS["rounds"], **self.rounds})
        host.revise(bench.plan)


def stop(bench, host):
    host.stop()


def resume(bench, host):
    host.resume()


def settled(bench, host):
    """Answers are given before the uploads are deleted; wait for that, too."""
    host.tick()


SCENARIOS = {
    "flsys": (
        FLSYS,
        lambda: [
            Train(a=1.0),
            Clock(10),  # too few: a's update is carried over
            Train(b=2.0, c=-3.0),
            Clock(20),
            Train(a=0.5, b=0.25),
            RollBack(0, 2),  # their updates are forgotten
            Train(a=4.0, c=5.0),
            Revise(seconds=30),
            Clock(30),
            stop,
            resume,
            Train(b=7.0, a=1.0, c=2.0),
            Clock(75),
        ],
    ),
    "fedbuff": (
        BUFFER,
        lambda: [
            Train(a=1.0, b=2.0, c=3.0, d=4.0, e=5.0),  # closes two rounds on the way
            Train(a=1.0),
            Train(f=2.0, g=3.0),
        ],
    ),
    "private": (
        PRIVATE,
        lambda: [
            Train(a=1.0, b=20.0),
            Clock(10),
            Train(c=2.0),
            Clock(20),
            Train(a=float("nan"), d=1.0),  # counts as zero
            Clock(30),
            Clock(40),
        ],
    ),
}


def _run(folder, name, k=None):
    sections, steps = SCENARIOS[name]
    fuse = Fuse(k)
    folder.mkdir(parents=True)
    bench = Bench(folder, wrap=fuse.wrap, private=name == "private")
    bench.plan = plan_of(**sections)
    host, crashes = None, 0
    for step in [lambda *_: None, *steps(), settled]:
        while True:
            try:
                host = host or bench.open(bench.plan)
                step(bench, host)
                fuse.require()
                break
            except Exception:
                if crashes or fuse.k is None or fuse.n < fuse.k:
                    raise
                crashes += 1
                bench.close()
                host, fuse.k = None, None
    operations, fuse.k = fuse.n, None
    end = weights(host), _facts(bench, host)
    bench.close()
    return *end, operations, crashes


def _facts(bench, host):
    """All that must not differ: who counted how often, and what became of each round."""
    coordinator, state = host._served().coordinator, bench.state
    return {
        "times": dict(coordinator.times),
        "rounds": state.rounds("har"),
        "versions": [(v.version, v.sha256) for v in state.versions("har")],
        "sums": coordinator.sums,
        "leftovers": [*bench.store.list("updates/har/")],
        "accepted": state.counts("har").get(("accepted", "")),
        "charged": _charged(bench),
    }


def _charged(bench):
    if not bench.private:
        return None
    from privet.ledger import Ledger

    ledger = Ledger(bench.folder / "ledger.db")
    (run,) = ledger.account("fleet:server").runs
    times = sorted(ledger.participations(run.id).values())
    ledger.close()
    return run.charged, run.redone, run.planned, times


@pytest.fixture
def folder():
    """In memory, where that can be: a process that dies does not take the kernel with it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


@pytest.fixture(autouse=True)
def _one_noise(monkeypatch):
    """The same keys in every run, and a disk that is always quick."""
    from privet.federation.server import model_keys

    streams = {"sampling": SecretStream(bytes(32)), "noise": SecretStream(b"n" * 32)}
    known = Randomness(init_seed=0, secret=True, **streams)
    monkeypatch.setattr(model_keys, "fresh_randomness", lambda _: known)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize(
    ("name", "kept"), [*((name, None) for name in SCENARIOS), ("flsys", 1), ("private", 1)]
)
def test_dying_anywhere_changes_nothing(folder, monkeypatch, name, kept):
    """With `kept`, there is a snapshot behind every update, also in the midst of a round."""
    if kept is not None:
        monkeypatch.setattr(served, "MOST_KEPT_BYTES", kept)
    expected, facts, operations, _ = _run(folder / "undisturbed", name)
    assert operations > 50
    assert facts["accepted"] == sum(facts["times"].values())
    for k in range(1, operations + 1):
        found, after, _, crashes = _run(folder / str(k), name, k)
        assert crashes == 1, k
        assert torch.equal(found, expected), k
        assert after == facts, k


def test_the_harness_would_see_a_lost_event(folder, monkeypatch):
    """Planted bug: the last event of the journal is not played again."""
    from privet.federation.server.state import State

    expected, facts, operations, _ = _run(folder / "undisturbed", "flsys")
    whole = State.events
    monkeypatch.setattr(
        State, "events", lambda *a, **n: whole(*a, **n)[:-1] if "after" in n else whole(*a, **n)
    )
    differs = 0
    for k in range(30, operations, 7):
        try:
            found, after, _, _ = _run(folder / str(k), "flsys", k)
            differs += not torch.equal(found, expected) or after != facts
        except (Exception, Crash):
            differs += 1
    assert differs > 0
