"""One noisy objective for each task, kept for ever (spec: variant B).

| spec     | here                | meaning                                                        |
|----------|---------------------|----------------------------------------------------------------|
| phi      | `ObjectiveSettings.model` | fixed features, |phi| <= 1 by a clip that is enforced    |
| A, b     | `moments`           | sum of phi phi^T, sum of phi y^T, with noise, released once    |
| rho      | `ridge`             | in norms of the noise in the sum of all A                      |

    task i:  (A_i, b_i) = sum of (phi phi^T, phi y^T) + noise;  the memory is {(A_j, b_j)}, j <= i
             W = the least of the sum over j <= i of their quadratic losses, in closed form

Guarantee: one Gaussian release of sensitivity sqrt(2) for each task that a unit is in
(`training.functional_head`). Replay, order and number of later tasks are post-processing: epsilon
does not grow with them. In a shared stream a unit is in every task, and their releases compose.
"""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from privet.engine.arguments import require_images
from privet.engine.checkpoint import load_checkpoint, restore, save_checkpoint
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.files import write_atomically
from privet.lifelong.closing import closed, lifetime_after
from privet.lifelong.life import Life
from privet.lifelong.lifetime import Lifetime, Own
from privet.lifelong.settings import ObjectiveSettings
from privet.lifelong.stream import Stream
from privet.privacy.accounting import calibrate
from privet.release import Release, read_weights
from privet.training.books import Books
from privet.training.dpsgd import (
    build,
    fresh_randomness,
    record_of,
    require_device,
    set_as_begun,
    take_steps,
)
from privet.training.functional_head import deviation_of, moments_of
from privet.training.run_folder import RunFolder


def begun(stream: Stream, settings: ObjectiveSettings) -> Lifetime:
    """No memory of records, so nothing is planned but the tasks' own looks."""
    for task in stream:
        require_images(task.data, "l2dp --memory objective", instead="leave --memory out")
    planned = (own_look(stream, settings),) * len(stream) if stream.shared else ()
    return Lifetime(tasks=(), recall=None, shared=stream.shared, planned=planned)


def own_look(stream: Stream, settings: ObjectiveSettings) -> Own:
    """One look at all records of a task, with the noise that keeps the target."""
    looks = len(stream) if stream.shared else 1

    def lifetime(z: float) -> Lifetime:
        own = Own(rate=1.0, steps=1, multiplier=z)
        return Lifetime(tasks=(own,) * looks, recall=None, shared=stream.shared)

    multiplier = calibrate(
        settings.epsilon,
        settings.delta,
        lambda z: lifetime(z).event(1),
        what=f"{looks} looks at all records",
    )
    return Own(rate=1.0, steps=1, multiplier=multiplier)


def learn(
    life: Life, settings: ObjectiveSettings, number: int, watch: Callable[[Any], None] | None
) -> Release:
    """Task `number`, from 1: look once, then minimise all objectives together."""
    data = life.stream.tasks[number - 1].data
    settings = settings.filled_for(data)
    with contextlib.ExitStack() as held:
        if RunFolder(life.version(number)).settings.exists():
            books, record = Books.reopen(life.version(number), ledger=life.ledger, held=held)
            if (release := books.saved_release()) is not None:
                return release
            trainer = _restored(life, settings, books, record, number)
        else:
            books, trainer = _begin(life, settings, number)
            assert books.folder is not None
            held.enter_context(books.folder.locked())
            save_checkpoint(books.folder.checkpoint, trainer, keep_keys=True)
        take_steps(trainer, settings, books.folder, watch)
        return _closed(life, settings, books, trainer, number)


def _begin(life: Life, settings: ObjectiveSettings, number: int) -> tuple[Books, PrivateTrainer]:
    data = life.stream.tasks[number - 1].data
    planned = life.lifetime().planned
    own = planned[number - 1] if planned else own_look(life.stream, settings)
    plan = Plan(
        steps=1,
        sampling_rate=1.0,
        clip_norm=settings.clip_norm,
        noise_multiplier=own.multiplier,
        normaliser=float(data.nominal_size),
        delta=settings.delta,
        unit=data.unit,
    )
    record = record_of(settings, plan, None)
    books = Books.begin(
        record, data, out=life.version(number), ledger=life.ledger, run_id=life.run_of(number)
    )
    randomness = fresh_randomness(settings)
    try:
        account = books.open_account(data, plan, method=settings.method, private=randomness.secret)
        return books, build(data, settings, plan, randomness=randomness, account=account)
    except BaseException:
        books.discard()
        raise


def _restored(
    life: Life, settings: ObjectiveSettings, books: Books, record: dict[str, Any], number: int
) -> PrivateTrainer:
    data = life.stream.tasks[number - 1].data
    set_as_begun(record, data, books.ledger)
    assert books.folder is not None
    plan = Plan.from_json(record["plan"])
    checkpoint = load_checkpoint(books.folder.checkpoint, require_device(settings.device))
    assert checkpoint.randomness is not None
    account = books.reopened_account(data, plan, private=checkpoint.randomness.secret)
    trainer = build(data, settings, plan, randomness=checkpoint.randomness, account=account)
    restore(trainer, checkpoint)
    return trainer


def _closed(
    life: Life, settings: ObjectiveSettings, books: Books, trainer: PrivateTrainer, number: int
) -> Release:
    data, plan = life.stream.tasks[number - 1].data, trainer.plan
    own = Own(rate=1.0, steps=1, multiplier=plan.noise_multiplier)
    lifetime = lifetime_after(life, own, trainer)
    _keep(life, number, *moments_of(trainer.released_model()), plan)
    s, b, deviation = _all_together(life, number)
    device = next(trainer.model.parameters()).device
    model = settings.classifier_of(
        trainer.released_model(), data, s.to(device), b.to(device), deviation=deviation
    )
    return closed(life, settings, books, trainer, lifetime, model=model)


def _path(life: Life, number: int) -> Path:
    return life.internal(f"objective-{number:02d}.safetensors")


def _keep(life: Life, number: int, s: Tensor, b: Tensor, plan: Plan) -> None:
    """The objective of a task, of all its records: not divided by their number."""
    n = plan.normaliser
    deviation = s.new_tensor([n * deviation_of(plan)])
    content = {"s": n * s, "b": n * b, "deviation": deviation}
    write_atomically(
        _path(life, number),
        safetensors.torch.save({k: v.cpu().contiguous() for k, v in content.items()}),
        private=True,
    )


def _all_together(life: Life, number: int) -> tuple[Tensor, Tensor, float]:
    """The sum of all objectives so far, and the deviation of its noise."""
    parts = [read_weights(_path(life, i)) for i in range(1, number + 1)]
    s = sum((part["s"] for part in parts[1:]), parts[0]["s"])
    b = sum((part["b"] for part in parts[1:]), parts[0]["b"])
    return s, b, math.hypot(*(float(part["deviation"]) for part in parts))
