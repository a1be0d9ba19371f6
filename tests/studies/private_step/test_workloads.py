import pytest
import torch

from privet.engine.summing import MOST_ROWS
from privet.errors import InputError
from privet.studies.private_step.workloads import Task, find_workload, workloads

SIZES = {
    "cnn": 26_010,
    "cnn-large": 320 + 18_496 + 3136 * 256 + 256 + 2570,
    "transformer": 64_000 + 32 * 64 + 2 * (4 * 64 * 64 + 4 * 64 + 2 * 64 * 128 + 192 + 256) + 650,
    "lstm": 32_000 + 256 * (32 + 64 + 2) + 650,
}


@pytest.mark.parametrize("name", SIZES)
def test_the_models_have_the_stated_sizes(name, cpu):
    model = find_workload(name).model(cpu)
    assert sum(p.numel() for p in model.parameters()) == SIZES[name]


@pytest.mark.parametrize("name", workloads())
def test_a_model_takes_the_examples_of_its_task(name, cpu):
    task = Task(workload=find_workload(name), batch=2, device=cpu, records=3)
    x, y = task.first(2)
    assert task.model()(x).shape == (2, 10)
    assert y.shape == (2,)
    assert len(task.examples()) == 3


def test_weights_and_records_are_the_same_each_time(tiny, cpu):
    task = Task(workload=tiny, batch=2, device=cpu, records=3)
    weights = [torch.cat([p.flatten() for p in task.model().parameters()]) for _ in range(2)]
    assert torch.equal(*weights)
    assert torch.equal(task.first(2)[0], task.first(3)[0][:2])
    assert 0.0 <= task.first(3)[0].min() < task.first(3)[0].max() <= 1.0


def test_pieces_are_the_engines_unless_others_are_asked_for(tiny, cpu):
    assert Task(workload=tiny, batch=2, device=cpu).rows_at_once == MOST_ROWS["cpu"]
    assert Task(workload=tiny, batch=2, device=cpu, rows_at_once=7).rows_at_once == 7


def test_a_batch_larger_than_the_data_is_refused(tiny, cpu):
    with pytest.raises(InputError, match="bad batch"):
        Task(workload=tiny, batch=4, device=cpu, records=3)


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'cnn-large'"):
        find_workload("cnn-larg")
