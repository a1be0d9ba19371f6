"""Clipping: both clippers against loops, Opacus and each other; bounded influence; planted bugs."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from privet.errors import InputError
from privet.models import create
from privet.privacy import clipping
from privet.privacy.clipping import (
    ROUNDING_MARGIN,
    Clipper,
    FastClipper,
    Geometry,
    ReferenceClipper,
    clip_factors,
    cross_entropy,
    make_clipper,
    trainable,
)
from privet.privacy.rules import Dense, Windowed, forms
from privet.privacy.units import Units

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import (
    ALL,
    CLASSES,
    GEOMETRIES,
    clip_and_add,
    close,
    loop_rows,
    opacus_rows,
    sum_by_hand,
)

REPEATABLE = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
BOTH = pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Twice(nn.Module):
    """One layer called two times."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(torch.tanh(self.inner(x)))


class Tied(nn.Module):
    """Two layers with one weight, each with a bias of its own."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


class WithSpares(nn.Module):
    """A layer that is never called, and one whose output goes nowhere."""

    def __init__(self, body):
        super().__init__()
        self.never, self.in_vain, self.body = nn.Linear(2, 2), nn.Linear(2, 2), body

    def forward(self, x):
        self.in_vain(x.flatten(1)[:, :2])
        return self.body(x)


ACTIVATIONS = [
    nn.ReLU,
    lambda: nn.ReLU(inplace=True),
    nn.Tanh,
    nn.GELU,
    nn.Softplus,
    lambda: nn.LeakyReLU(0.1, inplace=True),
    nn.Identity,
]
SHAPES = {
    "vector": (5,),
    "sequence": (3, 4),
    "deep": (2, 3, 4),
    "signal": (2, 9),
    "image": (2, 7, 6),
}


@st.composite
def convolutions(draw, dims, channels):
    groups = draw(st.sampled_from([g for g in (1, 2) if channels % g == 0]))
    kernel = draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 2))
    kind = nn.Conv1d if dims == 1 else nn.Conv2d
    return kind(
        channels,
        groups * draw(st.integers(1, 2)),
        kernel,
        stride=draw(st.integers(1, 2)),
        padding=draw(st.integers(0, 2)),
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
    )


@st.composite
def same_shape(draw, kind, shape):
    """A layer that keeps the shape: plain, called twice, tied, or inside a residual block."""
    channels = shape[0] if kind in ("signal", "image") else shape[-1]
    if kind == "signal":
        layer = nn.Conv1d(channels, channels, 3, padding=1)
    elif kind == "image":
        layer = nn.Conv2d(channels, channels, 3, padding=1, bias=draw(st.booleans()))
    else:
        layer = draw(st.sampled_from([nn.Linear, lambda w, _: Tied(w)]))(channels, channels)
    wrap = draw(st.sampled_from([Twice, lambda m: Residual(nn.Sequential(m, nn.ReLU(True)))]))
    return wrap(layer)


@st.composite
def models(draw):
    """A random network with its input shape."""
    kind = draw(st.sampled_from(sorted(SHAPES)))
    torch.manual_seed(draw(st.integers(0, 10**6)))
    layers = []
    x = torch.zeros(1, *SHAPES[kind])
    for _ in range(draw(st.integers(1, 2))):
        if kind in ("signal", "image"):
            layer = draw(convolutions(1 if kind == "signal" else 2, x.shape[1]))
        else:
            layer = nn.Linear(x.shape[-1], draw(st.integers(1, 4)), bias=draw(st.booleans()))
        reach = (
            max(layer.dilation) * (layer.kernel_size[0] - 1) + 1 if hasattr(layer, "stride") else 0
        )
        if reach and min(x.shape[2:]) + 2 * layer.padding[0] < reach:
            continue
        layers += [layer, draw(st.sampled_from(ACTIVATIONS))()]
        x = nn.Sequential(*layers[-2:])(x)
    if draw(st.booleans()):
        layers.append(draw(same_shape(kind, x.shape[1:])))
    if kind == "image" and min(x.shape[2:]) >= 2 and draw(st.booleans()):
        layers.append(draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))(2, 1))
    width = nn.Sequential(*layers, nn.Flatten())(torch.zeros(1, *SHAPES[kind])).shape[1]
    layers += [nn.Flatten(), nn.Linear(width, CLASSES, bias=draw(st.booleans()))]
    model = nn.Sequential(*layers)
    if draw(st.booleans()):
        model = WithSpares(model)
    names = [name for name, _ in model.named_parameters()]
    frozen = draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))
    for name, p in model.named_parameters():
        p.requires_grad_(name not in frozen)
    return model, SHAPES[kind]


def batch_for(shape, n, seed=0, size=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = size * torch.randn(n, *shape, generator=generator)
    return x, torch.randint(0, CLASSES, (n,), generator=generator)


def has_ties(model):
    return any(isinstance(m, Tied) for m in model.modules())


@REPEATABLE
@given(case=models(), n=st.integers(1, 6), clip_norm=st.sampled_from([1e-3, 0.1, 1.0, 1e3]))
def test_fast_reference_loop_and_opacus_agree(case, n, clip_norm):
    model, shape = case
    x, y = batch_for(shape, n)
    fast = FastClipper(model, cross_entropy, clip_norm).clipped_sum(x.clone(), y).double()
    reference = ReferenceClipper(model, cross_entropy, clip_norm).clipped_sum(x.clone(), y).double()
    expected, size = clip_and_add(loop_rows(model, cross_entropy, x, y), clip_norm)
    assert (fast - reference).norm() <= 1e-5 * size
    assert (fast - expected).norm() <= 1e-5 * size
    assert (reference - expected).norm() <= 1e-5 * size
    if not has_ties(model):
        opacus, _ = clip_and_add(opacus_rows(model, cross_entropy, x, y), clip_norm)
        assert (fast - opacus).norm() <= 1e-5 * size


@settings(REPEATABLE, max_examples=30)
@given(case=models())
def test_the_probe_admits_every_model_the_rules_cover(case):
    model, shape = case
    clipper = make_clipper(model, cross_entropy, 1.0, probe=batch_for(shape, 4))
    assert isinstance(clipper, FastClipper)


@REPEATABLE
@given(
    case=models(),
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-20, 1.0, 1e4, 1e15, 1e30]),
    clip_norm=st.sampled_from([1e-2, 1.0, 30.0]),
    kind=st.sampled_from([FastClipper, ReferenceClipper]),
)
def test_removing_one_example_moves_the_sum_by_at_most_the_clip_norm(
    case, seed, size, clip_norm, kind
):
    model, shape = case
    x, y = batch_for(shape, 5, seed)
    x[0] *= size
    x[1] = 0.0
    clipper = kind(model, cross_entropy, clip_norm)
    total = clipper.clipped_sum(x.clone(), y).double()
    assert torch.isfinite(total).all()
    for i in range(5):
        rest = torch.arange(5) != i
        without = clipper.clipped_sum(x[rest], y[rest]).double()
        alone = clipper.clipped_sum(x[i : i + 1].clone(), y[i : i + 1]).double()
        rounding = 1e-6 * float(total.norm() + without.norm())  # two float32 sums of 5 terms
        assert (total - without).norm() <= clip_norm + rounding
        assert alone.norm() <= clip_norm  # strictly: no tolerance
        assert (total - without - alone).norm() <= 10 * rounding + 1e-5 * clip_norm


@REPEATABLE
@given(case=models(), bad=st.sampled_from([float("nan"), float("inf"), -float("inf")]))
@BOTH
def test_a_broken_example_adds_nothing_and_harms_no_other(kind, case, bad):
    model, shape = case
    x, y = batch_for(shape, 4)
    clipper = kind(model, cross_entropy, 1.0)
    good = clipper.clipped_sum(x[1:].clone(), y[1:])
    x[0] = bad
    total = clipper.clipped_sum(x, y)
    assert torch.isfinite(total).all()
    broken = ~torch.isfinite(loop_rows(model, cross_entropy, x[:1], y[:1])).all()
    if broken:
        assert (total - good).norm() <= 1e-6 * good.norm()
    else:  # the gradient is finite (a constant network, say): then it is only bounded
        assert (total - good).norm() <= 1.0 + 1e-6 * good.norm()


@BOTH
def test_an_infinite_example_of_a_linear_model_adds_exactly_nothing(kind):
    torch.manual_seed(0)
    model = nn.Linear(3, CLASSES)
    x = torch.tensor([[float("inf"), 1.0, 1.0], [1e30, 0.0, 0.0], [0.2, -0.1, 0.4]])
    y = torch.tensor([0, 1, 2])
    clipper = kind(model, cross_entropy, 1.0)
    assert torch.equal(clipper.clipped_sum(x[:1], y[:1]), torch.zeros(12))
    assert torch.allclose(
        clipper.clipped_sum(x[[0, 2]], y[[0, 2]]), clipper.clipped_sum(x[2:], y[2:])
    )


@BOTH
def test_known_answer_on_two_examples(kind):
    model = nn.Linear(2, 1, bias=False)

    def first_output(outputs, _):
        return outputs[:, 0]

    x = torch.tensor([[3.0, 4.0], [0.3, 0.4]])  # the gradient of an example is the example
    total = kind(model, first_output, 1.0).clipped_sum(x, torch.zeros(2))
    assert torch.allclose(total, torch.tensor([0.6 + 0.3, 0.8 + 0.4]), rtol=2e-5)


@BOTH
def test_an_empty_batch_gives_zeros(kind):
    model = create("cnn-tiny", (1, 8, 8), CLASSES)
    total = kind(model, cross_entropy, 1.0).clipped_sum(
        torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64)
    )
    assert torch.equal(total, torch.zeros(sum(p.numel() for p in model.parameters())))


@given(
    norms=st.lists(st.floats(0, 1e30), min_size=1, max_size=20),
    clip_norm=st.floats(1e-6, 1e6),
)
@REPEATABLE
def test_factors_shrink_long_vectors_below_the_clip_norm_and_keep_short_ones(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float64)
    factors = clip_factors(norms, clip_norm)
    assert (factors * norms <= clip_norm).all()
    short = norms <= clip_norm * (1 - ROUNDING_MARGIN)
    assert torch.allclose(factors[short], torch.ones(1, dtype=torch.float64), rtol=1e-15)


def test_factors_of_norms_that_are_not_numbers_are_zero():
    norms = torch.tensor([float("nan"), float("inf"), 1.0])
    assert clip_factors(norms, 1.0)[:2].tolist() == [0.0, 0.0]


def test_ten_million_equal_gradients_are_clipped_to_the_norm():
    """A float32 norm of this row comes out 0.8 % too small."""
    model = nn.Linear(5000, 2000, bias=False)
    loss = lambda outputs, _: outputs.sum(1)  # noqa: E731
    x = torch.full((1, 5000), 0.1)
    for kind in (ReferenceClipper, FastClipper):
        total = kind(model, loss, 1.0).clipped_sum(x, torch.zeros(1))
        norm = float(torch.linalg.vector_norm(total, dtype=torch.float64))
        assert 1 - 2e-5 <= norm <= 1.0


def test_a_product_of_a_tiny_and_a_huge_factor_is_clipped():
    """|b|^2 underflows in float32 although |b||a| exceeds the clip norm three times."""
    model = nn.Linear(1, 1, bias=False)
    loss = lambda outputs, _: 2e-23 * outputs[:, 0]  # noqa: E731
    total = FastClipper(model, loss, 1e-4).clipped_sum(torch.tensor([[1.5e19]]), torch.zeros(1))
    assert total.double().norm() <= 1e-4


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bad_clip_norm_is_refused(clip_norm):
    with pytest.raises(InputError, match="clip norm"):
        ReferenceClipper(nn.Linear(2, 2), cross_entropy, clip_norm)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(InputError, match="no trainable parameter"):
        ReferenceClipper(nn.Linear(2, 2).requires_grad_(False), cross_entropy, 1.0)


@BOTH
def test_dropout_leaves_every_contribution_bounded(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, CLASSES))
    clipper = kind(model, cross_entropy, 0.1)
    x, y = batch_for((6,), 20, size=10.0)
    sums = [clipper.clipped_sum(x[i : i + 1], y[i : i + 1]) for i in range(20)]
    assert all(s.double().norm() <= 0.1 for s in sums)
    assert not torch.equal(clipper.clipped_sum(x, y), clipper.clipped_sum(x, y))  # masks differ


# --- every rule, every geometry ----------------------------------------------------------------


def unit_is_bounded(name, geometry, *, size=1.0, clip_norm=1.0, views=1, seed=1):
    """Adding the first unit moves the sum by at most the clip norm, and by what it is alone."""
    case = ALL[name]
    x, y = case.batch(4 * views, seed)
    if not case.tokens:
        x[:views] *= size
    clipper = FastClipper(case.model(), cross_entropy, clip_norm, geometry=GEOMETRIES[geometry])
    total = clipper.clipped_sum(x.clone(), y, views=views).double()
    assert torch.isfinite(total).all()
    without = clipper.clipped_sum(x[views:], y[views:], views=views).double()
    alone = clipper.clipped_sum(x[:views].clone(), y[:views], views=views).double()
    rounding = 1e-6 * float(total.norm() + without.norm())
    assert alone.norm() <= clip_norm  # strictly: no tolerance
    assert (total - without).norm() <= clip_norm + rounding
    assert (total - without - alone).norm() <= 10 * rounding + 1e-3 * clip_norm


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
@pytest.mark.parametrize("name", ALL)
def test_no_unit_moves_the_sum_by_more_than_the_clip_norm(name):
    """For every rule and geometry."""
    for geometry, size in zip(GEOMETRIES, (1.0, 1e30, 1e4, 1e-20, 1e15), strict=True):
        unit_is_bounded(name, geometry, size=size, clip_norm=0.01, views=2)


@REPEATABLE
@given(
    name=st.sampled_from([name for name in ALL if "same" not in name and "proj" not in name]),
    geometry=st.sampled_from(sorted(GEOMETRIES)),
    seed=st.integers(0, 10**6),
    size=st.floats(1e-30, 1e30),
    clip_norm=st.floats(1e-6, 1e6),
    views=st.integers(1, 3),
)
def test_at_no_size_and_norm_does_it_move_more(name, geometry, seed, size, clip_norm, views):
    unit_is_bounded(name, geometry, size=size, clip_norm=clip_norm, views=views, seed=seed)


# --- units: views, weights, gaps ---------------------------------------------------------------

MIXED = ["plain: linear", "plain: embedding", "attention: encoder layer", "recurrent: LSTM"]


@BOTH
@pytest.mark.parametrize("name", MIXED)
def test_the_views_of_a_unit_are_averaged_and_clipped_once(kind, name):
    """Neither clipped view by view, nor counted as units of their own."""
    case = ALL[name]
    model = case.model()
    x, y = case.batch(8)
    rows = loop_rows(model, cross_entropy, x, y)
    means = rows.reshape(4, 2, -1).mean(1)
    norm = float(means.norm(dim=1).median())
    clipper = kind(model, cross_entropy, norm)
    found = clipper.clipped_sum(x, y, views=2).double()
    expected, _ = clip_and_add(means, norm)
    assert (found - expected).norm() <= 1e-5 * 4 * norm
    by_view, size = clip_and_add(rows, norm)
    assert (found - by_view / 2).norm() > 1e-3 * size


@BOTH
@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30])
def test_a_unit_whose_weights_are_zero_adds_exactly_nothing(kind, name, garbage):
    case = ALL[name]
    clipper = kind(case.model(), cross_entropy, 0.5)
    x, y = case.batch(6)
    weights = torch.tensor([0.0, 0.0, 0.5, 0.5, 0.0, 0.0])
    expected = clipper.clipped_sum(x[2:4], y[2:4], views=2)
    x[weights == 0] = case.tokens - 1 if case.tokens else garbage
    y[weights == 0] = CLASSES + 5  # no such class
    found = clipper.clipped_sum(x, y, views=2, weights=weights)
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)
    empty = clipper.clipped_sum(x[:2], y[:2], views=2, weights=weights[:2])
    assert torch.equal(empty, torch.zeros_like(empty))


@BOTH
def test_a_gap_among_a_users_records_harms_no_other_record(kind):
    case = ALL["plain: linear on sequences"]
    model = case.model()
    x, y = case.batch(6)
    weights = torch.tensor([0.5, 0.5, 0.0, 1.0, 0.0, 0.0])
    expected = loop_rows(model, cross_entropy, x, y, 3, weights)
    x[weights == 0] = float("nan")
    found = kind(model, cross_entropy, 1.0).per_example_gradients(x, y, views=3, weights=weights)
    assert close(found, expected)


@BOTH
def test_a_record_that_is_not_finite_silences_its_user_alone(kind):
    case = ALL["attention: self"]
    clipper = kind(case.model(), cross_entropy, 0.5)
    x, y = case.batch(6)
    expected = clipper.clipped_sum(x[:4], y[:4], views=2)
    x[5] = float("inf")
    found = clipper.clipped_sum(x, y, views=2)
    assert torch.allclose(found, expected, atol=1e-6)


@REPEATABLE
@given(
    weights=st.lists(st.floats(-1e6, 1e6, width=32), min_size=6, max_size=6),
    geometry=st.sampled_from(sorted(GEOMETRIES)),
)
def test_whatever_the_weights_a_unit_stays_within_the_clip_norm(weights, geometry):
    case = ALL["plain: layer norm"]
    clipper = FastClipper(case.model(), cross_entropy, 0.1, geometry=GEOMETRIES[geometry])
    x, y = case.batch(6)
    total = clipper.clipped_sum(x, y, views=6, weights=torch.tensor(weights))
    assert total.double().norm() <= 0.1


# --- a broken unit in one ball of many ---------------------------------------------------------


class TwoBranches(nn.Module):
    """Each layer sees its own half of the input."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.stem(x[:, :2]) + self.head(x[:, 2:])


@BOTH
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("half", [slice(0, 2), slice(2, 4)])
def test_a_unit_broken_in_one_layer_adds_nothing_to_any(kind, geometry, half):
    """One layer's gradient is absurdly long, the other's is not."""
    torch.manual_seed(0)
    loss = lambda outputs, _: outputs.sum(1)  # noqa: E731
    clipper = kind(TwoBranches(), loss, 0.5, geometry=GEOMETRIES[geometry])
    x, y = torch.randn(3, 4), torch.zeros(3)
    x[0, half] = 1e19
    found, expected = clipper.clipped_sum(x, y), clipper.clipped_sum(x[1:], y[1:])
    assert torch.allclose(found, expected, atol=1e-6)


# --- weights that are tied, double precision ---------------------------------------------------


class LanguageModel(nn.Module):
    """The table of the embedding is the output layer's weight."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(9, 4), nn.GRU(4, 4, batch_first=True)
        self.out = nn.Linear(4, 9)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.body(self.embed(tokens))[0])


def next_token_loss(outputs, tokens):
    losses = nn.functional.cross_entropy(
        outputs[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none"
    )
    return losses.sum(1)


@pytest.mark.parametrize("name", ["flat", "per-layer", "weighted"])
def test_an_embedding_tied_to_the_output_layer_is_exact(name):
    torch.manual_seed(0)
    model = LanguageModel()
    tokens = torch.randint(0, 9, (6, 5))
    geometry = Geometry(name)
    clipper = make_clipper(model, next_token_loss, 1.0, probe=(tokens, tokens), geometry=geometry)
    assert isinstance(clipper, FastClipper), clipper.note
    rows = loop_rows(model, next_token_loss, tokens, tokens, views=2)
    norm = float(rows.norm(dim=1).median())
    found = clipper.with_clip_norm(norm).clipped_sum(tokens, tokens, views=2).double()
    expected = sum_by_hand(model, rows, norm, geometry)
    assert (found - expected).norm() <= 1e-5 * 3 * norm


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, FastClipper) for name in MIXED] + [(name, ReferenceClipper) for name in MIXED[:3]],
)
def test_double_precision_is_kept(kind, name):
    case = ALL[name]
    model = case.model().double()
    x, y = case.batch(4)
    x = x if case.tokens else x.double()
    found = kind(model, cross_entropy, 1e3).clipped_sum(x, y)
    assert found.dtype == torch.float64
    expected = loop_rows(model, cross_entropy, x, y).sum(0)
    assert (found - expected).norm() <= 1e-10 * expected.norm()


def test_products_are_taken_in_full_precision_and_the_settings_are_put_back(monkeypatch):
    """TF32 would round a sum by more than the margin: in products, and in convolutions by cuDNN."""
    seen = []

    def settings_now():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    def loss(outputs, y):
        seen.append(settings_now())
        return cross_entropy(outputs, y)

    added_up = Windowed.weighted_sum
    monkeypatch.setattr(
        Windowed, "weighted_sum", lambda *a: (seen.append(settings_now()), added_up(*a))[1]
    )
    monkeypatch.setattr(Windowed, "settled", lambda self: self)
    model, (x, y) = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3)), images()
    before = settings_now()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        FastClipper(model, loss, 1.0).clipped_sum(x, y)
        assert seen == [("highest", False)] * 2
        assert settings_now() == ("high", True)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def test_half_precision_inside_the_model_is_refused():
    clipper = FastClipper(two_layers(), cross_entropy, 1.0)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(InputError, match=r"too coarse.*bfloat16.*autocast"),
    ):
        clipper.clipped_sum(*batch_for((6,), 4))


def test_a_caller_under_no_grad_gets_the_gradients_all_the_same():
    clipper = FastClipper(two_layers(), cross_entropy, 1.0)
    expected = clipper.clipped_sum(*batch_for((6,), 4))
    with torch.no_grad():
        assert torch.equal(clipper.clipped_sum(*batch_for((6,), 4)), expected)


def test_nothing_of_the_graph_stays_in_the_results():
    case = ALL["recurrent: LSTM"]
    clipper = FastClipper(case.model(), cross_entropy, 1.0)
    assert not clipper.clipped_sum(*case.batch(3)).requires_grad
    assert not clipper.per_example_gradients(*case.batch(3)).requires_grad
    assert all(p.grad is None for p in clipper.model.parameters())


def test_a_twin_with_another_norm_leaves_the_first_as_it_was():
    case = ALL["plain: linear"]
    x, y = case.batch(3)
    clipper = FastClipper(case.model(), cross_entropy, 1e-3, geometry=Geometry.per_layer())
    before = clipper.clipped_sum(x, y)
    twin = clipper.with_clip_norm(1e-2)
    assert torch.allclose(twin.clipped_sum(x, y), 10 * before, rtol=1e-4)
    assert torch.equal(clipper.clipped_sum(x, y), before)
    assert (clipper.clip_norm, twin.clip_norm) == (1e-3, 1e-2)


# --- planted bugs ------------------------------------------------------------------------------


class Rowwise(Clipper):
    """A right clipper, made simply: what the mutants below change one thing in."""

    def books(self, units):
        raise NotImplementedError

    def clipped_sum(self, x, y, *, views=1, weights=None):
        return self.combine(self.rows(x, y, views)).float()

    def rows(self, x, y, views):
        return loop_rows(self.model, self.loss, x, y, views)

    def combine(self, rows):
        return clip_and_add(rows, self.clip_norm)[0]


class ClipsTheMean(Rowwise):
    def combine(self, rows):
        mean = rows.mean(0)
        return len(rows) * mean * min(1.0, self.clip_norm / float(mean.norm()))


class LeavesTheBiasUnclipped(Rowwise):
    def combine(self, rows):
        sizes = [p.numel() for p in trainable(self.model).values()]
        parts = [
            part.sum(0) if p.dim() == 1 else clip_and_add(part, self.clip_norm)[0]
            for part, p in zip(rows.split(sizes, 1), trainable(self.model).values(), strict=True)
        ]
        return torch.cat(parts)


class ClipsEachParameterApart(Rowwise):
    def combine(self, rows):
        sizes = [p.numel() for p in trainable(self.model).values()]
        return torch.cat([clip_and_add(part, self.clip_norm)[0] for part in rows.split(sizes, 1)])


class ClipsByTheLargestNorm(Rowwise):
    """Bounded, but one example's contribution depends on the others."""

    def combine(self, rows):
        return rows.sum(0) * min(1.0, self.clip_norm / float(rows.norm(dim=1).max()))


class ForgetsToClip(Rowwise):
    def combine(self, rows):
        return rows.sum(0)


class ClipsByTheLastLayer(Rowwise):
    def combine(self, rows):
        last = list(trainable(self.model).values())[-1].numel()
        factors = self.clip_norm / rows[:, -last:].norm(dim=1).clamp_min(self.clip_norm)
        return factors @ rows


class ForgetsViews(Rowwise):
    """Every view counts as a unit."""

    def rows(self, x, y, views):
        return loop_rows(self.model, self.loss, x, y)


class TakesTheFirstView(Rowwise):
    def rows(self, x, y, views):
        return loop_rows(self.model, self.loss, x[::views], y[::views])


class ClipsEachView(Rowwise):
    """Then takes the mean: bounded, but another direction."""

    def rows(self, x, y, views):
        rows = loop_rows(self.model, self.loss, x, y)
        clipped = [clip_and_add([row], self.clip_norm)[0] for row in rows]
        return torch.stack(clipped).reshape(-1, views, rows.shape[1]).mean(1)


class AddsUpTheViews(Rowwise):
    """Clips the mean, then gives every view its weight."""

    def combine(self, rows):
        return 2 * clip_and_add(rows, self.clip_norm)[0]


def influence_is_bounded(clipper):
    """The check: each unit's influence is bounded by the norm, and is its own alone."""
    x, y = batch_for((6,), 12, seed=5, size=5.0)
    total = clipper.clipped_sum(x, y, views=2).double()
    for i in range(6):
        rest = torch.arange(12) // 2 != i
        moved = total - clipper.clipped_sum(x[rest], y[rest], views=2).double()
        alone = clipper.clipped_sum(x[~rest], y[~rest], views=2).double()
        slack = 1e-5 * float(total.norm())
        if moved.norm() > clipper.clip_norm + slack or (moved - alone).norm() > slack:
            return False
    return True


def views_are_averaged(clipper):
    """The check: nothing clipped, views add up to their mean; clipped, to its direction."""
    x, y = batch_for((6,), 4, seed=5, size=5.0)
    mean = loop_rows(clipper.model, clipper.loss, x, y, views=4)[0]
    found = clipper.clipped_sum(x, y, views=4).double()
    expected = mean * min(1.0, clipper.clip_norm / float(mean.norm()))
    return bool((found - expected).norm() <= 1e-4 * expected.norm())


def two_layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, CLASSES))


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper, Rowwise])
def test_right_clippers_pass_the_checks(kind):
    assert influence_is_bounded(kind(two_layers(), cross_entropy, 0.5))
    assert views_are_averaged(kind(two_layers(), cross_entropy, 0.5))
    assert views_are_averaged(kind(two_layers(), cross_entropy, 50.0))


@pytest.mark.parametrize(
    "mutant",
    [
        ClipsTheMean,
        LeavesTheBiasUnclipped,
        ClipsEachParameterApart,
        ClipsByTheLargestNorm,
        ForgetsToClip,
        ClipsByTheLastLayer,
        ForgetsViews,
        AddsUpTheViews,
    ],
)
def test_the_check_catches_planted_bugs(mutant):
    assert not influence_is_bounded(mutant(two_layers(), cross_entropy, 0.5))


@pytest.mark.parametrize("mutant", [TakesTheFirstView, ClipsEachView])
def test_bounded_but_wrong_treatment_of_views_is_caught(mutant):
    assert influence_is_bounded(mutant(two_layers(), cross_entropy, 0.5))
    assert not views_are_averaged(mutant(two_layers(), cross_entropy, 0.5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_precision_too_coarse_for_the_margin_is_refused(dtype):
    with pytest.raises(InputError, match="too coarse"):
        ReferenceClipper(nn.Linear(4, 2).to(dtype), cross_entropy, 1.0)


class Flattening(nn.Module):
    """A network as many write it: `view` needs feature maps with the channels first in memory."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.out = nn.Linear(4 * 36, 3)

    def forward(self, x):
        maps = self.convolution(x)
        return self.out(maps.view(len(x), -1))


def images(n=6):
    torch.manual_seed(4)
    return torch.rand(n, 1, 8, 8), torch.arange(n) % 3


def test_images_are_laid_out_with_the_channels_last_where_the_model_can_take_it():
    seen = []
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    model[1].register_forward_hook(lambda _layer, args, _out: seen.append(args[0]))
    x, y = images()
    clipper = make_clipper(model, cross_entropy, 0.1, probe=(x, y))
    total = clipper.clipped_sum(x, y)
    assert seen[-1].is_contiguous(memory_format=torch.channels_last)
    expected = ReferenceClipper(model, cross_entropy, 0.1).clipped_sum(x, y)
    assert (total - expected).norm() <= 1e-5 * expected.norm()


def test_a_model_that_needs_the_channels_first_gets_them_and_stays_fast():
    model, (x, y) = Flattening(), images()
    with pytest.raises(RuntimeError, match="view size"):
        FastClipper(model, cross_entropy, 0.1, channels_last=True).clipped_sum(x, y)
    clipper = make_clipper(model, cross_entropy, 0.1, probe=(x, y))
    assert isinstance(clipper, FastClipper)
    expected = ReferenceClipper(model, cross_entropy, 0.1).clipped_sum(x, y)
    assert (clipper.clipped_sum(x, y) - expected).norm() <= 1e-5 * expected.norm()


# --- unit by unit ------------------------------------------------------------------------------


def units_stay_apart(clipper, x, y, views=1):
    """The check: alone among gaps, each unit adds its own gradient, clipped once; and so in all."""
    rows = loop_rows(clipper.model, clipper.loss, x, y, views)
    total = torch.zeros_like(rows[0])
    for i in range(len(rows)):
        weights = torch.zeros(len(x))
        weights[i * views : (i + 1) * views] = 1 / views
        found = clipper.clipped_sum(x.clone(), y, views=views, weights=weights).double()
        expected = sum_by_hand(clipper.model, rows[i : i + 1], clipper.clip_norm, clipper.geometry)
        if (found - expected).norm() > 1e-5 * clipper.clip_norm:
            return False
        total += expected
    for weights in (None, torch.full((len(x),), 1 / views)):
        found = clipper.clipped_sum(x.clone(), y, views=views, weights=weights).double()
        if (found - total).norm() > 1e-5 * clipper.clip_norm * len(rows):
            return False
    return True


def clipper_for(case, kind=FastClipper, views=1, **named):
    """At a norm that clips half of the units, and so that some are and some are not."""
    model, (x, y) = case.model(), case.batch(4 * views)
    norms = loop_rows(model, cross_entropy, x, y, views).norm(dim=1)
    return kind(model, cross_entropy, float(norms.median()), **named), x, y


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
@pytest.mark.parametrize("name", ALL)
def test_every_rule_adds_each_unit_once_clipped_once_and_no_gap(name):
    assert units_stay_apart(*clipper_for(ALL[name]))


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", MIXED)
def test_so_in_every_geometry_and_with_views(name, geometry):
    clipper, x, y = clipper_for(ALL[name], views=2, geometry=GEOMETRIES[geometry])
    assert units_stay_apart(clipper, x, y, views=2)


class SkipsAnExample(FastClipper):
    def books(self, units):
        weights = units.split()[2].flatten().clone()
        weights[-units.views :] = 0.0
        return super().books(Units.of(units.x, units.y, views=units.views, weights=weights))


class ClipsTwice(FastClipper):
    def _factors(self, groups):
        return {name: factor**2 for name, factor in super()._factors(groups).items()}


class IgnoresTheMask(FastClipper):
    def books(self, units):
        return super().books(Units.of(units.x, units.y, views=units.views))


class CountsAnExampleTwice(FastClipper):
    def _weighted(self, groups, factors):
        doubled = {name: factor.clone() for name, factor in factors.items()}
        for factor in doubled.values():
            factor[0] *= 2
        return super()._weighted(groups, doubled)


class MixesUpTheParts(FastClipper):
    """Small gradients side by side come back under each other's names."""

    def _weighted(self, groups, factors):
        sizes = {name: p.numel() for name, p in trainable(self.model).items()}
        swapped = []
        for names, form in groups:
            factors |= dict.fromkeys(names, factors[names[0]])
            twins = [n for n in names if sum(sizes[n] == sizes[m] for m in names) > 1]
            last = [n for n in twins if sizes[n] == sizes[twins[0]]][-1] if twins else ""
            other = {twins[0]: last, last: twins[0]} if twins else {}
            swapped.append(([other.get(name, name) for name in names], form))
        return super()._weighted(swapped, factors)


@pytest.mark.parametrize(
    "mutant",
    [SkipsAnExample, ClipsTwice, IgnoresTheMask, CountsAnExampleTwice, MixesUpTheParts],
)
@pytest.mark.parametrize("name", ["plain: layer norm", "attention: encoder layer"])
def test_the_check_of_single_units_catches_planted_bugs(name, mutant):
    assert not units_stay_apart(*clipper_for(ALL[name], mutant))


# --- small parameters side by side -------------------------------------------------------------


def together(clipper, x, y, weights=None):
    """Which parameters have one norm and one product."""
    books = clipper.books(Units.of(x, y, weights=weights))
    return [names for names, _ in clipper._groups(books)]


def one_by_one(monkeypatch):
    """As if no parameter were small."""
    monkeypatch.setattr(clipping, "SMALL", 0)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
@pytest.mark.parametrize("geometry", ["flat", "per-layer by shares", "weighted by hand"])
def test_small_parameters_side_by_side_give_the_same_sums(geometry, monkeypatch):
    """For every rule; with a broken unit and a gap too."""
    bad = {}
    for name, case in ALL.items():
        clipper, x, y = clipper_for(case, geometry=GEOMETRIES[geometry])
        spoilt, weights = x.clone(), torch.tensor([1.0, 0.0, 1.0, 2.0])
        if not case.tokens:
            spoilt[2] = float("inf")
        with monkeypatch.context() as patched:
            joined = together(clipper, x, y)
            found = [sums_of(clipper, *given) for given in ((x, y), (spoilt, y, weights))]
            one_by_one(patched)
            assert max(map(len, together(clipper, x, y))) == 1
            apart = [sums_of(clipper, *given) for given in ((x, y), (spoilt, y, weights))]
        assert sorted(n for names in joined for n in names) == sorted(trainable(clipper.model))
        off = max(float((f - a).norm()) for f, a in zip(found, apart, strict=True))
        bad |= {name: off} if not off <= 1e-6 * 4 * clipper.clip_norm else {}
    assert bad == {}


def sums_of(clipper, x, y, weights=None):
    return clipper.clipped_sum(x.clone(), y, weights=weights)


def test_only_what_shares_a_factor_is_put_together():
    case = ALL["attention: encoder layer"]
    x, y = case.batch(4)
    for name, geometry in GEOMETRIES.items():
        clipper = FastClipper(case.model(), cross_entropy, 0.1, geometry=geometry)
        groups = together(clipper, x, y)
        assert max(map(len, groups)) > 1
        layers = [{n.rpartition(".")[0] for n in names} for names in groups]
        if name == "flat":
            assert max(map(len, layers)) > 2
        elif name.startswith("per-layer"):
            assert max(map(len, layers)) == 1
        else:  # layers of one weight may stand together, others not
            weights = dict(clipper.geometry.numbers)
            assert all(len({weights[layer] for layer in own}) == 1 for own in layers)


def test_what_is_large_or_measured_already_stays_by_itself(monkeypatch):
    model = nn.Sequential(nn.Linear(6, 50), nn.LayerNorm(50), nn.Tanh(), nn.Linear(50, CLASSES))
    clipper = FastClipper(model, cross_entropy, 0.1)
    x, y = batch_for((6,), 3)
    monkeypatch.setattr(clipping, "SMALL", 49)
    assert ["3.bias"] in together(clipper, x, y)
    assert all(len(names) == 1 for names in together(clipper, x, y))
    monkeypatch.setattr(clipping, "SMALL", 50)
    assert ["0.bias", "1.weight", "1.bias", "3.bias"] in together(clipper, x, y)
    rows = Dense(torch.ones(3, 5))
    measured = {"0.bias": rows, "1.bias": Dense(rows.gradients, rows.squared_norms())}
    assert [names for names, _ in clipper._groups(measured)] == [["1.bias"], ["0.bias"]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_sum_is_void_exactly_if_a_unit_is_broken(bad):
    for name in ("plain: linear", "plain: layer norm", "attention: self"):
        clipper, x, y = clipper_for(ALL[name])
        total, void = clipper.sum_unless_broken(clipper.books(Units.of(x, y)))
        assert not void.any()
        assert torch.allclose(total, clipper.clipped_sum(x, y))
        x[1] = bad
        void = clipper.sum_unless_broken(clipper.books(Units.of(x, y)))[1]
        assert void.nonzero().flatten().tolist() == [1]
        gap = torch.tensor([1.0, 0.0, 1.0, 1.0])
        assert not clipper.sum_unless_broken(clipper.books(Units.of(x, y, weights=gap)))[1].any()


class Differences(nn.Module):
    """Adds up with changing signs over time: gradients of like inputs cancel."""

    def __init__(self, positions, width):
        super().__init__()
        self.inner = nn.Linear(width, width, bias=False)
        self.register_buffer("sign", torch.tensor([1.0, -1.0]).repeat(positions // 2)[:, None])

    def forward(self, x):
        return (self.inner(x) * self.sign).sum(1)


@pytest.mark.parametrize("most", [64 * 1024, 1024, 1023])
def test_one_unit_more_moves_the_sum_by_the_clip_norm_at_most(monkeypatch, most):
    """Where gradients cancel, two ways of clipping are far apart: all must go the same way."""
    monkeypatch.setitem(forms.MOST_FORMED, "cpu", most)
    torch.manual_seed(0)
    clipper = FastClipper(Differences(16, 32), lambda outputs, y: outputs.mean(1) * y, 1.0)
    x = (0.5 + 0.001 * torch.randn(1, 16, 32)).expand(65, 16, 32)
    y = torch.full((65,), 1000.0)
    sums = [clipper.clipped_sum(x[:n], y[:n]).double() for n in (64, 65)]
    assert float((sums[1] - sums[0]).norm()) <= 1.0
