"""Weights of inputs: clipped in scaled coordinates, divided after the noise; bugs are caught."""

import json

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.privacy.clipping import FastClipper, Geometry, ReferenceClipper, make_clipper
from privet.privacy.elliptical import weighted_by_input
from privet.privacy.geometry import Region, trainable
from privet.privacy.rules.forms import Dense, OuterSum, RankOne
from privet.privacy.units import cross_entropy

WEIGHTS = (0.2, 3.0, 1.0, 0.5, 2.0)
GEOMETRY = Geometry.by_input(WEIGHTS)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def batch(n=8, size=1.0):
    generator = torch.Generator().manual_seed(1)
    return size * torch.rand(n, 5, generator=generator), torch.arange(n) % 3


def by_definition(model, x, y, clip_norm):
    """Plain autograd, one record at a time: S g, shortened, in the coordinates u."""
    total = 0.0
    for i in range(len(x)):
        loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        parts = list(torch.autograd.grad(loss, list(model.parameters())))
        parts[0] = parts[0] * torch.tensor(WEIGHTS)
        u = torch.cat([p.flatten() for p in parts]).double()
        total = total + u * min(1.0, clip_norm / float(u.norm()))
    return total


@pytest.mark.parametrize("kind", [FastClipper, ReferenceClipper])
@pytest.mark.parametrize("clip_norm", [1e-3, 0.5, 1e3])
def test_the_clipped_sum_is_that_of_the_definition(kind, clip_norm):
    model, (x, y) = network(), batch()
    clipper = kind(model, cross_entropy, clip_norm, geometry=GEOMETRY)
    found, expected = clipper.clipped_sum(x, y).double(), by_definition(model, x, y, clip_norm)
    assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_the_fast_clipper_is_chosen_and_agrees():
    clipper = make_clipper(network(), cross_entropy, 1.0, probe=batch(4), geometry=GEOMETRY)
    assert isinstance(clipper, FastClipper)


def longest(clipper, clip_norm):
    """The norm of what single records add, in the coordinates that the noise is added in."""
    x, y = batch(8, size=50.0)
    sums = [clipper.clipped_sum(x[i : i + 1], y[i : i + 1]).double() for i in range(8)]
    return max(float(u.norm()) for u in sums) / clip_norm


class ClippedBefore(FastClipper):
    """A planted bug: scaled only after it was shortened."""

    def clipped_sum(self, x, y, **rest):
        flat = FastClipper(self.model, self.loss, self.clip_norm).clipped_sum(x, y, **rest)
        first = self.model[1].weight
        return torch.cat(
            [(flat[: first.numel()].view_as(first) * torch.tensor(WEIGHTS)).flatten(),
             flat[first.numel() :]]
        )  # fmt: skip


@pytest.mark.parametrize("clip_norm", [1e-2, 1.0])
def test_nobody_adds_more_than_the_clip_norm_and_a_planted_bug_does(clip_norm):
    good = FastClipper(network(), cross_entropy, clip_norm, geometry=GEOMETRY)
    bad = ClippedBefore(network(), cross_entropy, clip_norm, geometry=GEOMETRY)
    assert longest(good, clip_norm) <= 1.0
    assert longest(bad, clip_norm) > 1.2


def gradient_seen(clipper):
    x, y = batch()
    return clipper.in_parameters(clipper.clipped_sum(x, y)).double()


class NeverDivided(FastClipper):
    """A planted bug: S^-1 is missing."""

    def in_parameters(self, flat):
        return flat


def test_unclipped_gradients_come_back_and_a_missing_inverse_shows():
    model, (x, y) = network(), batch()
    loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
    plain = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    good = gradient_seen(FastClipper(model, cross_entropy, 1e3, geometry=GEOMETRY))
    bad = gradient_seen(NeverDivided(model, cross_entropy, 1e3, geometry=GEOMETRY))
    assert (good - plain).norm() <= 1e-5 * plain.norm()
    assert (bad - plain).norm() > 0.2 * plain.norm()


def test_noise_of_input_j_has_deviation_sigma_c_over_its_weight():
    region = Region(GEOMETRY, network(), 1.0)
    model = network()
    size = sum(p.numel() for p in trainable(model).values())
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack(
        [region.in_parameters(torch.randn(size, generator=generator), model) for _ in range(4000)]
    )
    deviations = draws[:, :35].view(4000, 7, 5).std(0).mean(0)
    # 28,000 draws an input: the standard error of a deviation is 0.4 %, six of them are 2.5 %.
    assert deviations.tolist() == pytest.approx([1 / w for w in WEIGHTS], rel=0.025)
    assert draws[:, 35:].std(0).mean() == pytest.approx(1.0, rel=0.01)


def test_equal_weights_are_flat_clipping():
    model, (x, y) = network(), batch()
    even = FastClipper(model, cross_entropy, 0.3, geometry=Geometry.by_input([1.0] * 5))
    flat = FastClipper(model, cross_entropy, 0.3)
    assert torch.allclose(even.clipped_sum(x, y), flat.clipped_sum(x, y), rtol=1e-6)
    assert torch.equal(even.in_parameters(torch.ones(66)), torch.ones(66))


def test_every_form_is_scaled_alike():
    generator = torch.Generator().manual_seed(0)
    b, a = torch.rand(6, 7, generator=generator), torch.rand(6, 5, generator=generator)
    weights = torch.tensor(WEIGHTS)
    expected = torch.einsum("no,ni->noi", b, a) * weights
    outer = OuterSum(b[:, None, None], a[:, None, None], torch.Size((7, 5)))
    for form in (RankOne(b, a), outer, Dense(RankOne(b, a).formed())):
        found = weighted_by_input(form, weights)
        assert torch.allclose(found.formed(), expected)
        squares = expected.double().square().sum((1, 2))
        assert torch.allclose(found.squared_norms(), squares, rtol=1e-5)


def test_the_numbers_survive_a_card():
    again = Geometry.from_json(json.loads(json.dumps(GEOMETRY.to_json())))
    assert again == GEOMETRY


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 3)), "kind Conv2d"),
        (nn.Sequential(nn.Linear(4, 3)), "one for each of the 4 inputs"),
    ],
)
def test_a_first_layer_without_such_inputs_is_refused(model, said):
    with pytest.raises(InputError, match=said):
        GEOMETRY.resolved(model)
