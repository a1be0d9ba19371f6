"""A step of one size gives the clipper's sums, whatever stood in its buffers; planted bugs."""

import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privet.privacy import fixed as fixed_module
from privet.privacy.clipping import FastClipper, Geometry, cross_entropy
from privet.privacy.fixed import SPREAD, FixedSum, _python_state, fixed_size
from privet.privacy.precision import BF16
from privet.privacy.tracing import TracedBooks
from privet.privacy.units import Units

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import ALL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
REPEATABLE = settings(derandomize=True, deadline=None, max_examples=300)
CLIP = 0.05
NAMES = ["plain: linear", "plain: embedding", "convolution: conv2d", "attention: encoder layer"]


def as_it_is(graph):
    return graph


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def rows(n, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.arange(n) % 3


def made(clipper=None, *, units=5, views=1, compiler=as_it_is, probe=None):
    clipper = clipper or FastClipper(small(), cross_entropy, CLIP)
    return clipper, FixedSum(clipper, probe or rows(4), units=units, views=views, compiler=compiler)


def near(found, expected, units=5):
    return bool((found - expected).norm() <= 1e-5 * CLIP * units)


# --- every size --------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", [None, as_it_is], ids=["as it is", "traced"])
@pytest.mark.parametrize("name", NAMES)
def test_the_sums_of_all_sizes_are_the_clipper_s(name, compiler):
    """From full to empty and back: what is left over in the buffers from before adds nothing."""
    case = ALL[name]
    clipper = FastClipper(case.model(), cross_entropy, CLIP)
    fixed = FixedSum(clipper, case.batch(4), units=5, compiler=compiler)
    assert (fixed.size, fixed.note) == (5, "")
    for seed, n in enumerate((5, 0, 1, 4, 2, 3, 5)):
        x, y = case.batch(n, seed=seed)
        found, void = fixed.sum_unless_broken(x, y)
        assert near(found, clipper.clipped_sum(x, y)), n
        assert not void.any()
        if n == 0:
            assert torch.equal(found, torch.zeros_like(found))


@pytest.mark.parametrize("geometry", [Geometry.per_layer(), Geometry.weighted()])
def test_in_other_geometries_too(geometry):
    clipper = FastClipper(small(), cross_entropy, CLIP, geometry=geometry)
    _, fixed = made(clipper)
    for n in (5, 2, 0):
        assert near(fixed.sum_unless_broken(*rows(n))[0], clipper.clipped_sum(*rows(n)))


@pytest.mark.parametrize("compiler", [None, as_it_is], ids=["as it is", "traced"])
def test_units_of_several_views_with_and_without_weights(compiler):
    clipper, fixed = made(units=4, views=3, compiler=compiler)
    assert fixed.size == 4
    generator = torch.Generator().manual_seed(0)
    for n in (4, 2, 0, 3, 1):
        x, y = rows(3 * n, seed=n)
        found, _ = fixed.sum_unless_broken(x, y, views=3)
        assert near(found, clipper.clipped_sum(x, y, views=3))
        weights = torch.rand(3 * n, generator=generator)
        weights[::4] = 0.0
        x[weights == 0] = math.nan  # a gap: whatever stands in it
        found, void = fixed.sum_unless_broken(x, y, views=3, weights=weights)
        assert near(found, clipper.clipped_sum(x, y, views=3, weights=weights))
        assert not void.any()


def test_what_was_broken_before_leaves_nothing_behind():
    """NaN in a place that is left over next time."""
    clipper, fixed = made()
    x, y = rows(5)
    x[3:] = math.nan
    assert fixed.sum_unless_broken(x, y)[1].tolist() == [False] * 3 + [True] * 2
    found, void = fixed.sum_unless_broken(*rows(3, seed=2))
    assert not void.any()
    assert near(found, clipper.clipped_sum(*rows(3, seed=2)))


def test_more_units_than_there_is_room_for_are_refused():
    _, fixed = made()
    with pytest.raises(AssertionError):
        fixed.sum_unless_broken(*rows(6))
    with pytest.raises(AssertionError):
        fixed.sum_unless_broken(*rows(4), views=2)


# --- broken units ------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_a_sum_with_a_broken_unit_is_void(bad):
    clipper, fixed = made()
    for place in range(5):
        x, y = rows(5)
        x[place] = bad
        _, void = fixed.sum_unless_broken(x, y)
        alone = clipper.clipped_sum(x[place : place + 1], y[place : place + 1])
        assert void.nonzero().flatten().tolist() == [place] * (float(alone.norm()) == 0.0)
    assert not fixed.sum_unless_broken(*rows(5))[1].any()


# --- what it was made for ----------------------------------------------------------------------


def test_it_is_current_only_for_the_model_as_it_was():
    clipper, fixed = made()
    model = clipper.model
    assert fixed.is_current
    with torch.no_grad():
        model[0].weight.add_(1.0)  # an optimiser's step
    assert fixed.is_current
    model.eval()
    assert not fixed.is_current
    model.train()
    assert fixed.is_current
    model[1].eval()  # one layer alone
    assert not fixed.is_current
    model.train()
    parameter = model[2].bias
    place = parameter.data
    parameter.data = parameter.data.clone()
    assert not fixed.is_current
    parameter.data = place
    assert fixed.is_current


def test_buffers_that_moved_are_noticed():
    model = small()
    model.register_buffer("shift", torch.zeros(3))
    _, fixed = made(FastClipper(model, cross_entropy, CLIP))
    assert fixed.is_current
    model.shift = torch.zeros(3)
    assert not fixed.is_current


def test_it_pays_only_if_something_is_compiled():
    assert made()[1].pays
    assert not made(compiler=None)[1].pays  # on a CPU nothing is recorded


def test_trying_leaves_the_model_as_it_was():
    clipper = FastClipper(small(), cross_entropy, CLIP)
    before = {n: (id(p), p.clone()) for n, p in clipper.model.named_parameters()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    made(clipper)
    assert torch.equal(torch.rand(3), expected)
    for n, p in clipper.model.named_parameters():
        assert id(p) == before[n][0]
        assert torch.equal(p, before[n][1])
        assert p.grad is None


# --- sizes -------------------------------------------------------------------------------------


@REPEATABLE
@given(expected=st.floats(1e-3, 1e7), most=st.integers(1, 10**6))
def test_a_fixed_size_has_the_room_that_is_needed_and_wastes_no_piece(expected, most):
    size = fixed_size(expected, most)
    room = expected + SPREAD * math.sqrt(expected)
    pieces = math.ceil(math.ceil(room) / most)
    assert 1 <= size <= most
    assert size * pieces >= room
    assert size * (pieces - 1) < math.ceil(room)
    assert (size - 1) * pieces < math.ceil(room)  # nor is any place wasted in all


def test_known_sizes():
    assert fixed_size(100.0, 10**6) == 120
    assert fixed_size(100.0, 119) == 60
    assert fixed_size(100.0, 50) == 40
    assert fixed_size(1.0, 2) == 2
    assert fixed_size(0.01, 8) == 1


# --- planted bugs ------------------------------------------------------------------------------


class Tampering:
    """A compiler whose code is wrong in one way; the weights are the last argument."""

    def __init__(self, change):
        self.change, self.ran = change, 0

    def __call__(self, graph):
        def run(*args):
            self.ran += 1
            return self.change(graph, *args)

        return run


def skips_the_last(graph, state, x, y, weights):
    weights = weights.clone()
    weights[-1] = 0.0
    return graph(state, x, y, weights)


def skips_the_first(graph, state, x, y, weights):
    weights = weights.clone()
    weights[0] = 0.0
    return graph(state, x, y, weights)


def ignores_the_mask(graph, state, x, y, weights):
    return graph(state, x, y, torch.ones_like(weights))


def halves_what_it_finds(graph, *args):
    return [t / 2 if t.is_floating_point() else t for t in graph(*args)]


def swaps_two_rows(graph, state, x, y, weights):
    """Books of one unit under another's place: single units alone show it."""
    order = torch.arange(len(x) - 1, -1, -1)
    return graph(state, x[order], y, weights)


def keeps_old_weights(graph, state, *rest):
    return graph({name: torch.zeros_like(value) for name, value in state.items()}, *rest)


def gives_nan(graph, *args):
    return [t * math.nan if t.is_floating_point() else t for t in graph(*args)]


WRONG = [
    skips_the_last,
    skips_the_first,
    ignores_the_mask,
    halves_what_it_finds,
    swaps_two_rows,
    keeps_old_weights,
    gives_nan,
]


@pytest.mark.parametrize("change", WRONG, ids=lambda f: f.__name__)
def test_wrong_code_is_noticed_and_left_out(change):
    """The sums are then the clipper's own, through buffers or not."""
    loose = FastClipper(small(), cross_entropy, 100.0)  # nothing is clipped: halves would show
    for clipper in (loose, FastClipper(small(), cross_entropy, CLIP)):
        if change is halves_what_it_finds and clipper.clip_norm == CLIP:
            continue  # what is too long is clipped to the same
        tampering = Tampering(change)
        _, fixed = made(clipper, compiler=tampering)
        assert fixed.note == "not compiled: its sums are not the clipper's"
        assert tampering.ran > 0
        assert not fixed.pays
        for n in (5, 3):
            found = fixed.sum_unless_broken(*rows(n))[0]
            expected = clipper.clipped_sum(*rows(n))
            assert (found - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("views", [1, 2])
def test_right_code_is_admitted(views):
    """The judge is not one who refuses everything."""
    tampering = Tampering(lambda graph, *args: graph(*args))
    _, fixed = made(compiler=tampering, views=views)
    assert fixed.note == ""
    assert fixed.pays
    assert tampering.ran > 0


class ClipsTwice:
    """Books whose gradients come out clipped already, by a norm of their own."""

    def __init__(self, clipper, like, *, compiler):
        self.inner = TracedBooks(clipper, like, compiler=compiler)

    def __call__(self, units):
        books = self.inner(units)
        squares = torch.stack([form.squared_norms() for form in books.values()]).sum(0)
        factors = (0.02 / squares.sqrt().clamp_min(1e-30)).clamp_max(1.0)
        return {n: scaled(form, factors) for n, form in books.items()}


def scaled(form, factors):
    (name, first), *rest = ((n, getattr(form, n)) for n in form.__dataclass_fields__)
    by_row = factors.to(first.dtype).reshape(-1, *[1] * (first.dim() - 1))
    return type(form)(**({name: first * by_row} | dict(rest)))


class SkipsAUnit(ClipsTwice):
    """The last place is left out."""

    def __call__(self, units):
        weights = units.weights.clone()
        weights[-units.views :] = 0.0
        return self.inner(Units.of(units.x, units.y, views=units.views, weights=weights))


class CountsGaps(ClipsTwice):
    """Every place counts, whatever it weighs."""

    def __call__(self, units):
        whole = torch.full_like(units.weights, 1 / units.views)
        return self.inner(Units.of(units.x, units.y, views=units.views, weights=whole))


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("mutant", [ClipsTwice, SkipsAUnit, CountsGaps])
def test_books_that_are_wrong_are_noticed_and_left_out(mutant, views, monkeypatch):
    monkeypatch.setattr(fixed_module, "TracedBooks", mutant)
    clipper, fixed = made(views=views)
    assert fixed.note == "not compiled: its sums are not the clipper's"
    assert not fixed.pays
    x, y = rows(3 * views, seed=3)
    expected = clipper.clipped_sum(x, y, views=views)
    assert near(fixed.sum_unless_broken(x, y, views=views)[0], expected)


def fills_without_mask(self, units):
    count = len(units.x)
    self._x[:count], self._y[:count] = units.x, units.y
    self._weights.fill_(1.0 / self._views)


def fills_without_stale_mask(self, units):
    """Forgets to take the weight of the places behind away."""
    count = len(units.x)
    self._x[:count], self._y[:count] = units.x, units.y
    self._weights[:count] = units.weighted(torch.ones_like(self._weights[:count]))


def fills_all_but_one(self, units):
    count = max(0, len(units.x) - 1)
    self._x[:count], self._y[:count] = units.x[:count], units.y[:count]
    self._weights.zero_()
    self._weights[:count] = 1.0


@pytest.mark.parametrize(
    "mutant", [fills_without_mask, fills_without_stale_mask, fills_all_but_one]
)
def test_wrong_buffers_would_show_in_the_sums(mutant, monkeypatch):
    """The planted bugs that no trial on made-up inputs sees; the test of all sizes does."""
    monkeypatch.setattr(FixedSum, "_fill", mutant)
    clipper, fixed = made()
    right = [
        near(fixed.sum_unless_broken(*rows(n, seed=n))[0], clipper.clipped_sum(*rows(n, seed=n)))
        for n in (5, 2, 3)
    ]
    assert not all(right)


def spoils(which, change):
    """A compiler whose graph changes one of the tensors that the forms consist of."""

    def compiler(graph):
        def run(*inputs):
            tensors = [tensor.clone() for tensor in graph(*inputs)]
            change(tensors[which])
            return tensors

        return run

    return compiler


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_graph_that_loses_a_place_is_not_used(place):
    """The first, the one in the middle, the last."""
    _, fixed = made(compiler=spoils(0, lambda b: b[place].zero_()))
    assert fixed.note == "not compiled: its sums are not the clipper's"


def test_a_last_layer_of_zeros_hides_nothing():
    """At these weights no gradient reaches the first layer: a graph may spoil it unseen."""
    model = small()
    with torch.no_grad():
        model[2].weight.zero_()
    clipper = FastClipper(model, cross_entropy, CLIP)
    assert made(clipper, compiler=spoils(0, lambda b: None))[1].note == ""
    _, fixed = made(clipper, compiler=spoils(0, lambda b: b.mul_(2)))
    assert fixed.note == "not compiled: its sums are not the clipper's"


def test_a_compiler_that_raises_leaves_the_clipper_s_own_path():
    def broken(graph):
        raise RuntimeError("no such luck\nat line 5")

    clipper, fixed = made(compiler=broken)
    assert fixed.note == "not compiled: RuntimeError: no such luck"
    assert not fixed.pays
    assert near(fixed.sum_unless_broken(*rows(4))[0], clipper.clipped_sum(*rows(4)))


def test_an_error_without_words_is_noted_too():
    def broken(graph):
        raise NotImplementedError

    assert made(compiler=broken)[1].note == "not compiled: NotImplementedError: "


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return self.inner(x) if x.sum() > 0 else self.inner(2 * x)


def test_a_model_that_cannot_be_traced_stays_as_it_is():
    clipper, fixed = made(FastClipper(Branching(), cross_entropy, CLIP))
    assert fixed.note.startswith("not compiled: ")
    assert not fixed.pays
    assert not any(m._forward_hooks for m in clipper.model.modules())
    x, y = rows(5)
    assert near(fixed.sum_unless_broken(x, y)[0], clipper.clipped_sum(x, y))


def test_a_pass_in_bf16_has_one_size_too():
    clipper = FastClipper(small(), cross_entropy, CLIP, precision=BF16)
    _, fixed = made(clipper)
    assert fixed.note == ""
    x, y = rows(3)
    found, expected = fixed.sum_unless_broken(x, y)[0], clipper.clipped_sum(x, y)
    assert (found - expected).norm() <= 0.02 * expected.norm()


# --- Python state ------------------------------------------------------------------------------


class Counting(nn.Module):
    """Counts its passes; a recording would count one."""

    def __init__(self):
        super().__init__()
        self.inner, self.passes = nn.Linear(4, 3), 0

    def forward(self, x):
        self.passes += 1
        return self.inner(x) / self.passes


def test_a_counter_in_a_model_is_noticed():
    model = nn.Sequential(Counting(), nn.Tanh())
    before = _python_state(model)
    assert before == _python_state(model)
    model(torch.zeros(1, 4))
    assert _python_state(model) != before


@pytest.mark.parametrize("value", [True, 1.5, "warm", None])
def test_every_plain_attribute_is_noticed(value):
    model = small()
    before = _python_state(model)
    model[1].mode = value
    assert _python_state(model) != before


def test_a_plain_network_has_no_state_that_a_pass_changes():
    model = small()
    before = _python_state(model)
    FastClipper(model, cross_entropy, CLIP).clipped_sum(*rows(3))
    assert _python_state(model) == before


def test_what_draws_or_counts_is_not_recorded(monkeypatch):
    """The refusals come before and after the recording itself, which needs a GPU."""
    for model, why in (
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), "draws by itself"),
        (Counting(), "changes attributes"),
    ):
        _, fixed = made(FastClipper(model, cross_entropy, CLIP), compiler=None)

        def once(work):
            work()
            return work

        monkeypatch.setattr(fixed_module, "recorded", once)
        own = fixed._replay
        fixed._try("recorded", fixed._record)
        assert why in fixed.note
        assert fixed.note.startswith("not recorded: ValueError")
        assert fixed._replay == own
        assert not fixed.pays
    _, fixed = made(compiler=None)
    fixed._try("recorded", fixed._record)
    assert fixed.note == ""
