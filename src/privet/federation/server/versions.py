"""The versions of one model in the store, and what is said of each."""

import hashlib
from typing import Final, final

import numpy as np
import safetensors.numpy
import torch
from torch import Tensor

from privet.errors import InputError
from privet.federation.server.state import State, Version
from privet.federation.server.store import Store
from privet.federation.wire import Manifest

WEIGHTS: Final = "weights"


@final
class Versions:
    """Writes versions, and drops those that are too old.

    Args:
        model: whose they are.
        size: how many numbers each has.
    """

    def __init__(self, model: str, size: int, *, state: State, store: Store) -> None:
        self.model, self.size, self._state, self._store = model, size, state, store

    def key(self, version: int) -> str:
        """Where its weights lie."""
        return f"versions/{self.model}/{version:010d}"

    def put(self, version: int, weights: Tensor, *, plan: str, at: float) -> Version:
        """Write the weights; the answer becomes a row once they are there."""
        content = packed_weights(weights)
        self._store.put(self.key(version), content)
        digest = hashlib.sha256(content).hexdigest()
        return Version(
            model=self.model,
            version=version,
            key=self.key(version),
            sha256=digest,
            plan=plan,
            at=at,
        )

    def row(self, version: int) -> Version:
        """What is known of it."""
        row = self._state.version(self.model, version)
        if row is None:
            raise InputError(f"'{self.model}' has no such version", got=version)
        return row

    def weights(self, version: int) -> Tensor:
        """Read it back; bytes that are not those that were written are refused."""
        row = self.row(version)
        content = self._store.get(row.key)
        if hashlib.sha256(content).hexdigest() != row.sha256:
            raise InputError("a version that was changed in the store", got=row.key)
        return torch.from_numpy(safetensors.numpy.load(content)[WEIGHTS].copy())

    def manifest(self, version: int) -> Manifest:
        """What a phone is told, before it is signed."""
        row = self.row(version)
        return Manifest(
            model=self.model, version=version, sha256=row.sha256, weights=self.size, plan=row.plan
        )

    def prune(self, newest: int, *, keep: int) -> None:
        """Drop all but so many of the newest."""
        for row in self._state.versions(self.model):
            if row.version <= newest - keep:
                self._store.delete(row.key)
                self._state.drop_version(self.model, row.version)


def packed_weights(weights: Tensor) -> bytes:
    """What phones download: safetensors with one F32 tensor `weights`."""
    return safetensors.numpy.save({WEIGHTS: weights.detach().cpu().numpy().astype(np.float32)})
