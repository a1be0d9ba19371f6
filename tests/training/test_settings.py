"""Settings of a run: their kinds, and the noise that follows from them."""

import pytest
from torch import nn

import privet
from privet.errors import InputError
from privet.models.augmentation import Views
from privet.privacy.factorisation import Workload, optimal_coefficients
from privet.training.settings import Settings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": "3"}, "bad epsilon: got '3', expected a number"),
        ({"epsilon": None}, "bad epsilon: got None"),
        ({"learning_rate": "high"}, "bad learning_rate: got 'high', expected a number"),
        ({"epochs": True}, "bad epochs: got True"),
        ({"batch": 100.5}, "bad batch: got 100.5, expected a whole number or None"),
        ({"views": 2.0, "augment": "shift"}, "bad views: got 2.0, expected a whole number"),
        ({"keep_keys": 1}, "bad keep_keys: got 1, expected True or False"),
        ({"precision": "fp16"}, "unknown precision: got 'fp16', expected one of float32, tf32"),
        ({"precision": None}, "bad precision: got None, expected a name"),
        ({"compile": "yes"}, "bad compile: got 'yes', expected True or False or None"),
        ({"device": 0}, "bad device: got 0, expected a name"),
        ({"model": ["linear"]}, "bad model: got an object of type list"),
        ({"checkpoint_every": 0}, "bad checkpoint_every: got 0"),
        ({"input_noise": -0.1}, "bad input_noise: got -0.1"),
        ({"views": 2}, "several views of nothing"),
        ({"adversarial": "fgsm"}, "unknown adversarial: got 'fgsm', expected one of none, kurakin"),
        ({"adversarial": "madry", "adversarial_norm": "l0"}, "unknown adversarial_norm: got 'l0'"),
        ({"adversarial": "madry", "adversarial_size": 0.0}, "bad adversarial_size: got 0.0"),
        ({"adversarial": "madry", "adversarial_steps": 0}, "bad adversarial_steps: got 0"),
        ({"adversarial_size": 0.1}, "details of an attack without the attack"),
        ({"adversarial": "madry", "input_noise": 0.1}, "adversarial examples of noisy inputs"),
        ({"model": nn.Linear(4, 2)}, "privet.make_private"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused(changes, said):
    with pytest.raises(InputError) as caught:
        Settings(**({"epsilon": 1.0} | changes))
    assert said in str(caught.value)


def test_whole_numbers_are_numbers():
    assert Settings(epsilon=1, epochs=3, clip_norm=1).epochs == 3


@pytest.mark.parametrize("compile", [True, False, None])
def test_precision_and_compiling_reach_the_engine(compile):
    extras = Settings(epsilon=1.0, precision="bf16", compile=compile).extras()
    assert (extras.precision, extras.compiled) == ("bf16", compile)
    assert Settings(epsilon=1.0).extras() == privet.Extras()


def test_users_bring_as_many_records_here_as_in_ones_own_loop():
    assert Settings(epsilon=1.0).contribution == privet.Extras().contribution == 8


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"sampler": "cyclic-poisson", "batch": 20}, 8),
        ({"sampler": "fixed-batches", "cycle": 5}, 10),  # and not those of the default batch
    ],
)
def test_correlated_noise_is_fitted_to_the_steps_that_run(make_data, monkeypatch, changes, steps):
    monkeypatch.setattr("privet.engine.plan.calibrate", lambda *_, **__: 2.0)
    settings = Settings(epsilon=3.0, epochs=2, bands=3, momentum=0.5, **changes)
    plan = settings.plan_for(make_data())
    workload = Workload(steps=steps, momentum=0.5, last_rate=0.0)
    assert plan.steps == steps
    assert plan.bands == optimal_coefficients(workload, 3)
    assert settings.plan_like(plan) == plan


def test_too_many_bands_are_refused_for_the_samplers_reason(make_data):
    with pytest.raises(InputError, match="--batch at most 10"):
        Settings(epsilon=3.0, bands=8, sampler="cyclic-poisson").plan_for(make_data())
    with pytest.raises(InputError, match="turns apart"):
        Settings(epsilon=3.0, bands=500).plan_for(make_data())


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, (None, None, None)),
        ({"adversarial": "kurakin"}, ("linf", 0.1, 1)),
        ({"adversarial": "madry"}, ("linf", 0.1, 7)),
        ({"adversarial": "madry", "adversarial_norm": "l2", "adversarial_size": 0.5},
         ("l2", 0.5, 7)),
    ],
)  # fmt: skip
def test_what_an_attack_leaves_open_is_filled_in_and_recorded(make_data, given, filled):
    settings = Settings(epsilon=1.0, **given)
    found = settings.filled_for(make_data())
    details = (found.adversarial_norm, found.adversarial_size, found.adversarial_steps)
    assert details == filled
    assert found.adversary == settings.adversary == found.extras().adversary


def test_views_and_noise_reach_the_engine():
    given = {"augment": "shift", "views": 3, "input_noise": 0.2}
    assert Settings(epsilon=1.0, **given).extras().augmentation == Views("shift", 3, 0.2)
    assert Settings(epsilon=1.0, input_noise=0.2).extras().augmentation == Views("none", 1, 0.2)
