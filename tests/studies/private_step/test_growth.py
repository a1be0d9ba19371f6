import pytest

from privet.studies.private_step.growth import Growth, Sweep, exponents, grow, sweeps
from privet.studies.private_step.timing import Cell, Rules
from privet.studies.private_step.workloads import Task


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_exponents_of_powers_are_exact(power):
    found = exponents([(n, 3.0 * n**power) for n in (10, 20, 70)])
    assert found == {"fitted": pytest.approx(power), "last": pytest.approx(power)}


def test_overhead_flattens_the_fit_and_less_so_the_end():
    found = exponents([(n, 100.0 + n) for n in (10, 100, 1000, 10_000)])
    assert found["fitted"] < found["last"] < 1.0


def test_one_point_has_no_exponent():
    assert exponents([(10, 1.0)]) is None
    assert exponents([]) is None


def test_the_sweeps_vary_one_size_each(cpu):
    batch, parameters, *lengths = sweeps([8, 4], cpu)
    assert [task.batch for task in batch.tasks] == list(batch.sizes) == [4, 8]
    assert {task.batch for sweep in (parameters, *lengths) for task in sweep.tasks} == {4}
    assert parameters.sizes[2] == 824_458  # as published: 32 channels
    assert [sweep.model for sweep in lengths] == ["transformer", "lstm"]
    for sweep in lengths:
        assert [task.workload.shape for task in sweep.tasks] == [(n,) for n in sweep.sizes]


def test_memory_of_a_plain_step_grows_with_its_batch(tiny, cpu):
    sizes = (64, 128, 256)
    tasks = tuple(Task(workload=tiny, batch=n, device=cpu, records=512) for n in sizes)
    sweep = Sweep(along="batch", model=tiny.name, sizes=sizes, tasks=tasks)
    (found,) = grow([sweep], Rules(rounds=1))
    told = found.to_json()
    assert told["exponents"]["plain"]["bytes"]["fitted"] == pytest.approx(1.0, abs=0.1)
    assert told["exponents"]["privet"]["bytes"]["fitted"] == pytest.approx(1.0, abs=0.4)
    assert [[cell["contestant"] for cell in group] for group in told["cells"]] == [
        ["plain", "privet"]
    ] * 3


def test_a_size_that_was_not_measured_leaves_a_gap():
    def cell(name, seconds, why=""):
        return Cell(model="m", batch=1, contestant=name, seconds=seconds, why=why, peak_bytes=8)

    sweep = Sweep(along="batch", model="m", sizes=(1, 2, 4), tasks=())
    cells = [
        (cell("plain", [1.0]), cell("privet", [1.0])),
        (cell("plain", [2.0]), cell("privet", [], "out of memory")),
        (cell("plain", [4.0]), cell("privet", [16.0])),
    ]
    growth = Growth(sweep=sweep, cells=tuple(cells))
    assert growth.points("privet", "seconds") == [(1, 1.0), (4, 16.0)]
    assert growth.to_json()["exponents"]["privet"]["seconds"]["fitted"] == pytest.approx(2.0)
