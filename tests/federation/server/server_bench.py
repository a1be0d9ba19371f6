"""A host on a table: a clock that is turned by hand, phones that never tire, disks that fail."""

import contextlib
import hashlib
import threading

import numpy as np

from privet.federation.server.host import Given, ModelHost
from privet.federation.server.plan import ModelPlan
from privet.federation.server.state.sqlite import SqliteState
from privet.federation.server.store.folder import FolderStore
from privet.federation.server.updates import packed
from privet.ledger import Ledger

SIZE = 10  # of a linear model of 4 inputs and 2 classes


def plan_of(name="har", **sections):
    said = {
        "model": {"name": name, "network": "linear", "shape": [4], "classes": ["a", "b"]},
        "rounds": {"rule": "flsys", "seconds": 10, "rounds": 20},
    }
    for section, fields in sections.items():
        said[section] = {**said.get(section, {}), **fields}
    return ModelPlan.from_json(said)


class Bench:
    """One server's folder; opens hosts in it, over and over."""

    def __init__(self, folder, *, wrap=lambda part: part, private=False):
        self.folder, self.now, self._wrap = folder, 1000.0, wrap
        self.private = private
        self.state = self.store = None
        self.hosts, self._states = [], []

    def open(self, plan, *, state=None, store=None, **options):
        self._states.append(state or SqliteState(self.folder / "state.db"))
        self.state = self._wrap(self._states[-1])
        self.store = self._wrap(store or FolderStore(self.folder / "store"))
        ledger = Ledger(self.folder / "ledger.db") if self.private else None
        try:
            host = ModelHost.open(
                plan,
                state=self.state,
                store=self.store,
                secrets=self.folder / "secrets",
                ledger=ledger,
                clock=lambda: self.now,
                **options,
            )
        finally:
            if ledger is not None:
                ledger.close()
        self.hosts.append(host)
        return host

    def close(self):
        for host in self.hosts:
            host.close()
        for state in self._states:
            state.close()
        self.hosts, self._states = [], []


def vector(value):
    """Different numbers in every place, so that an order of summation could be told."""
    return (np.float32(value) * np.linspace(0.1, 1.3, SIZE)).astype(np.float32)


def upload(host, store, device, content):
    """Ready, upload; what a commit needs."""
    given = host.ready(device, phone="p", system="s")
    assert isinstance(given, Given), given
    put(store, given.key, content)
    return given.ticket, device, hashlib.sha256(content).hexdigest()


def put(store, key, content):
    if store.upload_url(key, seconds=1) is None:
        store.append(key, 0, content)
    else:
        store.put(key, content)


def train(host, store, device, value):
    """A device's whole round; its decision."""
    content = value if isinstance(value, bytes) else packed(vector(value))
    return host.commit(*upload(host, store, device, content)).result(30)


@contextlib.contextmanager
def held(host):
    """The writer waits; what is asked meanwhile is there all at once after."""
    gate = threading.Event()
    waiting = host._writer.put(lambda *_: gate.wait(30))
    try:
        yield
    finally:
        gate.set()
    waiting.result(30)


def weights(host):
    return host._served().coordinator.weights.clone()


class Crash(Exception):  # noqa: N818
    """The process is no more."""


class Fuse:
    """Counts what is done to disks, and lets nothing happen from the k-th on."""

    def __init__(self, k=None):
        self.k, self.n = k, 0
        self._lock = threading.Lock()

    def step(self):
        with self._lock:
            self.n += 1
            if self.k is not None and self.n >= self.k:
                raise Crash(f"at {self.k}")

    def require(self):
        """Whoever died after the answer, with nobody waiting, is dead, too."""
        if self.k is not None and self.n >= self.k:
            raise Crash(f"at {self.k}")

    def wrap(self, part):
        return Failing(part, self)


class Failing:
    """A state or a store, every call of which may be the last."""

    FREE = ("close", "upload_url", "download_url", "lease", "path")

    def __init__(self, inner, fuse):
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name in self.FREE or not callable(found):
            return found

        def called(*values, **named):
            self._fuse.step()
            return found(*values, **named)

        return called

    @contextlib.contextmanager
    def transaction(self, **named):
        self._fuse.step()
        with self._inner.transaction(**named):
            yield
            self._fuse.step()  # all was said, nothing is on disk
        self._fuse.step()  # on disk, and nobody was told
