"""One task by private steps that recall the memory (spec: variant A); a release at its end.

    public: clip C, declared sizes n_i, rates q_i and r_i, chance p, noise, numbers of steps
    task i, each step:
        S <- Poisson(D_i, q_i);  g     = (sum of clip_C(grad) + N(0, sigma_i^2 C^2)) / (q_i n_i)
        R <- Poisson(M_i, r_i);  g_ref = (sum of clip_C(grad) + N(0, sigma_M^2 C^2)) / (r_i |M|)
        theta <- optimiser(combined(g, g_ref))
    every unit of D_i enters the memory with chance p

|M| is expected: p times the declared sizes behind. `lifetime` has the guarantee and its proof,
`planning` the noise, `recalling` how the two gradients become one step. A task is a run like any
other: its steps are reserved and charged in the ledger. All that later tasks may read of it is
reserved before it begins and charged when it ends. A killed task goes on from its checkpoint.

Deviation from the spec: the rate falls by halves, not as 1/(i-1) (`lifetime`).
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import dp_accounting as dp
from torch import nn

from privet.engine.account import RunAccount
from privet.engine.checkpoint import load_checkpoint, restore, save_checkpoint
from privet.engine.plan import Plan
from privet.engine.prepare import Extras, assemble
from privet.engine.trainer import PrivateTrainer
from privet.ledger import new_run_id
from privet.lifelong.closing import closed, lifetime_after
from privet.lifelong.combining import Combine, replayed
from privet.lifelong.consolidating import Springs, keep, kept
from privet.lifelong.life import Life
from privet.lifelong.lifetime import Lifetime, Own
from privet.lifelong.memory import memory_of
from privet.lifelong.planning import next_own, plan_of, reading_plan
from privet.lifelong.recalling import Noted, Prepaid, Recalling, branched
from privet.lifelong.settings import COMBINE, REPLAY, StreamSettings
from privet.lifelong.stream import Stream
from privet.privacy.accounting import DpEvent
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.training.books import Books
from privet.training.dpsgd import (
    fresh_randomness,
    model_and_optimizer,
    record_of,
    require_device,
    set_as_begun,
    take_steps,
)
from privet.training.run_folder import RunFolder

Watcher = Callable[[Any], None]
RECALL: Final = "recall"


def require_buildable(stream: Stream, settings: StreamSettings) -> None:
    """Refuse a network or a device that there is not, before anything is planned."""
    data = stream.tasks[0].data
    model_and_optimizer(data, settings.filled_for(data), require_device(settings.device))


def learn(life: Life, settings: StreamSettings, number: int, watch: Watcher | None) -> Release:
    """Task `number`, from 1, from its start or from where it was killed."""
    data = life.stream.tasks[number - 1].data
    settings = settings.filled_for(data)
    begun = RunFolder(life.version(number)).settings.exists()
    with contextlib.ExitStack() as held:
        if not begun:
            books, record = _begin(life, settings, number)
            randomness = fresh_randomness(settings)
            trainer = _trainer(life, settings, record, books, number, randomness, begins=True)
            assert books.folder is not None
            held.enter_context(books.folder.locked())
            save_checkpoint(books.folder.checkpoint, trainer, keep_keys=True)
        else:
            books, record = Books.reopen(life.version(number), ledger=life.ledger, held=held)
            if (release := books.saved_release()) is not None:
                return release
            trainer = _restored(life, settings, record, books, number)
        springs = _hooked(life, settings, trainer, books, number)
        assert books.folder is not None
        take_steps(trainer, settings, books.folder, watch)
        if springs is not None:
            keep(importance_of(life, number), springs.mattered(trainer.plan.steps, _noise(trainer)))
        return _closed(life, settings, record, books, trainer, number)


def _begin(life: Life, settings: StreamSettings, number: int) -> tuple[Books, dict[str, Any]]:
    data = life.stream.tasks[number - 1].data
    own = next_own(life.lifetime(), life.stream, settings)
    plan = plan_of(own, data, settings)
    record = record_of(settings, plan, None) | {"own": asdict(own), "memory_run": new_run_id()}
    folder = life.version(number)
    run_id = life.run_of(number)
    return Books.begin(record, data, out=folder, ledger=life.ledger, run_id=run_id), record


def _trainer(
    life: Life,
    settings: StreamSettings,
    record: Mapping[str, Any],
    books: Books,
    number: int,
    randomness: Randomness,
    *,
    begins: bool,
) -> PrivateTrainer:
    data = life.stream.tasks[number - 1].data
    plan = Plan.from_json(record["plan"])

    def account() -> RunAccount:
        if not begins:
            return books.reopened_account(data, plan, private=randomness.secret)
        opened = books.open_account(data, plan, method=settings.method, private=randomness.secret)
        _reserve_memory(life, settings, record, number, secret=randomness.secret)
        return opened

    try:
        device = require_device(settings.device)
        model, optimizer = model_and_optimizer(data, settings, device)
        if number > 1:
            model.load_state_dict(Release.load(life.version(number - 1)).model.state_dict())
        return assemble(
            model, optimizer, data, plan,
            loss=settings.loss, randomness=randomness, open_account=account,
            extras=settings.extras(),
        )  # fmt: skip
    except BaseException:
        if begins:
            books.discard()
        raise


def _restored(
    life: Life, settings: StreamSettings, record: Mapping[str, Any], books: Books, number: int
) -> PrivateTrainer:
    data = life.stream.tasks[number - 1].data
    set_as_begun(dict(record), data, books.ledger)
    assert books.folder is not None
    checkpoint = load_checkpoint(books.folder.checkpoint, require_device(settings.device))
    assert checkpoint.randomness is not None
    trainer = _trainer(life, settings, record, books, number, checkpoint.randomness, begins=False)
    restore(trainer, checkpoint)
    return trainer


def later_reads(lifetime: Lifetime, number: int) -> DpEvent | None:
    """All that tasks after `number` may do to a unit of it, behind its coin."""
    if lifetime.recall is None:
        return None
    return lifetime.recall.behind_coin(number + 1, lifetime.recall.horizon)


def _reserve_memory(
    life: Life, settings: StreamSettings, record: Mapping[str, Any], number: int, *, secret: bool
) -> None:
    """What later tasks may read of this one, as one event, before the task begins."""
    event = later_reads(life.lifetime(), number)
    if event is None:
        return
    life.ledger.reserve(
        life.stream.tasks[number - 1].data.name,
        label=f"{settings.method} {number:02d}, its memory",
        step_event=event if secret else dp.NonPrivateDpEvent(),
        steps=1,
        run_id=record["memory_run"],
    )


def _hooked(
    life: Life, settings: StreamSettings, trainer: PrivateTrainer, books: Books, number: int
) -> Springs | None:
    """With the memory, and with springs, where there are any."""
    recall = life.lifetime().recall
    if recall is not None and recall.rate_at(number) > 0:
        parts = [life.kept(i, chance=recall.admission) for i in range(1, number)]
        memory = memory_of(life.stream, parts, chance=recall.admission)
        plan = reading_plan(recall, number, trainer.plan.steps, memory, settings)
        assert plan is not None
        assert books.folder is not None
        journal = books.folder.internal / "recalled.log"
        reader = assemble(
            trainer.whole, Noted(trained_in(trainer.whole)), memory, plan,
            loss=settings.loss, randomness=branched(trainer.randomness, RECALL),
            open_account=lambda: Prepaid(books.ledger, books.run_id, journal),
            extras=Extras(contribution=settings.contribution, precision=settings.precision),
        )  # fmt: skip
        # Else a reading that comes out another way could not be told from the one that is paid.
        reader.account.books.require_noted(trainer.next_step, most=plan.steps)
        trainer.draws_by_torch = trainer.draws_by_torch or reader.draws_by_torch
        Recalling(trainer, reader, _combine(settings, trainer.plan, plan))
    return _springs(life, settings, trainer, number)


def _combine(settings: StreamSettings, own: Plan, reading: Plan) -> Combine:
    """As asked for; a replay counts both by how many units are expected in them."""
    if settings.combining != REPLAY:
        return COMBINE[settings.combining]
    return partial(replayed, share=reading.normaliser / (reading.normaliser + own.normaliser))


def _springs(
    life: Life, settings: StreamSettings, trainer: PrivateTrainer, number: int
) -> Springs | None:
    if settings.consolidation == 0:
        return None
    parameters = trained_in(trainer.whole)
    springs = Springs(trainer.optimizer, parameters, weight=settings.consolidation)
    if number > 1:
        before = trained_in(Release.load(life.version(number - 1)).model)
        springs.hold(before, kept(importance_of(life, number - 1)))
    return springs


def importance_of(life: Life, number: int) -> Path:
    """Where what mattered up to a task is kept."""
    return life.internal(f"importance-{number:02d}.safetensors")


def _noise(trainer: PrivateTrainer) -> float:
    """The variance of the noise in an entry of a task's gradient."""
    plan = trainer.plan
    return (plan.noise_multiplier * plan.clip_norm / plan.normaliser) ** 2


def trained_in(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that learn, in their order."""
    return [p for p in model.parameters() if p.requires_grad]


def _closed(
    life: Life,
    settings: StreamSettings,
    record: Mapping[str, Any],
    books: Books,
    trainer: PrivateTrainer,
    number: int,
) -> Release:
    """The memory of the task, then its version."""
    lifetime = lifetime_after(life, Own(**record["own"]), trainer)
    settle_memory(life, lifetime, record, number)
    return closed(life, settings, books, trainer, lifetime)


def settle_memory(life: Life, lifetime: Lifetime, record: Mapping[str, Any], number: int) -> None:
    """Charge what later tasks may read, then keep it."""
    if lifetime.recall is None or not life.ledger.knows(record["memory_run"]):
        return
    if life.ledger.run(record["memory_run"]).status == "open":
        life.ledger.charge(record["memory_run"], 0)
        life.ledger.settle(record["memory_run"])
    life.kept(number, chance=lifetime.recall.admission)
