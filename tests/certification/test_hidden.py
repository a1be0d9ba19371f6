"""Noise after a layer: exact probabilities of small networks, and no certificate that breaks."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from privet.certification import HiddenGaussian, HiddenLaplace, certify
from privet.certification.hidden import split_after
from privet.certification.votes import NoisyVotes
from privet.classifiers import Classifier, denoised, open_classifier
from privet.errors import InputError
from privet.models import create
from privet.models.fronted import Fronted

FIXED = settings(derandomize=True, deadline=None, max_examples=60)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def scalar(weight, bias=0.0):
    layer = nn.Linear(1, 1)
    nn.init.constant_(layer.weight, weight)
    nn.init.constant_(layer.bias, bias)
    return layer


class TwoSides(nn.Module):
    """Class 1 where h > cut."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut

    def forward(self, h):
        return torch.cat([self.cut - h, h - self.cut], dim=1)


LAWS = {HiddenGaussian: stats.norm, HiddenLaplace: stats.laplace}


@pytest.mark.parametrize("kind", LAWS)
@given(
    a=st.floats(-3, 3),
    c=st.floats(-3, 3),
    cut=st.floats(-1, 1),
    scale=st.floats(0.05, 1.0),
    place=st.floats(0, 1),
)
@FIXED
def test_no_certificate_reaches_past_the_flip(kind, a, c, cut, scale, place):
    """h = c tanh(a x) + noise, class 1 where h > cut: probabilities are exact at every input."""
    model = nn.Sequential(scalar(a), nn.Tanh(), scalar(c), TwoSides(cut))
    opened = open_classifier(model, shape=(1,))
    noise = kind(scale, 2).fitted(opened, torch.zeros(1, 1))

    def upper(x):
        return float(LAWS[kind].sf(cut - c * math.tanh(a * x), scale=scale))

    p = upper(place)
    radius = noise.radius(max(p, 1 - p))
    if not 1e-6 < radius < math.inf:
        return
    for moved in place + radius * np.linspace(-0.999, 0.999, 41):
        assert (upper(moved) > 0.5) == (p > 0.5)


@pytest.mark.parametrize("kind", LAWS)
def test_without_a_nonlinearity_the_radius_is_the_distance(kind):
    """h = 3 * 2 x + noise, class 1 where h > 1: from x = 0.5 the flip is at 1/6."""
    model = nn.Sequential(scalar(2.0), nn.ReLU(), scalar(3.0), TwoSides(1.0))
    noise = kind(0.8, 2).fitted(open_classifier(model, shape=(1,)), torch.zeros(1, 1))
    p = float(LAWS[kind].sf(1.0 - 3.0, scale=0.8))
    assert noise.radius(p) == pytest.approx(0.5 - 1 / 6, rel=1e-6)
    assert noise.details["sensitivity"] == pytest.approx(6.0, rel=1e-6)


def test_the_published_rules_certify_less():
    """Same network, same probabilities: PixelDP's sizes are below the trade-off's."""
    from privet.certification import pixeldp_gaussian, pixeldp_laplace

    model = nn.Sequential(scalar(2.0), nn.ReLU(), scalar(3.0), TwoSides(1.0))
    opened = open_classifier(model, shape=(1,))
    x = torch.zeros(1, 1)
    ours = HiddenLaplace(0.8, 2).fitted(opened, x).radius(0.95)
    assert pixeldp_laplace(0.95, 0.05, scale=0.8, change=6.0).size <= ours
    ours = HiddenGaussian(0.8, 2).fitted(opened, x).radius(0.95)
    assert pixeldp_gaussian(0.95, 0.05, sigma=0.8, change=6.0).size <= ours


def test_noise_in_both_places_is_layered():
    """sigma^2 = 0.3^2 + (0.8 / 2)^2."""
    model = nn.Sequential(scalar(2.0), TwoSides(1.0))
    noise = HiddenGaussian(0.8, input_scale=0.3).fitted(
        open_classifier(model, shape=(1,)), torch.zeros(1, 1)
    )
    assert noise.scale == pytest.approx(0.5, rel=1e-8)
    drawn = noise.scores(open_classifier(model, shape=(1,)), torch.zeros(200_000, 1), generator())
    h = (drawn[:, 1] - drawn[:, 0]).numpy() / 2 + 1.0
    assert h.std() == pytest.approx(2 * 0.5, rel=0.01)  # W x noise and hidden noise together
    assert abs(h.mean()) < 0.02


@pytest.mark.parametrize(
    ("kind", "deviation"), [(HiddenGaussian, 0.4), (HiddenLaplace, 0.4 * 2**0.5)]
)
def test_noise_goes_in_after_the_layer_and_is_fresh(kind, deviation):
    """After the second linear map, before the activation; another draw for every row and entry."""
    torch.manual_seed(0)
    shown = []

    class Seen(nn.Module):
        def forward(self, h):
            shown.append(h.clone())
            return h

    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), Seen(), nn.Tanh())
    opened = open_classifier(model, shape=(3,))
    x = torch.rand(1, 3).expand(50_000, 3)
    noise = kind(0.4, 2).fitted(opened, x)
    shown.clear()
    noise.scores(opened, x, generator())
    noise.scores(opened, x, generator(1))
    clean = model[2](torch.relu(model[0](x[:1])))
    away = (torch.cat(shown) - clean).detach().numpy()
    assert away.shape == (100_000, 2)
    assert away.std(0) == pytest.approx([deviation, deviation], rel=0.02)
    assert np.abs(away.mean(0)).max() < 0.01
    assert abs(np.corrcoef(away.T)[0, 1]) < 0.02
    assert len(np.unique(away[:, 0])) > 99_000


def test_the_split_model_is_the_model():
    model = create("cnn-tiny", (1, 8, 8), 3)
    x = torch.rand(5, 1, 8, 8)
    for layer in (1, 2, 3):
        path, rest = split_after(model, layer)
        assert torch.equal(rest(path(x)), model(x))
        assert isinstance(path[-1], nn.Conv2d | nn.Linear)
    head = nn.Sequential(nn.Flatten(), nn.Linear(72, 3))
    fronted = Fronted(nn.Sequential(nn.Conv2d(1, 2, 3)), head)
    path, rest = split_after(fronted, 2)
    assert len(path) == 3
    assert torch.equal(rest(path(x)), fronted(x))


BOTH = HiddenGaussian(0.1, 1, input_scale=0.1)


@pytest.mark.parametrize("noise", [HiddenGaussian(0.1, 2), HiddenLaplace(0.05, 2), BOTH], ids=repr)
def test_a_network_end_to_end_holds_against_attack(noise):
    """Radii from votes; then steps to the edge of each ball, one of them against the margin."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    opened = open_classifier(model, shape=(4,))
    x = torch.rand(12, 4, generator=generator(4))
    found = certify(model, x, model(x).argmax(1), noise=noise, n=4000, seed=1, batch=2000)
    assert (found.radius > 0).sum() >= 6
    spec, rng = noise.fitted(opened, x), generator(7)
    leaf = x.clone().requires_grad_()
    lead = model(leaf)[:, 0] - model(leaf)[:, 1]
    uphill = torch.autograd.grad(lead.sum(), leaf)[0]
    p = 2 if spec.norm == "l2" else 1
    for i in np.flatnonzero(found.radius > 0):
        against = uphill[i] if found.prediction[i] == 1 else -uphill[i]
        steps = torch.cat([against.view(1, 4), torch.randn(9, 4, generator=rng)])
        steps *= 0.99 * float(found.radius[i]) / steps.norm(p, dim=1, keepdim=True)
        for at in x[i] + steps:
            votes = spec.scores(opened, at.expand(400, 4), rng).argmax(1)
            share = float((votes == int(found.prediction[i])).float().mean())
            assert share > 0.5 - 5 * 0.5 / 20  # five standard errors of 400 votes


def test_the_path_runs_in_full_precision():
    """Every layer up to the noise in float32, and the rest in bfloat16; all outputs are looked at.

    What follows the noise would show nothing: float32 noise makes float32 of a bfloat16 path.
    """
    kinds = []
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    opened = open_classifier(model, shape=(3,))
    noise = HiddenGaussian(0.5, 2).fitted(opened, torch.rand(2, 3))
    for layer in (noise.split.path[0], noise.split.path[2], noise.split.rest[1]):
        layer.register_forward_hook(lambda _layer, _inputs, output: kinds.append(output.dtype))
    votes = NoisyVotes(opened, torch.rand(2, 3), noise, batch=4, seed=0, precision="bf16")
    votes.count(np.arange(2), np.array([2, 2]))
    assert kinds == [torch.float32, torch.float32, torch.bfloat16]


def test_later_changes_of_the_weights_do_not_reach_a_fitted_noise():
    layer = scalar(2.0)
    model = nn.Sequential(layer, TwoSides(1.0))
    opened = open_classifier(model, shape=(1,))
    noise = HiddenGaussian(0.5).fitted(opened, torch.zeros(1, 1))
    nn.init.constant_(layer.weight, 200.0)
    h = noise.scores(opened, torch.ones(2000, 1), generator())
    assert float((h[:, 1] - h[:, 0]).mean() / 2 + 1.0) == pytest.approx(2.0, abs=0.1)


def black_box():
    return Classifier(
        name="t", scores=lambda x: x, shape=(2,), classes=2, device=torch.device("cpu")
    )


@pytest.mark.parametrize(
    ("source", "noise", "said"),
    [
        (black_box, HiddenGaussian(0.5), "layers are not known"),
        (lambda: nn.Linear(2, 2), HiddenGaussian(0.5, 2), "no such layer"),
        (lambda: nn.Linear(2, 2), HiddenGaussian(0.5, 0), "no such layer"),
        (lambda: TwoSides(1.0), HiddenLaplace(0.5), "no such layer"),
        (
            lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)),
            HiddenGaussian(0.5, 2, input_scale=0.1),
            "not known to be linear",
        ),
        (
            lambda: nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2)),
            HiddenGaussian(0.5, 2),
            "not known to be linear",
        ),
    ],
)
def test_what_cannot_be_proved_is_refused(source, noise, said):
    opened = source()
    opened = opened if isinstance(opened, Classifier) else open_classifier(opened, shape=(2,))
    with pytest.raises(InputError, match=said):
        noise.fitted(opened, torch.zeros(1, 2))


def test_a_denoised_classifier_has_no_layers_of_its_own():
    pair = denoised(open_classifier(nn.Linear(2, 2), shape=(2,)), nn.Identity())
    with pytest.raises(InputError, match="without a denoiser"):
        HiddenGaussian(0.5).fitted(pair, torch.zeros(1, 2))


def test_a_radius_needs_a_classifier():
    with pytest.raises(InputError, match="certify"):
        HiddenGaussian(0.5).radius(0.9)
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(InputError):
            HiddenLaplace(bad)
    with pytest.raises(InputError):
        HiddenGaussian(0.5, input_scale=-0.1)


def test_noise_that_rounding_swallows_is_refused():
    """Beside 2^24 the gaps of float32 are 2: noise of 0.2 would do nothing, and prove a radius."""
    path, last = nn.Linear(1, 1), nn.Linear(1, 2)
    with torch.no_grad():
        path.weight.fill_(4.0), path.bias.fill_(2.0**24)
        last.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        last.bias.copy_(torch.tensor([2.0**24 + 1, -(2.0**24) - 1]))
    x, y = torch.tensor([[0.2499], [0.2501]]), torch.tensor([0, 1])
    with pytest.raises(InputError, match="rounding swallows"):
        certify(nn.Sequential(path, last), x, y, noise=HiddenGaussian(0.2), n=1000, seed=0)
    with torch.no_grad():
        path.bias.zero_(), last.bias.copy_(torch.tensor([1.0, -1.0]))
    found = certify(nn.Sequential(path, last), x, y, noise=HiddenGaussian(0.2), n=1000, seed=0)
    assert (found.radius <= 2e-4).all()
