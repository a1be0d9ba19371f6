import math

import pytest
import torch

from privet.errors import InputError
from privet.studies.private_step import timing
from privet.studies.private_step.contestants import Ready, Variant
from privet.studies.private_step.parity import Agreement
from privet.studies.private_step.timing import Cell, Rules, in_turn, race
from privet.studies.private_step.workloads import Task


class Track:
    """Contestants that write down their steps and take as long as they are told."""

    def __init__(self, monkeypatch, **seconds):
        self.log = []
        self.seconds = seconds  # by name: one figure, or one for each variant
        self.fails = {}  # name: (at which step, with what)
        monkeypatch.setattr(timing, "CONTESTANTS", {name: self.variants(name) for name in seconds})
        monkeypatch.setattr(timing, "timed", self.timed)
        monkeypatch.setattr(timing, "peak_memory", lambda step, device: 7)

    def variants(self, name):
        figures = self.seconds[name] if isinstance(self.seconds[name], dict) else {"": 0}

        def build(label):
            def step():
                self.log.append((name, label))
                at, error = self.fails.get(name, (math.inf, None))
                if sum(entry[0] == name for entry in self.log) >= at:
                    raise error

            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
            return lambda task, model: Ready(step, optimizer)

        return lambda task: [Variant(label, build(label)) for label in figures]

    def timed(self, turn, device):
        before = len(self.log)
        turn()
        name, label = self.log[-1]
        told = self.seconds[name]
        return (len(self.log) - before) * (told[label] if isinstance(told, dict) else told)


@pytest.fixture
def task(tiny, cpu):
    return Task(workload=tiny, batch=4, device=cpu, records=8)


def by_name(cells):
    return {cell.contestant: cell for cell in cells}


def test_each_round_begins_with_the_next():
    assert [in_turn("abc", turn) for turn in range(4)] == [
        ["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"],
    ]  # fmt: skip
    assert in_turn([], 3) == []


def test_contestants_take_turns_after_the_warm_up(monkeypatch, task):
    track = Track(monkeypatch, a=1, b=1, c=1)
    cells = race(task, "abc", Rules(rounds=3, cell_seconds=100))
    order = "".join(name for name, _ in track.log)
    assert order == "aaabbbccc" + "abc" + "bca" + "cab"
    assert all(cell.seconds == [1, 1, 1] for cell in cells)  # warm-up is not counted
    assert all(cell.peak_bytes == 7 for cell in cells)


def test_short_steps_follow_one_another_in_a_turn(monkeypatch, task):
    track = Track(monkeypatch, a=0.04, b=0.25)
    cells = by_name(race(task, "ab", Rules(rounds=2, cell_seconds=100)))
    order = "".join(name for name, _ in track.log)
    assert order == "aa" + "aa" + "bb" + "b" + "aa" + "b" + "b" + "aa"  # 0.08 s are the nearest
    assert cells["a"].to_json()["steps_in_a_turn"] == 2
    assert cells["a"].median == pytest.approx(0.04)  # of one step
    assert (cells["b"].steps, cells["b"].median) == (1, 0.25)


def test_the_fastest_variant_runs(monkeypatch, task):
    track = Track(monkeypatch, a={"slow": 3, "fast": 1, "middle": 2})
    (cell,) = race(task, "a", Rules(rounds=2, cell_seconds=100))
    assert cell.variant == "fast"
    assert track.log[-2:] == [("a", "fast")] * 2
    assert cell.median == 1


def test_a_variant_that_fails_leaves_the_others(monkeypatch, task):
    Track(monkeypatch, a={"first": 1, "second": 2})
    barred = [Agreement(model="cnn-tiny", contestant="a", variant="first", why="wrong sum: 1 off")]
    (cell,) = race(task, "a", Rules(rounds=1, cell_seconds=100), checked=barred)
    assert (cell.variant, cell.why) == ("second", "")


def test_who_is_wrong_is_not_timed(monkeypatch, task):
    track = Track(monkeypatch, a=1, b=1)
    barred = [Agreement(model="cnn-tiny", contestant="a", variant="", why="wrong sum: 1 off")]
    cells = by_name(race(task, "ab", Rules(rounds=1, cell_seconds=100), checked=barred))
    assert (cells["a"].why, cells["a"].median) == ("wrong sum: 1 off", None)
    assert {name for name, _ in track.log} == {"b"}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you"), "out of memory"),
        (MemoryError(), "out of memory"),
        (ValueError("no such layer\nand more"), "failed: ValueError: no such layer"),
    ],
)
@pytest.mark.parametrize("at", [1, 5], ids=["warm-up", "round"])
def test_a_failure_is_told_and_the_others_go_on(monkeypatch, task, error, said, at):
    track = Track(monkeypatch, a=1, b=1)
    track.fails["a"] = (at, error)
    cells = by_name(race(task, "ab", Rules(rounds=4, cell_seconds=100)))
    assert cells["a"].why == said
    assert cells["a"].median is None
    assert cells["a"].to_json()["median_ms"] is None
    assert cells["b"].seconds == [1] * 4


def test_a_cell_that_would_take_too_long_is_skipped(monkeypatch, task):
    track = Track(monkeypatch, a=1, b=3)
    cells = by_name(race(task, "ab", Rules(rounds=10, cell_seconds=30)))
    assert cells["a"].median == 1
    assert cells["b"].why == "skipped: would take about 39 s (--cell-seconds 30)"
    assert [name for name, _ in track.log].count("b") == 3


def test_a_first_step_beyond_the_limit_is_the_only_one(monkeypatch, task):
    track = Track(monkeypatch, a=31)
    race(task, "a", Rules(rounds=10, cell_seconds=30))
    assert len(track.log) == 1


def test_what_a_smaller_batch_foretells_is_not_tried(monkeypatch, task):
    track = Track(monkeypatch, a=1, b=1, c=1)
    earlier = {
        "a": Cell(model="m", batch=1, contestant="a", seconds=[1.0]),  # 4 s a step at batch 4
        "b": Cell(model="m", batch=2, contestant="b", seconds=[1.0]),  # 2 s
        "c": Cell(model="m", batch=2, contestant="c", why="skipped: nobody there"),
    }
    cells = by_name(race(task, "abc", Rules(rounds=7, cell_seconds=30), earlier=earlier))
    assert cells["a"].why == "skipped: would take about 40 s (--cell-seconds 30)"
    assert cells["c"].why == "skipped: nobody there"
    assert {name for name, _ in track.log} == {"b"}


def test_the_watcher_hears_of_the_warm_up_and_every_round(monkeypatch, task):
    Track(monkeypatch, a=1)
    heard = []
    race(task, "a", Rules(rounds=2, cell_seconds=30), watch=heard.append)
    assert [what.partition(": ")[2] for what in heard] == ["warm-up", "round 1", "round 2"]


def test_the_record_of_a_cell_has_every_round():
    cell = Cell(model="m", batch=4, contestant="a", seconds=[0.003, 0.001, 0.002])
    told = cell.to_json()
    assert (told["median_ms"], told["best_ms"]) == (2.0, 1.0)
    assert told["rounds_ms"] == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"cell_seconds": 0}, {"cell_seconds": math.nan}])
def test_senseless_rules_are_refused(bad):
    with pytest.raises(InputError):
        Rules(**bad)
