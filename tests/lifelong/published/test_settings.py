"""Defaults by the kind of inputs, and what is refused."""

import numpy as np
import pytest

from privet.data.dataset import Bounds, Dataset, Split
from privet.errors import InputError
from privet.lifelong.published.settings import PublishedSettings
from privet.lifelong.stream import Stream, Task


def stream(shape, size, **changes):
    """As large as it is declared; its arrays hold two records."""
    x, y = np.zeros((2, *shape), dtype=np.uint8), np.array([0, 1])
    data = Dataset(
        name="s", train=Split(x=x, y=y, **changes), test=Split(x=x, y=y), classes=("a", "b"),
        bounds=Bounds(low=(0.0,), high=(1.0,)), nominal_size=size, licence="none", source="made up",
        unit="user" if changes else "example",
    )  # fmt: skip
    return Stream(name="s", tasks=(Task(name="0", data=data),), shared=False)


@pytest.mark.parametrize(
    ("shape", "epsilon", "batch", "rate", "labels"),
    [
        ((1, 28, 28), 0.5, 2_500, 0.1, 0.1),
        ((3, 32, 32), 7.0, 500, 0.2, 1 + 5 / 3),
        ((1, 3, 100), 0.2, 120, 5e-5, 0.1),
        ((100, 3), 0.2, 120, 5e-5, 0.1),
    ],
)
def test_the_values_of_the_thesis(shape, epsilon, batch, rate, labels):
    found = PublishedSettings(epsilon=epsilon).for_stream(stream(shape, 60_000))
    assert (found.batch, found.schedule) == (batch, "basic")
    assert found.learning_rate == pytest.approx(rate if rate < 0.1 else rate / 5)
    agem = PublishedSettings(variant="agem").for_stream(stream(shape, 60_000))
    assert agem.learning_rate == rate
    assert found.epsilon_labels == pytest.approx(labels)
    assert found.projection == "always", "as printed"


def test_a_small_task_gets_small_batches_and_more_epochs():
    found = PublishedSettings(epsilon=2.0).for_stream(stream((1, 28, 28), 1_000))
    assert (found.batch, found.schedule, found.epochs) == (500, "uniform", 40)
    kept = PublishedSettings(epsilon=2.0, epochs=3, batch=7).for_stream(stream((1, 8, 8), 1_000))
    assert (kept.batch, kept.schedule, kept.epochs) == (7, "uniform", 3)
    agem = PublishedSettings(variant="agem").for_stream(stream((1, 8, 8), 1_000))
    assert agem.projection == "conditional"


def test_records_are_counted_where_units_have_several():
    """The declared size counts users; batches are made of records."""
    grouped = stream((1, 8, 8), 500, units=np.array([0, 0]))
    with pytest.raises(InputError, match="larger than a task: got 3 of 2"):
        PublishedSettings(epsilon=1.0, batch=3).for_stream(grouped)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "bad epsilon"),
        ({"epsilon": 1.0, "epochs": -1.0}, "bad epochs"),
        ({"epsilon": 1.0, "schedule": "heterogeneous", "epochs_by_task": "2,0"}, "bad epochs_by"),
        ({"epsilon": 1.0, "schedule": "heterogeneous", "epochs_by_task": "2;1"}, "bad epochs_by"),
        ({"epsilon": 1.0, "epochs_by_task": "2,1"}, "go with the heterogeneous schedule"),
        ({}, "no privacy target"),
        ({"epsilon": 1.0, "delta": 1e-5}, "there is no delta"),
        ({"variant": "agem", "epsilon": 1.0}, "variant 'agem' has no privacy, and takes no"),
        ({"variant": "offset", "epsilon_labels": 1.0}, "variant 'offset' has no privacy"),
        ({"epsilon": 1.0, "momentum": 0.5}, "no such setting: got momentum"),
        ({"epsilon": 1.0, "model": "mlp"}, "unknown model"),
        ({"epsilon": 1.0, "batch": 0}, "bad batch"),
        ({"epsilon": 1.0, "variant": "none"}, "unknown variant"),
        ({"epsilon": 1.0, "schedule": "fair"}, "unknown schedule"),
    ],
)
def test_bad_values_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        PublishedSettings(**changes)


def test_schedules_of_small_streams_need_no_number_of_epochs():
    for schedule in ("heterogeneous", "basic"):
        found = PublishedSettings(epsilon=2.0, schedule=schedule).for_stream(stream((1, 8, 8), 100))
        assert (found.schedule, found.passes) == (schedule, None)
    uneven = PublishedSettings(epsilon=2.0, schedule="heterogeneous", epochs_by_task="3,1.5")
    assert uneven.passes == (3.0, 1.5)


def test_what_is_filled_in_stays_when_tasks_come_later():
    small, large = stream((1, 8, 8), 100), stream((1, 8, 8), 300)
    both = Stream(name="s", tasks=(*small.tasks, *large.tasks), shared=False)
    found = PublishedSettings(epsilon=2.0, schedule="balanced").for_stream(small)
    assert (found.batch, found.steps) == (50, 2)
    assert found.for_stream(both) == found
    whole = PublishedSettings(epsilon=2.0, algorithm="whole").for_stream(small)
    with pytest.raises(InputError, match="larger than those that the noise is drawn for: got 300"):
        whole.for_stream(both)


def test_labels_leave_something_for_the_inputs():
    with pytest.raises(InputError, match=r"no budget is left.*got epsilon_labels 0.1 of epsilon"):
        PublishedSettings(epsilon=0.1).for_stream(stream((1, 28, 28), 60_000))


def test_tables_are_refused():
    with pytest.raises(InputError, match="images and signals"):
        PublishedSettings(epsilon=1.0).for_stream(stream((12,), 100))
