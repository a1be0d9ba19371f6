"""What a lifetime costs: enumeration of all that can touch a unit, and known answers."""

import itertools

import dp_accounting as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.audits.lifetimes import Path
from privet.audits.whole_lives import WholeLives
from privet.errors import InputError
from privet.lifelong.lifetime import Lifetime, Own, Recall
from privet.privacy.accounting import epsilon_of, sampled_gaussian

COARSE = {"interval": 1e-3}


def recall(**changes):
    usual = {"first_rate": 0.1, "steps": 24, "multiplier": 1.89, "admission": 1 / 24}
    return Recall(**(usual | {"horizon": 8, "shared": False} | changes))


def lifetime(tasks=3, *, shared=False, **changes):
    own = Own(rate=1 / 24, steps=24, multiplier=1.89)
    return Lifetime(tasks=(own,) * tasks, recall=recall(shared=shared, **changes), shared=shared)


def touching(tasks, recall, unit_in):
    """Every step that can touch a unit of these tasks, by running through the loop.

    One entry for each step: (whether it reads the memory, rate).
    """
    touched, remembered = [], False
    for task in range(1, tasks + 1):
        for _ in range(24):
            if task in unit_in:
                touched.append((False, 1 / 24))
            if remembered and recall.rate_at(task) > 0:
                touched.append((True, recall.rate_at(task)))
        remembered = remembered or task in unit_in
    return touched


def steps_in(event, behind_coin=False):
    """The single steps of an event, as (whether behind the coin, rate)."""
    match event:
        case dp.ComposedDpEvent(events=parts):
            return [step for part in parts for step in steps_in(part, behind_coin)]
        case dp.SelfComposedDpEvent(event=part, count=count):
            return count * steps_in(part, behind_coin)
        case dp.PoissonSampledDpEvent(sampling_probability=q, event=dp.GaussianDpEvent()):
            return [(behind_coin, q)]
        case dp.PoissonSampledDpEvent(event=part):
            assert not behind_coin
            return steps_in(part, True)
    raise AssertionError(event)


@pytest.mark.parametrize("task", [1, 2, 5, 8])
def test_a_unit_of_one_task_is_touched_by_what_its_event_counts(task):
    made = lifetime(8)
    loop = touching(8, made.recall, {task})
    assert sorted(steps_in(made.event(task))) == sorted(loop)


def test_a_unit_of_all_tasks_is_touched_by_what_its_event_counts():
    made = lifetime(5, shared=True, horizon=5)
    loop = touching(5, made.recall, {1, 2, 3, 4, 5})
    assert sorted(steps_in(made.event(1))) == sorted(loop)
    assert len(loop) == 5 * 24 + 4 * 24


@given(st.sets(st.integers(1, 6), min_size=1))
@settings(deadline=None)
def test_no_unit_of_a_shared_stream_is_touched_by_more(unit_in):
    made = lifetime(6, shared=True, horizon=6)
    most, some = steps_in(made.event(1)), touching(6, made.recall, unit_in)
    for kind in set(some):
        assert some.count(kind) <= most.count(kind)


def canaries_of(shared):
    """A lifetime, its last task, and those that a canary is in."""
    made = lifetime(5, shared=shared, horizon=5)
    return [(made, {1, 2, 3, 4, 5})] if shared else [(made, {task}) for task in range(1, 6)]


@pytest.mark.parametrize("shared", [False, True])
def test_a_canary_in_the_memory_is_touched_by_the_same_steps_in_the_open(shared):
    """Forced: nothing is behind a coin. By its coin: all readings are, and no step of its own."""
    for made, unit_in in canaries_of(shared):
        loop = touching(5, made.recall, unit_in)
        forced = steps_in(made.event(min(unit_in), known=True))
        assert sorted(rate for _, rate in forced) == sorted(rate for _, rate in loop)
        assert not any(behind for behind, _ in forced)
        by_coin = steps_in(made.event(min(unit_in)))
        assert sorted(by_coin) == sorted(loop)


@pytest.mark.parametrize("until", [1, 2, 4, 8])
def test_a_canary_that_is_watched_for_some_tasks_is_touched_by_those(until):
    """Of every prefix of the stream: what its event counts is what the loop has done by then."""
    made = lifetime(8)
    for task in range(1, until + 1):
        loop = touching(until, made.recall, {task})
        assert sorted(steps_in(made.event(task, until=until))) == sorted(loop)


def test_the_auditor_sees_every_step_that_can_touch_a_canary():
    """Rates of the auditor's model, and what the project's own streams release, step by step."""
    own = Own(rate=0.25, steps=2, multiplier=2.0)
    reads = recall(first_rate=0.8, steps=2, multiplier=1.0, admission=0.5, horizon=5)
    made = Lifetime(tasks=(own,), recall=reads, shared=False)
    path = Path(lifetime=made)
    seen = [(False, own.rate)] * own.steps + [(True, rate) for rate in path.rates.tolist()]
    assert sorted(seen) == sorted(steps_in(made.event(1)))
    released = WholeLives(claimed=made, run=made)(True, 1, seed=0)
    assert released.shape == (1, len(seen))


def test_known_answers():
    """Of an independent accountant: 0.501 for a task alone, 0.502 with one that reads."""
    alone = Lifetime(tasks=lifetime(1).tasks, recall=None, shared=False)
    assert alone.epsilon(1, 1e-5, **COARSE) == pytest.approx(0.501, abs=3e-3)
    two = lifetime(1, horizon=2)
    assert two.epsilon(1, 1e-5, **COARSE) == pytest.approx(0.502, abs=3e-3)
    assert two.epsilon(1, 1e-5, known=True, **COARSE) == pytest.approx(1.35, abs=1e-2)


def test_twenty_tasks_with_the_same_images():
    """Of an independent accountant: 2.19 for 20 tasks at the noise of 0.50 for one."""
    own = Own(rate=1 / 24, steps=24, multiplier=1.89)
    made = Lifetime(tasks=(own,) * 20, recall=None, shared=True)
    assert made.epsilon(1, 1e-5, **COARSE) == pytest.approx(2.19, abs=1e-2)


def test_it_stays_bounded_however_many_tasks_come():
    costs = [
        lifetime(1, horizon=tasks).epsilon(1, 1e-5, known=True, **COARSE)
        for tasks in (2, 8, 64, 1024)
    ]
    assert costs == sorted(costs)
    assert costs[-1] < 1.5 * costs[0]
    assert costs[-1] - costs[-2] < 0.05


def test_the_rate_halves_when_the_number_of_tasks_behind_doubles():
    rates = [recall(first_rate=0.8).rate_at(task) for task in range(1, 10)]
    assert rates == [0.0, 0.8, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 0.0]  # the horizon is 8
    assert recall(shared=True).rate_at(7) == 0.1


def test_the_costliest_task_is_the_first_of_its_like():
    made = lifetime(4)
    assert made.worst(1e-5)[0] == 1
    dearer = Own(rate=1 / 24, steps=24, multiplier=1.2)
    assert made.after(dearer).worst(1e-5)[0] == 5
    costs = [made.epsilon(task, 1e-5, **COARSE) for task in (1, 2, 3, 4)]
    assert costs == sorted(costs, reverse=True)


def test_what_was_read_so_far_is_less_than_what_may_be():
    made = lifetime(1, horizon=8, admission=0.5)
    costs = [made.epsilon(1, 1e-5, until=task, **COARSE) for task in (1, 2, 4, 8)]
    assert all(a < b for a, b in itertools.pairwise(costs))
    assert costs[0] == pytest.approx(
        epsilon_of(sampled_gaussian(1.89, 1 / 24, 24), 1e-5, interval=1e-3), rel=1e-6
    )


def test_there_and_back_as_json():
    made = lifetime(2)
    assert Lifetime.from_json(made.to_json()) == made
    with pytest.raises(InputError, match="malformed record of a lifetime"):
        Lifetime.from_json({"tasks": [{"rate": 0.1}], "recall": None, "shared": False})


@pytest.mark.parametrize("change", [{"admission": 0.0}, {"first_rate": 1.1}, {"horizon": 1}])
def test_bad_plans_are_refused(change):
    with pytest.raises(InputError):
        recall(**change)
