"""Who takes part: users, volunteers of a pool, made-up clients; nothing is lost or twice there."""

import numpy as np
import pytest
import torch

from privet.data.dataset import Split
from privet.errors import InputError
from privet.federation.population import dealt_name, dealt_unit, population_of
from privet.federation.settings import FederationSettings


def by_user(make_data, users=16):
    """80 records of 16 users."""
    split = make_data().train
    train = Split(x=split.x, y=split.y, units=np.arange(80) % users)
    return make_data(train=train, unit="user", nominal_size=users)


def material(population):
    return population.material(torch.device("cpu"))


def test_users_are_the_clients(make_data):
    found = material(population_of(by_user(make_data), FederationSettings()))
    assert [len(rows) for rows in found.clients] == [5] * 16
    assert sorted(np.concatenate(found.clients)) == list(range(80))
    assert len(found.pool) == 0


def test_volunteers_give_the_pool_and_are_no_clients(make_data):
    data, settings = by_user(make_data), FederationSettings(pool=4, init_seed=1)
    population = population_of(data, settings)
    found = material(population)
    assert np.bincount(found.y[found.pool].numpy()).tolist() == [4, 4]
    own = {row.tobytes() for row in found.x[np.concatenate(found.clients)].numpy()}
    given = {row.tobytes() for row in found.x[found.pool].numpy()}
    assert not own & given
    # Whole users are left out, also those of their records that the pool has no use for.
    gone = 16 - len(found.clients)
    assert gone >= 2
    assert len(own) == 80 - 5 * gone
    assert population.data.nominal_size == 16 - gone


def test_who_volunteers_does_not_depend_on_the_records_of_others(make_data):
    """Changing what a client has, and nobody gave to the pool, leaves the pool as it is."""
    data, settings = by_user(make_data), FederationSettings(pool=4, init_seed=1)
    population = population_of(data, settings)
    clients = {row.tobytes() for row in population.data.train.x}
    theirs = np.array([row.tobytes() in clients for row in data.train.x])
    other = data.train.x.copy()
    other[theirs] = 0.25
    labels = np.where(theirs, 0, data.train.y)
    changed = make_data(
        train=Split(x=other, y=labels, units=data.train.units), unit="user", nominal_size=16
    )
    again = population_of(changed, settings)
    assert np.array_equal(again.pool.x, population.pool.x)
    assert len(again.clients) == len(population.clients)


def test_every_record_is_dealt_to_one_client(make_data):
    settings = FederationSettings(clients=8, skew=0.2)
    population = population_of(make_data(), settings)
    found = material(population)
    assert sorted(len(rows) for rows in found.clients) == [10] * 8
    dealt = sorted(row.tobytes() for row in found.x.numpy())
    assert dealt == sorted(row.tobytes() for row in make_data().train.x)
    assert population.data.nominal_size == 8
    assert population.data.train.units is not None


def test_the_unit_bears_the_deal_in_its_name():
    deals = [
        FederationSettings(clients=8),
        FederationSettings(clients=9),
        FederationSettings(clients=8, skew=0.2),
        FederationSettings(clients=8, lacking=1),
        FederationSettings(clients=8, pool=3),
        FederationSettings(clients=8, init_seed=1),
    ]
    assert len({dealt_unit(deal, "made-up") for deal in deals}) == len(deals)
    assert len({dealt_name(deal) for deal in deals}) == len(deals)


def test_a_pool_of_dealt_records_is_not_dealt(make_data):
    found = material(population_of(make_data(), FederationSettings(clients=8, pool=5)))
    assert sum(map(len, found.clients)) == 70
    assert np.bincount(found.y[found.pool].numpy()).tolist() == [5, 5]
    own = {row.tobytes() for row in found.x[np.concatenate(found.clients)].numpy()}
    assert not own & {row.tobytes() for row in found.x[found.pool].numpy()}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "does not say whose its records are"),
        ({"clients": 81}, "bad number of clients"),
        ({"clients": 8, "lacking": 2}, "lacking"),
        ({"clients": 8, "pool": 40}, "no record of some class"),
    ],
)
def test_what_cannot_be_dealt_is_refused(make_data, options, said):
    with pytest.raises(InputError, match=said):
        population_of(make_data(), FederationSettings(**options))


def test_a_pool_that_takes_all_users_is_refused(make_data):
    with pytest.raises(InputError, match="no users would be left"):
        population_of(by_user(make_data), FederationSettings(pool=39))
