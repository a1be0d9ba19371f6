"""PixelDP: scales by its formulas, a card that promises no privacy, a release that loads again."""

import contextlib
import math

import numpy as np
import pytest
import torch

import privet
from privet.errors import InputError
from privet.ledger import Ledger
from privet.release import Release
from privet.training import pixeldp
from privet.training.own_noise import own_noise
from privet.training.pixeldp import PixelDPSettings, classic_multiplier
from privet.training.unprotected import NO_PRIVACY
from privet.verification import verify

QUICK = {"model": "mlp", "epochs": 3, "batch": 16}


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


# --- scales ------------------------------------------------------------------------------------


def test_scales_are_the_papers():
    """sqrt(2 ln 25) = 2.5373; sqrt(2 ln 125000) = 4.8448."""
    assert PixelDPSettings().noise_scale == pytest.approx(0.25373, abs=1e-5)
    small = PixelDPSettings(attack_bound=0.1, robust_epsilon=0.1, robust_delta=1e-5)
    assert small.noise_scale == pytest.approx(4.8448, abs=1e-4)
    assert PixelDPSettings(noise_norm="l1", robust_epsilon=4.0).noise_scale == 0.025


@pytest.mark.parametrize("delta", [1e-8, 1e-5, 0.05, 0.4])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_the_classic_scale_is_enough_up_to_epsilon_one(epsilon, delta):
    """By the exact curve of the Gaussian mechanism."""
    mu = 1.0 / classic_multiplier(epsilon, delta)
    assert privet.privacy.tradeoff.Gaussian(mu).delta(epsilon) <= delta


def test_beyond_epsilon_one_it_is_refused():
    """At epsilon 10 and delta 1e-5 the formula would give delta 0.0009."""
    mu = 1.0 / classic_multiplier(10.0, 1e-5)
    assert privet.privacy.tradeoff.Gaussian(mu).delta(10.0) > 1e-5
    with pytest.raises(InputError, match="up to 1"):
        PixelDPSettings(robust_epsilon=10.0)
    assert PixelDPSettings(robust_epsilon=10.0, noise_norm="l1").noise_scale == 0.01


def test_noise_on_the_input_is_added_once():
    with pytest.raises(InputError, match="twice"):
        PixelDPSettings(noise_layer="input", input_noise=0.1)


# --- a run -------------------------------------------------------------------------------------


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "changes", [{}, {"noise_norm": "l1", "ema": 0.9}, {"noise_layer": "input"}]
)
def test_a_resumed_run_ends_as_if_nothing_had_happened(make_data, ledger, tmp_path, changes):
    data, options = make_data(), QUICK | {"checkpoint_every": 5, "ledger": ledger} | changes

    def stop(trainer):
        if trainer.next_step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privet.train("pixeldp", data, out=tmp_path / "cut", watch=stop, **options)
    cut = pixeldp.resume(tmp_path / "cut", data, ledger=ledger)
    whole = privet.train("pixeldp", data, out=tmp_path / "whole", **options)
    assert same(weights(cut.model), weights(whole.model))
    assert verify(tmp_path / "cut", ledger=ledger).ok
    other = privet.train("pixeldp", data, **options | {"attack_bound": 0.3})
    assert not same(weights(other.model), weights(whole.model)), "the noise is in the training"


def test_the_card_says_no_privacy_and_names_the_noise(make_data, ledger, tmp_path):
    release = privet.train("pixeldp", make_data(), ledger=ledger, out=tmp_path / "run", **QUICK)
    trust, mechanism = release.trust, release.trust["mechanism"]
    assert (trust["privacy"], trust["withheld"], trust["analysis"]) == ([], [NO_PRIVACY], "none")
    assert mechanism["hidden_scale"] == pytest.approx(0.25373, abs=1e-5)
    assert "hides no record" in mechanism["noise"]
    assert verify(tmp_path / "run", ledger=ledger).ok
    with pytest.raises(InputError, match="no privacy, and takes no target"):
        privet.train("pixeldp", make_data(), epsilon=1.0, **QUICK)


def test_a_saved_release_certifies_as_the_one_in_memory(make_data, ledger, tmp_path):
    data = make_data()
    release = privet.train("pixeldp", data, ledger=ledger, out=tmp_path / "run", **QUICK)
    loaded = Release.load(tmp_path / "run")
    assert not any(name.startswith("noise") for name in loaded.model.state_dict())
    assert torch.equal(release.scores(data.test.x), loaded.scores(data.test.x))
    x, y = data.bounds.clamp_and_scale(data.test.x), data.test.y
    one, other = (
        privet.certify(which, x, y, noise=own_noise(which), n=500, seed=0)
        for which in (release, loaded)
    )
    assert np.array_equal(one.radius, other.radius)
    assert one.noise.details["sensitivity"] <= 1.0
    assert math.isclose(one.noise.details["hidden_scale"], 0.25373, abs_tol=1e-5)


def test_digits_are_learned_and_certified():
    """In l2: three quarters of 60 test images keep their class within 0.1 (hidden noise 0.25)."""
    data = privet.data.load("digits")
    release = privet.train("pixeldp", data, model="mlp", epochs=30, learning_rate=0.1)
    x, y = data.bounds.clamp_and_scale(data.test.x)[:60], data.test.y[:60]
    found = privet.certify(release, x, y, noise=own_noise(release), n=400, seed=0)
    assert release.trust["utility"]["test_accuracy"] > 0.9
    assert ((found.radius > 0.1) & (found.prediction == y)).mean() > 0.75
