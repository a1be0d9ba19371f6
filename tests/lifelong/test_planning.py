"""The plan by which a task reads the memory: never more than what its lifetime counts."""

import pytest

from privet.audits.whole_lives import tasks
from privet.lifelong.lifetime import Recall
from privet.lifelong.planning import reading_plan
from privet.lifelong.settings import L2dpSettings

SETTINGS = L2dpSettings(epsilon=1.0, clip_norm=0.5, model="linear")
RECALL = Recall(first_rate=0.4, steps=24, multiplier=1.5, admission=0.2, horizon=4, shared=False)
MEMORY = tasks(1, False).tasks[0].data  # eight units are declared


@pytest.mark.parametrize(("steps", "read"), [(23, 23), (24, 24), (1000, 24)])
def test_a_task_of_more_steps_reads_no_more_than_is_counted(steps, read):
    plan = reading_plan(RECALL, 2, steps, MEMORY, SETTINGS)
    assert plan is not None
    assert plan.steps == read


@pytest.mark.parametrize(("task", "rate"), [(2, 0.4), (3, 0.2), (4, 0.2)])
def test_a_reading_has_the_rate_the_noise_and_the_clip_norm_that_are_counted(task, rate):
    plan = reading_plan(RECALL, task, 24, MEMORY, SETTINGS)
    assert plan is not None
    assert (plan.sampling_rate, plan.noise_multiplier, plan.clip_norm) == (rate, 1.5, 0.5)
    assert plan.normaliser == pytest.approx(rate * 8)


@pytest.mark.parametrize("task", [1, 5])
def test_before_the_memory_and_beyond_the_horizon_nothing_is_read(task):
    assert reading_plan(RECALL, task, 24, MEMORY, SETTINGS) is None
