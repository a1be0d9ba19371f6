"""Traced books are the clipper's: on other data, other weights, other buffers, gap by gap."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from privet.models import create
from privet.models.standardised import ChannelAffine, WSConv2d
from privet.privacy.clipping import FastClipper, Geometry, cross_entropy, trainable
from privet.privacy.precision import BF16
from privet.privacy.rules import Dense, LookUp, OuterSum, RankOne, Windowed, windowed
from privet.privacy.tracing import TracedBooks
from privet.privacy.units import Units

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import ALL

# PyTorch's own tracing looks at attributes that it is about to rename.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")


def as_it_is(graph):
    return graph


def units_of(case, n, seed, views=1, gaps=()):
    x, y = case.batch(n * views, seed)
    weights = torch.full((n * views,), 1.0 / views)
    weights[list(gaps)] = 0.0
    return Units.of(x, y, views=views, weights=weights)


def same_books(found, expected, tolerance=1e-5):
    """Names, kinds, norms and weighted sums."""
    assert list(found) == list(expected)
    for name, form in expected.items():
        other = found[name]
        assert type(other) is type(form), name
        norms, others = form.squared_norms(), other.squared_norms()
        torch.testing.assert_close(others, norms, rtol=tolerance, atol=1e-20)
        weights = torch.linspace(-1, 2, len(norms), dtype=torch.float64)
        total, size = form.weighted_sum(weights), float(norms.sqrt().sum())
        assert other.weighted_sum(weights).shape == total.shape
        assert (other.weighted_sum(weights) - total).norm() <= tolerance * size + 1e-20, name


class Frozen(nn.Module):
    """A frozen layer below, a buffer in between."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5).requires_grad_(False), nn.Linear(5, 3)
        self.register_buffer("shift", torch.linspace(-1, 1, 5))

    def forward(self, x):
        return self.second(torch.tanh(self.first(x) + self.shift))


class Images:
    """A network by name, with a batch for it."""

    def __init__(self, build, shape=(1, 8, 8)):
        self.build, self.shape = build, shape

    def model(self):
        torch.manual_seed(0)
        model = self.build()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.05 * torch.randn_like(p))
        return model

    def batch(self, n, seed=1):
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(n, *self.shape, generator=generator)
        return x, torch.randint(0, 3, (n,), generator=generator)


def standardised():
    """Two kernels, as in a wide residual network."""
    return nn.Sequential(
        *(WSConv2d(1, 4, 3, bias=False), ChannelAffine(4), nn.ReLU(), nn.GroupNorm(2, 4)),
        *(WSConv2d(4, 6, 3, stride=2), nn.Flatten(), nn.Linear(24, 3)),
    )


CASES = {
    "cnn": Images(lambda: create("cnn-tiny", (1, 8, 8), 3)),
    "standardised kernels": Images(standardised),
    "frozen layer and buffer": Images(Frozen, (4,)),
} | {
    name: ALL[name]
    for name in (
        "plain: linear",
        "plain: linear on grids",
        "plain: wide linear on short sequences",
        "plain: embedding",
        "plain: embedding with padding",
        "plain: layer norm",
        "convolution: conv1d in groups",
        "convolution: conv2d depthwise",
        "convolution: transposed conv2d",
        "attention: self",
        "attention: encoder layer",
        "attention: cross, other widths",
        "recurrent: LSTM",
        "recurrent: GRU, two layers, both ways",
        "recurrent: LSTM cell",
        "fallback: own parameters around a child",
        "fallback: two in, two out",
        "fallback: learned positions",
    )
}


@pytest.mark.parametrize("name", CASES)
def test_books_of_other_data_are_the_clipper_s(name):
    """Traced on one batch, run on two others: gaps in other places, one batch all gaps but one."""
    case = CASES[name]
    clipper = FastClipper(case.model(), cross_entropy, 0.1)
    traced = TracedBooks(clipper, units_of(case, 4, 1), compiler=as_it_is)
    for seed, gaps in ((2, ()), (3, (1,)), (4, (0, 2, 3))):
        units = units_of(case, 4, seed, gaps=gaps)
        same_books(traced(units), clipper.books(units))
        empty = torch.stack([form.squared_norms() for form in traced(units).values()]).sum(0)
        assert (empty[list(gaps)] < 1e-30).all()
        others = [i for i in range(4) if i not in gaps]
        assert (empty[others] > 1e-12).all()


@pytest.mark.parametrize("name", ["cnn", "standardised kernels", "plain: embedding"])
def test_views_and_their_weights_are_not_baked_in(name):
    case = CASES[name]
    clipper = FastClipper(case.model(), cross_entropy, 0.1)
    traced = TracedBooks(clipper, units_of(case, 3, 1, views=2), compiler=as_it_is)
    units = units_of(case, 3, 2, views=2, gaps=(1, 4, 5))
    same_books(traced(units), clipper.books(units))
    weights = torch.tensor([0.2, 1.5, -0.5, 0.0, 2.0, 0.1])
    units = Units.of(units.x, units.y, views=2, weights=weights)
    same_books(traced(units), clipper.books(units))


FORMING = {"gram": (1.0, 0.0, 1.0), "measured": (2.0, 1.0, 0.0), "formed": (0.0, 1.0, 1.0)}


@pytest.mark.parametrize("way", FORMING)
@pytest.mark.parametrize("name", ["cnn", "standardised kernels"])
def test_kernels_by_every_way(name, way, monkeypatch):
    """Also formed a few units at a time, into memory that is used again."""
    monkeypatch.setattr(Windowed, "_costs", lambda self: FORMING[way])
    monkeypatch.setitem(windowed.PATCHES_AT_ONCE, "cpu", 2**14)
    case = CASES[name]
    clipper = FastClipper(case.model(), cross_entropy, 0.1)
    traced = TracedBooks(clipper, units_of(case, 5, 1), compiler=as_it_is)
    units = units_of(case, 5, 2, gaps=(3,))
    same_books(traced(units), clipper.books(units))


@pytest.mark.parametrize("name", ["cnn", "plain: embedding", "recurrent: LSTM", "attention: self"])
@pytest.mark.parametrize("geometry", [Geometry(), Geometry.per_layer(), Geometry.weighted()])
def test_clipped_sums_of_traced_books_are_the_clipper_s(name, geometry):
    case = CASES[name]
    clipper = FastClipper(case.model(), cross_entropy, 0.05, geometry=geometry)
    traced = TracedBooks(clipper, units_of(case, 4, 1), compiler=as_it_is)
    units = units_of(case, 4, 2, gaps=(2,))
    found, void = clipper.sum_unless_broken(traced(units))
    expected = clipper.clipped_sum(units.x, units.y, weights=units.weights)
    assert not void.any()
    assert (found - expected).norm() <= 1e-5 * 4 * 0.05


def test_what_comes_out_are_forms_in_memory():
    """Their norms and sums are taken outside the graph: of the very numbers that are added."""
    case = CASES["attention: encoder layer"]
    clipper, calls = FastClipper(case.model(), cross_entropy, 0.1), []

    def watching(graph):
        def run(*args):
            calls.append(graph(*args))
            return calls[-1]

        return run

    traced = TracedBooks(clipper, units_of(case, 4, 1), compiler=watching)
    books = traced(units_of(case, 4, 2))
    handed = {id(tensor) for tensor in calls[-1]}
    kinds = set()
    for form in books.values():
        kinds.add(type(form))
        tensors = [v for v in vars(form).values() if isinstance(v, torch.Tensor)]
        assert all(id(v) in handed or isinstance(form, Dense) for v in tensors)
        assert not any(v.requires_grad for v in tensors)
    assert Dense in kinds
    assert kinds & {OuterSum, RankOne, LookUp}


@pytest.mark.parametrize("name", ["cnn", "standardised kernels", "recurrent: LSTM"])
def test_weights_changed_after_tracing_are_used(name):
    """A training run changes them at every step."""
    case = CASES[name]
    clipper = FastClipper(case.model(), cross_entropy, 0.1)
    traced = TracedBooks(clipper, units_of(case, 4, 1), compiler=as_it_is)
    units = units_of(case, 4, 2)
    before = {n: form.squared_norms() for n, form in traced(units).items()}
    with torch.no_grad():
        for p in clipper.model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(9)))
    after = traced(units)
    same_books(after, clipper.books(units))
    assert all(not torch.allclose(form.squared_norms(), before[n]) for n, form in after.items())


def test_buffers_and_frozen_weights_changed_after_tracing_are_used():
    case = CASES["frozen layer and buffer"]
    clipper = FastClipper(case.model(), cross_entropy, 0.1)
    traced = TracedBooks(clipper, units_of(case, 4, 1), compiler=as_it_is)
    units = units_of(case, 4, 2)
    assert set(traced(units)) == {"second.weight", "second.bias"}
    for tensor in (clipper.model.shift, clipper.model.first.weight.data):
        before = traced(units)["second.weight"].squared_norms()
        tensor.mul_(3.0)
        same_books(traced(units), clipper.books(units))
        assert not torch.allclose(traced(units)["second.weight"].squared_norms(), before)


@pytest.mark.parametrize("name", CASES)
def test_the_model_is_untouched(name):
    case = CASES[name]
    model = case.model()
    modules = {n: set(vars(m)) for n, m in model.named_modules()}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    facts = {n: (id(t), t.data_ptr(), t.requires_grad, t.clone()) for n, t in tensors.items()}
    clipper = FastClipper(model, cross_entropy, 0.1)
    traced = TracedBooks(clipper, units_of(case, 4, 1), compiler=as_it_is)
    traced(units_of(case, 4, 2))
    left = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert list(left) == list(tensors)
    for n, t in left.items():
        assert (id(t), t.data_ptr(), t.requires_grad) == facts[n][:3]
        assert isinstance(t, nn.Parameter) == isinstance(tensors[n], nn.Parameter)
        assert torch.equal(t, facts[n][3])
        assert t.grad is None
    assert {n: set(vars(m)) for n, m in model.named_modules()} == modules
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert model.training
    clipper.clipped_sum(*case.batch(3))  # and the clipper itself still works


class Branching(nn.Module):
    """What an example holds decides on the way."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return self.inner(x) if x.sum() > 0 else self.inner(2 * x)


def test_a_model_whose_way_depends_on_the_data_raises_and_is_untouched():
    model = Branching()
    before = dict(model.named_parameters())
    clipper = FastClipper(model, cross_entropy, 0.1)
    units = units_of(Images(None, (4,)), 4, 1)
    with pytest.raises(Exception, match=r"(?i)data.dependent|_local_scalar_dense"):
        TracedBooks(clipper, units, compiler=as_it_is)
    assert all(before[n] is p for n, p in model.named_parameters())
    assert not any(m._forward_hooks for m in model.modules())


def test_a_compiler_s_error_comes_out():
    def broken(graph):
        raise RuntimeError("cannot compile")

    case = CASES["plain: linear"]
    clipper = FastClipper(case.model(), cross_entropy, 0.1)
    with pytest.raises(RuntimeError, match="cannot compile"):
        TracedBooks(clipper, units_of(case, 4, 1), compiler=broken)


class Tied(nn.Module):
    """An output layer whose weight is the table's."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(3, 4), nn.Linear(4, 3)
        self.out.weight = self.table.weight

    def forward(self, tokens):
        return self.out(torch.tanh(self.table(tokens)).mean(1))


def test_a_tied_weight_is_never_baked_in():
    """Either traced under both its names, or refused; not frozen under one of them."""
    torch.manual_seed(0)
    clipper = FastClipper(Tied(), cross_entropy, 0.1)
    x, y = torch.randint(0, 3, (4, 5)), torch.arange(4) % 3
    units = Units.of(x, y, weights=torch.ones(4))
    try:
        traced = TracedBooks(clipper, units, compiler=as_it_is)
    except Exception:
        assert len(trainable(clipper.model)) == 2  # refused, and left in order
        return
    with torch.no_grad():
        clipper.model.table.weight.mul_(2.0)
    same_books(traced(units), clipper.books(units))


def test_a_pass_in_bf16_can_be_traced():
    case = CASES["plain: linear on grids"]
    clipper = FastClipper(case.model(), cross_entropy, 0.1, precision=BF16)
    traced = TracedBooks(clipper, units_of(case, 4, 1), compiler=as_it_is)
    units = units_of(case, 4, 2)
    same_books(traced(units), clipper.books(units), tolerance=1e-4)


@pytest.mark.skipif(
    shutil.which("c++") is None and shutil.which("g++") is None, reason="no C++ compiler"
)
@pytest.mark.filterwarnings("ignore")
def test_torch_compiles_the_books(tmp_path, monkeypatch):
    """The whole way, once."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    clipper, case = FastClipper(model, cross_entropy, 0.1), Images(None, (4,))
    traced = TracedBooks(clipper, units_of(case, 4, 1))
    with torch.no_grad():
        model.weight.mul_(1.5)
    units = units_of(case, 4, 2, gaps=(3,))
    same_books(traced(units), clipper.books(units))
