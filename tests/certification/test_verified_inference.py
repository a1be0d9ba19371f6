"""Verified inference of DPAL and StoBatch: the papers' arithmetic, and what is left of it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from privet.certification import verified_inference
from privet.certification.published import pixeldp_laplace
from privet.certification.verified_inference import (
    ATTACK_TWICE,
    hoeffding,
    published_changes,
    true_changes,
    verified,
)
from privet.errors import InputError
from privet.guarantee import Basis
from privet.models import create
from privet.models.published_noised import NOISED, Noised
from privet.models.registry import Centre
from privet.release import Release
from privet.training.published.budgets import Budgets

SETTINGS = {  # of section 8 of the papers; (draws, classes, entries of an input, psi)
    "mnist": ({"batch": 2499, "patch": 25, "neurons": 196, "epsilon2": 0.1}, 2000, 10, 784, 2),
    "cifar10": ({"batch": 1851, "patch": 48, "neurons": 196, "epsilon2": 1.0}, 1000, 10, 2352, 10),
    "tiny": ({"batch": 4500, "patch": 147, "neurons": 1024, "epsilon2": 1.0}, 1000, 30, 12288, 10),
}


def unanimous(name, epsilon, column_norm=1.0):
    """The size that input noise alone can certify at best, on [-1, 1]."""
    sizes, draws, classes, entries, _ = SETTINGS[name]
    found = Budgets(epsilon=epsilon, features=256, column_norm=column_norm, **sizes)
    width = hoeffding(draws, classes)
    return pixeldp_laplace(1 - width, width, scale=found.input_scale, change=entries).size


@pytest.mark.parametrize(
    ("draws", "classes", "width", "epsilon"),
    [(2000, 10, 0.0364, 1.64), (1000, 10, 0.0515, 1.46), (1000, 30, 0.0566, 1.41)],
)
def test_hoeffding_caps_the_budget(draws, classes, width, epsilon):
    found = hoeffding(draws, classes)
    assert found == pytest.approx(width, abs=5e-5)
    assert 0.5 * math.log((1 - found) / found) == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize(
    ("name", "epsilon", "size"),
    [
        ("mnist", 0.2, 0.073),
        ("mnist", 1.0, 0.0081),
        ("mnist", 2.0, 0.0038),
        ("cifar10", 2.0, 0.0041),
        ("tiny", 5.0, 0.0010),
    ],
)
def test_the_largest_certifiable_sizes(name, epsilon, size):
    assert unanimous(name, epsilon) == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize(
    ("name", "epsilon", "drawn", "mis_scaled"),
    [("mnist", 1.0, 0.0040, 0.09), ("cifar10", 2.0, 0.0004, 0.064), ("tiny", 5.0, 0.0001, 0.032)],
)
def test_no_published_attack_size_can_be_certified(name, epsilon, drawn, mis_scaled):
    """The smallest one is 0.05; even the test that divides by it twice ends below the largest."""
    size, psi = unanimous(name, epsilon), SETTINGS[name][-1]
    assert size < 0.05
    assert size / psi == pytest.approx(drawn, rel=0.05)
    assert math.sqrt(size) == pytest.approx(mis_scaled, rel=0.02)
    assert math.sqrt(size) < 0.1


def test_what_mnist_would_need():
    """A first layer of norm 37 certifies 0.05 at epsilon 1, if the hidden layer counted nothing."""
    assert unanimous("mnist", 1.0, 36.0) < 0.05 < unanimous("mnist", 1.0, 50.0)
    assert unanimous("mnist", 1.0, 37.5) == pytest.approx(0.05, rel=0.06)


# --- a classifier whose distance to another label is known ---------------------------------------


def half_line(method="stobatch", scale=1.0, psi=10.0, own=(0.0, 0.0)):
    """Label 0 where x > 0 on [-1, 1]: scores so steep that they are votes.

    `own` is the run's noise on input and first layer, which moves the border to minus their sum.
    """
    network = nn.Sequential(Centre(), nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Hardtanh())
    network.append(nn.Linear(1, 2))
    with torch.no_grad():
        network[1].weight.fill_(1.0)
        network[1].bias.zero_()
        network[4].weight.copy_(torch.tensor([[1e4], [-1e4]]))
        network[4].bias.zero_()
    model = Noised(network, (1, 1, 1))
    model.input_noise.fill_(own[0])
    model.hidden_noise.fill_(own[1])
    mechanism = {"input_scale": scale, "hidden_scale": 2 * scale, "psi": psi}
    trust = {"method": method, "analysis": "paper", "mechanism": mechanism}
    return Release(model=model, config={}, trust=trust)


OWN = pytest.mark.parametrize("own", [(0.0, 0.0), (0.9, -1.0), (-0.9, 1.0)])


def at(*places):
    """Inputs in [0, 1] for places on [-1, 1]."""
    return np.array([(p + 1) / 2 for p in places], dtype=np.float32).reshape(-1, 1, 1, 1)


@OWN
def test_the_budget_follows_from_the_exact_means(own):
    """Mean products of a half-line are products of Laplace tails; 5 standard errors.

    Both passes are under both parts of the run's own noise: one that leaves a part out has tails
    of another distance.
    """
    distance, draws = 0.5, 20_000
    release, x = half_line(own=own), at(distance - sum(own))
    found = verified(release, x, attack=0.1, analysis="sound", draws=draws, seed=0)
    tails = [0.5 * math.exp(-distance / b) for b in (1.0, 2.0)]
    top, other = (1 - tails[0]) * (1 - tails[1]), tails[0] * tails[1]
    width = hoeffding(draws, 4)  # either class, from below and from above
    exact = 0.5 * math.log((top - width) / (other + width))
    error = 5 * 0.5 * math.sqrt(0.25 / draws) * (1 / top + 1 / other)
    assert found.epsilon[0] == pytest.approx(exact, abs=error)
    # b_x = 1, Delta_x = 1 and b_h = 2, Delta_h = 1: a unit of attack costs 1 + 1/2.
    assert found.sizes[0] == pytest.approx(found.epsilon[0] / 1.5, rel=1e-6)
    assert found.unit_sizes[0] == found.sizes[0] / 2


@OWN
@pytest.mark.parametrize("psi", [1.0, 3.0, 10.0])
def test_the_sound_certificate_never_passes_the_true_distance(psi, own):
    places = np.linspace(-0.95, 0.95, 39)
    options = {"attack": 0.05, "analysis": "sound", "psi": psi, "draws": 4000, "seed": 0}
    found = verified(half_line(own=own), at(*places), **options)
    beyond = places + sum(own)  # the border
    assert (found.sizes <= np.abs(beyond) + 1e-6).all()
    assert found.sizes.max() > 0.05 / psi
    sure = np.abs(beyond) > 0.3
    assert (found.labels[sure] == (beyond[sure] < 0)).all()
    assert (found.basis, found.gaps) == (Basis.PROVED, ())


@pytest.mark.parametrize("method", ["stobatch", "dpal"])
def test_the_published_certificate_passes_it(method):
    """At 0.6 an attack of 0.9 is certified; one of 0.7 changes the label already."""
    release = half_line(method)
    found = verified(release, at(0.6), attack=0.9, seed=0)
    assert found.robust[0]
    assert found.basis is Basis.CLAIMED
    assert ATTACK_TWICE in found.gaps
    moved = verified(release, at(0.6 - 0.7), attack=0.9, seed=0)
    assert found.labels[0] == 0
    assert moved.labels[0] == 1
    assert not verified(release, at(0.6), attack=0.9, analysis="sound").robust[0]


def test_a_class_chosen_from_the_draws_needs_bounds_to_both_sides():
    """As published there is one for each class; the draws are the same."""
    one, other = (
        verified(half_line(), at(0.9), attack=0.1, psi=1.0, draws=500, seed=0, analysis=analysis)
        for analysis in ("paper", "sound")
    )
    lost = math.log(1 - hoeffding(500, 4)) - math.log(1 - hoeffding(500, 2))
    assert other.epsilon[0] < one.epsilon[0] + 0.5 * lost


def test_as_many_draws_as_published(monkeypatch):
    """2,000 for one channel."""
    seen = []
    monkeypatch.setattr(
        verified_inference, "hoeffding", lambda draws, *rest: (seen.append(draws), 0.01)[1]
    )
    verified(half_line(), at(0.9), attack=0.1)
    assert seen == [2000]


def test_dpal_adds_where_stobatch_takes_the_harmonic_mean():
    one, other = (
        verified(half_line(m), at(0.9), attack=0.5, psi=1.0, draws=2000, seed=0)
        for m in ("stobatch", "dpal")
    )
    assert np.array_equal(one.epsilon, other.epsilon)
    kappa, phi = 1.0 / 0.5, 2.0 / 1.0  # per unit of the budget
    assert one.sizes[0] / one.epsilon[0] == pytest.approx(kappa * phi / (kappa + phi))
    assert other.sizes[0] / other.epsilon[0] == pytest.approx(kappa + phi)


# --- changes under attack -----------------------------------------------------------------------


def dense(model):
    """The first layer as a matrix, a row for each neuron."""
    shape = tuple(model.input_noise.shape)
    with torch.no_grad():
        zero = model.first(torch.zeros(1, *shape))
        basis = torch.eye(math.prod(shape)).view(-1, *shape)
        return (model.first(basis) - zero).flatten(1).T.double()


@pytest.mark.parametrize("shape", [(1, 6, 6), (2, 5, 7)])
def test_the_first_layer_moves_by_at_most_the_sum_of_its_weights(shape):
    model = create(NOISED, shape, 3)
    entries, bound = true_changes(model)
    assert entries == math.prod(shape)
    matrix = dense(model)
    assert bound == pytest.approx(float(matrix.abs().sum()), rel=1e-5)
    signs = torch.randint(0, 2, (200, math.prod(shape)), dtype=torch.float64) * 2 - 1
    assert float((signs @ matrix.T).abs().sum(1).max()) <= bound


def test_published_changes_are_of_one_map():
    model = create(NOISED, (1, 28, 28), 10)
    kernel = model.first.weight.detach().abs().view(32, 25)
    assert published_changes(model, 0.1)[0] == pytest.approx(78.4)
    assert published_changes(model, 0.1)[1] == pytest.approx(196 * float(kernel.sum(0).max()))
    assert published_changes(model, 0.1)[1] < true_changes(model)[1]


# --- the procedure ------------------------------------------------------------------------------


def test_equal_seeds_and_many_inputs():
    release, places = half_line(), np.linspace(-1, 1, 5000)
    one, again, other, *secret = (
        verified(release, at(*places), attack=0.1, draws=20, seed=seed)
        for seed in (0, 0, 1, None, None)
    )
    assert np.array_equal(one.sizes, again.sizes)
    assert not np.array_equal(one.sizes, other.sizes)
    assert not np.array_equal(secret[0].sizes, secret[1].sizes), "an attacker knows a fixed seed"
    assert len(one.labels) == 5000


def test_what_is_refused():
    plain = Release(
        model=nn.Linear(1, 2),
        config={},
        trust={"method": "plain", "analysis": "none", "mechanism": {}},
    )
    with pytest.raises(InputError, match="without the noise of its run"):
        verified(plain, at(0.5), attack=0.1)
    with pytest.raises(InputError, match="bad size"):
        verified(half_line(), at(0.5), attack=0.0)
    with pytest.raises(InputError, match="bad draws"):
        verified(half_line(), at(0.5), attack=0.1, draws=0)
