"""Plans: calibration keeps the target, bad values are refused, nothing depends on the records."""

import json

import dp_accounting as dp
import pytest

from privet.engine.plan import Plan
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import epsilon_of

GOOD = {
    "steps": 10,
    "sampling_rate": 0.1,
    "clip_norm": 1.0,
    "noise_multiplier": 1.0,
    "normaliser": 10.0,
    "delta": 1e-5,
}
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def calibrated():
    return Plan.calibrate(epsilon=2.0, delta=1e-5, nominal_size=1000, batch=50, epochs=3)


def test_size_batch_and_epochs_give_rate_steps_and_normaliser(calibrated):
    assert calibrated.sampling_rate == 0.05
    assert calibrated.steps == 60
    assert calibrated.normaliser == 50.0


def test_calibration_keeps_the_target_and_wastes_little(calibrated):
    assert 1.99 < epsilon_of(calibrated.event(), 1e-5) <= 2.0


def test_the_calibrated_epsilon_agrees_with_googles_accountant(calibrated):
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    step = dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(calibrated.noise_multiplier))
    accountant.compose(dp.SelfComposedDpEvent(step, 60))
    assert accountant.get_epsilon(1e-5) == pytest.approx(2.0, abs=0.01)


def test_replace_one_needs_more_noise_and_keeps_its_own_target(calibrated):
    other = Plan.calibrate(
        epsilon=2.0, delta=1e-5, nominal_size=1000, batch=50, epochs=3,
        adjacency=Adjacency.REPLACE_ONE,
    )  # fmt: skip
    assert other.noise_multiplier > calibrated.noise_multiplier
    assert epsilon_of(other.event(), 1e-5, Adjacency.REPLACE_ONE) <= 2.0


def test_a_fraction_of_an_epoch_is_at_least_one_step():
    plan = Plan.calibrate(epsilon=1.0, delta=1e-5, nominal_size=100, batch=100, epochs=0.01)
    assert (plan.steps, plan.sampling_rate) == (1, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": NAN}, {"epsilon": INF},
        {"delta": 0.0}, {"delta": 1.0}, {"delta": NAN},
        {"batch": 0}, {"batch": 1001}, {"batch": -5},
        {"epochs": 0}, {"epochs": -1}, {"epochs": NAN}, {"epochs": INF},
        {"clip_norm": 0.0}, {"clip_norm": INF}, {"clip_norm": NAN},
    ],
)  # fmt: skip
def test_calibration_refuses_bad_values(change):
    good = {"epsilon": 20.0, "delta": 1e-3, "nominal_size": 1000, "batch": 1000, "epochs": 1}
    with pytest.raises(InputError):
        Plan.calibrate(**(good | change))


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0}, {"steps": -1}, {"steps": 2.5},
        {"sampling_rate": 0.0}, {"sampling_rate": 1.01}, {"sampling_rate": NAN},
        {"clip_norm": 0.0}, {"clip_norm": -1.0}, {"clip_norm": INF}, {"clip_norm": NAN},
        {"noise_multiplier": 0.0}, {"noise_multiplier": -1.0}, {"noise_multiplier": INF},
        {"normaliser": 0.0}, {"normaliser": -2.0}, {"normaliser": NAN}, {"normaliser": INF},
        {"delta": 0.0}, {"delta": 1.0}, {"delta": -1e-5},
    ],
)  # fmt: skip
def test_a_plan_refuses_bad_values(change):
    with pytest.raises(InputError):
        Plan(**(GOOD | change))


def test_json_round_trip():
    plan = Plan(**GOOD, unit="patient")
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    "record",
    [
        {k: v for k, v in GOOD.items() if k != "steps"},
        GOOD | {"surprise": 1},
        GOOD | {"steps": "ten"},
        GOOD | {"sampling_rate": None},
        GOOD | {"noise_multiplier": -1.0},
    ],
)
def test_a_malformed_record_is_bad_input(record):
    with pytest.raises(InputError):
        Plan.from_json(record)


def test_sampler_noise_and_event_say_the_same():
    plan = Plan(**(GOOD | {"sampling_rate": 0.25, "noise_multiplier": 1.5, "clip_norm": 0.7}))
    assert plan.sampler.rate == 0.25
    assert (plan.noise.multiplier, plan.noise.sensitivity) == (1.5, 0.7)
    step = dp.PoissonSampledDpEvent(0.25, dp.GaussianDpEvent(1.5))
    assert plan.event() == dp.SelfComposedDpEvent(step, 10)
    assert plan.event(3) == dp.SelfComposedDpEvent(step, 3)


def test_running_epsilon_grows_and_never_falls_below_the_exact_one():
    plan = Plan(**GOOD)
    shown = [plan.running_epsilon(k) for k in (0, 1, 5, 10)]
    assert shown[0] == 0.0
    assert shown == sorted(shown)
    assert shown[-1] >= epsilon_of(plan.event(), 1e-5)


SAMPLERS = ["poisson", "cyclic-poisson", "fixed-batches", "shuffled"]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_is_calibrated_under_its_own_adjacency(sampler):
    found = Plan.calibrate(
        epsilon=2.0, delta=1e-5, nominal_size=1000, batch=100, epochs=5, sampler=sampler, cycle=None
    )
    adjacency = found.sampler.adjacencies[0]
    assert epsilon_of(found.event(), 1e-5, adjacency) <= 2.0
    looser = Plan(**(found.to_json() | {"noise_multiplier": found.noise_multiplier * 0.99}))
    assert epsilon_of(looser.event(), 1e-5, adjacency) > 2.0
    assert found.normaliser == pytest.approx(100)
    assert found.steps == 50


def test_turns_are_counted_and_not_steps():
    found = Plan.calibrate(
        epsilon=2.0, delta=1e-5, nominal_size=1000, batch=100, epochs=5, sampler="fixed-batches"
    )
    assert (found.cycle, found.turns, found.event().count) == (10, 5, 5)
    assert found.running_epsilon(10) < found.running_epsilon(11) == found.running_epsilon(20)


def test_correlated_noise_is_refused_where_it_is_not_proved():
    bands = (0.8, 0.5)
    good = {"epsilon": 2.0, "delta": 1e-5, "nominal_size": 1000, "batch": 50, "epochs": 2}
    with pytest.raises(InputError, match="turns apart"):
        Plan.calibrate(**good, bands=bands)
    with pytest.raises(InputError, match="turns apart"):
        Plan.calibrate(**good, bands=bands, sampler="shuffled")
    with pytest.raises(InputError, match="outlasts the cycle"):
        Plan.calibrate(**good, bands=bands, sampler="cyclic-poisson", cycle=1)
    plan = Plan.calibrate(**good, bands=bands, sampler="cyclic-poisson")
    assert plan.cycle == 2
    assert Plan.from_json(plan.to_json()) == plan
