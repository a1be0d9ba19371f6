"""Kernels: norms and sums by every way are those of plain autograd, piece by piece."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from privet.privacy.rules import FLOAT32, Dense, Rounding, forms, sum_of, windowed
from privet.privacy.rules.windowed import Windowed

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=60)
# Without what is allowed for additions: nothing but the measured norm.
BARE = Rounding(sums=2.0**-22, outputs=2.0**-22, additions=0.0)
CONVOLVED = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def made(
    units=3,
    rows=1,
    groups=1,
    c=2,
    o=3,
    size=(7, 6),
    kernel=(3, 2),
    stride=(1, 1),
    dilation=(1, 1),
    channels_last=False,
    seed=0,
):
    """A form, with output gradients for every position of the kernel."""
    torch.manual_seed(seed)
    seen = torch.randn(units * rows, groups * c, *size)
    shape = torch.Size((groups * o, c, *kernel))
    grid = CONVOLVED[len(size)](
        seen, torch.zeros(shape), stride=stride, dilation=dilation, groups=groups
    ).shape
    left = torch.randn(grid)
    if channels_last:
        seen, left = (v.movedim(1, -1).contiguous().movedim(-1, 1) for v in (seen, left))
    return Windowed(left, seen, shape, stride, dilation, groups, rows)


def by_autograd(form):
    """Each unit's gradient in double precision: the judge."""
    kernel = torch.zeros(form.shape, dtype=torch.float64, requires_grad=True)
    rows = []
    for left, seen in zip(form.left.split(form.rows), form.seen.split(form.rows), strict=True):
        output = CONVOLVED[form.left.dim() - 2](
            seen.double(), kernel, stride=form.stride, dilation=form.dilation, groups=form.groups
        )
        rows.append(torch.autograd.grad((output * left.double()).sum(), kernel)[0])
    return torch.stack(rows)


WAYS = {"formed": (0.0, 1.0, 1.0), "gram": (1.0, 0.0, 1.0), "measured": (2.0, 1.0, 0.0)}


def by(way, form, monkeypatch):
    """The form as it is settled where the count favours one way."""
    monkeypatch.setattr(Windowed, "_costs", lambda self: WAYS[way])
    settled = form.settled()
    assert isinstance(settled, Dense if way == "formed" else Windowed)
    return settled


SHAPES = {
    "plain": {},
    "strided": {"stride": (2, 3), "size": (9, 8)},
    "dilated": {"dilation": (2, 1), "size": (9, 6)},
    "in groups": {"groups": 3},
    "with views": {"rows": 2},
    "all of it": {"rows": 2, "groups": 2, "stride": (2, 1), "dilation": (1, 2), "size": (8, 9)},
    "a line": {"size": (11,), "kernel": (4,), "stride": (2,), "dilation": (1,)},
    "a box": {"size": (4, 5, 4), "kernel": (2, 3, 2), "stride": (1,) * 3, "dilation": (1,) * 3},
    "one channel": {"c": 1, "kernel": (3, 3)},
    "many channels": {"c": 20, "o": 2},
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SHAPES)
def test_norms_and_sums_are_those_of_autograd(name, way, channels_last, monkeypatch):
    form = made(**SHAPES[name], channels_last=channels_last)
    expected = by_autograd(form)
    settled = by(way, form, monkeypatch)
    squares = expected.flatten(1).square().sum(1)
    torch.testing.assert_close(settled.squared_norms(BARE), squares, rtol=1e-5, atol=0)
    weights = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float64)
    total = torch.einsum("n,n...->...", weights, expected).float()
    torch.testing.assert_close(settled.weighted_sum(weights), total, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(settled.formed(), expected.float(), rtol=1e-5, atol=1e-4)


@REPEATABLE
@given(
    units=st.integers(1, 4),
    rows=st.integers(1, 3),
    groups=st.integers(1, 2),
    c=st.integers(1, 5),
    o=st.integers(1, 4),
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    seed=st.integers(0, 99),
)
def test_the_three_norms_agree_whatever_the_shape(**shape):
    form = made(**shape)
    exact = by_autograd(form).flatten(1).norm(dim=1)
    for norms in (
        form._dense().squared_norms(),
        form._gram_norms(BARE),
        form._measured_norms(BARE),
    ):
        assert (norms.sqrt() >= (1 - 1e-6) * exact).all()
        # A few terms may cancel by chance, in one group or in all, beyond what a Gram sum allows.
        honest = (exact > lengths(form) / forms.MOST_CANCELLATION) & (form.groups == 1)
        assert torch.allclose(norms.sqrt()[honest], exact[honest], rtol=1e-5)


def lengths(form):
    """An upper bound of S: patches no longer than all of their places."""
    b = form.left.double().flatten(2).norm(dim=1).sum(1)
    return (b * form.seen.double().flatten(1).norm(dim=1)).reshape(-1, form.rows).sum(1)


@pytest.mark.parametrize("channels_last", [False, True])
def test_both_orders_of_patches_give_the_same(channels_last, monkeypatch):
    form = made(c=4, groups=2, rows=2)
    expected = by_autograd(form).float()
    monkeypatch.setattr(Windowed, "_channels_last", channels_last)
    torch.testing.assert_close(form.formed(), expected, rtol=1e-5, atol=1e-4)
    weighted = form._dense().weighted_sum(torch.tensor([1.0, -1.0, 2.0]))
    by_hand = expected[0] - expected[1] + 2 * expected[2]
    torch.testing.assert_close(weighted, by_hand, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_a_few_units_at_a_time_are_the_same(way, monkeypatch):
    form = made(units=7, rows=2)
    whole = by(way, form, monkeypatch)
    norms, total = whole.squared_norms(), whole.weighted_sum(torch.arange(7.0))
    monkeypatch.setitem(windowed.PATCHES_AT_ONCE, "cpu", 2 * form._patch_entries)
    monkeypatch.setitem(forms.GRAM_AT_ONCE, "cpu", 3 * form._gram_entries)
    pieces = by(way, form, monkeypatch)
    torch.testing.assert_close(pieces.squared_norms(), norms, rtol=1e-6, atol=0)
    torch.testing.assert_close(pieces.weighted_sum(torch.arange(7.0)), total, rtol=1e-5, atol=1e-4)


def test_patches_are_never_made_for_all_units(monkeypatch):
    made_at_once = []
    factors = Windowed._factors

    def watched(self, buffer=None):
        made_at_once.append(self.units)
        return factors(self, buffer)

    monkeypatch.setattr(Windowed, "_factors", watched)
    form = made(units=10)
    monkeypatch.setitem(windowed.PATCHES_AT_ONCE, "cpu", 4 * form._patch_entries)
    form._dense()
    assert made_at_once == [4, 4, 2]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_unit_left_out_leaves_nothing_behind(way, bad, monkeypatch):
    form = made(rows=2)
    expected = by_autograd(form)
    form.left[2, 0, 0, 0] = bad  # of the second unit
    form.seen[3, 1, 2, 2] = bad
    rest = by(way, form, monkeypatch).without(torch.tensor([False, True, False]))
    total = rest.weighted_sum(torch.ones(3))
    torch.testing.assert_close(total, (expected[0] + expected[2]).float(), rtol=1e-5, atol=1e-4)


def test_norms_are_not_understated_where_all_cancels():
    """The terms of a unit cancel; the sum of float32 products will not quite."""
    form = made(c=3, o=4, kernel=(1, 1), size=(8, 8))
    form.left[:, :, 4:] = -form.left[:, :, :4]
    form.seen[:, :, 4:] = form.seen[:, :, :4]
    lengths = form.left.norm(dim=1) * form.seen.norm(dim=1)
    uncancelled = lengths.sum((1, 2)).double()
    for squares, share in (
        (form._gram_norms(FLOAT32), forms.MOST_CANCELLATION),
        (form._measured_norms(FLOAT32), windowed.MEASURED_CANCELLATION),
    ):
        assert (squares.sqrt() >= 0.99 * uncancelled / share).all()


def test_what_costs_least_is_chosen():
    """By count: small kernels at many positions are formed, large ones at few are not."""
    small = made(c=32, o=64, size=(16, 16), kernel=(3, 3), units=1)  # the second layer of a CNN
    assert isinstance(small.settled(), Dense)
    large = made(c=256, o=256, size=(10, 10), kernel=(3, 3), units=1)  # the third stage of WRN-16-4
    assert large.settled() is large
    formed, by_gram, measured = large._costs()
    assert by_gram < formed
    assert by_gram < measured
    assert formed == 3 * windowed.TRAFFIC_COST * 256 * 256 * 9
    assert measured == 64 * 256 * 256 * 9


def test_memory_forbids_forming(monkeypatch):
    form = made(units=4)
    assert isinstance(form.settled(), Dense)
    monkeypatch.setitem(forms.MOST_FORMED, "cpu", form.shape.numel() - 1)
    assert form.settled() is form
    exact = by_autograd(form).flatten(1).square().sum(1)
    torch.testing.assert_close(form.squared_norms(BARE), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("one", "other"), [(1, 1), (1, 2), (2, 1)])
def test_a_kernel_used_twice_has_one_gradient(one, other):
    first, second = made(rows=one), made(rows=other, seed=1, size=(5, 5))
    expected = by_autograd(first) + by_autograd(second)
    both = sum_of([first, second]).settled()
    squares = expected.flatten(1).square().sum(1)
    torch.testing.assert_close(both.squared_norms(BARE), squares, rtol=1e-5, atol=0)
    torch.testing.assert_close(both.formed(), expected.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("factor", [0.5, 1, 3, 4, 100])
def test_how_many_units_there_are_decides_on_nothing(monkeypatch, factor):
    monkeypatch.setitem(forms.MOST_FORMED, "cpu", int(factor * made(units=1).shape.numel()))
    kinds = {type(made(units=n).settled()) for n in (1, 3, 4, 5, 100)}
    assert len(kinds) == 1
