"""Who takes part: users as the data has them, or clients that records are dealt out to.

    volunteers  give the pool that every client gets a copy of; they are no clients
    clients     everyone else; a client is the unit of privacy

Volunteers are taken in an order drawn from a public seed until their records are enough, so who is
one depends on volunteers alone. Where records are dealt out, the clients are made up: a client is
protected as it was dealt, and its unit bears the deal in its name. The ledger refuses another deal
of records on which something was spent, since a client of one is spread over many of the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import torch

from privet.data.dataset import Dataset, Split
from privet.errors import InputError
from privet.federation.clients import Rows, keys_of, skewed, users_of
from privet.federation.draws import Keys, Kind, drawn_from
from privet.federation.local_work import Material
from privet.federation.settings import FederationSettings


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """Clients and the pool.

    Attributes:
        data: the clients' records, whose units are the clients.
        pool: the volunteers' records; None without a pool.
    """

    data: Dataset
    pool: Split | None

    @property
    def clients(self) -> list[Rows]:
        """The rows of each client."""
        return users_of(self.data)

    @cached_property
    def keys(self) -> Keys:
        """By which all is drawn for each client."""
        return keys_of(self.data)

    def material(self, device: torch.device) -> Material:
        """All records as a model is given them; those of the pool come last."""
        parts = [self.data.train] + ([] if self.pool is None else [self.pool])
        x = np.concatenate([self.data.bounds.clamp_and_scale(part.x) for part in parts])
        y = np.concatenate([part.y for part in parts])
        own = len(self.data.train)
        return Material(
            x=torch.from_numpy(x),
            y=torch.from_numpy(y),
            clients=self.clients,
            pool=np.arange(own, len(y), dtype=np.int64),
            classes=len(self.data.classes),
            keys=self.keys,
        ).on(device)


def population_of(data: Dataset, settings: FederationSettings) -> Population:
    """Users or made-up clients, and the pool, by the settings alone."""
    if not data.labelled:
        raise InputError(f"'{data.name}' has no labels", expected="examples of classes")
    return _users(data, settings) if settings.clients is None else _dealt(data, settings)


def _users(data: Dataset, settings: FederationSettings) -> Population:
    users = users_of(data)
    if not settings.pool:
        return Population(data=data, pool=None)
    order, classes = _order_of(keys_of(data), settings.init_seed), len(data.classes)
    found = np.zeros(classes, dtype=np.int64)
    for number, user in enumerate(order[:-1], start=1):
        found += np.bincount(data.train.y[users[user]], minlength=classes)
        if found.min() >= settings.pool:
            volunteers = np.concatenate([users[one] for one in order[:number]])
            return _apart(data, volunteers, data.nominal_size - number, settings)
    raise InputError(
        "no users would be left beside the volunteers",
        got=f"a pool of {settings.pool} records of each class",
        fix="a smaller --pool",
    )


def _order_of(keys: Keys, seed: int) -> list[int]:
    """By a draw of each one's own: who comes or goes leaves the others in their order."""
    draws = [drawn_from(seed, Kind.VOLUNTEER, int(key)).random() for key in keys]
    return [int(user) for user in np.argsort(draws, kind="stable")]


def _apart(
    data: Dataset, volunteers: Rows, nominal_size: int, settings: FederationSettings
) -> Population:
    if nominal_size < 1:
        raise InputError(
            "more volunteers than the data declare users",
            got=f"nominal size {data.nominal_size}",
            fix="a smaller --pool",
        )
    left = np.ones(len(data.train), dtype=bool)
    left[volunteers] = False
    private = data.training_on(data.train.part(left), nominal_size=nominal_size)
    return Population(data=private, pool=_pool(data, volunteers, settings))


def _pool(data: Dataset, candidates: Rows, settings: FederationSettings) -> Split:
    """So many of each class, drawn among the candidates."""
    draw = drawn_from(settings.init_seed, Kind.POOL)
    labels = data.train.y[candidates]
    chosen = [
        draw.choice(candidates[labels == label], settings.pool, replace=False)
        for label in range(len(data.classes))
    ]
    rows = np.sort(np.concatenate(chosen))
    return Split(x=data.train.x[rows], y=data.train.y[rows])


def _dealt(data: Dataset, settings: FederationSettings) -> Population:
    assert settings.clients is not None
    rows, pool = np.arange(len(data.train)), None
    if settings.pool:
        scarcest = int(np.bincount(data.train.y, minlength=len(data.classes)).min())
        if scarcest <= settings.pool:
            raise InputError(
                "the pool would leave no record of some class",
                got=f"{settings.pool} of each class",
                fix="a smaller --pool",
            )
        pool, rows = _pool_of_records(data, settings)
    dealt = skewed(
        data.train.y[rows],
        clients=settings.clients,
        classes=len(data.classes),
        alpha=settings.skew,
        lacking=settings.lacking,
        seed=settings.init_seed,
    )
    return Population(data=_of_clients(data, [rows[hand] for hand in dealt], settings), pool=pool)


def _pool_of_records(data: Dataset, settings: FederationSettings) -> tuple[Split, Rows]:
    """The pool, and the rows that are left to deal out."""
    draw = drawn_from(settings.init_seed, Kind.POOL)
    classes = range(len(data.classes))
    given = [
        draw.choice(np.flatnonzero(data.train.y == label), settings.pool, replace=False)
        for label in classes
    ]
    volunteered = np.sort(np.concatenate(given))
    left = np.setdiff1d(np.arange(len(data.train)), volunteered)
    return Split(x=data.train.x[volunteered], y=data.train.y[volunteered]), left


def _of_clients(data: Dataset, hands: Sequence[Rows], settings: FederationSettings) -> Dataset:
    """The same records, whose units are the made-up clients."""
    rows = np.concatenate(hands)
    owner = np.repeat(np.arange(len(hands), dtype=np.int64), [len(hand) for hand in hands])
    return replace(
        data,
        name=f"{data.name}/{dealt_name(settings)}",
        train=Split(x=data.train.x[rows], y=data.train.y[rows], units=owner),
        nominal_size=len(hands),
        unit=dealt_unit(settings, data.name),
    )


def dealt_name(settings: FederationSettings) -> str:
    """Of the data, as they were dealt: 100-clients-skew-0.3-lacking-1-pool-20-seed-7."""
    said = (
        ("skew", settings.skew),
        ("lacking", settings.lacking),
        ("pool", settings.pool),
        ("seed", settings.init_seed),
    )
    parts = [f"-{name}-{_exactly(value)}" for name, value in said if value]
    return f"{settings.clients}-clients{''.join(parts)}"


def dealt_unit(settings: FederationSettings, name: str) -> str:
    """What a made-up client is called, by the deal and the data that were dealt."""
    mix = "no skew" if settings.skew is None else f"skew {_exactly(settings.skew)}"
    lacking = f", {settings.lacking} classes lacking" if settings.lacking else ""
    pool = f", beside a pool of {settings.pool}" if settings.pool else ""
    return (
        f"client (of {settings.clients} made up of {name}:"
        f" {mix}{lacking}{pool}, seed {settings.init_seed})"
    )


def _exactly(value: float) -> str:
    """Short where that is the number; two deals must never bear one name."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
