"""What a trainer was made for: every change of records, order or facts is another origin."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from privet.data.dataset import Bounds, LearnedFact, Split
from privet.engine.origin import Origin, name_of
from privet.errors import InputError
from privet.ledger import Ledger


def in_order(split, order):
    return replace(split, x=split.x[order], y=split.y[order])


def relabelled(split):
    y = split.y.copy()
    y[3] = 1 - y[3]
    return replace(split, y=y)


def nudged(split):
    x = split.x.copy()
    x[5, 2] = np.nextafter(x[5, 2], np.float32(1.0))
    return replace(split, x=x)


SWAPPED = np.array([1, 0, *range(2, 80)])
RECORDS = {
    "reversed": lambda split: in_order(split, np.arange(80)[::-1]),
    "two of one class swapped": lambda split: in_order(split, np.array([2, 1, 0, *range(3, 80)])),
    "two swapped": lambda split: in_order(split, SWAPPED),
    "one less": lambda split: in_order(split, np.arange(79)),
    "one label": relabelled,
    "one value by one bit": nudged,
    "labels alone in another order": lambda split: replace(split, y=split.y[SWAPPED]),
}
FACTS = {
    "name": {"name": "elsewhere"},
    "unit": {"unit": "hospital"},
    "nominal_size": {"nominal_size": 81},
    "classes": {"classes": ("no", "maybe")},
    "bounds": {"bounds": Bounds(low=(0.0,), high=(2.0,))},
    "learned": {"learned": (LearnedFact(name="bounds", epsilon=1.0),)},
    "test_is_public": {"test_is_public": False},
}


@pytest.mark.parametrize("change", RECORDS)
@pytest.mark.parametrize("part", ["train", "test"])
def test_other_records_or_another_order_are_refused(make_data, change, part):
    data = make_data()
    data = replace(data, test=data.train)
    origin = Origin.of(data)
    other = replace(data, **{part: RECORDS[change](getattr(data, part))})
    origin.require(data)
    with pytest.raises(InputError, match=r"given other data.*in another order"):
        origin.require(other)


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_that_is_stated_otherwise_is_refused_by_name(make_data, name):
    data = make_data()
    with pytest.raises(InputError, match=rf"given other data: got {name} "):
        Origin.of(data).require(replace(data, **FACTS[name]))


def test_a_learned_fact_that_is_left_out_is_refused(make_data):
    learned = make_data(learned=(LearnedFact(name="bounds", epsilon=1.0),))
    for forgotten in ((), (LearnedFact(name="bounds", epsilon=0.5),)):
        with pytest.raises(InputError, match="got learned"):
            Origin.of(learned).require(replace(learned, learned=forgotten))


def test_records_that_are_grouped_otherwise_are_refused(make_data):
    records = make_data().train
    users = Split(x=records.x, y=records.y, units=np.arange(80) // 4)
    data = make_data(train=users, unit="user", nominal_size=20)
    each = Split(x=records.x, y=records.y, units=np.arange(80))
    for units in (np.arange(80) // 8, None):
        other = replace(data, train=replace(users, units=units))
        with pytest.raises(InputError, match="given other data"):
            Origin.of(data).require(other)
    with pytest.raises(InputError, match="given other data"):  # the numbers alone would agree
        Origin.of(replace(data, train=records)).require(replace(data, train=each))


def test_where_a_part_trained_the_rest_must_still_agree(make_data):
    """A search holds units out; what it states is stated of all."""
    data = make_data()
    part = data.training_on(data.train.part(np.arange(80) % 10 > 0), nominal_size=72)
    Origin.of(part).require(data, in_part=True)
    with pytest.raises(InputError, match="nominal_size"):
        Origin.of(part).require(data)
    for name in ("unit", "learned", "name", "test_is_public"):
        with pytest.raises(InputError, match=f"got {name}"):
            Origin.of(part).require(replace(data, **FACTS[name]), in_part=True)


@pytest.mark.parametrize("change", [*FACTS, *RECORDS])
def test_every_change_shows_under_the_seal(make_data, tmp_path, change):
    data = make_data()
    changes = FACTS.get(change) or {"train": RECORDS[change](data.train)}
    with closing(Ledger(tmp_path / "a.db")) as ledger:
        sealed = Origin.of(data).sealed(ledger, "run")
        assert Origin.of(replace(data, **changes)).sealed(ledger, "run") != sealed
        assert Origin.of(make_data()).sealed(ledger, "run") == sealed


def test_the_seal_is_keyed_by_ledger_and_run(make_data, tmp_path):
    origin = Origin.of(make_data())
    with closing(Ledger(tmp_path / "a.db")) as a, closing(Ledger(tmp_path / "b.db")) as b:
        assert len({origin.sealed(book, run) for book in (a, b) for run in ("1", "2")}) == 4


def test_what_could_confirm_a_guess_is_not_shown(make_data):
    origin = Origin.of(make_data())
    assert origin.train not in repr(origin)
    assert origin.test not in repr(origin)


def test_a_name_depends_on_the_numbers_and_not_on_how_they_lie_in_memory():
    x = np.arange(12.0).reshape(3, 4)
    assert name_of([x]) == name_of([np.asfortranarray(x)]) == name_of([np.repeat(x, 2, 0)[::2]])
    assert name_of([x]) != name_of([x.reshape(4, 3)])
    assert name_of([x]) != name_of([x.view(np.int64)])
    assert name_of([x, x]) != name_of([x])
