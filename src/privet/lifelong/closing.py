"""The end of a private task: a version stated for a lifetime, saved, settled, its keys gone."""

from dataclasses import asdict, replace

from torch import nn

from privet.engine.handover import Lifelong, private_figures, state
from privet.engine.trainer import PrivateTrainer
from privet.files import write_json
from privet.lifelong.life import Life
from privet.lifelong.lifetime import Lifetime, Own
from privet.release import Release
from privet.training.books import Books
from privet.training.recipes import tuning_of
from privet.training.settings import Settings


def lifetime_after(life: Life, own: Own, trainer: PrivateTrainer) -> Lifetime:
    """With the task that ends; steps that were drawn twice are paid twice."""
    redone = trainer.account.books.redone_steps
    return life.lifetime().after(replace(own, steps=own.steps + redone))


def closed(
    life: Life,
    settings: Settings,
    books: Books,
    trainer: PrivateTrainer,
    lifetime: Lifetime,
    *,
    model: nn.Module | None = None,
) -> Release:
    """The version of the last task of `lifetime`.

    `model` is what is released where that is made of the trained model, without the records.
    """
    folder, data = books.folder, life.stream.tasks[len(lifetime.tasks) - 1].data
    assert folder is not None
    assert settings.model is not None
    release = state(
        trainer,
        data,
        method=settings.method,
        model_name=settings.model,
        config=asdict(settings) | {"noise_seed": None},
        tuning=tuning_of(settings.recipe, data.name, asdict(settings)),
        model=model,
        lifetime=_stated(life, lifetime, trainer, settings.delta),
    )
    write_json(folder.figures, private_figures(release, data), private=True)
    release.save(folder.folder)
    # Only now: killed before this line, the task can still be resumed.
    trainer.account.books.settle()
    folder.forget_keys()
    (folder.internal / "recalled.log").unlink(missing_ok=True)
    return release


def _stated(life: Life, lifetime: Lifetime, trainer: PrivateTrainer, delta: float) -> Lifelong:
    """What the card of a version says about lifetimes."""
    worst, event = lifetime.worst(delta)
    whose = "of every task" if lifetime.shared else f"of task {worst}"
    return Lifelong(
        counted=(f"the lifetime of a unit {whose}", event),
        facts={
            "stream": life.stream.name,
            "number": len(lifetime.tasks),
            "costliest": worst,
            "redone": life.redone + trainer.account.books.redone_steps,
            **lifetime.to_json(),
        },
    )
