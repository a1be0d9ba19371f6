"""The choice of the clipper: the fast one only where plain autograd agrees on made-up inputs."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.privacy import rules
from privet.privacy.agreement import clipped_by_hand, fault_of
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
