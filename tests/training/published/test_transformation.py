"""From noise on images to noise on gradients: derivatives by hand, by differences, and the rule."""

import math

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models.denoisers import create_denoiser, slices
from privet.training.published import transformation
from privet.training.published.transformation import (
    NoiseRule,
    Transformation,
    least_singular_value,
    remainders,
    squared_errors,
)

RULE = NoiseRule(sigma=0.25, steps=20_000, clip_norm=1.0, xi_low=0.5, xi_up=2.0)


class Scalar(nn.Module):
    """The smallest denoiser, g(z) = theta z."""

    def __init__(self, theta):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(float(theta), dtype=torch.float64))

    def forward(self, z):
        return self.theta * z


class TwoNumbers(nn.Module):
    """Two parameters, pixels that mix: g(z) = a tanh(c W z)."""

    def __init__(self):
        super().__init__()
        self.pair = nn.Parameter(torch.tensor([0.7, -1.3], dtype=torch.float64))
        generator = torch.Generator().manual_seed(1)
        self.mix = torch.randn(3, 3, generator=generator, dtype=torch.float64)

    def forward(self, z):
        return self.pair[0] * torch.tanh(self.pair[1] * z @ self.mix)


def small(bias=True):
    """Two convolutions without any normalisation: 41 and 37 parameters."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=bias), nn.SiLU(), nn.Conv2d(4, 1, 3, padding=1)
    ).double()


def images(n, side=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, side, side, generator=generator, dtype=dtype)


def whole(denoiser):
    return Transformation.of(denoiser, tuple(denoiser.parameters()))


def of_layer(denoiser, place):
    return Transformation.of(denoiser, tuple(denoiser[place].parameters()))


def ones(n):
    return torch.ones(n, dtype=torch.float64)


# --- derivatives -------------------------------------------------------------------------------


def by_differences(denoiser, x, h=1e-4):
    """A of one image by second differences of the loss; the target stays where it is."""
    (pair,) = denoiser.parameters()
    start = pair.detach().clone()

    def loss(k, step, z):
        with torch.no_grad():
            pair.copy_(start)
            pair[k] += step
            return float(squared_errors(denoiser(z[None]), x[None]))

    found = torch.zeros(2, 3, dtype=torch.float64)
    for k in range(2):
        for j in range(3):
            e = torch.zeros(3, dtype=torch.float64)
            e[j] = h
            found[k, j] = (
                loss(k, h, x + e) - loss(k, h, x - e) - loss(k, -h, x + e) + loss(k, -h, x - e)
            ) / (4 * h * h)
    with torch.no_grad():
        pair.copy_(start)
    return found


def test_two_parameters_against_finite_differences():
    denoiser, x = TwoNumbers(), torch.rand(4, 3, dtype=torch.float64)
    by_hand = torch.stack([by_differences(denoiser, one) for one in x])
    found = whole(denoiser)
    assert torch.allclose(found.derivatives(x), by_hand, atol=1e-6)
    factors = torch.tensor([1.0, 0.5, 0.25, 1.0], dtype=torch.float64)
    m = sum(f**2 * a @ a.T for f, a in zip(factors, by_hand, strict=True)) / 8**2
    assert torch.allclose(found.covariance(x, factors, batch=8), m, atol=1e-6)
    # The least eigenvalue of a 2 x 2 matrix, by its trace and determinant.
    half = float(m.trace()) / 2
    least = half - math.sqrt(half**2 - float(torch.linalg.det(m)))
    assert found.s_min(x, factors, batch=8, rule=RULE) == pytest.approx(least, rel=1e-4)


def test_the_scalar_denoiser_in_closed_form():
    """The target is held fixed: else A would be smaller by 2x."""
    x = torch.tensor([[1.0], [0.9], [0.0]], dtype=torch.float64)
    for theta in (1.0, 0.0, -0.5, 0.5):
        found = whole(Scalar(theta)).derivatives(x)
        assert torch.allclose(found, 2 * x[:, None] * (2 * theta - 1))
    # 13.6: what is credited to one record.
    s_min = whole(Scalar(1.0)).s_min(x[:1], ones(1), batch=1, rule=RULE)
    assert s_min == pytest.approx(4.0)
    assert RULE.credit(s_min) == pytest.approx(70.7, abs=0.02)


def test_both_sides_agree():
    """Parameters forwards, pixels backwards: the same matrix."""
    x = images(2, side=4)
    found = whole(small())
    assert found.size > x[0].numel()
    assert found.derivatives(x).shape == (2, 77, 16)
    assert torch.allclose(found._by_parameters(x), found._by_pixels(x), atol=1e-12)
    part = of_layer(small(), 0)
    assert part.size == 40
    assert torch.allclose(part.derivatives(x), found.derivatives(x)[:, :40], atol=1e-12)


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_memory_does_not_decide_the_result(monkeypatch, rows):
    x, factors = images(5), torch.linspace(0.2, 1.0, 5, dtype=torch.float64)
    found = of_layer(small(), 2)
    usual = found.covariance(x, factors, batch=5), found.quotient(x, factors, batch=5)
    monkeypatch.setattr(transformation, "ROWS", {"cpu": rows})
    assert torch.allclose(found.covariance(x, factors, batch=5), usual[0], atol=1e-12)
    assert found.quotient(x, factors, batch=5) == pytest.approx(usual[1])


def test_input_noise_moves_the_gradient_by_its_transform():
    """What A is for: grad l(x + b) = grad l(x) + A b + O(b^2)."""
    denoiser, x = small(), images(1)
    b = 1e-5 * (images(1, seed=3) - 0.5)

    def slope(z):
        loss = squared_errors(denoiser(z), x).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, denoiser.parameters())])

    moved = slope(x + b) - slope(x)
    assert torch.allclose(moved, whole(denoiser).derivatives(x)[0] @ b.flatten(), atol=1e-8)


# --- remainders, and Lemma 1 -------------------------------------------------------------------


def test_remainders_split_the_images():
    """Of g(z) = theta z the remainder is theta^2 b^2; of a tanh it may have either sign."""
    x, b = torch.full((3, 1), 0.8).double(), torch.tensor([[0.1], [-0.3], [0.0]]).double()
    assert torch.allclose(remainders(Scalar(2.0), x, x + b), 4 * b.flatten() ** 2)
    denoiser = TwoNumbers()
    x = torch.rand(200, 3, dtype=torch.float64)
    z = x + 0.5 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()
    found = remainders(denoiser, x, z)
    assert 0 < int((found < 0).sum()) < 200
    one = x[:1].clone().requires_grad_()
    loss = squared_errors(denoiser(one), x[:1]).sum()
    (slope,) = torch.autograd.grad(loss, one)
    by_hand = squared_errors(denoiser(z[:1]), x[:1]) - loss - ((z[:1] - x[:1]) * slope).sum()
    assert torch.allclose(found[:1], by_hand)


def test_lemma_1_fails_for_a_negative_weight():
    """The loss lies above its tangent, its gradient below: o(b) >= 0 says nothing about noise."""
    theta, x = -1.0, torch.ones(50, 1, dtype=torch.float64)
    b = 0.25 * torch.randn(50, 1, generator=torch.Generator().manual_seed(0)).double()
    z, denoiser = x + b, Scalar(theta)
    assert (remainders(denoiser, x, z) >= 0).all()

    def slope(inputs):
        """grad_theta of each image."""
        return 2 * inputs * (theta * inputs - x)

    p = whole(denoiser).derivatives(x)[:, 0] * b
    below = slope(z) - slope(x) - p
    assert (below < 0).all()
    assert torch.allclose(below, 2 * theta * b**2)


# --- S_min -------------------------------------------------------------------------------------


def test_an_unsliced_network_has_no_credit():
    """w = 77 parameters against B v = 2 * 16 pixels: M is singular, exactly."""
    x = images(2, side=4)
    found = whole(small())
    m = found.covariance(x, ones(2), batch=2)
    assert int(torch.linalg.matrix_rank(m, hermitian=True)) == 32
    assert least_singular_value(m) == 0.0
    assert RULE.explicit_noise(least_singular_value(m)) == RULE.xi_up
    assert found.s_min(x, ones(2), batch=2, rule=RULE) == 0.0
    # 37 of its parameters, against 3 * 16 pixels, have some: what slicing is for.
    sliced = of_layer(small(), 2).covariance(images(3, side=4), ones(3), batch=3)
    assert least_singular_value(sliced) > 0


def test_fewer_images_give_less_credit():
    found, x = of_layer(small(), 2), images(6)
    least = [least_singular_value(found.covariance(x[:n], ones(n), batch=6)) for n in range(1, 7)]
    assert least == sorted(least)
    assert least[0] < 0.5 * least[-1]


def test_what_is_not_finite_earns_nothing():
    assert least_singular_value(torch.full((2, 2), math.nan, dtype=torch.float64)) == 0.0
    found = of_layer(small(), 2)
    broken = torch.full((1, 1, 8, 8), math.inf, dtype=torch.float64)
    assert found.s_min(broken, ones(1), batch=1, rule=RULE) == 0.0
    assert found.s_min(images(0), ones(0), batch=1, rule=RULE) == 0.0


# --- short cuts --------------------------------------------------------------------------------


def test_enough_is_enough(monkeypatch):
    """Where few images saturate the credit the others are not looked at."""
    monkeypatch.setattr(transformation, "ROWS", {"cpu": 1})
    found, x, taken = of_layer(small(), 2), images(6), []
    terms = Transformation._terms

    def counted(self, *arguments):
        for term in terms(self, *arguments):
            taken.append(1)
            yield term

    monkeypatch.setattr(Transformation, "_terms", counted)
    full = least_singular_value(found.covariance(x, ones(6), batch=6))
    taken.clear()
    # So many steps that half of the full S_min is enough.
    generous = NoiseRule(
        sigma=1.0, steps=round(2 * 4.0 / full), clip_norm=1.0, xi_low=0.1, xi_up=2.0
    )
    assert generous.explicit_noise(found.s_min(x, ones(6), batch=6, rule=generous)) == 0.0
    assert 1 <= len(taken) < 6
    taken.clear()
    strict = NoiseRule(
        sigma=1.0, steps=round(0.5 * 4.0 / full), clip_norm=1.0, xi_low=0.1, xi_up=2.0
    )
    assert found.s_min(x, ones(6), batch=6, rule=strict) == pytest.approx(full)
    assert len(taken) == 6


def test_a_normalised_layer_is_seen_to_have_no_credit(monkeypatch):
    """The length of the first weights does not matter behind a normalisation: S_min is 0."""
    for name, shape in (("conv", (1, 28, 28)), ("unet-4", (1, 8, 8))):
        denoiser = create_denoiser(name, shape).eval()
        x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
        first, last = (Transformation.of(denoiser, slices(denoiser)[k]) for k in ("first", "last"))
        # On average over all directions u' M u is the trace over their number.
        usual = first.derivatives(x[:1]).square().sum() / first.size
        assert first.quotient(x[:1], torch.ones(1), batch=1) < 1e-5 * float(usual)
        assert last.quotient(x[:1], torch.ones(1), batch=1) > 1e-3
    m = first.covariance(x, torch.ones(4), batch=4)
    spectrum = torch.linalg.eigvalsh(m)
    assert float(spectrum[0]) < 1e-9 * float(spectrum[-1])
    monkeypatch.setattr(Transformation, "_terms", None)  # not to be called
    rule = NoiseRule(sigma=0.25, steps=1000, clip_norm=1.0, xi_low=0.1, xi_up=2.0)
    assert rule.explicit_noise(first.s_min(x, torch.ones(4), batch=4, rule=rule)) == 2.0


def test_the_quotient_bounds_the_least_singular_value():
    x, factors = images(3), torch.linspace(0.5, 1.0, 3, dtype=torch.float64)
    for place in (0, 2):
        found = of_layer(small(), place)
        m = found.covariance(x, factors, batch=3)
        u = torch.cat([p.detach().flatten() for p in found.denoiser[place].parameters()])
        u = u / u.norm()
        assert found.quotient(x, factors, batch=3) == pytest.approx(float(u @ m @ u))
        assert float(u @ m @ u) >= least_singular_value(m)


def test_weights_of_no_length_decide_nothing():
    """They have no direction to try; M decides."""
    found = whole(Scalar(0.0))
    x = torch.ones(1, 1, dtype=torch.float64)
    assert found.quotient(x, ones(1), batch=1) == math.inf
    assert found.s_min(x, ones(1), batch=1, rule=RULE) == pytest.approx(4.0)


# --- the rule ----------------------------------------------------------------------------------


def test_the_three_branches_and_their_boundaries():
    rule = NoiseRule(sigma=0.5, steps=100, clip_norm=1.0, xi_low=0.5, xi_up=2.0)
    # credit = sqrt(100 S) / 2 = 5 sqrt(S)
    assert rule.explicit_noise(0.0) == 2.0
    assert rule.explicit_noise(0.0099) == 2.0
    assert rule.explicit_noise(0.01) == pytest.approx(math.sqrt(4 - 0.25)), "at xi_low: counted"
    assert rule.explicit_noise(0.04) == pytest.approx(math.sqrt(3.0))
    assert 0 < rule.explicit_noise(0.1599) < 0.06
    assert rule.explicit_noise(0.16) == 0.0, "at xi_up: nothing is added"
    assert rule.explicit_noise(50.0) == 0.0
    # Transformed and explicit noise come to xi_up together, wherever both count.
    for s_min in (0.01, 0.05, 0.15):
        assert math.hypot(rule.credit(s_min), rule.explicit_noise(s_min)) == pytest.approx(2.0)


def test_the_rule_is_in_units_of_the_clip_norm():
    """Images, gradients and C in another unit: the same noise."""
    one = NoiseRule(sigma=0.5, steps=100, clip_norm=1.0, xi_low=0.5, xi_up=2.0)
    other = NoiseRule(sigma=0.5, steps=100, clip_norm=10.0, xi_low=0.5, xi_up=2.0)
    assert other.explicit_noise(100 * 0.04) == pytest.approx(one.explicit_noise(0.04))


@pytest.mark.parametrize(
    "changes",
    [{"xi_low": 2.0}, {"xi_low": -0.1}, {"xi_up": 0.0}, {"steps": 0}, {"sigma": math.nan}],
)
def test_rules_that_mean_nothing_are_refused(changes):
    usual = {"sigma": 0.5, "steps": 100, "clip_norm": 1.0, "xi_low": 0.5, "xi_up": 2.0}
    with pytest.raises(InputError, match="bad"):
        NoiseRule(**(usual | changes))
