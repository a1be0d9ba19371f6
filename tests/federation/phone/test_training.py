"""A lesson in slices: the bits of a lesson in one go, with all that a network may remember."""

import numpy as np
import pytest
import torch
from torch import nn

from privet.federation.flat import flat
from privet.federation.local_work import LocalWork, Material, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.phone import training
from privet.federation.phone.conditions import Mode
from privet.federation.phone.training import Course
from privet.federation.phone.virtual import Traced
from privet.federation.traces import Phone


@pytest.fixture
def lesson_of():
    """A network that draws and remembers, its engine and a lesson."""

    def make(optimizer="adam"):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3)
        )
        draw = np.random.default_rng(0)
        material = Material(
            x=torch.from_numpy(draw.random((30, 4), dtype=np.float32)),
            y=torch.from_numpy(draw.integers(0, 3, 30)),
            clients=[np.arange(30)],
            pool=np.zeros(0, dtype=np.int64),
            classes=3,
        )
        work = LocalWork(epochs=3, batch=8, learning_rate=0.05, optimizer=optimizer)
        engine = OneByOne(network, material, work, proximal=0.1)
        return engine, flat(network), Teacher(material, work, seed=4).lesson(0, 2)

    return make


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_stops_between_steps_change_no_bit(lesson_of, optimizer):
    engine, weights, lesson = lesson_of(optimizer)
    (whole,) = engine.changes(weights, [lesson])
    pupil, stops = engine.pupil(weights, lesson), 0
    while not pupil.done:
        left = iter([True])
        pupil.go_on(lambda left=left: next(left, False))
        torch.rand(7)  # what others draw meanwhile
        stops += 1
    assert stops == len(lesson.rows) == 12
    assert torch.equal(pupil.change(), whole)


def test_nobody_notices_that_a_pupil_draws(lesson_of):
    engine, weights, lesson = lesson_of()
    before = torch.get_rng_state()
    engine.pupil(weights, lesson).go_on()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_slice_is_as_long_as_the_phone_takes(lesson_of, monkeypatch):
    """2 records a second: 8, 8, 8 and 6 in each pass; a slice ends with the step that fills it."""
    monkeypatch.setattr(training, "SLICE_OF_CLOCK", 7.0)
    monkeypatch.setattr(training, "SLICE_SECONDS", 1e9)
    engine, weights, lesson = lesson_of()
    course = Course(engine.pupil(weights, lesson), lesson)
    phone = Traced(Phone(speed=2.0))
    taken = []
    while not course.done:
        taken.append(course.slice(phone, Mode.CHARGER))
    assert taken == [8.0, 7.0] * 3
    assert sum(taken) == 3 * 30 / 2.0
