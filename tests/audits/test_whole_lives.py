"""The canary in the project's own streams: what the code does is what its lifetime accounts."""

from dataclasses import replace

import numpy as np
import pytest

from privet.audits.lifetimes import Path
from privet.audits.mechanism import audit_mechanism, refutes
from privet.audits.whole_lives import SHORT, WHOLE, WholeLives, tasks, whole
from privet.errors import InputError

RUNS = 400  # about 10 milliseconds each


@pytest.fixture(scope="module")
def forced():
    """Rows of runs with the canary, which was put into the memory."""
    return WholeLives(forced=True)(True, RUNS, 0)


def test_every_noisy_sum_is_seen_with_the_noise_and_the_shift_that_are_accounted(forced):
    """Five standard errors: false alarms below one in 100,000 for these twelve figures."""
    path = Path(lifetime=SHORT, forced=True)
    rates = np.concatenate([np.full(2, 0.25), path.rates])
    noise = np.array([2.0] * 2 + [1.0] * 4)
    spread = np.sqrt(noise**2 + rates * (1 - rates))
    assert forced.shape == (RUNS, 6)
    assert (np.abs(forced.mean(0) - rates) < 5 * spread / np.sqrt(RUNS)).all()
    assert (np.abs(forced.std(0) / spread - 1) < 5 / np.sqrt(2 * RUNS)).all()


def test_without_the_canary_there_is_noise_alone():
    rows = WholeLives()(False, RUNS, 1)
    noise = np.array([2.0] * 2 + [1.0] * 4)
    assert (np.abs(rows.mean(0)) < 5 * noise / np.sqrt(RUNS)).all()
    assert (np.abs(rows.std(0) / noise - 1) < 5 / np.sqrt(2 * RUNS)).all()


def test_the_coin_is_that_of_the_memory_and_holds_for_all_tasks():
    lives = WholeLives()
    rows = lives(True, RUNS, 2)
    read = rows[:, 2:].sum(1)
    chance, whole_shift = 0.5, 2 * (1.0 + 0.5)
    error = np.sqrt((4 + 3.0) / RUNS)
    assert read.mean() == pytest.approx(chance * whole_shift, abs=5 * error)


@pytest.mark.parametrize(
    ("name", "least"), [("lifelong-run-coin", 0), ("lifelong-run-forced", 0.4)]
)
def test_neither_bound_is_violated(name, least):
    """So few runs show little of what a coin hides; more: `benchmarks/lifelong_audits.py`."""
    subject = replace(WHOLE[name].make(), delta=0.01)
    found = audit_mechanism(subject, runs=RUNS, confidence=0.999, seed=3)
    assert found.epsilon >= least
    assert not refutes(found, subject)


@pytest.mark.parametrize(
    ("mistake", "forced"),
    [({"multiplier": 0.7}, True), ({"admission": 1.0}, False)],
    ids=["too little noise", "everybody is admitted"],
)
def test_code_that_does_another_thing_is_caught(mistake, forced):
    quiet = replace(SHORT, recall=replace(SHORT.recall, multiplier=4.0 if forced else 1.0))
    claimed = replace(quiet, recall=replace(quiet.recall, admission=0.05))
    told = replace(claimed, recall=replace(claimed.recall, **mistake))
    subject = whole("planted", WholeLives(claimed=claimed, run=told, forced=forced))
    subject = replace(subject, delta=0.05, statistic=lambda rows: rows[:, 2:].sum(1))
    assert refutes(audit_mechanism(subject, runs=RUNS, confidence=0.999, seed=4), subject)


def test_the_canary_is_all_there_is():
    assert [len(task.data.train) for task in tasks(3, True)] == [1, 0, 0]
    assert [len(task.data.train) for task in tasks(3, False)] == [0, 0, 0]
    with pytest.raises(InputError):
        replace(SHORT.recall, admission=0.0)
