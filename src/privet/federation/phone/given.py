"""Records from data sets by name: each phone is a user of the data, or a client dealt out.

A phone's records are what the simulator's client of the same number has, in the same order; its
held-out ones are its user's test records, or its share of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

import privet
from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.federation.phone.records import HELD_OUT, POOL, TRAIN, Records
from privet.federation.population import Population, population_of
from privet.federation.settings import FederationSettings


@final
class GivenData:
    """A data set, dealt out to clients.

    Args:
        name: of the data.
        data_dir: where its files are.
        settings: to whom records are dealt out, and the pool.
    """

    def __init__(self, name: str, data_dir: Path | None, settings: FederationSettings) -> None:
        self.population: Population = population_of(privet.data.load(name, data_dir), settings)
        self._clients = self.population.clients

    @property
    def data(self) -> Dataset:
        """Its clients' records."""
        return self.population.data

    @property
    def clients(self) -> int:
        """How many there are."""
        return len(self._clients)

    def key(self, client: int) -> int:
        """By which the simulator draws this client's lessons."""
        self._require_known(client)
        return int(self.population.keys[client])

    def give(self, client: int, records: Records) -> None:
        """A client's share into a phone's files."""
        self._require_fit(records)
        self._require_known(client)
        train, test, pool = self.data.train, self.data.test, self.population.pool
        rows = self._clients[client]
        self._put(records, TRAIN, train.x[rows], train.y[rows])
        late = self._late(client)
        self._put(records, HELD_OUT, test.x[late], test.y[late])
        if pool is not None:
            self._put(records, POOL, pool.x, pool.y)

    def _late(self, client: int) -> NDArray[np.int64]:
        """Which test records are this client's."""
        units = self.data.test.units
        if units is not None:
            return np.flatnonzero(units == client)
        return np.arange(client, len(self.data.test), self.clients)

    def _put(
        self, records: Records, part: str, x: NDArray[np.generic], y: NDArray[np.int64]
    ) -> None:
        scaled = self.data.bounds.clamp_and_scale(x)
        records.add(part, 0.0, torch.from_numpy(scaled), torch.from_numpy(y.copy()))

    def _require_known(self, client: int) -> None:
        if not 0 <= client < self.clients:
            raise InputError(
                f"no such user of '{self.data.name}'",
                got=client,
                expected=f"0..{self.clients - 1}",
            )

    def _require_fit(self, records: Records) -> None:
        found: Sequence[object] = (tuple(self.data.shape), len(self.data.classes))
        if found != (records.shape, records.classes):
            raise InputError(
                f"'{self.data.name}' does not fit the model",
                got=f"examples of shape {found[0]}, {found[1]} classes",
                expected=f"shape {records.shape}, {records.classes} classes",
            )
