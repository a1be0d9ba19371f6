"""A phone's own training: the simulator's client, bit for bit, in slices between which it may stop.

A slice is short, so that a charger that is pulled out, a user who comes back, or a signal to stop
is noticed soon. A killed phone begins its lesson again: the same turn is the same lesson.
"""

import copy
import time
from functools import cache
from pathlib import Path
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.federation import wire
from privet.federation.flat import flat, load_flat
from privet.federation.local_work import EMPTY, LocalWork, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.phone.conditions import Mode, Surroundings
from privet.federation.phone.records import HELD_OUT, Records
from privet.federation.phone.storage import vector_in
from privet.models import create

SLICE_SECONDS: Final = 0.25  # of the machine, between two looks at the world
SLICE_OF_CLOCK: Final = 30.0  # of the phone's clock, likewise
WEIGHTS: Final = "weights"
TRIED_AT_ONCE: Final = 256


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


def lesson_records(records: Records, work: wire.Work, *, seed: int, client: int, turn: int) -> int:
    """How many records a lesson goes through, every epoch counted."""
    teacher = Teacher(records.material(client), local_work(work), seed=seed)
    return teacher.records(client, turn)


@final
class Course:
    """One lesson on one phone.

    Args:
        network: as it was built; a copy is trained.
        records: of the phone.
        work: the plan.
        weights: file of the version to begin with.
        seed, client, turn: what the lesson is drawn from.
    """

    def __init__(
        self,
        network: nn.Module,
        records: Records,
        work: wire.Work,
        *,
        weights: Path,
        seed: int,
        client: int,
        turn: int,
    ) -> None:
        material, planned = records.material(client), local_work(work)
        lesson = Teacher(material, planned, seed=seed).lesson(client, turn)
        self._of_step = (lesson.rows != EMPTY).sum(1).tolist()
        start = vector_in(weights, WEIGHTS, size_of(network))
        engine = OneByOne(network, material, planned, proximal=work.proximal)
        self._pupil = engine.pupil(start, lesson)

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
