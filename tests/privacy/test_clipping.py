"""Clipping: both clippers against loops, Opacus and each other; bounded influence; planted bugs."""

import copy
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.models import create
from privet.privacy.clipping import (
    ROUNDING_MARGIN,
    Clipper,
    FastClipper,
    ReferenceClipper,
    clip_factors,
    cross_entropy,
    make_clipper,
    trainable,
)

REPEATABLE = settings(
    derandomize=True,
    deadline=None,
    max_examples=120,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
CLASSES = 3


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


def loop_rows(model, loss, x, y):
    """The oracle: one example at a time, plain autograd."""
    parameters = list(trainable(model).values())
    rows = []
    for i in range(len(x)):
        value = loss(model(x[i : i + 1].clone()), y[i : i + 1]).sum()
        if value.requires_grad:
            grads = torch.autograd.grad(value, parameters, allow_unused=True)
        else:
            grads = [None] * len(parameters)
        zeros = [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)
        ]
        rows.append(torch.cat([g.flatten() for g in zeros]).double())
    return torch.stack(rows)


def clip_and_add(rows, clip_norm):
    """(sum, size): the sum of clipped rows, and the sum of their lengths."""
    bound = clip_norm * (1 - ROUNDING_MARGIN)
    clipped = [row * min(1.0, bound / max(float(row.norm()), 1e-300)) for row in rows]
    return sum(clipped), sum(float(c.norm()) for c in clipped)


def opacus_rows(model, loss, x, y):
    """Per-sample gradients of Opacus; its hooks cannot stand in-place activations."""
    from opacus.grad_sample import GradSampleModule

    plain = copy.deepcopy(model)
    for module in plain.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = GradSampleModule(plain, loss_reduction="sum", strict=False)
        value = loss(wrapped(x.clone()), y).sum()
        if value.requires_grad:
            value.backward()
    rows = [
        (
            torch.zeros(len(x), *p.shape)
            if getattr(p, "grad_sample", None) is None
            else p.grad_sample
        )
        for p in trainable(plain).values()
    ]
    return torch.cat([r.flatten(1) for r in rows], dim=1).double()


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


@REPEATABLE
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
@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
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


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
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


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
def test_known_answer_on_two_examples(kind):
    model = nn.Linear(2, 1, bias=False)

    def first_output(outputs, _):
        return outputs[:, 0]

    x = torch.tensor([[3.0, 4.0], [0.3, 0.4]])  # the gradient of an example is the example
    total = kind(model, first_output, 1.0).clipped_sum(x, torch.zeros(2))
    assert torch.allclose(total, torch.tensor([0.6 + 0.3, 0.8 + 0.4]), rtol=2e-5)


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
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


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan")])
def test_a_bad_clip_norm_is_refused(clip_norm):
    with pytest.raises(InputError, match="clip norm"):
        ReferenceClipper(nn.Linear(2, 2), cross_entropy, clip_norm)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(InputError, match="no trainable parameter"):
        ReferenceClipper(nn.Linear(2, 2).requires_grad_(False), cross_entropy, 1.0)


# --- the choice of the clipper ---------------------------------------------------------------


class OutsideUse(nn.Module):
    """The weight works outside its layer too."""

    def __init__(self, zero_head=False):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)
        if zero_head:
            nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(torch.tanh(self.fc(x)) * F.linear(x, self.fc.weight))


class OutsideUseInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(6, CLASSES), nn.Dropout(0.5)

    def forward(self, x):
        once = self.drop(self.fc(x))
        return once + F.linear(x, self.fc.weight) if self.training else once


class Backwards(nn.Module):
    """Examples apart, but a layer sees them in reversed order: books go to the wrong one."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 5), nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.fc(x.flip(0)).flip(0)))


class TimeFirst(nn.Module):
    """(batch, 4, 3) turned to (4, batch, 3): at four examples the axes have the same length."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(3, 5), nn.Linear(20, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.fc(x.transpose(0, 1))).transpose(0, 1).flatten(1))


class Folded(nn.Module):
    """Pieces of examples on the first axis."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(2, 5), nn.Linear(15, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.fc(x.reshape(-1, 2))).reshape(-1, 15))


class OwnParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.fc = nn.Parameter(torch.ones(6)), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.fc(self.scale * x)


class DoublingLinear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Hooked(nn.Module):
    """A user's hook changes a layer's output before ours sees it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, CLASSES)
        self.fc.register_forward_hook(lambda *a: 3 * a[-1])

    def forward(self, x):
        return self.fc(x)


def weight_normed():
    return nn.utils.parametrizations.weight_norm(nn.Linear(6, CLASSES))


def padded(mode):
    return lambda: nn.Sequential(
        nn.Conv1d(1, 2, 3, padding=1, padding_mode=mode), nn.Flatten(), nn.Linear(12, CLASSES)
    )


def same_padding():
    return nn.Sequential(nn.Conv1d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(12, CLASSES))


NO_FAST_PATH = {
    "weight outside its layer": (OutsideUse, (6,)),
    "hidden by a zero head": (lambda: OutsideUse(zero_head=True), (6,)),
    "only in training": (OutsideUseInTraining, (6,)),
    "examples reversed": (Backwards, (6,)),
    "time first": (TimeFirst, (4, 3)),
    "folded into the batch": (Folded, (6,)),
    "hooked": (Hooked, (6,)),
    "LayerNorm": (lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, CLASSES)), (6,)),
    "GroupNorm": (lambda: nn.Sequential(nn.GroupNorm(2, 6), nn.Linear(6, CLASSES)), (6,)),
    "LSTM": (LastState, (5, 3)),
    "own parameter": (OwnParameter, (6,)),
    "weight norm": (weight_normed, (6,)),
    "subclass": (lambda: DoublingLinear(6, CLASSES), (6,)),
    "circular padding": (padded("circular"), (1, 6)),
    "reflected padding": (padded("reflect"), (1, 6)),
    "padding by name": (same_padding, (1, 6)),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("clip_norm", [1e-2, 1e3])  # all clipped; none clipped
@pytest.mark.parametrize("name", NO_FAST_PATH)
def test_the_reference_takes_over_and_is_right(name, clip_norm):
    torch.manual_seed(0)
    build, shape = NO_FAST_PATH[name]
    model = build()
    probe = batch_for(shape, 4)
    clipper = make_clipper(model, cross_entropy, clip_norm, probe=probe)
    assert isinstance(clipper, ReferenceClipper)
    model.eval()  # the loop and the reference draw other dropout masks
    x, y = batch_for(shape, 3, seed=1)
    expected, size = clip_and_add(loop_rows(model, cross_entropy, x, y), clip_norm)
    assert (clipper.clipped_sum(x, y).double() - expected).norm() <= 1e-5 * size


def test_a_loss_that_depends_on_the_batch_size_is_not_taken_by_the_fast_path():
    model = nn.Linear(6, CLASSES)
    loss = lambda outputs, y: cross_entropy(outputs, y) / len(y)  # noqa: E731
    clipper = make_clipper(model, loss, 1e3, probe=batch_for((6,), 4))
    x, y = batch_for((6,), 3)
    expected, size = clip_and_add(loop_rows(model, loss, x, y), 1e3)
    assert (clipper.clipped_sum(x, y).double() - expected).norm() <= 1e-5 * size


class CallsByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.fc(input=x)


class PartlyUnderNoGrad(nn.Module):
    def __init__(self):
        super().__init__()
        self.fixed, self.head = nn.Linear(6, 5), nn.Linear(5, CLASSES)

    def forward(self, x):
        with torch.no_grad():
            h = torch.tanh(self.fixed(x))
        return self.head(h)


@pytest.mark.parametrize("build", [CallsByKeyword, PartlyUnderNoGrad])
def test_unusual_calls_stay_on_the_fast_path_and_are_right(build):
    torch.manual_seed(0)
    model = build()
    clipper = make_clipper(model, cross_entropy, 0.5, probe=batch_for((6,), 4))
    assert isinstance(clipper, FastClipper)
    x, y = batch_for((6,), 5, seed=1)
    expected, size = clip_and_add(loop_rows(model, cross_entropy, x, y), 0.5)
    assert (clipper.clipped_sum(x, y).double() - expected).norm() <= 1e-5 * size


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_reduced_loss_is_refused_with_the_fix(reduction):
    loss = lambda outputs, y: F.cross_entropy(outputs, y, reduction=reduction)  # noqa: E731
    with pytest.raises(InputError, match=r'one value for each example.*reduction="none"'):
        make_clipper(nn.Linear(6, CLASSES), loss, 1.0, probe=batch_for((6,), 4))


def test_choosing_a_clipper_leaves_the_model_as_it_was():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(), nn.Linear(4, CLASSES))
    model[1].eval()  # a user's choice
    before = {k: v.clone() for k, v in model.state_dict().items()}
    make_clipper(model, cross_entropy, 1.0, probe=batch_for((6,), 4))
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
def test_dropout_leaves_every_contribution_bounded(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, CLASSES))
    clipper = kind(model, cross_entropy, 0.1)
    x, y = batch_for((6,), 20, size=10.0)
    sums = [clipper.clipped_sum(x[i : i + 1], y[i : i + 1]) for i in range(20)]
    assert all(s.double().norm() <= 0.1 for s in sums)
    assert not torch.equal(clipper.clipped_sum(x, y), clipper.clipped_sum(x, y))  # masks differ


# --- planted bugs ----------------------------------------------------------------------------


class Rowwise(Clipper):
    """A right clipper, made simply: what the mutants below change one thing in."""

    def clipped_sum(self, x, y):
        if len(x) == 0:
            return self._zeros()
        rows = loop_rows(self.model, self.loss, x, y)
        return self.combine(rows).float()

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


def influence_is_bounded(clipper):
    """The check: each example's influence is bounded by the norm, and is its own alone."""
    x, y = batch_for((6,), 6, seed=5, size=5.0)
    total = clipper.clipped_sum(x, y).double()
    for i in range(6):
        rest = torch.arange(6) != i
        moved = total - clipper.clipped_sum(x[rest], y[rest]).double()
        alone = clipper.clipped_sum(x[i : i + 1], y[i : i + 1]).double()
        slack = 1e-5 * float(total.norm())
        if moved.norm() > clipper.clip_norm + slack or (moved - alone).norm() > slack:
            return False
    return True


def two_layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, CLASSES))


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper, Rowwise])
def test_right_clippers_pass_the_check(kind):
    assert influence_is_bounded(kind(two_layers(), cross_entropy, 0.5))


@pytest.mark.parametrize(
    "mutant",
    [
        ClipsTheMean,
        LeavesTheBiasUnclipped,
        ClipsEachParameterApart,
        ClipsByTheLargestNorm,
        ForgetsToClip,
        ClipsByTheLastLayer,
    ],
)
def test_the_check_catches_planted_bugs(mutant):
    assert not influence_is_bounded(mutant(two_layers(), cross_entropy, 0.5))


def test_a_wrong_rule_sends_the_model_to_the_reference(monkeypatch):
    from privet.privacy import rules

    honest = rules.RULES[nn.Linear]

    def forgets_the_bias(layer, a, b):
        return {"weight": honest(layer, a, b)["weight"]}

    def halves_the_weight(layer, a, b):
        return honest(layer, a, b) | {"weight": rules.RankOne(0.5 * b, a)}

    probe = batch_for((6,), 4)
    assert isinstance(make_clipper(two_layers(), cross_entropy, 0.5, probe=probe), FastClipper)
    for wrong in (forgets_the_bias, halves_the_weight):
        monkeypatch.setitem(rules.RULES, nn.Linear, wrong)
        chosen = make_clipper(two_layers(), cross_entropy, 0.5, probe=probe)
        assert isinstance(chosen, ReferenceClipper)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_precision_too_coarse_for_the_margin_is_refused(dtype):
    with pytest.raises(InputError, match="too coarse"):
        ReferenceClipper(nn.Linear(4, 2).to(dtype), cross_entropy, 1.0)
