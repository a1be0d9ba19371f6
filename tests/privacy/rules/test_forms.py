"""Forms: norms, sums and folds are those of the formed gradients, also where much cancels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from privet.privacy.clipping import ROUNDING_MARGIN, clip_factors
from privet.privacy.rules import (
    FLOAT32,
    Dense,
    LookUp,
    OuterSum,
    RankOne,
    Rounding,
    Stacked,
    forms,
    sum_of,
)

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=60)
# Without what is allowed for additions: nothing but the measured norm.
BARE = Rounding(sums=2.0**-22, outputs=2.0**-22, additions=0.0)


def outer_sum(n=6, groups=1, t=3, o=4, i=5, seed=0, transposed=False):
    torch.manual_seed(seed)
    b, a = torch.randn(n, groups, t, o), torch.randn(n, groups, t, i)
    if transposed:  # as a convolution hands them over: channels before positions
        b, a = (v.transpose(2, 3).contiguous().transpose(2, 3) for v in (b, a))
    return OuterSum(b, a, torch.Size((groups * o, i)))


def look_up(n=6, t=5, rows=4, width=3):
    torch.manual_seed(1)
    return LookUp(torch.randint(0, rows, (n, t)), torch.randn(n, t, width), rows)


def rank_one(n=6):
    torch.manual_seed(2)
    return RankOne(torch.randn(n, 4), torch.randn(n, 5))


FORMS = {
    "dense": lambda: Dense(torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))),
    "rank one": rank_one,
    "outer sum": lambda: outer_sum(t=9),
    "outer sum, formed": lambda: outer_sum(t=9).settled(),
    "outer sum in groups": lambda: outer_sum(t=3, o=3, i=4, groups=3, transposed=True),
    "look-up": look_up,
    "stacked": lambda: Stacked((rank_one(), outer_sum(t=9))),
}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]()


def test_norms_are_those_of_the_formed_gradients(form):
    expected = form.formed().double().flatten(1).square().sum(1)
    assert form.squared_norms().dtype == torch.float64
    assert torch.allclose(form.squared_norms(BARE), expected, rtol=2e-6)


def test_weighted_sums_are_those_of_the_formed_gradients(form):
    weights = torch.tensor([0.5, 0.0, 2.0, -1.0, 1.0, 3.0], dtype=torch.float64)
    expected = torch.einsum("n,n...->...", weights, form.formed().double())
    assert form.weighted_sum(weights).shape == expected.shape
    assert torch.allclose(form.weighted_sum(weights).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_folding_adds_up_runs_of_rows(form, rows):
    """A form that forgot views, or took every second row, would fail."""
    formed = form.formed()
    expected = formed.reshape(-1, rows, *formed.shape[1:]).sum(1)
    folded = form.folded(rows)
    assert torch.allclose(folded.formed(), expected, atol=1e-5)
    norms = expected.double().flatten(1).square().sum(1)
    assert torch.allclose(folded.squared_norms(BARE), norms, rtol=1e-5)
    weights = torch.linspace(-1, 1, len(expected))
    total = torch.einsum("n,n...->...", weights, expected)
    assert torch.allclose(folded.weighted_sum(weights), total, atol=1e-5)


def test_broken_rows_become_zero_and_leave_the_others_alone(form):
    before = form.formed().clone()
    broken = torch.tensor([False, True, False, False, True, False])
    spoilt = _spoil(form, 1)
    assert not torch.isfinite(spoilt.squared_norms()[1])
    assert torch.isfinite(spoilt.squared_norms()[~broken]).all()
    mended = spoilt.without(broken)
    assert torch.equal(mended.formed()[broken], torch.zeros_like(before[broken]))
    assert torch.allclose(mended.formed()[~broken], before[~broken])
    weights = torch.ones(6)
    assert torch.allclose(mended.weighted_sum(weights), before[~broken].sum(0), atol=1e-5)


def _spoil(form, place):
    """The same with NaN and infinity in one example."""
    if isinstance(form, Stacked):
        return Stacked((_spoil(form.parts[0], place), *form.parts[1:]))
    names = {Dense: ["gradients"], LookUp: ["gradients"]}.get(type(form), ["b", "a"])
    changed = {name: getattr(form, name).clone() for name in names}
    for values, bad in zip(changed.values(), (float("nan"), float("inf")), strict=False):
        values[place] = bad
    return type(form)(**{n: changed.get(n, getattr(form, n)) for n in form.__dataclass_fields__})


@REPEATABLE
@given(
    b=st.floats(1e-30, 1e30, allow_subnormal=False),
    a=st.floats(1e-30, 1e30, allow_subnormal=False),
)
def test_the_norm_of_a_rank_one_gradient_neither_underflows_nor_overflows(a, b):
    part = RankOne(torch.tensor([[b, 0.0]]), torch.tensor([[a, a]]))
    exact = 2.0 * float(torch.tensor(a)) ** 2 * float(torch.tensor(b)) ** 2
    assert float(part.squared_norms()) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("entries", [10, 10**4, 10**6 + 7])
def test_the_norm_of_a_dense_gradient_is_never_too_small(entries):
    """Equal entries are the worst for a running sum; tiny ones lose their squares to underflow."""
    rows = torch.stack([torch.full((entries,), v) for v in (0.1, 1.7, 1e-22)])
    rows = torch.cat([rows, torch.linspace(0, 1, entries)[None] ** 8])
    exact = rows.double().square().sum(1).sqrt()
    norms = Dense(rows).squared_norms().sqrt()
    assert (norms >= exact * (1 - 0.1 * ROUNDING_MARGIN)).all()
    assert (norms <= exact * (1 + 0.1 * ROUNDING_MARGIN) + 1e-15).all()


# --- parameters that are used several times ----------------------------------------------------


def test_a_parameter_used_twice_has_the_norm_of_the_sum():
    b, a = torch.tensor([[3.0], [1.0]]), torch.tensor([[1.0], [1.0]])
    both = sum_of([RankOne(b, a), Dense(torch.tensor([[[-3.0]], [[1.0]]]))])
    # 3 - 3 cancels, 1 + 1 adds up
    assert both.squared_norms().tolist() == pytest.approx([0.0, 4.0], abs=1e-30)


@pytest.mark.parametrize(
    "parts",
    [
        lambda: [rank_one(), rank_one(), rank_one()],
        lambda: [rank_one(), outer_sum()],
        lambda: [look_up(), look_up()],
        lambda: [look_up(rows=4, width=5), rank_one(), outer_sum()],
        lambda: [Stacked((rank_one(), rank_one()))] * 2,
        lambda: [Stacked((rank_one(), rank_one())), Dense(torch.ones(6, 8, 5))],
        lambda: [outer_sum(groups=2, o=2), outer_sum()],
    ],
)
def test_sums_of_forms_are_sums_of_gradients(parts):
    parts = parts()
    expected = sum(part.formed() for part in parts)
    total = sum_of(parts)
    assert torch.allclose(total.formed(), expected, atol=1e-5)
    norms = expected.double().flatten(1).square().sum(1)
    assert torch.allclose(total.squared_norms(BARE), norms, rtol=1e-5)
    assert torch.allclose(total.weighted_sum(torch.ones(6)), expected.sum(0), atol=1e-4)


def test_a_tied_table_is_never_formed_for_each_example():
    """An embedding and an output layer of one weight: 50 tokens, 20,000 words."""
    words, width, t = 20_000, 64, 4
    table = LookUp(torch.randint(0, words, (2, t)), torch.randn(2, t, width), words)
    shape = torch.Size((words, width))
    scores = OuterSum(torch.randn(2, 1, t, words), torch.randn(2, 1, t, width), shape)
    both = sum_of([table, scores])
    assert isinstance(both.settled(), OuterSum)
    expected = (table.formed() + scores.formed()).double().flatten(1).square().sum(1)
    assert torch.allclose(both.squared_norms(BARE), expected, rtol=1e-5)
    assert both.shape == shape


# --- what cancels ------------------------------------------------------------------------------


def cancelling(kind, t, size, seed):
    """One example whose terms are large and whose sum is small; t is even."""
    generator = torch.Generator().manual_seed(seed)
    half_b, half_a = (torch.randn(t // 2, 48, generator=generator) for _ in "ba")
    if kind == "constant":  # biased rounding: the same number again and again
        half_b, half_a = torch.full((t // 2, 48), 0.1), torch.full((t // 2, 48), 0.3)
    rest = 1e-4 * torch.randn(t // 2, 48, generator=generator)
    b = torch.cat([half_b, -half_b + (rest if kind != "exact" else 0)])
    a = torch.cat([half_a, half_a])
    return OuterSum(size * b[None, None], a[None, None], torch.Size((48, 48)))


@REPEATABLE
@given(
    kind=st.sampled_from(["nearly", "exact", "constant"]),
    t=st.sampled_from([2, 4, 16, 64, 256]),
    size=st.sampled_from([1e-6, 1.0, 1e3, 1e9, 1e15]),
    seed=st.integers(0, 10**6),
)
@pytest.mark.parametrize("by_gram", [True, False])
def test_what_is_added_is_never_longer_than_the_clip_norm(by_gram, kind, t, size, seed):
    """Strictly, for the numbers as they are added in float32, whatever has cancelled."""
    part = cancelling(kind, t, size, seed)
    part = part if by_gram else Dense(part.formed())
    factors = clip_factors(part.squared_norms().sqrt(), 1.0)
    assert part.weighted_sum(factors).double().norm() <= 1.0


def test_without_the_allowance_for_cancellation_a_contribution_would_be_too_long(monkeypatch):
    """The planted bug: the exact norm (0) of a sum that float32 does not find to be 0."""
    part = cancelling("exact", 256, 1e9, 0)
    # In an order in which no processor adds a term and its opposite up in pairs.
    mixed = torch.randperm(256, generator=torch.Generator().manual_seed(0))
    part = OuterSum(part.b[:, :, mixed], part.a[:, :, mixed], part.shape)
    factors = clip_factors(part.squared_norms().sqrt(), 1.0)
    assert part.weighted_sum(factors).double().norm() <= 1.0
    monkeypatch.setattr(forms, "MOST_CANCELLATION", float("inf"))
    blind = Rounding(sums=0.0, outputs=0.0, additions=0.0)
    factors = clip_factors(part.squared_norms(blind).sqrt(), 1.0)
    assert part.weighted_sum(factors).double().norm() > 10.0


@pytest.mark.parametrize("t", [16, 256, 1024, 4096])
@pytest.mark.parametrize("left", [1 / 15, 1 / 10, 1 / 5])
def test_what_cancels_in_part_is_never_too_long_either(t, left):
    """Equal terms, of which the second half takes most of the first away: rounding is biased."""
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        b, a = (torch.rand(1, 8, generator=generator).repeat(t, 1) for _ in "ba")
        b[t // 2 :] *= left - 1
        part = OuterSum(b[None, None], a[None, None], torch.Size((8, 8)))
        factors = clip_factors(part.squared_norms().sqrt(), 1.0)
        assert part.weighted_sum(factors).double().norm() <= 1.0


def test_an_example_that_cancels_does_not_blur_the_others():
    """Its terms, if they were let grow, would swamp the running sums of all."""
    others = outer_sum(n=6, t=64, o=48, i=48)
    extreme = cancelling("exact", 64, 1e12, 0)
    both = OuterSum(
        torch.cat([others.b[:3], extreme.b, others.b[3:]]),
        torch.cat([others.a[:3], extreme.a, others.a[3:]]),
        others.shape,
    )
    sums = [
        part.weighted_sum(clip_factors(part.squared_norms().sqrt(), 1.0)) for part in (both, others)
    ]
    assert (sums[0] - sums[1]).norm() <= 1e-4


@pytest.mark.parametrize("t", [1, 4, 16, 64, 256])
def test_terms_of_random_signs_are_clipped_by_their_norm(t):
    """The allowance is t half bits of S, and S is sqrt(t) times what chance leaves of it."""
    torch.manual_seed(t)
    part = outer_sum(n=20, t=t, o=64, i=64)
    exact = part.formed().double().flatten(1).norm(dim=1)
    found = forms._gram_norms(part.b, part.a, FLOAT32).sqrt()
    assert (found >= exact).all()
    assert torch.allclose(found, exact, rtol=1e-5 + t**1.5 * 2.0**-24)


def test_a_float32_gram_sum_would_be_off_by_more_than_the_margin():
    """Why the Gram matrices are in double precision."""
    part = cancelling("nearly", 64, 1.0, 0)
    b, a = part.b[0, 0], part.a[0, 0]
    coarse = float(((b @ b.T) * (a @ a.T)).sum().clamp_min(0).sqrt())
    exact = float(part.formed().double().norm())
    assert abs(coarse / exact - 1) > 100 * ROUNDING_MARGIN


def test_long_gradients_are_formed_only_where_that_costs_less():
    assert isinstance(outer_sum(t=64, o=16, i=16).settled(), Dense)
    assert isinstance(outer_sum(n=1, t=4, o=256, i=256).settled(), OuterSum)
    assert isinstance(outer_sum(n=1, t=256, o=256, i=256).settled(), Dense)
    both = Stacked((outer_sum(t=64, o=16, i=16), outer_sum(n=1, t=4, o=256, i=256))).settled()
    assert [type(part) for part in both.parts] == [Dense, OuterSum]


def test_memory_decides_for_the_gram_sum(monkeypatch):
    part = outer_sum(n=1, t=200, o=256, i=256)
    assert part.forming_pays
    monkeypatch.setitem(forms.MOST_FORMED, "cpu", 256 * 256 - 1)
    assert not part.forming_pays


def test_norms_in_pieces_are_the_same(monkeypatch):
    part = Dense(torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0)))
    whole = part.squared_norms()
    monkeypatch.setattr(forms, "SHORT_SUM", 8)
    assert torch.allclose(part.squared_norms(), whole, rtol=1e-6)


# --- look-ups ----------------------------------------------------------------------------------


def by_hand(indices, gradients, rows):
    """A table for each example, one addition after another, in double precision."""
    tables = torch.zeros(len(indices), rows, gradients.shape[2], dtype=torch.float64)
    for n, row in enumerate(indices.tolist()):
        for t, index in enumerate(row):
            tables[n, index] += gradients[n, t].double()
    return tables


@REPEATABLE
@given(
    n=st.integers(0, 4),
    t=st.integers(0, 12),
    rows=st.integers(1, 5),
    kind=st.sampled_from([torch.int64, torch.int32]),
    seed=st.integers(0, 10**6),
)
def test_repeated_indices_are_added_up_example_by_example(n, t, rows, kind, seed):
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(0, rows, (n, t), generator=generator).to(kind)
    gradients = torch.randn(n, 3, t, generator=generator).transpose(1, 2)
    weights = torch.randn(n, generator=generator)
    expected = by_hand(indices, gradients, rows)
    raw = LookUp(indices, gradients, rows)
    for part in (raw, raw.settled()):
        exact = expected.square().sum((1, 2))
        torch.testing.assert_close(part.formed().double(), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(part.squared_norms(), exact, rtol=1e-5, atol=1e-10)
        total = torch.einsum("n,nrd->rd", weights.double(), expected)
        torch.testing.assert_close(part.weighted_sum(weights).double(), total, rtol=0, atol=1e-4)


def test_a_row_s_gradients_stand_at_the_first_position_of_its_index():
    gradients = torch.tensor([[[1.0], [2.0], [4.0], [8.0], [16.0]]]).repeat(3, 1, 1)
    indices = torch.tensor([[7, 2, 7, 2, 7], [5, 5, 5, 5, 5], [9, 0, 3, 0, 1]])
    settled = LookUp(indices, gradients, 10).settled()
    expected = [
        [21.0, 10.0, 0.0, 0.0, 0.0],
        [31.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, 10.0, 4.0, 0.0, 16.0],
    ]
    assert settled.gradients[..., 0].tolist() == expected
    assert settled.squared_norms().tolist() == pytest.approx([541.0, 961.0, 373.0], rel=1e-15)


def test_a_table_s_norm_is_that_of_the_numbers_that_are_added():
    """Float32 sums in which nearly all cancels: another order of additions has another norm."""
    generator = torch.Generator().manual_seed(0)
    half = 1e6 * torch.randn(1, 100, 4, generator=generator)
    noise = 1e-2 * torch.randn(1, 100, 4, generator=generator)
    gradients = torch.cat([half, noise - half], 1)
    indices = torch.randint(0, 3, (1, 100), generator=generator).repeat(1, 2)
    part = LookUp(indices, gradients, 3)
    measured, exact = part.squared_norms(), by_hand(indices, gradients, 3).square().sum()
    added = part.settled().weighted_sum(torch.ones(1)).double().square().sum()
    assert float(measured) == pytest.approx(float(added), rel=1e-14)
    assert abs(float(exact) / float(added) - 1) > 100 * ROUNDING_MARGIN


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_the_norm_of_a_table_neither_underflows_nor_overflows(size):
    part = LookUp(torch.tensor([[1, 1, 0]]), torch.full((1, 3, 1), size), 2)
    exact = 5.0 * float(torch.tensor(size)) ** 2
    assert float(part.squared_norms()) == pytest.approx(exact, rel=1e-6)


def test_rows_of_a_table_are_added_up_once(monkeypatch):
    """What is added must be what was measured: a second sum may be rounded another way."""
    part = look_up()
    expected = part.formed()[:5].sum(0)
    part.squared_norms()
    monkeypatch.delattr(forms, "_first_places")
    settled = part.settled()
    rebuilt = LookUp(**{name: getattr(settled, name) for name in settled.__dataclass_fields__})
    for form in (part, rebuilt):
        rest = form.without(torch.tensor([False] * 5 + [True]))
        assert torch.allclose(rest.weighted_sum(torch.ones(6)), expected, atol=1e-5)


def test_no_shape_of_a_look_up_depends_on_its_indices():
    """A step is traced without data, and the trace holds for other indices."""

    def step(indices, gradients, weights):
        part = LookUp(indices, gradients, 9).folded(2).settled()
        broken = weights == 0
        return part.squared_norms(), part.without(broken).weighted_sum(weights), part.formed()

    generator = torch.Generator().manual_seed(0)
    gradients, weights = torch.randn(6, 7, 3, generator=generator), torch.tensor([1.0, 0.0, -2.0])
    others = torch.zeros(6, 7, dtype=torch.int64), gradients, weights
    with FakeTensorMode() as fake:  # refuses what asks the data for a shape
        step(*map(fake.from_tensor, others))
        with pytest.raises(DynamicOutputShapeException):
            torch.unique(fake.from_tensor(others[0]))
    traced = make_fx(step, tracing_mode="fake")(*others)
    indices = torch.randint(0, 9, (6, 7), generator=generator)
    tables = by_hand(indices, gradients, 9).reshape(3, 2, 9, 3).sum(1)
    expected = tables.square().sum((1, 2)), torch.einsum("n,nrd->rd", weights.double(), tables)
    for found, exact in zip(traced(indices, gradients, weights), (*expected, tables), strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_gram_sums_in_pieces_are_the_same(monkeypatch):
    part = outer_sum(n=7, t=2, o=40, i=40)
    whole = part.squared_norms()
    monkeypatch.setitem(forms.GRAM_AT_ONCE, "cpu", 2 * 2 * 80)
    assert torch.equal(part.squared_norms(), whole)


@pytest.mark.parametrize("entries", [100, 511, 512, 513, 5000])
@pytest.mark.parametrize("lanes", [1, 8, 64])
def test_norms_hold_however_the_gradients_lie_in_memory(entries, lanes):
    """A few ones, and squares that each vanish beside them: a sum in one lane would lose them."""
    values = torch.full((8, entries), 0.999 * 2.0**-12)
    values[:, :lanes] = 1.0
    exact = values.double().norm(dim=1)
    for laid in (values, values.t().contiguous().t()):
        assert (Dense(laid).squared_norms().sqrt() >= (1 - 5e-6) * exact).all()


@pytest.mark.parametrize("most", [1, 255, 256, 257, 5 * 256, 6 * 256])
def test_how_many_examples_there_are_decides_on_nothing(monkeypatch, most):
    """Two ways clip by two rules; one example more must not change the way of the others."""
    monkeypatch.setitem(forms.MOST_FORMED, "cpu", most)
    for t in (1, 4, 8, 64):
        kinds = {type(outer_sum(n=n, t=t, o=16, i=16).settled()) for n in (1, 5, 6, 1000)}
        assert len(kinds) == 1
