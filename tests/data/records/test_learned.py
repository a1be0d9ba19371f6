"""Bounds and size learned privately: near the truth, charged first, one value of a patient."""

import numpy as np
import pytest

from privet.data.dataset import LearnedFact
from privet.data.records import learned
from privet.data.records.features import Categorical, Numeric
from privet.data.records.learned import learn_schema
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.data.records.simulator import simulate
from privet.errors import InputError
from privet.ledger import Ledger


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    yield book
    book.close()


def ward_of(n, rows=2, hr=None):
    """n patients; heart rates 40 to 120, a column that few have, ages 20 to 90."""
    rng = np.random.default_rng(0)
    values = np.stack([rng.uniform(40, 120, n * rows), np.full(n * rows, np.nan)], axis=1)
    values[0, 1] = 5.0
    if hr is not None:
        values[:, 0] = hr
    ids = np.array([f"p{k}" for k in range(n)])
    return PatientRecords(
        schema=Schema(
            name="ward",
            temporal=(
                Numeric(name="hr", low=0, high=1, decimals=0),
                Numeric(name="rare", low=0, high=1),
            ),
            static=(
                Numeric(name="age", low=0, high=1),
                Categorical(name="sex", values=("F", "M")),
            ),
            nominal_size=1,
        ),
        patients=ids,
        stays=ids,
        static=np.stack([rng.uniform(20, 90, n), np.zeros(n)], axis=1),
        outcomes=np.empty((n, 0)),
        offsets=np.arange(n + 1) * rows,
        times=np.tile(np.arange(rows, dtype=float), n),
        values=values,
    )


def test_bounds_are_powers_of_two_around_the_values(ledger):
    schema = learn_schema(ward_of(3000), ["hr", "age"], epsilon=2.0, ledger=ledger, size=True)
    assert schema.feature("hr") == Numeric(name="hr", low=32, high=128, decimals=0)
    assert schema.feature("age").low == 16
    assert schema.feature("age").high == 128
    assert schema.nominal_size == pytest.approx(3000, abs=60)
    third = pytest.approx(2.0 / 3)
    assert [(f.name, f.epsilon) for f in schema.learned] == [
        ("bounds of hr", third),
        ("bounds of age", third),
        ("nominal size", third),
    ]
    assert isinstance(schema.learned[0], LearnedFact)


def test_a_patient_counts_once_however_many_rows(ledger, monkeypatch):
    given = []

    def watch(columns, epsilon, stream):
        given.append(columns)
        return [(0.0, 1.0)]

    monkeypatch.setattr(learned, "learn_bounds", watch)
    records = ward_of(7, rows=50)
    learn_schema(records, ["hr", "rare", "age"], epsilon=1.0, ledger=ledger)
    assert [column.shape for column in given] == [(7, 1), (1, 1), (7, 1)]
    for k, value in enumerate(given[0][:, 0]):
        assert value in records.part([k]).values[:, 0]


def test_each_fact_is_learned_at_the_price_that_is_charged(ledger, monkeypatch):
    """And the size counts patients, not stays."""
    paid = []

    def bounds(columns, epsilon, stream):
        paid.append(epsilon)
        return [(0.0, 1.0)]

    def size(patients, epsilon, stream):
        paid.append(epsilon)
        return 1000 * patients

    monkeypatch.setattr(learned, "learn_bounds", bounds)
    monkeypatch.setattr(learned, "learn_size", size)
    records = simulate(40)
    schema = learn_schema(records, ["sbp", "dbp"], epsilon=3.0, ledger=ledger, size=True)
    assert paid == pytest.approx([1.0, 1.0, 1.0])
    assert [fact.epsilon for fact in schema.learned] == pytest.approx(paid)
    assert len(records) > 40
    assert schema.nominal_size == 40_000


def test_columns_have_noise_of_their_own(ledger, monkeypatch):
    keys = []

    def watch(columns, epsilon, stream):
        keys.append(stream.uniform(4, purpose="test", step=0).tolist())
        return [(0.0, 1.0)]

    monkeypatch.setattr(learned, "learn_bounds", watch)
    learn_schema(ward_of(5), ["hr", "rare", "age"], epsilon=1.0, ledger=ledger)
    assert len({tuple(key) for key in keys}) == 3


def test_it_is_charged_before_it_is_known(ledger):
    with pytest.raises(InputError, match=r"too little data or epsilon.*'rare'"):
        learn_schema(ward_of(50), ["rare"], epsilon=1.0, ledger=ledger)
    runs = ledger.account("ward").runs
    assert [run.label for run in runs] == ["learn bounds of rare"]


@pytest.mark.parametrize(
    ("columns", "epsilon", "words"),
    [
        (["sex"], 1.0, "no bounds to learn"),
        (["hart"], 1.0, "no such column"),
        (["hr"], 0.0, "bad epsilon"),
        (["hr"], float("inf"), "bad epsilon"),
    ],
)
def test_misuse_is_said_and_costs_nothing(ledger, columns, epsilon, words):
    with pytest.raises(InputError, match=words):
        learn_schema(ward_of(5), columns, epsilon=epsilon, ledger=ledger)
    assert ledger.names() == []


def test_nothing_to_learn_costs_nothing(ledger):
    records = ward_of(5)
    assert learn_schema(records, [], epsilon=1.0, ledger=ledger) == records.schema
    assert ledger.names() == []
