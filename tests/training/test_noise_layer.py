"""The first map stays within norm one, and certificates by a release's own noise hold."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn

from privet.certification import HiddenGaussian, HiddenLaplace, certify
from privet.certification.operator_norm import l1_norm, operator_norm
from privet.certification.smoothing_noise import Gaussian
from privet.errors import InputError
from privet.models import create
from privet.models.hidden_noise import first_map
from privet.release import Release
from privet.training.noise_layer import norm_bound, shorten
from privet.training.own_noise import own_noise, published_sizes
from privet.training.pixeldp import PixelDPSettings

SHAPES = [("mlp", (4,)), ("mlp", (1, 8, 8)), ("cnn-tiny", (1, 8, 8)), ("published-gn", (1, 28, 28))]


def matrix(path, shape):
    """The path as a matrix, by its values on unit vectors: knows nothing of layers."""
    twin = nn.Sequential(*path).double()
    size = math.prod(shape)
    with torch.no_grad():
        offset = twin(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
        columns = twin(torch.eye(size, dtype=torch.float64).reshape(size, *shape)).flatten(1)
    return (columns - offset).numpy().T


# --- the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_every_step_keeps_the_first_map_within_norm_one(name, shape, norm):
    model = create(name, shape, 3)
    path = first_map(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    PixelDPSettings(noise_norm=norm).constrained(optimizer, model, shape)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        assert norm_bound(path, shape, norm) <= 1.0
    a = matrix(path, shape)
    true = np.linalg.norm(a, 2) if norm == "l2" else np.abs(a).sum(0).max()
    proved = operator_norm(path, shape).bound if norm == "l2" else l1_norm(path, shape)
    assert 0.9 < true <= proved * (1 + 1e-6) <= 1.0 + 1e-6, "and not much smaller than it must be"


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_the_first_weights_are_within_it(make_data, norm):
    data = make_data()
    network = PixelDPSettings(noise_norm=norm, model="mlp").network(data)
    assert norm_bound(first_map(network), data.shape, norm) <= 1.0


def test_noise_on_the_input_needs_no_bound(make_data):
    data, settings = make_data(), PixelDPSettings(noise_layer="input", model="mlp")
    network = settings.network(data)
    plain = create("mlp", data.shape, 2)
    optimizer = settings.constrained(
        torch.optim.SGD(network.parameters(), lr=0.0), network, data.shape
    )
    optimizer.step()
    assert norm_bound(first_map(plain), data.shape, "l2") > 1.0
    pairs = zip(network.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_map_within_the_bound_is_left_alone():
    path = first_map(create("mlp", (4,), 3))
    with torch.no_grad():
        path[-1].weight.mul_(0.01)
    before = path[-1].weight.clone()
    shorten(path, (4,), "l2")
    assert torch.equal(path[-1].weight, before)


def test_only_the_weights_of_the_first_map_are_shortened():
    model = create("mlp", (4,), 3)
    with torch.no_grad():
        first_map(model)[-1].weight.mul_(100.0)
    before = {name: p.clone() for name, p in model.named_parameters()}
    shorten(first_map(model), (4,), "l2")
    same = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    assert same == [name for name in before if name != "2.weight"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attack_bound": 0.0}, "attack_bound"),
        ({"robust_epsilon": -1.0}, "robust_epsilon"),
        ({"robust_delta": 0.5}, "robust_delta"),
    ],
)
def test_noise_that_means_nothing_is_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        PixelDPSettings(**wrong)


# --- certificates ------------------------------------------------------------------------------


class Sides(nn.Module):
    """Scores h and -h: the class is the side of 0."""

    def forward(self, h):
        return torch.cat([h, -h], 1)


WEIGHT = torch.tensor([[0.6, 0.8]])  # of norm 1 in l2, 0.8 from l1 to l1
OFFSET = 0.5


def half_space(settings):
    """A release that classifies by the side of 0.6 a + 0.8 b - 0.5, exactly known."""
    path = nn.Linear(2, 1)
    with torch.no_grad():
        path.weight.copy_(WEIGHT)
        path.bias.fill_(-OFFSET)
    trust = {
        "method": "pixeldp",
        "analysis": "none",
        "provenance": {"config": asdict(settings)},
    }
    config = {"shape": [2], "classes": ["right", "left"]}
    return Release(model=nn.Sequential(path, Sides()), config=config, trust=trust)


def points_and_distances(norm):
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(1))
    h = (x @ WEIGHT.T).flatten() - OFFSET
    dual = 1.0 if norm == "l2" else 0.8
    return x, (h < 0).long(), (h.abs() / dual).double().numpy()


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_no_certificate_goes_beyond_the_true_distance(norm):
    """60 points at alpha 1e-4: a failure of a sound certificate has probability 0.006 at most."""
    settings = PixelDPSettings(noise_norm=norm)
    release = half_space(settings)
    x, y, distance = points_and_distances(norm)
    sound = certify(release, x, y, noise=own_noise(release), alpha=1e-4, n=4000, seed=0)
    paper = published_sizes(release, x, alpha=1e-4, n=4000, seed=0)
    sizes = np.array([one.size.size for one in paper])
    assert (sound.radius <= distance).all()
    assert (sizes <= distance).all()
    assert [one.prediction for one in paper if one.size.size > 0] == [
        int(label) for label, size in zip(y, sizes, strict=True) if size > 0
    ]
    far = distance > 2 * settings.noise_scale
    assert far.sum() > 5
    assert (sound.radius[far] > sizes[far]).all(), "the trade-off function says more"
    assert (sizes[far] > 0).all()


@pytest.mark.parametrize("classes", [2, 5])
def test_the_published_size_of_a_class_that_has_all_votes(classes):
    """By hand. p^n = alpha / 2K for n of n votes, 1 - p for none; e^(2 r 0.8 / b) = p / (1 - p)."""
    settings = PixelDPSettings(noise_norm="l1")
    release, alpha, n = half_space(settings), 0.01, 500
    always = nn.Linear(1, classes)
    with torch.no_grad():
        always.weight.zero_()
        always.bias.copy_(torch.eye(classes)[1])
    release.model[1] = always
    (found,) = published_sizes(release, torch.full((1, 2), 0.5), alpha=alpha, n=n, seed=0)
    p = (alpha / (2 * classes)) ** (1 / n)
    expected = math.log(p / (1 - p)) / 2 * settings.noise_scale / 0.8
    assert found.prediction == 1
    assert found.size.size == pytest.approx(expected, rel=1e-6)


def test_less_noise_than_certified_would_go_beyond_it():
    """The planted bug (StoBatch's psi): a tenth of the noise is drawn, all of it is certified."""
    settings = PixelDPSettings()
    release = half_space(settings)
    x, y, distance = points_and_distances("l2")
    drawn = replace(own_noise(release), hidden_scale=settings.noise_scale / 10)
    found = certify(release, x, y, noise=drawn, alpha=1e-4, n=4000, seed=0)
    assert (found.radius <= distance).all()
    assert (10 * found.radius > distance).any()


def test_the_noise_of_a_release_is_read_off_its_card():
    cases = [
        ({}, HiddenGaussian, 0.2537),
        ({"noise_norm": "l1"}, HiddenLaplace, 0.1),
        ({"noise_layer": "input", "attack_bound": 0.2}, Gaussian, 0.5075),
    ]
    for options, kind, scale in cases:
        noise = own_noise(half_space(PixelDPSettings(**options)))
        assert type(noise) is kind
        known = noise.scale if kind is Gaussian else noise.hidden_scale
        assert known == pytest.approx(scale, abs=1e-4)


def of_method(method, **config):
    release = half_space(PixelDPSettings())
    trust = {"method": method, "analysis": "sound", "provenance": {"config": config}}
    return Release(model=release.model, config=release.config, trust=trust)


def test_noise_of_other_methods_is_read_off_their_settings():
    cases = [
        ({"input_noise": 0.25}, Gaussian(0.25)),
        ({"hidden_noise": 0.3, "input_noise": 0.1}, HiddenGaussian(0.3, input_scale=0.1)),
        ({"hidden_noise": 0.3}, HiddenGaussian(0.3)),
    ]
    for config, noise in cases:
        assert own_noise(of_method("stobatch", **config)) == noise
    both = half_space(PixelDPSettings(input_noise=0.1))
    assert own_noise(both).input_scale == 0.1


def test_noise_that_cannot_be_certified_is_named():
    both = half_space(PixelDPSettings(noise_norm="l1", input_noise=0.1))
    with pytest.raises(InputError, match=r"Laplace noise inside, Gaussian noise 0\.1"):
        own_noise(both)
    kept = of_method("stobatch", input_noise=0.0)
    published = create("published-noised", (1, 6, 6), 2)
    with pytest.raises(InputError, match="drawn once"):
        own_noise(Release(model=published, config=kept.config, trust=kept.trust))


@pytest.mark.parametrize("name", ["local-4-linear", "wrn-10-1"])
def test_noise_inside_is_not_offered_where_it_cannot_be(name):
    kept, shape = of_method("stobatch-ldp", input_noise=0.0), (1, 16, 16)
    config = kept.config | {"shape": list(shape), "classes": ["0", "1"]}
    release = Release(model=create(name, shape, 2), config=config, trust=kept.trust)
    with pytest.raises(InputError, match="trained without noise") as caught:
        own_noise(release)
    assert "hidden" not in str(caught.value)
    with pytest.raises(InputError, match=r"Fix: .*--scale"):
        certify(release, torch.zeros(1, *shape), torch.zeros(1).long(), noise=HiddenGaussian(0.1))


def test_a_release_without_noise_has_none():
    with pytest.raises(InputError, match=r"trained without noise.*--scale S, or --hidden-scale S;"):
        own_noise(of_method("plain", input_noise=0.0))
    with pytest.raises(InputError, match="without a layer of noise"):
        published_sizes(of_method("dpsgd", input_noise=0.25), torch.zeros(1, 2))
