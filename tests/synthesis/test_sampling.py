"""Synthetic records from a release: number, conditions, constraints, chunks."""

import numpy as np
import pytest

import privet
from privet.data.records.simulator import simulate
from privet.errors import InputError
from privet.synthesis import sampling
from privet.synthesis.fitting import fit
from privet.synthesis.sampling import Sampler, sample, within_horizon


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    ledger = privet.Ledger(tmp_path_factory.mktemp("l") / "ledger.db")
    made = fit(
        "autoregressive",
        simulate(200),
        analysis="none",
        epochs=1,
        model="rows-16-0",
        ledger=ledger,
    )
    ledger.close()
    return made


def drawn(release, n, **how):
    return list(sample(release, n, seed=1, **how))


def test_as_many_as_asked_for_in_chunks(release, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 40)
    chunks = drawn(release, 100)
    assert [len(chunk) for chunk in chunks] == [40, 40, 20]
    ids = np.concatenate([chunk.stays for chunk in chunks])
    assert ids.tolist() == [str(k) for k in range(1, 101)]


def test_the_same_seed_gives_the_same_records(release):
    (one,), (same,) = drawn(release, 30), drawn(release, 30)
    (other,) = sample(release, 30, seed=2)
    assert np.array_equal(one.values, same.values, equal_nan=True)
    assert len(one.times) != len(other.times) or not np.array_equal(one.times, other.times)


def test_values_keep_their_bounds_and_constraints(release):
    from privet.data.records.constraints import violations

    (chunk,) = drawn(release, 400)
    for place, feature in enumerate(chunk.schema.temporal):
        column = chunk.values[:, place]
        column = column[~np.isnan(column)]
        low, high = getattr(feature, "low", 0), getattr(feature, "high", feature.levels - 1)
        assert ((column >= low) & (column <= high)).all()
    assert all(violated == 0 for violated, _ in violations(chunk).values())


def test_conditions_on_static_columns_are_met_exactly(release):
    chunks = drawn(release, 150, where=["age>=60", "gender=F"])
    schema = chunks[0].schema
    names = [f.name for f in schema.static]
    static = np.concatenate([chunk.static for chunk in chunks])
    assert len(static) == 150
    assert (static[:, names.index("age")] >= 60).all()
    women = schema.static[names.index("gender")].values.index("F")
    assert (static[:, names.index("gender")] == women).all()


def test_conditions_on_outcomes_are_met_by_drawing_again(release):
    sampler = Sampler.of(release, where=["disposition=admitted"], seed=3)
    chunk = sampler.drawn(300)
    names = [f.name for f in chunk.schema.outcomes]
    wanted = chunk.schema.outcomes[names.index("disposition")].values.index("admitted")
    assert (chunk.outcomes[:, names.index("disposition")] == wanted).all()
    assert sampler.tried == 300
    assert sampler.kept == len(chunk) < 300
    chunks = list(sampler.chunks(60))
    stays = np.concatenate([part.stays for part in chunks])
    assert stays.tolist() == [str(1 + k) for k in range(60)]
    assert all((part.outcomes[:, 0] == wanted).all() for part in chunks)


def test_a_condition_shifts_what_hangs_together_with_it(release):
    """Not only the column itself: p(rest | condition), by drawing again, not by overwriting."""
    everyone, old = drawn(release, 1500)[0], drawn(release, 1500, where=["age>=75"])[0]
    assert (old.static[:, 0] >= 75).all()
    assert not (everyone.static[:, 0] >= 75).all()


def test_what_is_almost_never_met_is_given_up(release, monkeypatch):
    monkeypatch.setattr(sampling, "TRIED", 500)
    monkeypatch.setattr(sampling, "LEAST_SHARE", 0.999)
    with pytest.raises(InputError, match="almost never met"):
        drawn(release, 1000, where=["age>=60"])


@pytest.mark.parametrize("n", [0, -3])
def test_bad_numbers_are_refused(release, n):
    with pytest.raises(InputError, match="at least 1"):
        drawn(release, n)


def test_rows_after_the_horizon_are_dropped():
    from dataclasses import replace

    records = simulate(30)
    cut = within_horizon(replace(records, schema=replace(records.schema, horizon=60.0)))
    assert len(cut) == len(records)
    assert (cut.times <= 60.0).all()
    assert len(cut.times) == (records.times <= 60.0).sum()


def test_other_releases_are_refused(tmp_path):
    ledger = privet.Ledger(tmp_path / "ledger.db")
    other = privet.train(
        "plain", privet.data.load("digits"), epochs=0.1, model="linear", ledger=ledger
    )
    ledger.close()
    with pytest.raises(InputError, match="makes no records"):
        drawn(other, 3)
