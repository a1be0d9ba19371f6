"""A cohort in one process, whose messages can be dropped and tampered with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privet.federation.secure_sum import SecureClient, SecureServer, Stage, Terms
from privet.federation.secure_sum.server import ORDER

NONE = frozenset()


@dataclass
class Cohort:
    """Clients c01, c02, ... and a server; `drops` says who is gone from which stage on."""

    terms: Terms
    device_keys: dict[str, Ed25519PrivateKey]
    changes: dict[str, np.ndarray]
    clients: dict[str, SecureClient] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    said: dict[tuple[str, Stage], object] = field(default_factory=dict)

    def __post_init__(self):
        self.server = SecureServer(self.terms)
        for name, key in self.device_keys.items():
            self.clients[name] = SecureClient(self.terms, name, key.sign)

    def answer(self, name):
        """What a client answers to what the server has for it now."""
        client, question = self.clients[name], self.server.for_client(name)
        match self.server.stage:
            case Stage.KEYS:
                return client.advertise()
            case Stage.SHARES:
                return client.share(question)
            case Stage.INPUTS:
                return client.mask(question, self.changes[name])
            case Stage.AGREEMENT:
                return client.agree(question)
        return client.unmask(question)

    def stage(self, without=NONE):
        """One stage: everybody answers who is not gone; then it is closed."""
        stage, self.gone = self.server.stage, self.gone | set(without)
        for name in sorted(self.server.expected - self.gone):
            self.said[name, stage] = self.answer(name)
            self.server.take(self.said[name, stage])
        return self.server.close()

    def until(self, stage, drops: Mapping[Stage, set] = {}):
        """All stages before this one."""
        while self.server.stage is not stage and self.server.stage in ORDER:
            self.stage(drops.get(self.server.stage, NONE))
        return self

    def run(self, drops: Mapping[Stage, set] = {}):
        """From the beginning to the end."""
        return self.until(Stage.DONE, drops).server


@pytest.fixture(scope="session")
def many_keys():
    """Device keys are slow to make, and no test changes them."""
    return {f"c{i:02}": Ed25519PrivateKey.generate() for i in range(1, 13)}


@pytest.fixture
def cohort(many_keys):
    def make(n=5, *, size=7, threshold=3, longest=2.0, bits=32, seed=0, changes=None, **facts):
        keys = dict(list(many_keys.items())[:n])
        terms = Terms(
            model="m",
            round=facts.pop("round", 4),
            base_version=3,
            size=size,
            longest=longest,
            threshold=threshold,
            bits=bits,
            roster={name: key.public_key().public_bytes_raw() for name, key in keys.items()},
            **facts,
        )
        rng = np.random.default_rng(seed)
        drawn = {name: rng.normal(0, longest / size**0.5, size) for name in keys}
        return Cohort(terms=terms, device_keys=keys, changes=changes or drawn)

    return make
