import pytest

from privet.training.schedule import SCHEDULES, share_of_peak


@pytest.mark.parametrize(
    ("schedule", "done", "share"),
    [
        ("linear", 0.0, 1.0), ("linear", 0.25, 0.75), ("linear", 1.0, 0.0),
        ("cosine", 0.0, 1.0), ("cosine", 0.5, 0.5), ("cosine", 1.0, 0.0),
        ("constant", 0.0, 1.0), ("constant", 0.99, 1.0),
    ],
)  # fmt: skip
def test_known_shares(schedule, done, share):
    assert share_of_peak(done, schedule, 0.0) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warmup_rises_to_the_peak_and_then_the_schedule_begins(schedule):
    rising = [share_of_peak(done, schedule, 0.2) for done in (0.0, 0.1, 0.2)]
    assert rising == pytest.approx([0.0, 0.5, 1.0])
    end = 1.0 if schedule == "constant" else 0.0
    assert share_of_peak(1.0, schedule, 0.2) == pytest.approx(end, abs=1e-12)
