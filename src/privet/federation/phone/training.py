"""A phone's own training: the simulator's client, bit for bit, in slices between which it may stop.

A slice is short, so that a charger that is pulled out, a user who comes back, or a signal to stop
is noticed soon. A killed phone begins its lesson again: the same turn is the same lesson.
"""

import copy
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.federation import wire
from privet.federation.flat import flat, load_flat
from privet.federation.local_work import EMPTY, Lesson, LocalWork, Teacher
from privet.federation.one_by_one import OneByOne, Pupil
from privet.federation.phone.conditions import Mode, Surroundings
from privet.federation.phone.records import HELD_OUT, Records
from privet.federation.phone.storage import vector_in
from privet.models import create

SLICE_SECONDS: Final = 0.25  # of the machine, between two looks at the world
SLICE_OF_CLOCK: Final = 30.0  # of the phone's clock, likewise
WEIGHTS: Final = "weights"
TRIED_AT_ONCE: Final = 256
ONLY: Final = 0  # place of the phone's client among the clients of its own material


def local_work(work: wire.Work) -> LocalWork:
    """What the server's plan says, checked."""
    return LocalWork(
        epochs=work.epochs,
        batch=work.batch,
        learning_rate=work.learning_rate,
        optimizer=work.optimizer,
        own_per_class=work.own_per_class,
        pool_per_class=work.pool_per_class,
    )


def network_of(offer: wire.Offer) -> nn.Module:
    """The network by its name; its weights come from the server. Copies of it are trained."""
    return _built(offer.network, tuple(offer.shape), len(offer.classes))


@cache
def _built(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    return create(name, shape, classes, init_seed=0)


def size_of(network: nn.Module) -> int:
    """How many numbers travel."""
    return flat(network).numel()


@final
@dataclass(frozen=True, kw_only=True)
class Lessons:
    """What a phone learns from when it is asked: the simulator's lessons of the same client.

    Attributes:
        network: as it was built; copies are trained.
        records: of the phone.
        seed: what lessons are drawn from, with the records' key.
    """

    network: nn.Module
    records: Records
    seed: int

    def count(self, work: wire.Work, turn: int) -> int:
        """How many records a lesson goes through, every epoch counted."""
        teacher = Teacher(self.records.material(), local_work(work), seed=self.seed)
        return teacher.records(ONLY, turn)

    def begun(self, work: wire.Work, weights: Path, turn: int) -> "Course":
        """A lesson from a version on."""
        material, planned = self.records.material(), local_work(work)
        lesson = Teacher(material, planned, seed=self.seed).lesson(ONLY, turn)
        start = vector_in(weights, WEIGHTS, size_of(self.network))
        engine = OneByOne(self.network, material, planned, proximal=work.proximal)
        return Course(engine.pupil(start, lesson), lesson)


@final
class Course:
    """One lesson on one phone, slice by slice."""

    def __init__(self, pupil: Pupil, lesson: Lesson) -> None:
        self._pupil = pupil
        self._of_step = (lesson.rows != EMPTY).sum(1).tolist()

    @property
    def done(self) -> bool:
        """Whether the lesson is over."""
        return self._pupil.done

    def slice(self, surroundings: Surroundings, mode: Mode) -> float:
        """Some steps; the seconds that they took by the phone's clock."""
        began, spent = time.monotonic(), 0.0

        def may() -> bool:
            nonlocal spent
            if spent >= SLICE_OF_CLOCK or time.monotonic() - began >= SLICE_SECONDS:
                return False
            spent += surroundings.spend(self._of_step[self._pupil.steps_done], mode)
            return True

        self._pupil.go_on(may)
        return spent

    def change(self) -> Tensor:
        """What is sent."""
        return self._pupil.change()


def scores(network: nn.Module, weights: Path, x: Tensor) -> Tensor:
    """The answers of a version; the network that is passed stays as it is."""
    model = copy.deepcopy(network)
    load_flat(model, vector_in(weights, WEIGHTS, size_of(network)))
    model.eval()
    with torch.no_grad():
        return torch.cat([model(part) for part in torch.split(x, TRIED_AT_ONCE)])


def tried(network: nn.Module, weights: Path, records: Records, *, tries: int) -> int | None:
    """How many of the last `tries` held-out records a version has right.

    None where there are not so many: a count of tries would tell how many records a phone has.
    """
    x, y = records.read(HELD_OUT)
    if len(y) < tries:
        return None
    return int((scores(network, weights, x[-tries:]).argmax(1) == y[-tries:]).sum())
