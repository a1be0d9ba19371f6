"""SecureSGD with a proof: the scale of its noise, its shape, and DP-SGD as it was."""

import contextlib
import math

import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import create
from privet.models.hidden_noise import first_map, noise_of
from privet.privacy.events import to_json
from privet.privacy.noise import analytic_gaussian_multiplier
from privet.privacy.tradeoff import gaussian_delta
from privet.training.own_noise import own_noise
from privet.training.registry import find_method
from privet.training.securesgd import (
    SecureSGDSettings,
    deviations,
    hgm_multiplier,
    vulnerability,
)
from privet.training.settings import Settings
from privet.verification import verify

QUICK = {"model": "mlp", "epochs": 3, "batch": 16}


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


# --- the scale ---------------------------------------------------------------------------------


def test_the_scale_of_the_paper():
    """By hand: s = ln(0.79788e5) = 11.2872; sqrt(2) (3.35964 + 3.90988) / 8 = 1.28508."""
    assert hgm_multiplier(4.0, 1e-5) == pytest.approx(1.28508, abs=1e-5)
    assert SecureSGDSettings(epsilon=1.0).noise_scale == pytest.approx(0.257016, abs=1e-6)
    agm = SecureSGDSettings(epsilon=1.0, calibration="analytic")
    assert agm.noise_scale == pytest.approx(0.2 * 1.08116, abs=1e-5)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.05, 0.49])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 4.0, 30.0, 300.0])
def test_the_papers_scale_is_enough_for_every_epsilon(epsilon, delta):
    """By the exact curve; and the analytic scale is the least that is."""
    z = hgm_multiplier(epsilon, delta)
    assert gaussian_delta(1.0 / z, epsilon) <= delta
    if epsilon < 300:
        least = analytic_gaussian_multiplier(epsilon, delta)
        assert least <= z
        assert gaussian_delta(1.0 / (0.99 * least), epsilon) > delta


# --- the shape ---------------------------------------------------------------------------------


def reading_first_feature_alone():
    """Two features, of which the scores read one."""
    network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        network[0].weight.copy_(torch.eye(2))
        network[1].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    return network


def test_vulnerable_is_what_moves_the_loss_one_way():
    network, x = reading_first_feature_alone(), torch.rand(8, 2)
    one_class, both = torch.zeros(8, dtype=torch.int64), torch.arange(8) % 2
    assert torch.equal(vulnerability(network, x, one_class), torch.tensor([1.0, 0.0]))
    # Half of the examples pull each way: no feature is more vulnerable than another.
    assert torch.equal(vulnerability(network, x, both), torch.tensor([0.5, 0.5]))
    three_to_one = vulnerability(network, x, (torch.arange(8) % 4 == 0).long())
    assert torch.equal(three_to_one, torch.tensor([1.0, 0.0]))
    assert network.training


def test_deviations_by_hand():
    """v = 1/2 + 1/2 * 2 * (1, 0) = (3/2, 1/2): sqrt(3) times the least, and the least."""
    found = deviations(0.2, torch.tensor([1.0, 0.0]), 0.5)
    assert torch.allclose(found, torch.tensor([0.2 * math.sqrt(3.0), 0.2]))
    assert torch.allclose(deviations(0.2, torch.rand(3, 4), 0.0), torch.full((3, 4), 0.2))


def test_redistributed_noise_keeps_the_bound_in_the_worst_direction():
    """HGM: |D^-1 W alpha| at |alpha| = L decides; computed from the matrix itself."""
    data = privet.data.load("digits")
    settings = SecureSGDSettings(epsilon=1.0, model="cnn-tiny", redistribution="made-up")
    network, shape = settings.network(data), data.shape
    scale = noise_of(network).scale.double()
    assert scale.shape == (16, 8, 8)
    assert float(scale.min()) == pytest.approx(settings.noise_scale)
    assert float(scale.max()) > 1.5 * settings.noise_scale
    path = first_map(network).double()
    with torch.no_grad():
        offset = path(torch.zeros(1, *shape, dtype=torch.float64))
        moves = path(torch.eye(64, dtype=torch.float64).reshape(64, *shape)) - offset
    whitened = (moves / scale).flatten(1).numpy()
    mu = settings.attack_bound * np.linalg.norm(whitened, 2)
    assert gaussian_delta(float(mu), settings.robust_epsilon) <= settings.robust_delta


def test_public_maps_follow_from_settings_alone():
    settings = SecureSGDSettings(epsilon=1.0, redistribution="made-up")
    one, other = (
        settings.noise_for(create("cnn-tiny", (1, 8, 8), 10), (1, 8, 8)).scale for _ in range(2)
    )
    assert torch.equal(one, other)
    with pytest.raises(InputError, match="unknown redistribution"):
        SecureSGDSettings(epsilon=1.0, redistribution="private")


# --- a run -------------------------------------------------------------------------------------


def weights(release):
    return torch.cat([p.detach().flatten() for p in release.model.parameters()])


def test_the_card_proves_what_dpsgd_proves(make_data, ledger, tmp_path):
    data, options = make_data(), QUICK | {"epsilon": 2.0}
    release = privet.train(
        "securesgd", data, redistribution="made-up", ledger=ledger, out=tmp_path / "run", **options
    )
    plan = Settings(**options).plan_for(data)
    assert release.trust["method"] == "securesgd"
    assert release.trust["events"] == [{"label": "train", "event": to_json(plan.event())}]
    assert 1.99 < release.privacy.epsilon <= 2.0
    assert release.trust["mechanism"]["torch_draws"]
    assert verify(tmp_path / "run", ledger=ledger).ok


def test_a_resumed_run_ends_as_if_nothing_had_happened(make_data, ledger, tmp_path):
    """Under known noise, for both runs must draw the same."""
    data, options = make_data(), QUICK | {"checkpoint_every": 3, "noise_seed": 5, "epsilon": 2.0}

    def stop(trainer):
        if trainer.next_step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privet.train("securesgd", data, out=tmp_path / "cut", watch=stop, ledger=ledger, **options)
    cut = find_method("securesgd").under("sound").resume(tmp_path / "cut", data, ledger=ledger)
    whole = privet.train("securesgd", data, ledger=ledger, **options)
    assert torch.equal(weights(cut), weights(whole))
    assert cut.trust["mechanism"]["redone_steps"] == 0


def test_a_release_is_certified_by_its_own_noise(make_data):
    """The average of weights is within norm one as the weights are; centring doubles."""
    data, options = make_data(), QUICK | {"epochs": 12, "learning_rate": 0.5, "noise_seed": 1}
    release = privet.train("securesgd", data, epsilon=50.0, attack_bound=0.05, ema=0.9, **options)
    weight = first_map(release.model)[-1].weight.detach().double()
    assert 0.9 < 2.0 * torch.linalg.matrix_norm(weight, 2) <= 1.0
    noise = own_noise(release)
    assert noise.hidden_scale == pytest.approx(0.05 * 1.28508, abs=1e-5)
    x, y = data.bounds.clamp_and_scale(data.test.x), data.test.y
    found = privet.certify(release, x, y, noise=noise, n=500, seed=0)
    assert found.noise.details["sensitivity"] <= 1.0
    assert ((found.radius > 0.02) & (found.prediction == y)).mean() > 0.8
