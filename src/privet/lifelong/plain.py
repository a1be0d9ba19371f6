"""One task by plain steps: A-GEM, replay, springs or nothing, to compare private ones with.

The loop is `engine.plain`, twice: the memory's steps move nothing, and their gradient has a say in
the task's (`recalling`, without noise). Everything that is drawn follows from public seeds.

Guarantee: none.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, final

import torch

from privet.data.dataset import Dataset
from privet.engine.examples import Examples
from privet.engine.plain import Course, PlainTrainer
from privet.engine.turns import Turns
from privet.lifelong.combining import Combine
from privet.lifelong.consolidating import Springs, keep, kept
from privet.lifelong.life import Life
from privet.lifelong.memory import memory_of
from privet.lifelong.private import importance_of, trained_in
from privet.lifelong.recalling import Noted, put_back
from privet.lifelong.settings import COMBINE, NOTHING, PlainStreamSettings
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.training import unprotected
from privet.training.plain import plain_mechanism, plain_trainer
from privet.training.run_folder import RunFolder
from privet.training.unprotected import Unprotected


def learn(
    life: Life,
    settings: PlainStreamSettings,
    number: int,
    watch: Callable[[Any], None] | None,
    *,
    method: str,
) -> Release:
    """Task `number`, from 1, from its start or from where it was killed."""
    data, folder = life.stream.tasks[number - 1].data, life.version(number)
    made: list[_Hooked] = []

    def built(data: Dataset, settings: PlainStreamSettings) -> PlainTrainer:
        made.append(_Hooked(life, settings, number))
        return made[-1].trainer

    way = Unprotected(
        method=method, settings=type(settings), build=built, mechanism=plain_mechanism
    )
    if RunFolder(folder).settings.exists():
        release = unprotected.resume(way, folder, data, ledger=life.ledger, watch=watch)
    else:
        release = unprotected.run(way, data, settings, out=folder, ledger=life.ledger, watch=watch)
    if made and made[-1].springs is not None:
        mattered = made[-1].springs.mattered(made[-1].trainer.plan.steps, 0.0)
        keep(importance_of(life, number), mattered)
    if settings.combining != NOTHING:
        life.kept(number, chance=settings.admission)
    return release


@final
class _Hooked:
    """The trainer of a task, the memory and the springs on its optimiser."""

    def __init__(self, life: Life, settings: PlainStreamSettings, number: int) -> None:
        self.trainer = plain_trainer(life.stream.tasks[number - 1].data, settings)
        self.springs: Springs | None = None
        if number > 1:
            before = Release.load(life.version(number - 1)).model
            self.trainer.whole.load_state_dict(before.state_dict())
            if settings.combining != NOTHING:
                _recall(life, settings, number, self.trainer)
        if settings.consolidation > 0:
            self.springs = Springs(
                self.trainer.optimizer,
                trained_in(self.trainer.whole),
                weight=settings.consolidation,
            )
            if number > 1:
                self.springs.hold(trained_in(before), kept(importance_of(life, number - 1)))


def _recall(life: Life, settings: PlainStreamSettings, number: int, own: PlainTrainer) -> None:
    parts = [life.kept(i, chance=settings.admission) for i in range(1, number)]
    memory = memory_of(life.stream, parts, chance=settings.admission)
    if not len(memory.train):
        return
    reader = _reader(memory, settings, own)
    own.optimizer.register_step_pre_hook(
        partial(_combined, own, reader, COMBINE[settings.combining])
    )


def _reader(memory: Dataset, settings: PlainStreamSettings, own: PlainTrainer) -> PlainTrainer:
    assert settings.batch is not None
    size = memory.train.n_units
    sampler, _ = Turns(
        sampler="shuffled",
        batch=min(settings.recall_batch or settings.batch, size),
        nominal_size=size,
        epochs=1.0,
    ).resolved()
    device = next(own.model.parameters()).device
    examples = Examples.of(memory.train, memory.bounds, device, contribution=settings.contribution)
    return PlainTrainer(
        model=own.whole,
        whole=own.whole,
        optimizer=Noted(trained_in(own.whole)),
        examples=examples,
        plan=Course(steps=own.plan.steps, sampler=sampler),
        stream=Randomness.seeded(settings.init_seed).noise,
        precision=own.precision,
        loss=settings.loss,
    )


def _combined(
    own: PlainTrainer,
    reader: PlainTrainer,
    combine: Combine,
    optimizer: torch.optim.Optimizer,
    *_: Any,
) -> None:
    """Before the optimiser moves a weight."""
    held = trained_in(own.whole)
    g = torch.cat([p.grad.flatten() for p in held if p.grad is not None])
    reader.next_step = own.next_step  # also after a crash: what is drawn follows from the step
    reader.step()
    assert isinstance(reader.optimizer, Noted)
    assert reader.optimizer.gradient is not None
    put_back(held, combine(g, reader.optimizer.gradient))
