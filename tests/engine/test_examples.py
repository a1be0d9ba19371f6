"""Examples: scaled as a release scales its inputs, grouped by unit, and a unit clipped as one."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import nn

from privet.data.dataset import Bounds, Split
from privet.engine import examples as examples_module
from privet.engine.examples import Examples, Grouping, Rows, made_up_batch
from privet.errors import InputError
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy

CPU = torch.device("cpu")
REPEATABLE = settings(derandomize=True, deadline=None, max_examples=100)


def examples(x, bounds, y=None):
    y = np.arange(len(x)) % 2 if y is None else y
    return Examples.of(Split(x=x, y=y.astype(np.int64)), bounds, CPU)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(kept, indices):
    rows = kept.rows(torch.as_tensor(indices), seeded())
    assert (rows.views, rows.weights) == (1, None), "a record that is a unit counts whole"
    return rows.x, rows.y


@REPEATABLE
@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    places=st.lists(st.floats(-1.0, 2.0), min_size=2, max_size=6),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_values_are_scaled_and_clamped_by_the_public_bounds(low, width, places, dtype):
    bounds = Bounds(low=(low,), high=(low + width,))
    x = np.array([[low + p * width] for p in places], dtype=dtype)
    scaled, _ = batch(examples(x, bounds), range(len(x)))
    exact = np.clip((x.astype(np.float64) - low) / ((low + width) - low), 0, 1)
    assert np.allclose(scaled.numpy(), exact, atol=1e-6)


def test_narrow_bounds_around_a_large_value_survive_single_precision():
    bounds = Bounds(low=(1e9,), high=(1e9 + 1,))
    x = np.array([[1e9], [1e9 + 0.25], [1e9 + 1], [2e9]])
    scaled, _ = batch(examples(x, bounds), range(4))
    assert scaled.flatten().tolist() == [0.0, 0.25, 1.0, 1.0]


def test_huge_values_are_clamped_without_overflow():
    kept = examples(np.array([[-1e300], [1e300]]), Bounds(low=(0.0,), high=(1.0,)))
    scaled, _ = batch(kept, range(2))
    assert scaled.flatten().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
def test_training_sees_what_a_release_will_see(dtype):
    bounds = Bounds(low=(0.0,), high=(255.0,))
    x = np.random.default_rng(0).integers(0, 256, (5, 1, 4, 4)).astype(dtype)
    scaled, _ = batch(examples(x, bounds), range(5))
    assert np.allclose(scaled.numpy(), bounds.clamp_and_scale(x), atol=1e-7)
    assert scaled.dtype == torch.float32


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_each_column_has_its_own_bounds(dtype):
    bounds = Bounds(low=(0.0, 100.0), high=(10.0, 200.0))
    x = np.array([[5, 150], [20, 50]], dtype=dtype)
    scaled, _ = batch(examples(x, bounds), range(2))
    assert scaled.tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_the_chosen_records_come_with_their_labels_in_order():
    x = np.array([[0.1], [0.2], [0.3]], dtype=np.float32)
    kept = examples(x, Bounds(low=(0.0,), high=(1.0,)), np.array([0, 1, 2]))
    found, y = batch(kept, [2, 0])
    assert torch.allclose(found, torch.tensor([[0.3], [0.1]]))
    assert y.tolist() == [2, 0]


def test_no_indices_give_an_empty_batch_of_the_right_shape():
    x, y = batch(examples(np.zeros((3, 2, 4)), Bounds(low=(0.0,), high=(1.0,))), torch.arange(0))
    assert x.shape == (0, 2, 4)
    assert y.shape == (0,)


def test_a_batch_can_be_changed_in_place_without_changing_the_records():
    kept = examples(np.full((2, 1), 0.5, np.float32), Bounds(low=(0.0,), high=(1.0,)))
    batch(kept, range(2))[0].mul_(0)
    assert batch(kept, range(2))[0].tolist() == [[0.5], [0.5]]


def test_made_up_batches_do_not_depend_on_the_records(make_data):
    one, other = (made_up_batch(make_data(n=n, seed=n), CPU) for n in (20, 80))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
    assert one[0].shape == (4, 4)
    assert one[0].min() >= 0
    assert one[0].max() <= 1


# Units of several records. Record r has the value r / 1000, so a row tells which record it is.

UNITS = st.lists(st.integers(1, 9), min_size=1, max_size=12)  # how many records each unit has


def owned(counts, contribution, seed=0):
    """Examples of units with so many records each, in a mixed order; and whose each record is."""
    units = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(seed).shuffle(units)
    x = (np.arange(len(units)) / 1000).astype(np.float32)[:, None]
    split = Split(x=x, y=np.arange(len(units)) % 2, units=units)
    unit_range = Bounds(low=(0.0,), high=(1.0,))
    return Examples.of(split, unit_range, CPU, contribution=contribution), units


def by_unit(rows):
    """For each unit of the batch: its rows as (record, label, weight)."""
    records = (rows.x.flatten() * 1000).round().long().tolist()
    listed = list(zip(records, rows.y.tolist(), rows.weights.tolist(), strict=True))
    return [listed[i : i + rows.views] for i in range(0, len(listed), rows.views)]


@REPEATABLE
@given(counts=UNITS, contribution=st.integers(1, 11), seed=st.integers(0, 2**32), data=st.data())
def test_a_unit_gives_its_own_records_as_many_as_allowed_each_once(
    counts, contribution, seed, data
):
    """Against brute force: the records of each unit, found by looking through all of them."""
    kept, units = owned(counts, contribution, seed)
    assert (len(kept), kept.contribution) == (len(counts), contribution)
    asked = data.draw(st.lists(st.integers(0, len(counts) - 1), unique=True))
    rows = kept.rows(torch.tensor(asked, dtype=torch.int64), seeded(seed))
    assert (rows.views, len(rows.x)) == (contribution, contribution * len(asked))
    for unit, own in zip(asked, by_unit(rows), strict=True):
        allowed = set(np.flatnonzero(units == unit).tolist())
        assert {record for record, _, _ in own} <= allowed, "not even a gap holds another's record"
        assert all(label == record % 2 for record, label, _ in own)
        counted = [record for record, _, weight in own if weight]
        assert len(counted) == len(set(counted)) == min(contribution, len(allowed))
        assert all(weight in (0, np.float32(1 / len(counted))) for _, _, weight in own)
        assert sum(weight for _, _, weight in own) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("count", "contribution"), [(2, 1), (5, 2), (6, 5), (4, 4), (30, 4)])
def test_every_set_of_a_units_records_is_chosen_equally_often(count, contribution):
    """Chi-square at a fixed seed; a right choice fails with probability 1e-4 each."""
    kept, units = owned([3, count, 1], contribution)
    draws = 6000
    rows = kept.rows(torch.full((draws,), 1), seeded(1))
    own = np.flatnonzero(units == 1).tolist()
    drawn = [tuple(sorted(record for record, _, _ in unit)) for unit in by_unit(rows)]
    if count <= 6:
        seen = Counter(drawn)
        sets = [seen[chosen] for chosen in combinations(own, contribution)]
    else:  # too many sets to see each; every record then
        seen = Counter(record for chosen in drawn for record in chosen)
        sets = [seen[record] for record in own]
    assert sum(sets) == sum(seen.values())
    if len(sets) > 1:
        assert chisquare(sets).pvalue > 1e-4


def test_always_the_first_records_would_be_caught():
    """The same statistic with a choice that prefers the first record of ten slightly."""
    chosen = np.random.default_rng(0).choice(10, 6000, p=[0.14, *[0.86 / 9] * 9])
    assert chisquare(np.bincount(chosen)).pvalue < 1e-4


def test_the_choice_is_fixed_by_the_generator_and_made_anew_each_time():
    kept, _ = owned([20, 3, 20], 4)
    everyone = torch.arange(3)
    one, same, other = (by_unit(kept.rows(everyone, seeded(s))) for s in (5, 5, 6))
    assert one == same != other
    generator = seeded(5)
    assert by_unit(kept.rows(everyone, generator)) != by_unit(kept.rows(everyone, generator))


def test_the_draws_do_not_depend_on_how_many_records_others_have():
    """So a unit with many records costs no memory, and moves nobody else's choice."""
    alone = Grouping.of(torch.tensor([0] * 5 + [1]), 3)
    beside = Grouping.of(torch.tensor([0] * 5 + [1] * 50_000), 3)
    chosen = [grouping.records(torch.arange(2), seeded(3))[0][:3] for grouping in (alone, beside)]
    assert torch.equal(*chosen)


def test_units_of_one_record_are_what_records_without_units_are():
    x = np.random.default_rng(0).uniform(size=(6, 3)).astype(np.float32)
    y, bounds = np.arange(6) % 2, Bounds(low=(0.0,), high=(1.0,))
    plain = Examples.of(Split(x=x, y=y), bounds, CPU)
    single = Examples.of(Split(x=x, y=y, units=np.arange(6)), bounds, CPU, contribution=1)
    a, b = (kept.rows(torch.tensor([4, 0]), seeded()) for kept in (plain, single))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y, b.y)
    assert (a.views, b.views, b.weights.tolist()) == (1, 1, [1.0, 1.0])


def test_no_units_give_no_rows():
    kept, _ = owned([2, 3], 4)
    rows = kept.rows(torch.arange(0), seeded())
    assert (rows.x.shape, rows.y.shape, rows.weights.shape) == ((0, 1), (0,), (0,))
    assert rows.views == 4


def test_a_contribution_of_nothing_is_refused():
    with pytest.raises(InputError, match="bad contribution"):
        owned([2, 3], 0)


@pytest.mark.parametrize("contribution", [1, 3])
def test_what_a_front_makes_of_the_records_is_the_front_applied_to_each(contribution):
    torch.manual_seed(0)
    front = nn.Sequential(nn.Linear(1, 5), nn.Tanh())
    kept, _ = owned([4, 1, 2], contribution)
    rows, seen = (e.rows(torch.arange(3), seeded(2)) for e in (kept, kept.seen_by(front)))
    expected = torch.stack([front(row) for row in rows.x])
    assert torch.allclose(seen.x, expected, atol=1e-6)
    assert not seen.x.requires_grad
    assert torch.equal(seen.y, rows.y)
    assert torch.equal(seen.weights, rows.weights)
    assert seen.views == rows.views


class Tagged:
    """View k of a row with value v is v + 10 (k + 1)."""

    def __init__(self, views):
        self.views = views

    def __call__(self, x, generator):
        tags = 10.0 * (1 + torch.arange(self.views, dtype=x.dtype))
        return (x[:, None] + tags[:, None]).flatten(0, 1)


class Jittered:
    """Every view of every row is moved by a draw of its own."""

    def __init__(self, views):
        self.views = views

    def __call__(self, x, generator):
        views = x.repeat_interleave(self.views, dim=0)
        return views + torch.rand(views.shape, generator=generator)


def test_views_that_are_kept_are_drawn_anew_for_every_record(monkeypatch):
    """Also across the blocks in which a front sees the records; all records are alike here."""
    monkeypatch.setattr(examples_module, "_BLOCK", 4)
    kept = examples(np.full((10, 2), 0.5), Bounds(low=(0.0,), high=(1.0,)))
    rows = kept.seen_by(nn.Identity(), Jittered(3), seeded(4)).rows(torch.arange(10), seeded())
    assert (rows.views, rows.x.shape) == (3, (30, 2))
    assert len(set(rows.x.flatten().tolist())) == 60
    again, other = (
        kept.seen_by(nn.Identity(), Jittered(3), seeded(s)).rows(torch.arange(10), seeded()).x
        for s in (4, 5)
    )
    assert torch.equal(again, rows.x)
    assert not torch.isin(other, rows.x).any()


def test_views_of_a_units_rows_stay_with_it_in_order():
    rows = Rows(
        x=torch.tensor([[1.0], [2.0], [3.0], [3.0]]),
        y=torch.tensor([0, 1, 2, 2]),
        views=2,
        weights=torch.tensor([0.5, 0.5, 1.0, 0.0]),
    )
    seen = rows.seen_through(Tagged(3), seeded())
    assert seen.views == 6
    assert seen.x.flatten().tolist() == [11, 21, 31, 12, 22, 32, 13, 23, 33, 13, 23, 33]
    assert seen.y.tolist() == [0] * 3 + [1] * 3 + [2] * 6
    assert seen.weights.tolist() == pytest.approx([1 / 6] * 6 + [1 / 3] * 3 + [0] * 3)
    plain = Rows(x=rows.x, y=rows.y).seen_through(Tagged(2), seeded())
    assert (plain.views, plain.weights) == (2, None)


# The property that everything rests on: a whole user is hidden by noise for one clip norm.

CLIP = 0.5


def users_split(counts, seed, agree):
    """Records of users; where they agree, all records of a user pull the same way."""
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(len(counts)), counts)
    x = rng.uniform(0, 1, (len(units), 4)).astype(np.float32)
    y = rng.integers(0, 3, len(units))
    if agree:
        first = np.searchsorted(units, units)
        x, y = x[first], y[first]
    return Split(x=x, y=y, units=units)


def clipper(kind):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    return kind(model, cross_entropy, CLIP)


def per_unit(of, rows):
    return of.clipped_sum(rows.x, rows.y, views=rows.views, weights=rows.weights)


def per_record(of, rows):
    """The planted bug: every record is clipped by itself."""
    counted = rows.weights > 0
    return of.clipped_sum(rows.x[counted], rows.y[counted])


def shift(split, contribution, of, leave_out, sum_of=per_unit):
    """How far the sum over everyone moves when one user leaves with all records."""
    everyone = Examples.of(split, Bounds(low=(0.0,), high=(1.0,)), CPU, contribution=contribution)
    without = Examples.of(
        split.part(split.units != leave_out),
        Bounds(low=(0.0,), high=(1.0,)),
        CPU,
        contribution=contribution,
    )
    sums = [
        sum_of(of, kept.rows(torch.arange(len(kept)), seeded(9))) for kept in (everyone, without)
    ]
    return float((sums[0] - sums[1]).norm())


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    seed=st.integers(0, 2**32),
    agree=st.booleans(),
    which=st.integers(0, 5),
)
def test_removing_one_user_moves_the_sum_by_at_most_the_clip_norm(kind, counts, seed, agree, which):
    """All records are used, so nothing but the user's leaving differs between the two sums."""
    split = users_split(counts, seed, agree)
    moved = shift(split, 9, clipper(kind), which % len(counts))
    assert moved <= CLIP * (1 + 1e-5)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(1, 30), min_size=2, max_size=6),
    contribution=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_the_last_user_to_leave_takes_no_more_than_the_clip_norm_whatever_was_chosen(
    counts, contribution, seed
):
    """The draws of the users before the last are the same with and without that one."""
    moved = shift(
        users_split(counts, seed, True), contribution, clipper(FastClipper), len(counts) - 1
    )
    assert moved <= CLIP * (1 + 1e-5)


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
def test_the_sum_is_that_of_every_users_clipped_mean_gradient(kind):
    """Against one plain backward pass for each user, over all records of that user."""
    split, of = users_split([8, 1, 3, 5], 2, False), clipper(kind)
    kept = Examples.of(split, Bounds(low=(0.0,), high=(1.0,)), CPU, contribution=8)
    expected = 0.0
    for user in range(4):
        own = split.part(split.units == user)
        of.model.zero_grad()
        nn.functional.cross_entropy(of.model(torch.tensor(own.x)), torch.tensor(own.y)).backward()
        gradient = torch.cat([p.grad.flatten() for p in of.model.parameters()])
        expected = expected + gradient * min(1.0, CLIP / float(gradient.norm()))
    found = per_unit(of, kept.rows(torch.arange(4), seeded()))
    assert (found - expected).norm() <= 1e-4 * CLIP


def test_clipping_each_record_by_itself_would_be_caught():
    split = users_split([8, 2, 1], 0, True)
    of = clipper(FastClipper)
    assert shift(split, 9, of, 0) == pytest.approx(CLIP, rel=1e-4), "the bound is reached"
    assert shift(split, 9, of, 0, per_record) > 7 * CLIP


def test_a_front_sees_blocks_of_one_size():
    """So that what it makes of a record cannot depend on how many there are."""
    sizes = []

    class Counting(nn.Module):
        def forward(self, x):
            sizes.append(len(x))
            return x * len(x)

    for n in (3, 1024, 1030):
        records = Examples(torch.ones(n, 2), torch.zeros(n, dtype=torch.int64), None, CPU)
        seen = records.seen_by(Counting())
        assert len(seen) == n
        rows = seen.rows(torch.tensor([0, n - 1]), torch.Generator())
        assert rows.x.tolist() == [[1024.0, 1024.0]] * 2
    assert set(sizes) == {1024}
