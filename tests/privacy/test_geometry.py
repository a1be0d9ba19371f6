"""Geometries: regions within the ball, scales undone after the noise, names and numbers checked."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privet.errors import InputError
from privet.privacy.clipping import (
    FLAT,
    Clipper,
    FastClipper,
    Geometry,
    ReferenceClipper,
    cross_entropy,
    make_clipper,
    trainable,
)
from privet.privacy.geometry import GEOMETRIES, layer_sizes

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import ALL, layer_mask, loop_rows

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=40)
CASE = ALL["plain: layer norm"]
SHAPES = [
    FLAT,
    Geometry.per_layer({"head": 0.3}),
    Geometry.weighted(),
    Geometry.weighted({"stem": 5}),
    Geometry.by_part({"stem": 0.6, "head": 0.8}),
]


def clipper_of(geometry, clip_norm=1.0, kind=FastClipper):
    return kind(CASE.model(), cross_entropy, clip_norm, geometry=geometry)


@pytest.mark.parametrize("geometry", SHAPES, ids=str)
@pytest.mark.parametrize("clip_norm", [1e-3, 1e3])
def test_every_unit_lies_in_the_ball_of_the_clip_norm(geometry, clip_norm):
    clipper = clipper_of(geometry, clip_norm)
    x, y = CASE.batch(6, size=10.0)
    for i in range(6):
        assert clipper.clipped_sum(x[i : i + 1], y[i : i + 1]).double().norm() <= clip_norm


@pytest.mark.parametrize("geometry", SHAPES, ids=str)
def test_what_is_not_clipped_comes_back_as_it_was(geometry):
    """in_parameters undoes the scales: the sum is that of the plain gradients."""
    clipper = clipper_of(geometry, 1e6)
    x, y = CASE.batch(6)
    expected = loop_rows(clipper.model, cross_entropy, x, y).sum(0)
    found = clipper.in_parameters(clipper.clipped_sum(x, y)).double()
    assert (found - expected).norm() <= 1e-5 * expected.norm()


def test_per_layer_shares_the_norm_and_uses_all_of_it():
    """C_l ~ s_l, sum C_l^2 = C^2; every layer of a long gradient ends at its own norm."""
    clipper = clipper_of(Geometry.per_layer({"head": 2.0, "stem": 1.0}), 0.1)
    x, y = CASE.batch(1, size=100.0)
    with torch.no_grad():
        clipper.model.head.weight *= 100
    total = clipper.clipped_sum(x, y).double()
    norms = {
        layer: float(total[layer_mask(clipper.model, layer)].norm())
        for layer in ("stem", "layer", "head")
    }
    expected = {"stem": 0.1 / math.sqrt(6), "layer": 0.1 / math.sqrt(6), "head": 0.2 / math.sqrt(6)}
    assert norms == pytest.approx(expected, rel=2e-5)
    assert math.hypot(*expected.values()) == pytest.approx(0.1)


def test_parts_are_clipped_apart_and_then_all_together():
    """Radii 0.6 and 0.8 of long parts use the whole norm, and a third part none of it."""
    clipper = clipper_of(Geometry.by_part({"stem": 0.6, "head": 0.8}), 0.1)
    x, y = CASE.batch(3, size=100.0)
    with torch.no_grad():
        clipper.model.head.weight *= 100
    rows = loop_rows(clipper.model, cross_entropy, x, y)
    masks = {name: layer_mask(clipper.model, name) for name in ("stem", "layer", "head")}
    expected = torch.zeros_like(rows[0])
    for row in rows:
        parts = {name: mask * row for name, mask in masks.items()}
        radii = {"stem": 0.06, "head": 0.08, "layer": 0.1}
        cut = sum(p * min(1.0, radii[n] / float(p.norm())) for n, p in parts.items())
        expected += cut * min(1.0, 0.1 / float(cut.norm()))
    found = clipper.clipped_sum(x, y).double()
    assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_a_part_is_all_below_a_module():
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4)), nn.Linear(4, 2))
    assert dict(Geometry.by_part({"0": 0.5}).resolved(model).numbers) == {"0": 0.5, "": 1.0}
    narrow = Geometry.by_part({"0": 0.5, "0.1": 0.2}).resolved(model)
    assert dict(narrow.numbers) == {"0": 0.5, "0.1": 0.2, "": 1.0}
    with pytest.raises(InputError, match="unknown part"):
        Geometry.by_part({"2": 0.5}).resolved(model)
    with pytest.raises(InputError, match="bad number for part"):
        Geometry.by_part({"0": 1.5})


def test_both_clippers_agree_by_part():
    clippers = [
        clipper_of(Geometry.by_part({"stem": 0.3}), 0.1, kind)
        for kind in (FastClipper, ReferenceClipper)
    ]
    x, y = CASE.batch(5, size=3.0)
    fast, slow = (clipper.clipped_sum(x, y).double() for clipper in clippers)
    assert (fast - slow).norm() <= 1e-5 * slow.norm()


def test_a_unit_that_is_broken_in_one_part_counts_nothing():
    clipper = clipper_of(Geometry.by_part({"stem": 0.6, "head": 0.8}), 1.0)
    x, y = CASE.batch(2)
    alone = clipper.clipped_sum(x[:1], y[:1])
    x[1] = torch.nan
    assert torch.allclose(clipper.clipped_sum(x, y), alone, atol=1e-6)


def test_weighted_clipping_keeps_the_direction_in_scaled_coordinates():
    weights = {"stem": 2.0, "layer": 0.5, "head": 1.0}
    clipper = clipper_of(Geometry.weighted(weights), 0.1)
    x, y = CASE.batch(1)
    row = loop_rows(clipper.model, cross_entropy, x, y)[0]
    scaled = sum(w * layer_mask(clipper.model, layer) * row for layer, w in weights.items())
    expected = 0.1 * scaled / scaled.norm()
    found = clipper.clipped_sum(x, y).double()
    assert (found - expected).norm() <= 2e-5 * 0.1


def test_noise_in_a_layer_is_divided_by_its_weight():
    """Isotropic noise added to the sum, seen in the parameters: public standard deviations 1/w.

    100,000 draws a layer: a standard deviation is within 1 % but for once in 10^5 tests.
    """
    model = nn.Sequential(nn.Linear(400, 250, bias=False), nn.Linear(250, 400, bias=False))
    clipper = FastClipper(model, cross_entropy, 1.0, geometry=Geometry.weighted({"0": 4.0}))
    noise = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    seen = clipper.in_parameters(noise)
    assert float(seen[:100_000].std()) == pytest.approx(0.25, rel=0.01)
    assert float(seen[100_000:].std()) == pytest.approx(1.0, rel=0.01)


def test_weights_by_size_add_the_least_noise_of_all():
    """For layers of equally long gradients, and no change to what the clip norm means."""
    sizes = layer_sizes(CASE.model())
    weights = dict(Geometry.weighted().resolved(CASE.model()).numbers)
    assert sum(w**2 for w in weights.values()) == pytest.approx(len(sizes))

    def noise(w):
        scale = len(sizes) / sum(v**2 for v in w.values())
        return sum(sizes[layer] / (scale * w[layer] ** 2) for layer in sizes)

    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        factors = torch.rand(len(sizes), generator=generator).tolist()
        other = {
            layer: w * (0.5 + f) for (layer, w), f in zip(weights.items(), factors, strict=True)
        }
        assert noise(weights) <= noise(other)
    assert noise(weights) < noise(dict.fromkeys(sizes, 1.0))  # flat


@REPEATABLE
@given(
    name=st.sampled_from(["per-layer", "weighted"]),
    numbers=st.dictionaries(
        st.sampled_from(["stem", "layer", "head"]), st.floats(1e-9, 1e9), max_size=3
    ),
)
def test_a_geometry_survives_json_and_resolving(name, numbers):
    geometry = Geometry(name, tuple(numbers.items()))
    assert Geometry.from_json(json.loads(json.dumps(geometry.to_json()))) == geometry
    resolved = geometry.resolved(CASE.model())
    assert resolved.resolved(CASE.model()) == resolved
    assert [layer for layer, _ in resolved.numbers] == ["stem", "layer", "head"]
    assert all(dict(resolved.numbers)[layer] == number for layer, number in numbers.items())


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_clipper_states_every_public_number(name):
    stated = clipper_of(Geometry(name)).geometry
    assert stated.name == name
    layers = [] if name == "flat" else ["stem", "layer", "head"]
    assert list(stated.to_json()["numbers"]) == layers


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
def test_an_unknown_layer_is_refused_with_the_known_ones(kind):
    with pytest.raises(InputError, match=r"unknown layer.*'body'.*'stem', 'layer', 'head'"):
        clipper_of(Geometry.weighted({"body": 2.0}), kind=kind)
    with pytest.raises(InputError, match="unknown layer"):
        make_clipper(
            CASE.model(),
            cross_entropy,
            1.0,
            probe=CASE.batch(4),
            geometry=Geometry.per_layer({"tanh": 1.0}),
        )


def test_a_frozen_layer_is_unknown():
    model = CASE.model()
    model.stem.requires_grad_(False)
    with pytest.raises(InputError, match="unknown layer"):
        FastClipper(model, cross_entropy, 1.0, geometry=Geometry.per_layer({"stem": 1.0}))


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf"), 1e10, 1e-10])
def test_a_bad_number_is_refused(number):
    with pytest.raises(InputError, match="bad number for layer 'head'"):
        Geometry.weighted({"head": number})


def test_bad_names_are_refused():
    with pytest.raises(InputError, match=r"unknown clipping geometry.*'ball'.*flat, per-layer"):
        Geometry("ball")
    with pytest.raises(InputError, match="flat clipping has no numbers"):
        Geometry("flat", (("head", 1.0),))


def test_a_shared_weight_belongs_to_its_first_layer():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    assert layer_sizes(model) == {"0": 12, "2": 3}
    clipper = FastClipper(model, cross_entropy, 1e6, geometry=Geometry.weighted({"2": 10.0}))
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    rows = loop_rows(model, cross_entropy, x, y)
    expected = torch.cat([rows[:, :12], 10 * rows[:, 12:]], 1).sum(0)
    assert (clipper.clipped_sum(x, y) - expected).norm() <= 1e-5 * expected.norm()


def test_the_model_itself_may_be_a_layer():
    clipper = FastClipper(nn.Linear(3, 3), cross_entropy, 1.0, geometry=Geometry.per_layer())
    assert clipper.geometry.numbers == (("", 1.0),)


# --- planted bugs ------------------------------------------------------------------------------


class Mutant(Clipper):
    def __init__(self, geometry):
        super().__init__(CASE.model(), cross_entropy, 0.5, geometry=geometry)
        self.right = FastClipper(self.model, cross_entropy, 0.5, geometry=geometry)

    def books(self, units):
        return self.right.books(units)


class ScalesBackTwice(Mutant):
    def in_parameters(self, flat):
        return super().in_parameters(super().in_parameters(flat))


class ScalesTheWrongWay(Mutant):
    def in_parameters(self, flat):
        return flat * flat / super().in_parameters(flat).clamp_min(1e-30)


class ForgetsToScaleBack(Mutant):
    def in_parameters(self, flat):
        return flat


class ClipsInTheParametersOwnCoordinates(Mutant):
    """Then scales: the scaled contribution is longer than the norm."""

    def clipped_sum(self, x, y, *, views=1, weights=None):
        flat = FastClipper(self.model, cross_entropy, 0.5).clipped_sum(x, y)
        return flat * (torch.ones_like(flat) / self.in_parameters(torch.ones_like(flat)))


def geometry_is_right(clipper):
    """The check: units within the ball, and a small gradient comes back as it was."""
    x, y = CASE.batch(4, size=10.0)
    for i in range(4):
        if clipper.clipped_sum(x[i : i + 1], y[i : i + 1]).double().norm() > clipper.clip_norm:
            return False
    noise = torch.randn(sum(p.numel() for p in trainable(clipper.model).values()))
    seen = clipper.in_parameters(noise)
    weights = dict(clipper.geometry.numbers)
    expected = sum(layer_mask(clipper.model, n) * noise / w for n, w in weights.items())
    return torch.allclose(seen, expected, rtol=1e-5, atol=1e-6)


def test_planted_bugs_in_the_geometry_are_caught():
    torch.manual_seed(0)
    geometry = Geometry.weighted({"stem": 3.0, "head": 0.5})
    assert geometry_is_right(Mutant(geometry))
    for mutant in (
        ScalesBackTwice,
        ScalesTheWrongWay,
        ForgetsToScaleBack,
        ClipsInTheParametersOwnCoordinates,
    ):
        assert not geometry_is_right(mutant(geometry)), mutant.__name__
