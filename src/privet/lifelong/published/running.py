"""L2DP-ML as published on a stream in a folder: a version after each task, with the claim on it.

A task is a run without proved privacy (`training.unprotected`): for the ledger an access that no
cap has room for. Between tasks two things are kept: the network, which is the version before, and
in `internal/noise.safetensors` the noise, drawn once for the whole stream. All else follows from
public seeds, so a stream that was killed, within a task or between two, goes on with the same bits.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, final

import safetensors.torch
import torch
from torch import nn

from privet.data.dataset import Dataset
from privet.engine.plain import Course
from privet.files import write_atomically
from privet.guarantee import Privacy
from privet.lifelong.life import Life
from privet.lifelong.published.budgets import Noise
from privet.lifelong.published.claim import claims
from privet.lifelong.published.settings import AGEM, OFFSET, PUBLISHED, PublishedSettings
from privet.lifelong.published.trainer import PublishedLearner
from privet.release import Release, read_weights
from privet.training import unprotected
from privet.training.run_folder import RunFolder
from privet.training.unprotected import Unprotected

NOISE: Final[Mapping[str, str]] = {
    PUBLISHED: "Laplace, drawn once for all tasks",
    OFFSET: "Laplace on the inputs, taken off again",
    AGEM: "none",
}


def learn(
    life: Life, settings: PublishedSettings, number: int, watch: Callable[[Any], None] | None
) -> Release:
    """Task `number`, from 1, from its start or from where it was killed."""
    data, folder = life.stream.tasks[number - 1].data, life.version(number)
    way = Unprotected(
        method="l2dp",
        settings=PublishedSettings,
        build=partial(_built, life, number),
        mechanism=_mechanism,
        claims=partial(_claims, life),
    )
    if RunFolder(folder).settings.exists():
        return unprotected.resume(way, folder, data, ledger=life.ledger, watch=watch)
    return unprotected.run(way, data, settings, out=folder, ledger=life.ledger, watch=watch)


def _built(life: Life, number: int, data: Dataset, settings: PublishedSettings) -> "TaskTrainer":
    kept = life.internal("noise.safetensors")
    noise = Noise(**read_weights(kept)) if kept.exists() else None
    learner = PublishedLearner(life.stream, settings, noise)
    if noise is None:
        content = {name: value.cpu().contiguous() for name, value in vars(learner.drawn).items()}
        write_atomically(kept, safetensors.torch.save(content), private=True)
    if number > 1:
        before = Release.load(life.version(number - 1)).model.state_dict()
        learner.restore({"learned": number - 1, "step": 0, "network": before})
    return TaskTrainer(learner, number)


def _mechanism(trainer: "TaskTrainer", settings: PublishedSettings) -> Mapping[str, Any]:
    claimed = trainer.learner.budgets.figures() if settings.variant == PUBLISHED else {}
    return {
        "contribution": 1,
        "noise": NOISE[settings.variant],
        "sampler": trainer.plan.sampler.name,
        **claimed,
    }


def _claims(
    life: Life, data: Dataset, settings: PublishedSettings, trainer: "TaskTrainer"
) -> tuple[Privacy, ...]:
    return claims(settings, life.stream)


@final
class TaskTrainer:
    """The steps of one task, as `training.unprotected` takes them."""

    optimizers: tuple[torch.optim.Optimizer, ...] = ()  # the learner descends by itself

    def __init__(self, learner: PublishedLearner, number: int) -> None:
        self.learner = learner
        self.model: nn.Module = learner.network
        self.plan = Course(steps=learner.steps(number - 1), sampler=learner.sampler(number - 1))
        self.next_step = 0
        self.note = ""

    def step(self) -> None:
        """The next one; the last one ends the task."""
        self.learner.step()
        self.next_step += 1

    def released_model(self) -> nn.Module:
        """The network as it is; later tasks change it."""
        return copy.deepcopy(self.model)

    def state(self) -> dict[str, Any]:
        """Of the learner."""
        return self.learner.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.learner.restore(state)
