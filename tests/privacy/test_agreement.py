"""The choice of the clipper: the fast one only where plain autograd agrees on made-up inputs."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.models import with_lora
from privet.privacy import rules
from privet.privacy.agreement import clipped_by_hand, fault_of, varied
from privet.privacy.clipping import (
    FastClipper,
    ReferenceClipper,
    cross_entropy,
    make_clipper,
)
from privet.privacy.geometry import Region

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import (
    ALL,
    CLASSES,
    GEOMETRIES,
    clip_and_add,
    loop_rows,
    sum_by_hand,
)


def batch_for(shape, n, seed=0, size=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = size * torch.randn(n, *shape, generator=generator)
    return x, torch.randint(0, CLASSES, (n,), generator=generator)


def two_layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, CLASSES))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
@pytest.mark.parametrize("name", ALL)
def test_every_covered_layer_is_admitted(name):
    case = ALL[name]
    clipper = make_clipper(case.model(), cross_entropy, 1.0, probe=case.batch(4))
    assert isinstance(clipper, FastClipper), clipper.note
    assert clipper.note == ""


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


class Hooked(nn.Module):
    """A user's hook changes a layer's output before ours sees it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, CLASSES)
        self.fc.register_forward_hook(lambda *a: 3 * a[-1])

    def forward(self, x):
        return self.fc(x)


class ScaledAttention(nn.Module):
    """A subclass: its output projection is no module that is called."""

    class Doubling(nn.MultiheadAttention):
        def forward(self, *args, **named):
            return 2 * super().forward(*args, **named)[0]

    def __init__(self):
        super().__init__()
        self.attention, self.head = self.Doubling(4, 2, batch_first=True), nn.Linear(12, CLASSES)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=True).flatten(1))


class ForBrightOnes(nn.Module):
    """A layer that sees some rows only: how many depends on the data."""

    def __init__(self):
        super().__init__()
        self.bright, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        chosen = torch.nonzero(x.sum(1) > 0)[:, 0]
        return self.head(x.index_add(0, chosen, self.bright(x[chosen])))


class PromptTable(nn.Module):
    """A module that takes no examples, only gives its parameter."""

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.values = nn.Parameter(torch.randn(6))

        def forward(self):
            return self.values * 2

    def __init__(self):
        super().__init__()
        self.table, self.head = self.Table(), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(x * self.table())


def weight_normed():
    return nn.utils.parametrizations.weight_norm(nn.Linear(6, CLASSES))


NO_FAST_PATH = {
    "weight outside its layer": (OutsideUse, (6,)),
    "hidden by a zero head": (lambda: OutsideUse(zero_head=True), (6,)),
    "only in training": (OutsideUseInTraining, (6,)),
    "examples reversed": (Backwards, (6,)),
    "time first": (TimeFirst, (4, 3)),
    "hooked": (Hooked, (6,)),
    "weight norm": (weight_normed, (6,)),
    "attention of another kind": (ScaledAttention, (3, 4)),
    "a table of parameters": (PromptTable, (6,)),
}


@pytest.mark.parametrize("clip_norm", [1e-2, 1e3])  # all clipped; none clipped
@pytest.mark.parametrize("name", NO_FAST_PATH)
def test_the_reference_takes_over_and_is_right(name, clip_norm):
    torch.manual_seed(0)
    build, shape = NO_FAST_PATH[name]
    model = build()
    probe = batch_for(shape, 4)
    clipper = make_clipper(model, cross_entropy, clip_norm, probe=probe)
    assert isinstance(clipper, ReferenceClipper)
    assert clipper.note
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


# --- rows that change places inside the model --------------------------------------------------


class Sorting(nn.Module):
    """Rows are sorted, go through a layer, and are sorted back: examples stay apart."""

    def __init__(self, key, descending=False, mode=None):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 16), nn.Linear(16, CLASSES)
        self.key, self.descending, self.mode = key, descending, mode

    def forward(self, x):
        if self.mode is not None and self.training != self.mode:
            return self.head(torch.tanh(self.fc(x)))
        order = torch.argsort(self.key(x), descending=self.descending, stable=True)
        return self.head(torch.tanh(self.fc(x[order]))[torch.argsort(order)])


KEYS = {
    "length": lambda x: (x != 0).sum(1),
    "length of the padding": lambda x: (x.flip(1) != 0).int().argmax(1),
    "brightness": lambda x: x.sum(1),
    "empty": lambda x: (x != 0).any(1).int(),
    "saturated": lambda x: (x >= 1).all(1).int(),
    "a pixel": lambda x: x[:, 3],
    "a flag": lambda x: (x[:, 3] == 1).int(),
    "whole numbers": lambda x: x[:, 5].long(),
}


def uniform_probe(n=4):
    """As `engine.examples` makes it up: no zeros, no ones."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, 6, generator=generator), torch.arange(n) % CLASSES


@pytest.mark.parametrize("mode", [None, True, False], ids=["always", "training", "evaluation"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("key", KEYS)
def test_rows_that_are_sorted_and_sorted_back_get_no_fast_path(key, descending, mode):
    torch.manual_seed(0)
    model = Sorting(KEYS[key], descending, mode)
    clipper = FastClipper(model, cross_entropy, 0.1)
    assert "differ from plain autograd" in fault_of(clipper, uniform_probe(), training=True)


def test_sorted_by_length_the_sum_moves_by_no_more_than_the_clip_norm():
    """By the fast path, one long unit moved it by eight clip norms: everyone had new neighbours."""
    torch.manual_seed(0)
    model = Sorting(KEYS["length"], descending=True)
    x = torch.rand(64, 6) * 0.5 + 0.5
    x[:, 5] = 0
    x[-1, 5] = 0.5
    x[0::2, :5] *= 1e-3
    y = torch.arange(64) % 2
    moved = {}
    for clipper in (
        make_clipper(model, cross_entropy, 0.1, probe=uniform_probe()),
        FastClipper(model, cross_entropy, 0.1),
    ):
        total, without = clipper.clipped_sum(x, y), clipper.clipped_sum(x[:-1], y[:-1])
        moved[type(clipper)] = float((total - without).norm())
    assert moved[ReferenceClipper] <= 0.1 < 5 * 0.1 < moved[FastClipper]


def test_whatever_tells_two_rows_of_the_batch_apart_does_not_sort_them():
    x, _ = varied(*uniform_probe())
    generator = torch.Generator().manual_seed(0)
    by_directions = (x @ torch.randn(6, 100, generator=generator)).round(decimals=1).T
    for values in [key(x) for key in KEYS.values()] + list(by_directions):
        values = values.tolist()
        assert len(set(values)) > 1
        assert values != sorted(values)
        assert values != sorted(values, reverse=True)


class AtTimes(nn.Module):
    """Every other time, rows are reversed, go through a layer, and are reversed back."""

    def __init__(self, p):
        super().__init__()
        self.fc, self.head, self.p = nn.Linear(6, 5), nn.Linear(5, CLASSES), p

    def forward(self, x):
        if self.training and float(torch.rand(())) < self.p:
            return self.head(torch.tanh(self.fc(x.flip(0)).flip(0)))
        return self.head(torch.tanh(self.fc(x)))


def test_rows_that_change_places_at_times_get_no_fast_path():
    """Seed 0 alone would not draw it."""
    torch.manual_seed(0)
    assert float(torch.rand(())) >= 0.4
    clipper = FastClipper(AtTimes(0.4), cross_entropy, 0.1)
    assert "in training mode" in fault_of(clipper, uniform_probe(), training=True)


# --- gradients that flow back through other rows -----------------------------------------------


class ShortensGradients(nn.Module):
    """A hook against exploding gradients: of all rows together, where they are long."""

    def __init__(self, bound, only_in_training=False, drop=0.0):
        super().__init__()
        self.fc, self.head, self.drop = nn.Linear(6, 16), nn.Linear(16, CLASSES), nn.Dropout(drop)
        self.bound, self.only_in_training = bound, only_in_training

    def forward(self, x):
        h = self.drop(torch.tanh(self.fc(x)))
        if h.requires_grad and (self.training or not self.only_in_training):
            h.register_hook(lambda b: b * (self.bound / b.norm()).clamp(max=1.0))
        return self.head(h)


@pytest.mark.parametrize("drop", [0.0, 0.2])
@pytest.mark.parametrize("only_in_training", [False, True])
@pytest.mark.parametrize("bound", [0.01, 5.0, 20.0, 1000.0])
def test_a_hook_that_scales_by_the_norm_of_all_rows_gets_no_fast_path(
    bound, only_in_training, drop
):
    torch.manual_seed(0)
    clipper = FastClipper(ShortensGradients(bound, only_in_training, drop), cross_entropy, 1.0)
    assert "differ from plain autograd" in fault_of(clipper, uniform_probe(), training=True)


class ShortensRows(ShortensGradients):
    """Each row by its own norm: examples stay apart."""

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        if h.requires_grad:
            h.register_hook(lambda b: b * (self.bound / b.norm(dim=1, keepdim=True)).clamp(max=1.0))
        return self.head(h)


def test_a_hook_that_scales_each_row_by_itself_stays_on_the_fast_path():
    torch.manual_seed(0)
    clipper = make_clipper(ShortensRows(0.3), cross_entropy, 1.0, probe=uniform_probe())
    assert isinstance(clipper, FastClipper), clipper.note


class ScaledByTheBatch(nn.Module):
    """In training, outputs depend on how many examples there are."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.fc(x) / len(x) if self.training else self.fc(x)


def test_what_depends_on_the_number_of_examples_gets_no_fast_path():
    clipper = FastClipper(ScaledByTheBatch(), cross_entropy, 1.0)
    assert "in training mode" in fault_of(clipper, uniform_probe(), training=True)


# --- no false alarms ---------------------------------------------------------------------------


class DepthByRow(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        keep = torch.bernoulli(torch.full((len(x), 1), 0.7)) if self.training else 1.0
        return self.head(x + keep * torch.tanh(self.branch(x)))


class Kinked(nn.Module):
    """A ReLU at its kink; in single precision the number of rows decides on which side."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 4), nn.Linear(4, CLASSES)

    def forward(self, x):
        rounding = 1e-7 * len(x) if x.dtype == torch.float32 else 0.0
        kink = x.new_full((len(x), 1), rounding - 1.5e-7)
        return self.head(self.fc(x) * (1.0 + 1e-2 * (kink > 0)))


QUIET = {
    "depth by row": DepthByRow,
    "kinked": Kinked,
    "dropout": lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(), nn.Linear(9, CLASSES)),
    "adapted": lambda: with_lora(
        nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Dropout(), nn.Linear(9, CLASSES)), 2
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_models_that_keep_rows_in_place_stay_on_the_fast_path(name):
    torch.manual_seed(0)
    clipper = make_clipper(QUIET[name](), cross_entropy, 1.0, probe=uniform_probe())
    assert isinstance(clipper, FastClipper), clipper.note


def test_a_second_look_in_double_precision_gives_the_same_tensors_back():
    torch.manual_seed(0)
    model = Kinked()
    before = [(p.data_ptr(), p.dtype, p.detach().clone()) for p in model.parameters()]
    make_clipper(model, cross_entropy, 1.0, probe=uniform_probe())
    after = [(p.data_ptr(), p.dtype, p.detach()) for p in model.parameters()]
    assert [b[:2] for b in before] == [a[:2] for a in after]
    assert all(torch.equal(b[2], a[2]) for b, a in zip(before, after, strict=True))


# --- planted bugs ------------------------------------------------------------------------------


def wrong_rules(honest):
    def forgets_the_bias(layer, a, b):
        return {"weight": honest(layer, a, b)["weight"]}

    def halves_the_weight(layer, a, b):
        return honest(layer, a, b) | {"weight": rules.RankOne(0.5 * b, a)}

    def books_to_the_next(layer, a, b):
        return honest(layer, a.roll(1, 0), b.roll(1, 0))

    return {f.__name__: f for f in (forgets_the_bias, halves_the_weight, books_to_the_next)}


@pytest.mark.parametrize("name", ["forgets_the_bias", "halves_the_weight", "books_to_the_next"])
def test_a_wrong_rule_sends_the_model_to_the_reference(monkeypatch, name):
    probe = batch_for((6,), 4)
    assert isinstance(make_clipper(two_layers(), cross_entropy, 0.5, probe=probe), FastClipper)
    wrong = wrong_rules(rules.RULES[nn.Linear])[name]
    monkeypatch.setitem(rules.RULES, nn.Linear, wrong)
    chosen = make_clipper(two_layers(), cross_entropy, 0.5, probe=probe)
    assert isinstance(chosen, ReferenceClipper)


@pytest.mark.parametrize(
    "folded",
    [
        lambda form, rows: rules.RankOne(form.b[::rows], form.a[::rows]),  # the first view only
        lambda form, rows: rules.Dense(form.formed().reshape(-1, rows, 4, 6).mean(1)),
    ],
)
def test_a_rule_that_forgets_views_sends_the_model_to_the_reference(monkeypatch, folded):
    honest = rules.RankOne.folded
    monkeypatch.setattr(
        rules.RankOne,
        "folded",
        lambda form, rows: (
            honest(form, rows) if rows == 1 or form.b.shape[1] != 4 else folded(form, rows)
        ),
    )
    chosen = make_clipper(two_layers(), cross_entropy, 0.5, probe=batch_for((6,), 4))
    assert isinstance(chosen, ReferenceClipper)
    assert "views" in chosen.note


@pytest.mark.parametrize("geometry", ["weighted", "per-layer", "per-layer by shares"])
def test_a_wrong_geometry_is_found(monkeypatch, geometry):
    """Scales left out of the factors; every layer clipped to the whole norm."""
    probe = batch_for((6,), 4)
    model = ALL["plain: linear"].model()
    probe = ALL["plain: linear"].batch(4)
    honest = Region.factors

    def wrong(region, squared):
        region.radii = [max(region.radii) * 1.5 for _ in region.radii]
        region.scales = dict.fromkeys(region.scales, 1.0)
        return honest(region, squared)

    clipper = FastClipper(model, cross_entropy, 1.0, geometry=GEOMETRIES[geometry])
    assert fault_of(clipper, probe, training=True) == ""
    monkeypatch.setattr(Region, "factors", wrong)
    assert "clipped sums are wrong" in fault_of(clipper, probe, training=True)


def test_sums_that_are_wrong_in_single_precision_alone_are_wrong(monkeypatch):
    """What is trained is single precision: norms that lose their digits there are no kinks."""
    model, honest = two_layers(), Region.factors

    def coarse(region, squared):
        factor = 1.5 if model[0].weight.dtype == torch.float32 else 1.0
        return {n: factor * f for n, f in honest(region, squared).items()}

    monkeypatch.setattr(Region, "factors", coarse)
    clipper = FastClipper(model, cross_entropy, 1.0)
    assert "clipped sums are wrong" in fault_of(clipper, uniform_probe(), training=True)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_judge_clips_as_the_definition_says(geometry):
    model = ALL["plain: layer norm"].model()
    rows = loop_rows(model, cross_entropy, *ALL["plain: layer norm"].batch(5))
    shape = GEOMETRIES[geometry].resolved(model)
    for norm in (1e-2, float(rows.norm(dim=1).median()), 1e3):
        found = clipped_by_hand(rows, model, shape, norm)
        expected = sum_by_hand(model, rows, norm, shape)
        assert (found - expected).norm() <= 2e-5 * expected.norm()


# --- nothing works -----------------------------------------------------------------------------


class Straight(torch.autograd.Function):
    """No rule for vmap."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, b):
        return b


class Binary(nn.Module):
    def __init__(self, trained):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6), requires_grad=trained)

    def forward(self, x):
        return Straight.apply(x) * self.scale


def test_what_torch_func_cannot_do_does_not_matter_where_rules_suffice():
    model = nn.Sequential(nn.Linear(6, 6), Binary(trained=False), nn.Linear(6, CLASSES))
    clipper = make_clipper(model, cross_entropy, 0.5, probe=batch_for((6,), 4))
    assert isinstance(clipper, FastClipper), clipper.note


def test_rows_that_the_data_choose_are_refused():
    """Their number tells nothing about whose they are."""
    torch.manual_seed(0)
    with pytest.raises(InputError, match="no way to clip"):
        make_clipper(ForBrightOnes(), cross_entropy, 0.5, probe=batch_for((6,), 4))


def test_a_model_that_neither_way_can_treat_is_refused_by_the_layers_name():
    model = nn.Sequential(nn.Linear(6, 6), Binary(trained=True), nn.Linear(6, CLASSES))
    with pytest.raises(InputError, match=r"no way to clip.*freeze '1' \(Binary\)"):
        make_clipper(model, cross_entropy, 0.5, probe=batch_for((6,), 4))
