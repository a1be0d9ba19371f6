from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest

from privet.data import catalogue
from privet.data.dataset import Bounds, Split
from privet.data.identity import (
    contents,
    enter_in_ledger,
    entered_in_ledger,
    row_digests,
    set_digest,
)
from privet.errors import InputError
from privet.ledger import Ledger

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def split(x, y=None):
    return Split(x=x, y=np.arange(len(x)) % 2 if y is None else y)


def images(make_data, x, high, **changes):
    return make_data(
        train=split(x), test=split(x), bounds=Bounds(low=(0.0,), high=(high,)), **changes
    )


def test_the_same_image_as_bytes_and_as_floats_is_recognised(make_data):
    x = np.random.default_rng(0).integers(0, 256, (10, 1, 4, 4)).astype(np.uint8)
    as_bytes = images(make_data, x, 255.0)
    as_floats = images(make_data, (x / 255.0).astype(np.float32), 1.0)
    assert set(row_digests(as_bytes, KEY)) & set(row_digests(as_floats, KEY))


def test_the_same_table_under_other_bounds_is_recognised(make_data):
    data = make_data()
    widened = make_data(bounds=Bounds(low=(-3.0,), high=(7.0,)))
    shared = set(row_digests(data, KEY)) & set(row_digests(widened, KEY))
    assert len(shared) == len(data.train)


def test_relabelled_records_are_still_the_same(make_data):
    data = make_data()
    flipped = make_data(train=split(data.train.x, 1 - data.train.y))
    assert row_digests(data, KEY) == row_digests(flipped, KEY)
    assert set_digest(data, KEY) != set_digest(flipped, KEY)


def test_other_records_have_other_digests(make_data):
    one, other = make_data(seed=0), make_data(seed=1)
    assert not set(row_digests(one, KEY)) & set(row_digests(other, KEY))


def test_digests_need_the_key(make_data):
    data = make_data()
    assert not set(row_digests(data, KEY)) & set(row_digests(data, OTHER_KEY))
    assert set_digest(data, KEY) != set_digest(data, OTHER_KEY)


def test_the_set_digest_does_not_depend_on_the_order_but_on_every_record(make_data):
    data = make_data()
    order = np.random.default_rng(0).permutation(len(data.train))
    shuffled = make_data(train=split(data.train.x[order], data.train.y[order]))
    fewer = make_data(train=split(data.train.x[1:], data.train.y[1:]))
    assert set_digest(data, KEY) == set_digest(shuffled, KEY)
    assert set_digest(data, KEY) != set_digest(fewer, KEY)


def made_over(data, **changes):
    """Other values, made from these records."""
    train = split(data.train.x[:, ::-1].copy(), data.train.y)
    return replace(data, train=train, originals=contents(data), **changes)


def test_records_made_over_are_known_by_what_they_were(make_data):
    data = make_data()
    made = made_over(data)
    assert row_digests(made, KEY) == row_digests(data, KEY)
    assert row_digests(made_over(made), KEY) == row_digests(data, KEY), "however often"
    assert set_digest(made, KEY) != set_digest(data, KEY), "of the values that train"


def test_contents_are_as_many_as_digests_and_can_be_read_twice(make_data):
    data = make_data()
    for scaled in (True, False):
        known = contents(data, scaled=scaled)
        assert len(known) == len(list(known)) == len(list(known)) == (1 + scaled) * len(data.train)
    assert data.train.x[3].astype("<f8").tobytes() in known
    assert (data.train.x[3] + 1).astype("<f8").tobytes() not in known


def test_made_over_images_are_recognised_among_floats(make_data):
    """By the scaled digests: bytes that were made over, beside the same images as fractions."""
    x = np.random.default_rng(0).integers(0, 256, (5000, 4)).astype(np.uint8)
    as_bytes = made_over(images(make_data, x, 255.0))
    as_floats = images(make_data, (x / 255.0).astype(np.float32), 1.0)
    common = set(row_digests(as_bytes, KEY)) & set(row_digests(as_floats, KEY))
    assert len(common) == len(np.unique(x, axis=0)), "blocks of the scaling leave none out"


def users(data, **changes):
    """The same records, five of them each user's."""
    n = len(data.train)
    train = Split(x=data.train.x, y=data.train.y, units=np.arange(n) // 5)
    return replace(data, **({"name": "by user", "unit": "user", "train": train} | changes))


def test_the_same_records_are_recognised_with_and_without_units(make_data):
    data = make_data()
    assert row_digests(users(data), KEY) == row_digests(data, KEY)


def test_the_set_digest_knows_what_belongs_together_but_not_the_numbers(make_data):
    data = make_data()
    grouped = users(data)
    assert set_digest(grouped, KEY) != set_digest(data, KEY)
    order = np.random.default_rng(0).permutation(len(data.train))
    x, y, units = (part[order] for part in (data.train.x, data.train.y, grouped.train.units))
    renumbered = users(data, train=Split(x=x, y=y, units=units.max() - units))
    assert set_digest(renumbered, KEY) == set_digest(grouped, KEY)
    one_moved = units.copy()
    one_moved[0] = (units[0] + 1) % 16
    regrouped = users(data, train=Split(x=x, y=y, units=one_moved))
    assert set_digest(regrouped, KEY) != set_digest(grouped, KEY)


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    yield book
    book.close()


def spend(ledger, data, steps=3):
    enter_in_ledger(data, ledger)
    run = ledger.reserve(data.name, label="x", step_event=dp.GaussianDpEvent(20.0), steps=steps)
    ledger.charge(run, 0)
    ledger.settle(run)


@pytest.mark.parametrize("first_by_user", [False, True])
def test_records_spent_on_for_one_unit_are_refused_for_another(make_data, ledger, first_by_user):
    """Under another name, for under the same one the ledger itself refuses another unit."""
    first, second = make_data(), users(make_data())
    if first_by_user:
        first, second = second, first
    spend(ledger, first)
    with pytest.raises(InputError, match=f"'{second.name}' are in the ledger as '{first.name}'"):
        spend(ledger, second)
    assert ledger.names() == [first.name], "refused at the door: no entry"
    spend(ledger, first)  # who came first goes on
    with pytest.raises(InputError, match="registered with another unit"):
        enter_in_ledger(replace(second, name=first.name), ledger)


def test_a_capped_account_is_not_charged_in_another_unit(make_data, ledger):
    """The cap stands before anything is spent: a patient's budget, asked for record by record."""
    enter_in_ledger(users(make_data()), ledger)
    ledger.cap("by user", 2.0, 1e-5)
    with pytest.raises(InputError, match="unit 'example'"):
        spend(ledger, make_data())


def test_records_without_runs_or_cap_bind_nobody(make_data, ledger):
    enter_in_ledger(make_data(), ledger)
    spend(ledger, users(make_data()))


def test_the_same_unit_under_two_names_is_added_up(make_data, ledger):
    data = users(make_data())
    spend(ledger, data)
    spend(ledger, replace(data, name="again"))
    assert {run.dataset for run in ledger.account("again").runs} == {"by user", "again"}


def test_a_half_is_related_to_its_whole_and_not_to_the_other_half(make_data, ledger, monkeypatch):
    """By its records, whatever the names are: no parent is declared."""
    made = make_data()
    monkeypatch.setattr(catalogue, "_load_entry", lambda *_: replace(made, name="mnist"))
    for half in ("mnist/first", "mnist/second"):
        spend(ledger, catalogue.load(half))
    first = ledger.account("mnist/first")
    assert first.related == ()
    assert {run.dataset for run in first.runs} == {"mnist/first"}
    spend(ledger, catalogue.load("mnist"))
    for name, related in (
        ("mnist/first", ("mnist",)),
        ("mnist/second", ("mnist",)),
        ("mnist", ("mnist/first", "mnist/second")),
    ):
        account = ledger.account(name)
        assert account.related == related
        assert {run.dataset for run in account.runs} == {name, *related}


def test_halves_that_hold_the_same_record_are_related(make_data, ledger, monkeypatch):
    made = make_data()
    x = made.train.x.copy()
    x[-1] = x[0]
    twice = replace(made, name="mnist", train=split(x, made.train.y))
    monkeypatch.setattr(catalogue, "_load_entry", lambda *_: twice)
    for half in ("mnist/first", "mnist/second"):
        enter_in_ledger(catalogue.load(half), ledger)
    assert ledger.account("mnist/first").related == ("mnist/second",)


def test_other_peoples_records_may_have_another_unit(make_data, ledger):
    spend(ledger, make_data(seed=0))
    spend(ledger, users(make_data(seed=1)))


def test_records_under_a_units_name_are_not_the_units(make_data, ledger):
    """Both say 'user'; only one knows whose the records are."""
    spend(ledger, users(make_data()))
    named = make_data(name="named", unit="user")
    with pytest.raises(InputError, match=r"got unit 'user' \(each record one\).*--unit-column"):
        spend(ledger, named)


@pytest.mark.parametrize("known", [True, False])
def test_what_is_refused_after_its_entry_is_taken_out_again_if_it_was_new(make_data, ledger, known):
    data = make_data()
    if known:
        enter_in_ledger(data, ledger)

    def enter_and_then(follow):
        with entered_in_ledger(data, ledger) as digest:
            assert digest == set_digest(data, ledger.digest_key)
            assert ledger.names() == [data.name]
            follow()

    def refuse():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        enter_and_then(refuse)
    assert ledger.names() == ([data.name] if known else [])
    enter_and_then(lambda: None)
    assert ledger.names() == [data.name]
