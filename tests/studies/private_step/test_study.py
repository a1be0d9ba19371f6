import pytest

from privet.files import read_json
from privet.studies.private_step import study as studies
from privet.studies.private_step.contestants import CONTESTANTS, with_peers
from privet.studies.private_step.growth import Sweep
from privet.studies.private_step.study import Record, Study
from privet.studies.private_step.timing import Rules
from privet.studies.private_step.workloads import Task


@pytest.fixture
def study(tmp_path, cpu):
    record = Record(path=tmp_path / "new" / "steps.json", content={"command": "as given"})
    return Study(device=cpu, rules=Rules(rounds=2), record=record)


def test_a_whole_race_is_kept_with_its_parity_and_rounds(study, tiny, opacus):
    cells, checked = study.steps([tiny], [16, 8], list(CONTESTANTS))
    told = read_json(study.record.path)
    assert told["command"] == "as given"
    assert [(row["batch"], row["contestant"]) for row in told["cells"]] == [
        (batch, name) for batch in (8, 16) for name in CONTESTANTS
    ]
    for row in told["cells"]:
        assert len(row["rounds_ms"]) == 2
        assert min(row["rounds_ms"]) == row["best_ms"] <= row["median_ms"]
        assert row["over_plain"] > 0
        assert row["times_faster_than_opacus"] > 0
        assert row["peak_bytes"] > 0
    assert len(told["parity"]) == len(checked) == 12
    assert all(one["difference"] <= 1e-5 for one in told["parity"])
    assert study.record.plot.read_bytes().startswith(b"<?xml")
    assert [cell.to_json()["median_ms"] for cell in cells] == [
        row["median_ms"] for row in told["cells"]
    ]


def test_what_was_measured_is_kept_when_the_run_is_stopped(study, tiny, monkeypatch):
    real = studies.race

    def stopped(task, *rest, **options):
        if task.batch == 16:
            raise KeyboardInterrupt
        return real(task, *rest, **options)

    monkeypatch.setattr(studies, "race", stopped)
    with pytest.raises(KeyboardInterrupt):
        study.steps([tiny], [8, 16], with_peers([]))
    assert {row["batch"] for row in read_json(study.record.path)["cells"]} == {8}


def test_growth_is_kept(study, tiny, cpu):
    tasks = tuple(Task(workload=tiny, batch=n, device=cpu, records=64) for n in (8, 16))
    study.growth([Sweep(along="batch", model="cnn-tiny", sizes=(8, 16), tasks=tasks)])
    (told,) = read_json(study.record.path)["growth"]
    assert told["sizes"] == [8, 16]
    assert set(told["exponents"]) == {"plain", "privet"}
    assert study.record.plot.exists()
