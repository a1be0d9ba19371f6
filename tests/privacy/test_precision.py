"""Coarse products: no contribution is longer than the clip norm, whatever TF32 does to operands.

There is no tensor core here. Operands are cut off to TF32's ten bits, moved away from zero by up to
one unit in the last place, or moved in the worst direction of the two; what they add up to is then
measured in double precision. What a GPU does lies between.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from privet.errors import FaultyEnvironment, InputError
from privet.models import create
from privet.models.standardised import PulledBack, WSConv2d, pull_back, standardise, ws_conv2d
from privet.privacy import clipping
from privet.privacy import precision as precision_module
from privet.privacy.clipping import FastClipper, clip_factors, cross_entropy, make_clipper
from privet.privacy.precision import BF16, FULL, PRECISIONS, TF32, Precision, find_precision
from privet.privacy.rules import (
    FLOAT32,
    Dense,
    LookUp,
    OuterSum,
    RankOne,
    Rounding,
    Stacked,
    Windowed,
)
from privet.privacy.rules.forms import tf32
from privet.privacy.units import Units

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import ALL

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=40)
CPU = torch.device("cpu")
LOW = 2**13 - 1  # the bits of a float32 that TF32 does not have


@pytest.fixture(autouse=True)
def _without_onednn():
    """Its bfloat16 convolutions end the process (illegal instruction) on some virtual machines."""
    before, torch.backends.mkldnn.enabled = torch.backends.mkldnn.enabled, False
    yield
    torch.backends.mkldnn.enabled = before


def cut(values):
    """To TF32, towards zero."""
    return (values.view(torch.int32) & ~LOW).view(torch.float32)


def away(values):
    """To TF32, away from zero."""
    bits = values.view(torch.int32)
    return ((bits + LOW) & ~LOW).view(torch.float32)


def nearest(values):
    return ((values.view(torch.int32) + (LOW + 1) // 2) & ~LOW).view(torch.float32)


ROUNDED = {"cut": cut, "away": away, "nearest": nearest}


def test_the_roundings_are_those_of_ten_bits():
    values = torch.tensor([1 + 2**-10 + 2**-12, -(1 + 2**-11), 3.0, 0.0])
    assert cut(values).tolist() == [1 + 2**-10, -1.0, 3.0, 0.0]
    assert away(values).tolist() == [1 + 2**-9, -(1 + 2**-10), 3.0, 0.0]
    assert nearest(values).tolist() == [1 + 2**-10, -(1 + 2**-10), 3.0, 0.0]


# --- one form, one unit ------------------------------------------------------------------------


def rank_one(t, o, i, kind, generator):
    return RankOne(randn(1, o, generator=generator), randn(1, i, generator=generator))


def outer_sum(t, o, i, kind, generator):
    b, a = halves(t, o, i, kind, generator)
    return OuterSum(b[None, None], a[None, None], torch.Size((o, i)))


def windowed(t, o, i, kind, generator):
    """A kernel that sees one place of each; or, where nothing need cancel, three by two."""
    if kind == "free":
        left = randn(1, o, 4, 4, generator=generator)
        seen = randn(1, i, 6, 5, generator=generator)
        return Windowed(left, seen, torch.Size((o, i, 3, 2)), (1, 1), (1, 1), 1)
    b, a = (v.T.reshape(1, -1, t, 1) for v in halves(t, o, i, kind, generator))
    return Windowed(b, a, torch.Size((o, i, 1, 1)), (1, 1), (1, 1), 1)


def pulled_back(t, o, i, kind, generator):
    plain = windowed(t, o, i, kind, generator)
    weight = randn(*plain.shape, generator=generator)
    output = F.conv2d(plain.seen.double(), standardise(weight.double())[0]).float()
    return PulledBack(plain, weight, output, None)


def randn(*shape, generator):
    return torch.randn(*shape, generator=generator)


def halves(t, o, i, kind, generator):
    """Factors whose second half takes the first away, nearly or all; t is even."""
    b, a = randn(t // 2, o, generator=generator), randn(t // 2, i, generator=generator)
    rest = {"free": -b + randn(t // 2, o, generator=generator), "nearly": 1e-3 * b, "exact": 0 * b}
    return torch.cat([b, rest[kind] - b]), torch.cat([a, a])


def by_gram(form, rounding):
    return form._gram_norms(rounding)


def by_measuring(form, rounding):
    return form._measured_norms(rounding)


def as_it_is(form, rounding):
    return form.squared_norms(rounding)


WAYS = {
    "rank one": (rank_one, as_it_is),
    "outer sum": (outer_sum, as_it_is),
    "windowed, gram": (windowed, by_gram),
    "windowed, measured": (windowed, by_measuring),
    "pulled back": (pulled_back, as_it_is),
}
FACTORS = {RankOne: ("b", "a"), OuterSum: ("b", "a"), Windowed: ("left", "seen")}


def gradient(form, left, right):
    """In double precision, of a form with other factors."""
    if isinstance(form, PulledBack):
        return pull_back(form.weight.double(), gradient(form.plain, left, right))
    names = FACTORS[type(form)]
    return replace(form, **dict(zip(names, (left, right), strict=True))).formed()


def factors_of(form):
    form = form.plain if isinstance(form, PulledBack) else form
    return [getattr(form, name) for name in FACTORS[type(form)]]


def added(form, weight, how):
    """The length of what a product of coarse operands adds for the one unit."""
    left, right = factors_of(form)
    left = left * torch.tensor(weight, dtype=torch.float64).float()
    if how != "worst":
        coarse = ROUNDED[how](left), ROUNDED[how](right)
        return float(gradient(form, *(v.double() for v in coarse)).norm())
    exact = [v.double().requires_grad_() for v in (left, right)]
    length = gradient(form, *exact).norm()
    if length == 0:
        return 0.0
    slopes = torch.autograd.grad(length, exact)
    moved = [
        torch.where(slope * v > 0, away(v), cut(v)).double()
        for slope, v in zip(slopes, (left, right), strict=True)
    ]
    return float(gradient(form, *moved).norm())


def longest(way, rounding, hows, t=16, o=6, i=5, kind="free", seed=0):
    build, norms = WAYS[way]
    form = build(t, o, i, kind, torch.Generator().manual_seed(seed))
    weight = float(clip_factors(norms(form, rounding).sqrt(), 1.0))
    return max(added(form, weight, how) for how in hows)


@pytest.mark.parametrize("way", WAYS)
@REPEATABLE
@given(
    t=st.sampled_from([2, 4, 16, 64, 200]),
    o=st.integers(1, 9),
    i=st.integers(1, 9),
    kind=st.sampled_from(["free", "nearly", "exact"]),
    seed=st.integers(0, 10**6),
)
def test_no_unit_is_added_longer_than_the_clip_norm(way, t, o, i, kind, seed):
    """Strictly: no tolerance. The unit is long, so that it is clipped."""
    for precision in (TF32, BF16):
        hows = ("cut", "away", "nearest", "worst")
        assert longest(way, precision.rounding, hows, t, o, i, kind, seed) <= 1.0


@pytest.mark.parametrize("how", ["away", "worst"])
@pytest.mark.parametrize("way", WAYS)
def test_float32_s_allowance_would_not_do(way, how):
    """The planted bug: TF32 products, clipped as if they were float32's."""
    found = [longest(way, FLOAT32, [how], seed=seed) for seed in range(20)]
    assert max(found) > 1.0001


def test_the_allowance_is_not_ten_times_what_is_needed():
    """The other way round: a smaller one would fail, a much larger one would waste signal."""
    quarter = Rounding(sums=2.0**-11, outputs=2.0**-11)
    found = [longest("rank one", quarter, ["away"], o=1, i=1, seed=seed) for seed in range(60)]
    assert max(found) > 1.0
    form = rank_one(1, 9, 9, "free", torch.Generator().manual_seed(0))
    norms = [float(form.squared_norms(rounding).sqrt()) for rounding in (TF32.rounding, FLOAT32)]
    assert 1.0 < norms[0] / norms[1] < 1.005


# --- norms that are read from a layer's output -------------------------------------------------


def along_v(seed, *, bias=None, groups=1, rows=1):
    """A layer whose output gradients are mostly its output: what is taken off is most of it."""
    torch.manual_seed(seed)
    layer = WSConv2d(4, 6, 3, groups=groups, bias=bias is not None)
    x = torch.randn(3 * rows, 4, 7, 7)
    unit, _ = standardise(layer.weight.detach().double())
    y = F.conv2d(x.double(), unit, groups=groups)
    b = (y + 0.1 * torch.randn_like(y)).float()
    if bias is not None:
        nn.init.constant_(layer.bias, bias)
        y = y + bias
    form = ws_conv2d(layer, x, b, y.float())["weight"].folded(rows)
    plain = replace(form.plain, left=b.double(), seen=x.double())
    exact = pull_back(layer.weight.detach().double(), plain.formed()).flatten(1).norm(dim=1)
    return form, exact


def off_by(form, share):
    """The output off by a share of |a_t| wherever that makes <G, V> look longer."""
    plain = form.plain
    squares = plain.seen.double().square()
    squares = squares.reshape(len(squares), plain.groups, -1, *squares.shape[2:]).sum(2)
    ones = torch.ones(plain.groups, 1, 3, 3, dtype=torch.float64)
    lengths = F.conv2d(squares, ones, groups=plain.groups).sqrt()
    lengths = lengths.repeat_interleave(plain.left.shape[1] // plain.groups, 1)
    by_channel = (
        (plain.left.double() * form.output.double()).sum((2, 3)).unflatten(0, (-1, plain.rows))
    )
    sign = by_channel.sum(1).sign().repeat_interleave(plain.rows, 0)[..., None, None]
    return replace(form, output=(form.output + share * lengths * plain.left.sign() * sign).float())


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("share", [2.0**-22, 2.0**-8, 2.0**-6])
def test_an_output_off_by_its_allowance_understates_no_norm(share, rows, groups):
    """Sums are exact here (no allowance for them), so that nothing else makes up for it."""
    exactly = Rounding(sums=0.0, outputs=share)
    for seed in range(5):
        form, exact = along_v(seed, groups=groups, rows=rows)
        for seen in (form, off_by(form, share), off_by(form, -share)):
            assert (seen.squared_norms(exactly).sqrt() >= (1 - 1e-6) * exact).all()


@pytest.mark.parametrize(
    ("precision", "share"),
    [(TF32, (1 + 2.0**-10) ** 2 - 1), (BF16, (1 + 2.0**-8) ** 3 - 1)],
    ids=["tf32", "bf16"],
)
def test_the_allowance_is_enough_for_what_a_pass_does_to_an_output(precision, share):
    """Both operands move by so much in TF32; in bfloat16 by more, and the output too."""
    exactly = replace(precision.rounding, sums=0.0)
    for seed in range(5):
        form, exact = along_v(seed)
        for off in (share, -share):
            norms = off_by(form, off).squared_norms(exactly).sqrt()
            assert (norms >= (1 - 1e-6) * exact).all()


@pytest.mark.parametrize("precision", [TF32, BF16], ids=["tf32", "bf16"])
def test_sums_are_allowed_to_move_both_ways(precision):
    """Ten bits, cut off at worst, of two operands; of what is measured and of what is added."""
    moved = (1 + 2.0**-10) ** 2 - 1
    assert 2 * moved <= precision.rounding.sums <= 2.1 * moved


@pytest.mark.parametrize("share", [2.0**-8, 2.0**-6])
def test_without_the_allowance_the_norm_would_be_understated(share):
    """Two planted bugs: none at all, and one of the wrong sign."""
    for planted in (0.0, -share):
        form, exact = along_v(0)
        norms = off_by(form, share).squared_norms(Rounding(sums=0.0, outputs=planted)).sqrt()
        assert (norms < 0.99 * exact).any()


def test_an_allowance_of_the_wrong_sign_shows_in_an_exact_output_too():
    form, exact = along_v(0)
    right = form.squared_norms(Rounding(sums=0.0, outputs=2.0**-6)).sqrt()
    wrong = form.squared_norms(Rounding(sums=0.0, outputs=-(2.0**-6))).sqrt()
    assert (right >= exact).all()
    assert (wrong < 0.95 * exact).all()


@pytest.mark.parametrize("bias", [1.0, 300.0, 3000.0])
@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda p: p.name)
def test_a_large_bias_in_the_output_understates_no_norm(precision, bias):
    """The output is rounded in proportion to itself, bias and all, not to |a_t|."""
    for seed in range(5):
        form, exact = along_v(seed, bias=bias)
        if precision.halves:
            form = replace(form, output=form.output.bfloat16())
        norms = form.squared_norms(precision.rounding).sqrt()
        assert (norms >= (1 - 1e-5) * exact).all()


# --- whole models, every product coarse --------------------------------------------------------

PRODUCTS = {
    torch.ops.aten.mm,
    torch.ops.aten.bmm,
    torch.ops.aten.addmm,
    torch.ops.aten.baddbmm,
    torch.ops.aten.mv,
    torch.ops.aten.addmv,
    torch.ops.aten.dot,
    torch.ops.aten.convolution,
    torch.ops.aten.convolution_backward,
}


class CoarseProducts(TorchDispatchMode):
    """Float32 products and convolutions get their operands in TF32 where that is allowed.

    As on a GPU. Allowed at first; `tf32` can forbid it.
    """

    def __init__(self, how):
        super().__init__()
        self.round, self.products, self.allowed = ROUNDED[how], 0, tf32(allowed=True)

    def __enter__(self):
        self.allowed.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.allowed.__exit__(None, None, None)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in PRODUCTS and torch.get_float32_matmul_precision() == "high":
            self.products += 1
            args = [self.coarse(arg) for arg in args]
        return func(*args, **(kwargs or {}))

    def coarse(self, arg):
        if isinstance(arg, torch.Tensor) and arg.dtype == torch.float32:
            return self.round(arg.contiguous())
        return arg


def dense(generator):
    return Dense(randn(1, 7, 5, generator=generator))


def look_up(generator):
    return LookUp(torch.tensor([[2, 0, 2]]), randn(1, 3, 6, generator=generator), 4)


def stacked(generator):
    return Stacked((rank_one(1, 4, 5, "free", generator), dense(generator)))


def one(generator):
    return rank_one(1, 1, 1, "free", generator)


UNITS = {
    "dense": dense,
    "look-up": look_up,
    "stacked": stacked,
    "pair": lambda generator: Stacked((one(generator), one(generator))),
    "rank one": lambda generator: rank_one(1, 6, 5, "free", generator),
    "outer sum": lambda generator: outer_sum(16, 6, 5, "free", generator),
    "windowed": lambda generator: windowed(16, 6, 5, "free", generator),
    "pulled back": lambda generator: pulled_back(16, 6, 5, "free", generator),
}


@pytest.mark.parametrize("how", ROUNDED)
@pytest.mark.parametrize("name", UNITS)
def test_a_sum_by_coarse_products_adds_no_more_than_the_clip_norm(name, how):
    """By the very operations of the form: whatever is a product there may be coarse."""
    for seed in range(30):
        form = UNITS[name](torch.Generator().manual_seed(seed))
        factor = clip_factors(form.squared_norms(TF32.rounding).sqrt(), 0.1)
        with CoarseProducts(how):
            total = form.weighted_sum(factor)
        assert total.double().norm() <= 0.1


def of_units(name, part):
    """Some of 64 units that all pull the same way."""
    generator = torch.Generator().manual_seed(5)

    def near(*shape):
        return (1 + 0.3 * randn(64, *shape, generator=generator))[part]

    if name == "dense":
        return Dense(near(7, 5))
    if name == "look-up":
        return LookUp(torch.tensor([[2, 0, 2]]).repeat(64, 1)[part], near(3, 6), 4)
    if name == "rank one":
        return RankOne(near(6), near(5))
    if name == "outer sum":
        return OuterSum(near(1, 4, 6), near(1, 4, 5), torch.Size((6, 5)))
    plain = Windowed(near(6, 3, 3), near(5, 4, 4), torch.Size((6, 5, 2, 2)), (1, 1), (1, 1), 1)
    weight = randn(6, 5, 2, 2, generator=generator)
    return plain if name == "windowed" else PulledBack(plain, weight, plain.left, None)


@pytest.mark.parametrize("name", [name for name in UNITS if name not in ("stacked", "pair")])
def test_how_a_unit_is_rounded_does_not_depend_on_the_others(name):
    """What a unit adds to a sum is what it adds alone, up to float32's rounding of the sum."""
    factors = torch.linspace(0.5, 1.0, 64, dtype=torch.float64)
    parts = [slice(None), slice(1, None), slice(0, 1)]
    with CoarseProducts("nearest"):
        total, without, alone = (
            of_units(name, part).weighted_sum(factors[part]).double() for part in parts
        )
    whole = of_units("windowed" if name == "pulled back" else name, parts[0])
    size = float(factors @ whole.squared_norms().sqrt())
    assert (total - without - alone).norm() <= 1e-6 * size


def as_on_a_gpu(monkeypatch, but=None):
    """TF32 is allowed wherever it would be on CUDA; and for one more precision."""
    monkeypatch.setattr(
        Precision, "products", lambda self, device: tf32(allowed=self is not FULL or self is but)
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(5, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


def standardised():
    """As in a wide residual network: standardised kernels, gains, GroupNorm."""
    return nn.Sequential(create("wrn-10-1", (1, 8, 8), 3))


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(32, 3))


MODELS = {
    "convolutions": (lambda: create("cnn-tiny", (1, 8, 8), 3), (1, 8, 8)),
    "lstm": (Recurrent, (6, 5)),
    "encoder layer": (encoder, (4, 8)),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3)
        ),
        (1, 8, 8),
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9), nn.Tanh(), nn.Linear(9, 3)),
        (7,),
    ),
    "standardised": (standardised, (1, 8, 8)),
}
FORMING = {"as it costs": None, "gram": (1.0, 0.0, 1.0), "measured": (2.0, 1.0, 0.0)}


def made(name, n=6):
    build, shape = MODELS[name]
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():  # a last layer of zeros would hide what is below it
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model, torch.rand(n, *shape), torch.arange(n) % 3


def by(forming, monkeypatch):
    if FORMING[forming] is not None:
        monkeypatch.setattr(Windowed, "_costs", lambda self: FORMING[forming])
        monkeypatch.setattr(OuterSum, "forming_pays", False)


CASES = [
    (name, forming)
    for name in MODELS
    for forming in FORMING
    if forming == "as it costs" or name not in ("lstm", "layer norm")
]


def norms_alone(clipper, x, y, how=None):
    """The length of what each unit adds by itself, in double precision."""
    lengths = []
    for i in range(len(x)):
        if how is None:
            total = clipper.clipped_sum(x[i : i + 1], y[i : i + 1])
        else:
            with CoarseProducts(how) as mode:
                total = clipper.clipped_sum(x[i : i + 1], y[i : i + 1])
            assert mode.products > 0
        assert total.dtype == torch.float32
        lengths.append(float(total.double().norm()))
    return lengths


@pytest.mark.parametrize(("name", "forming"), CASES)
def test_in_bf16_every_unit_stays_within_the_clip_norm(name, forming, monkeypatch):
    """With the products as they are here: in float32, after a pass in bfloat16."""
    by(forming, monkeypatch)
    model, x, y = made(name)
    clipper = FastClipper(model, cross_entropy, 0.05, precision=BF16)
    lengths = norms_alone(clipper, x, y)
    assert max(lengths) <= 0.05  # strictly
    assert min(lengths) > 0.5 * 0.05  # all were clipped, none to nothing


@pytest.mark.parametrize("how", ["nearest", "away"])
@pytest.mark.parametrize("precision", [TF32, BF16], ids=lambda p: p.name)
@pytest.mark.parametrize(("name", "forming"), CASES)
def test_with_coarse_products_too_every_unit_stays_within(
    name, forming, precision, how, monkeypatch
):
    by(forming, monkeypatch)
    as_on_a_gpu(monkeypatch)
    model, x, y = made(name, n=3)
    clipper = FastClipper(model, cross_entropy, 0.05, precision=precision)
    assert max(norms_alone(clipper, x, y, how)) <= 0.05


@pytest.mark.parametrize("name", ["encoder layer", "layer norm"])
def test_float32_s_clipping_would_not_stand_coarse_products(name, monkeypatch):
    """The planted bug: TF32 allowed, and nothing done about it."""
    as_on_a_gpu(monkeypatch, but=FULL)
    model, x, y = made(name, n=4)
    clipper = FastClipper(model, cross_entropy, 0.05, precision=FULL)
    assert max(norms_alone(clipper, x, y)) <= 0.05
    assert max(norms_alone(clipper, x, y, "away")) > 0.05 * 1.0001


@pytest.mark.parametrize("name", MODELS)
def test_gradients_in_bf16_are_near_those_in_float32(name):
    model, x, y = made(name)
    coarse = FastClipper(model, cross_entropy, 1.0, precision=BF16).per_example_gradients(x, y)
    fine = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    off = (coarse - fine).norm(dim=1) / fine.norm(dim=1)
    assert off.max() < BF16.close
    assert off.min() > 1e-4  # it was another precision


@pytest.mark.parametrize("name", MODELS)
def test_what_is_formed_in_bf16_is_held_in_float32(name):
    """Norms are of the numbers that are added; in bfloat16 a sum of them would be another."""
    model, x, y = made(name)
    books = FastClipper(model, cross_entropy, 1.0, precision=BF16).books(Units.of(x, y))
    formed = [form for form in books.values() if isinstance(form, Dense)]
    assert formed
    assert all(form.gradients.dtype == torch.float32 for form in formed)
    for form in formed:
        norms = form.gradients.double().flatten(1).norm(dim=1)
        torch.testing.assert_close(form.squared_norms().sqrt(), norms, rtol=1e-6, atol=1e-15)
    half = [v for form in books.values() for v in vars(form).values() if is_half(v)]
    assert name == "standardised" or half or name in ("convolutions", "group norm")


def is_half(value):
    return isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
def test_every_case_stays_within_the_clip_norm_in_bf16():
    """The rules' small models; embeddings and fallbacks among them."""
    names = [
        "plain: embedding",
        "plain: rms norm",
        "plain: instance norm of images",
        "convolution: transposed conv2d",
        "convolution: conv1d in groups",
        "attention: learned and zero positions",
        "recurrent: GRU",
        "fallback: learned positions",
    ]
    for name in names:
        x, y = ALL[name].batch(4)
        clipper = FastClipper(ALL[name].model(), cross_entropy, 0.01, precision=BF16)
        lengths = norms_alone(clipper, x, y)
        assert 0 < max(lengths) <= 0.01, name


# --- settings ----------------------------------------------------------------------------------


def settings_now():
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.fixture
def put_back():
    before = settings_now()
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize("before", [("highest", False), ("high", True), ("medium", False)])
@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda p: p.name)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tf32_is_switched_as_asked_and_switched_back(precision, device, before):
    """Never on a CPU, where "high" would mean bfloat16 to some libraries."""
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]
    allowed = device == "cuda" and precision is not FULL
    with precision.products(torch.device(device)):
        assert settings_now() == (("high", True) if allowed else ("highest", False))
    assert settings_now() == before
    with pytest.raises(KeyError), precision.products(torch.device(device)):
        raise KeyError
    assert settings_now() == before


def test_only_bf16_casts_the_passes():
    for precision in PRECISIONS.values():
        with precision.passes(CPU):
            product = torch.ones(2, 2) @ torch.ones(2, 2)
        assert product.dtype == (torch.bfloat16 if precision is BF16 else torch.float32)


def test_precisions_are_found_by_name():
    assert find_precision("float32", CPU) is FULL
    assert find_precision("bf16", CPU) is BF16
    assert find_precision("tf32", torch.device("cuda")) is TF32
    with pytest.raises(InputError, match=r"(?s)unknown precision.*'fp8'.*float32, tf32, bf16"):
        find_precision("fp8", CPU)
    with pytest.raises(InputError, match=r"(?s)no TF32 here.*cpu"):
        find_precision("tf32", CPU)


def test_a_processor_that_dies_of_bfloat16_is_found_out_elsewhere(monkeypatch):
    """In another process, once; asked for on a CPU only."""
    trials = []

    def dies(command, **_):
        trials.append(command)
        return subprocess.CompletedProcess(command, -4)

    precision_module._require_halves_on_cpu.cache_clear()
    monkeypatch.setattr(subprocess, "run", dies)
    try:
        assert find_precision("bf16", torch.device("cuda")) is BF16
        assert find_precision("float32", CPU) is FULL
        assert trials == []
        with pytest.raises(FaultyEnvironment, match="exit code -4"):
            find_precision("bf16", CPU)
        assert len(trials) == 1
    finally:
        precision_module._require_halves_on_cpu.cache_clear()


# --- admission ---------------------------------------------------------------------------------


class Odd(nn.Module):
    """A network with something odd in the middle."""

    def __init__(self, odd):
        super().__init__()
        self.one, self.odd, self.two = nn.Linear(6, 5), odd, nn.Linear(5, 3)
        self.seen = []

    def forward(self, x):
        h = self.one(x)
        self.seen.append(h.dtype)
        return self.two(self.odd(h))


def refuses_halves(h):
    if h.dtype == torch.bfloat16:
        raise RuntimeError("no kernel for halves\nand a long story")
    return torch.tanh(h)


def too_fine(h):
    """Its slope changes sign within what bfloat16 can tell apart."""
    return torch.sin(5000 * h)


def probe():
    torch.manual_seed(3)
    return torch.rand(4, 6), torch.tensor([0, 1, 2, 0])


def odd_model(odd):
    torch.manual_seed(0)
    return Odd(odd)


def test_the_whole_check_is_made_in_float32_first(monkeypatch):
    """Agreement with autograd is judged at full precision; only then is the model tried coarser."""
    model, checked = odd_model(torch.tanh), []
    fault_of = clipping.fault_of

    def judged(clipper, given, *, training):
        model.seen.clear()
        fault = fault_of(clipper, given, training=training)
        checked.append((clipper.precision, fault, torch.bfloat16 in model.seen))
        return fault

    monkeypatch.setattr(clipping, "fault_of", judged)
    clipper = make_clipper(model, cross_entropy, 0.1, probe=probe(), precision=BF16)
    assert checked == [(FULL, "", False)]
    assert torch.bfloat16 in model.seen  # afterwards
    assert clipper.precision is BF16
    model.seen.clear()
    clipper.clipped_sum(*probe())
    assert model.seen == [torch.bfloat16]
    assert all(module.training for module in model.modules())


def test_a_clipper_that_is_wrong_in_float32_is_never_coarse(monkeypatch):
    monkeypatch.setattr(clipping, "fault_of", lambda c, *_, **__: "wrong" if is_fast(c) else "")
    clipper = make_clipper(odd_model(torch.tanh), cross_entropy, 1.0, probe=probe(), precision=BF16)
    assert not is_fast(clipper)
    assert clipper.precision is FULL
    assert clipper.note == "wrong"


def is_fast(clipper):
    return isinstance(clipper, FastClipper)


def test_a_model_that_cannot_run_in_bf16_is_refused_in_one_error():
    model = odd_model(refuses_halves)
    assert is_fast(make_clipper(model, cross_entropy, 1.0, probe=probe()))
    with pytest.raises(InputError, match=r"(?s)does not run in bf16.*no kernel") as caught:
        make_clipper(model, cross_entropy, 1.0, probe=probe(), precision=BF16)
    assert "long story" not in str(caught.value)
    assert caught.value.__suppress_context__
    assert all(module.training for module in model.modules())


def test_a_model_whose_gradients_are_garbage_in_bf16_is_refused():
    model = odd_model(too_fine)
    assert is_fast(make_clipper(model, cross_entropy, 1.0, probe=probe()))
    with pytest.raises(InputError, match=r"(?s)in bf16 are not its gradients.*off"):
        make_clipper(model, cross_entropy, 1.0, probe=probe(), precision=BF16)


def test_gradients_that_are_not_numbers_are_garbage_too():
    with pytest.raises(InputError, match="are not its gradients"):
        make_clipper(
            odd_model(lambda h: torch.tanh(h) if h.dtype == torch.float32 else h * torch.nan),
            cross_entropy,
            1.0,
            probe=probe(),
            precision=BF16,
        )
