"""DP-SGD (Abadi et al., 2016): train a classifier whose every update is private.

The loop itself is `engine/trainer.py`, what may be chosen `settings.py`; here is a run from start
to release, and resuming.
"""

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import nn

from privet.audits.canary_run import ITSELF, RunAudit
from privet.data.dataset import Dataset
from privet.data.identity import enter_in_ledger
from privet.engine.account import Account, KeptByLead
from privet.engine.canaries import DiracCanaries
from privet.engine.checkpoint import Checkpoint, load_checkpoint, restore, save_checkpoint, shared
from privet.engine.handover import private_figures, state
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.prepare import Extras, assemble
from privet.engine.ranks import Ranks, require_same_start, weights_of
from privet.engine.trainer import PrivateTrainer
from privet.errors import CheckFailed, FaultyEnvironment, InputError
from privet.files import write_json
from privet.ledger import Ledger
from privet.privacy.clipping import trainable
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.training.books import Books, handed_round, require_as_many
from privet.training.ordinary import OrdinarySettings
from privet.training.recipes import tuning_of
from privet.training.run_folder import RunFolder
from privet.training.schedule import share_of_peak
from privet.training.settings import Settings

Watcher = Callable[[PrivateTrainer], None]
CHECKPOINT_SECONDS: Final = 20.0


def run(
    data: Dataset,
    settings: Settings,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    watch: Watcher | None = None,
    reference: dict[str, Any] | None = None,
) -> Release:
    """Train, and save the release to `out` if given.

    `reference` says how to load the data again when a killed run is resumed.
    """
    settings = settings.filled_for(data)
    with Ranks.joined() as ranks:
        with ranks.agreed():
            if out is not None and ranks.leads:
                RunFolder(Path(out)).require_free()
            if ranks.leads:
                settings.require_public(data, ledger)
            device = require_device(ranks.device(settings.device))
            model, optimizer = model_and_optimizer(data, settings, device)
            plan = settings.plan_for(data)
        record = record_of(settings, plan, reference, processes=ranks.size)
        require_same_start(ranks, data, model, asdict(settings) | asdict(plan))
        randomness = ranks.with_sampling_of_lead(fresh_randomness(settings))
        books: Books | None = None
        with ranks.agreed():
            if ranks.leads:
                books = Books.begin(record, data, out=out, ledger=ledger)

        def open_account() -> Account:
            if books is None:
                return KeptByLead()
            private = randomness.secret and settings.covers_all
            return books.open_account(data, plan, method=settings.method, private=private)

        try:
            with ranks.agreed():
                trainer = assemble(
                    model, optimizer, data, plan,
                    loss=settings.loss, randomness=randomness, open_account=open_account,
                    extras=extras_with_canaries(settings, plan, model), ranks=ranks,
                )  # fmt: skip
        except BaseException:
            if books is not None:
                books.discard()
            raise
        folder = None if books is None else books.folder
        with contextlib.nullcontext() if folder is None else folder.locked():
            with ranks.agreed():
                if folder is not None:
                    save_checkpoint(folder.checkpoint, trainer, keep_keys=settings.keep_keys)
            return finish(trainer, data, settings, folder, watch)


def resume(
    out: str | Path,
    data: Dataset,
    *,
    ledger: Ledger | None = None,
    watch: Watcher | None = None,
    kind: type[Settings] = Settings,
) -> Release:
    """Go on with a killed run; its lost steps are repeated exactly, or charged again.

    `kind` is that of the method's settings.
    """
    with Ranks.joined() as ranks, contextlib.ExitStack() as held:
        books: Books | None = None
        record: dict[str, Any] = {}
        with ranks.agreed():
            if ranks.leads:
                books, record = Books.reopen(out, ledger=ledger, held=held)
        record = ranks.told(record)
        with ranks.agreed():
            require_as_many(ranks, record.get("processes", 1))
            settings = kind(**record["settings"])
            release = None if books is None else books.saved_release()
        if ranks.told(release is not None):
            return handed_round(release, ranks)
        trainer = _restored_trainer(books, record, settings, data, ranks)
        return finish(trainer, data, settings, None if books is None else books.folder, watch)


def _restored_trainer(
    books: Books | None, record: dict[str, Any], settings: Settings, data: Dataset, ranks: Ranks
) -> PrivateTrainer:
    account: Account = KeptByLead()
    checkpoint: Checkpoint | None = None
    with ranks.agreed():
        plan = Plan.from_json(record["plan"])
        randomness = fresh_randomness(settings)
        if books is None or books.folder is None:
            torch.set_num_threads(record["threads"])
        else:
            set_as_begun(record, data, books.ledger)
            private = randomness.secret and settings.covers_all
            account = books.reopened_account(data, plan, private=private)
            checkpoint = load_checkpoint(books.folder.checkpoint, require_device(settings.device))
    checkpoint = shared(checkpoint, ranks)
    randomness = ranks.with_sampling_of_lead(checkpoint.randomness or randomness)
    with ranks.agreed():
        trainer = build(data, settings, plan, randomness=randomness, account=account, ranks=ranks)
        restore(trainer, checkpoint)
    require_same_start(ranks, data, trainer.model, asdict(settings) | asdict(plan))
    return trainer


def set_as_begun(record: dict[str, Any], data: Dataset, ledger: Ledger) -> None:
    """Bring about what a resumed run needs to repeat itself; refuse other data."""
    if Origin.of(data).sealed(ledger, record["run"]) != record["data_digest"]:
        raise InputError(
            "the data changed since the run began",
            got=data.name,
            expected="the same records in the same order, declared alike",
            fix="load them as they were; or start a new run",
        )
    enter_in_ledger(data, ledger)
    # Sums are rounded by the number of threads; only the same one repeats the lost steps exactly.
    torch.set_num_threads(record["threads"])


def build(
    data: Dataset,
    settings: Settings,
    plan: Plan,
    *,
    randomness: Randomness,
    account: Account,
    ranks: Ranks = Ranks(),  # noqa: B008 - frozen
) -> PrivateTrainer:
    """A trainer for filled settings, on an account that is open already."""
    device = require_device(ranks.device(settings.device))
    model, optimizer = model_and_optimizer(data, settings, device)
    return assemble(
        model,
        optimizer,
        data,
        plan,
        loss=settings.loss,
        randomness=randomness,
        open_account=lambda: account,
        extras=extras_with_canaries(settings, plan, model),
        ranks=ranks,
    )


def extras_with_canaries(settings: Settings, plan: Plan, model: nn.Module) -> Extras:
    """The extras of the settings, and the canaries that were asked for, with coins of their own."""
    if not settings.canaries:
        return settings.extras()
    size = sum(p.numel() for p in trainable(model).values())
    seed = secrets.randbits(63) if settings.noise_seed is None else settings.noise_seed
    coins = torch.Generator().manual_seed(seed)
    canaries = DiracCanaries.drawn(plan, settings.canaries, size, coins)
    return replace(settings.extras(), canaries=canaries)


def record_of(
    settings: Settings, plan: Plan, reference: dict[str, Any] | None, *, processes: int = 1
) -> dict[str, Any]:
    """What `resume` needs to know of a run."""
    return {
        "method": settings.method,
        "analysis": "sound",
        "settings": asdict(settings),
        "plan": plan.to_json(),
        "data": reference,
        "threads": torch.get_num_threads(),
        "processes": processes,
    }


def finish(
    trainer: PrivateTrainer,
    data: Dataset,
    settings: Settings,
    folder: RunFolder | None,
    watch: Watcher | None,
) -> Release:
    """The steps that are left, then the release."""
    ranks = trainer.ranks
    take_steps(trainer, settings, folder, watch)
    ranks.require_alike(
        "the weights they came to",
        weights_of(trainer.released_model()),
        kind=CheckFailed,
        fix="start a new run, on machines that compute alike",
    )
    release: Release | None = None
    with ranks.agreed():
        if ranks.leads:
            release = _closed(trainer, data, settings, folder)
    return handed_round(release, ranks)


def _closed(
    trainer: PrivateTrainer, data: Dataset, settings: Settings, folder: RunFolder | None
) -> Release:
    """The release, stated and saved; then the end of the run and of its keys."""
    assert settings.model is not None
    release = state(
        trainer,
        data,
        method=settings.method,
        model_name=settings.model,
        config=asdict(settings) | {"noise_seed": None},
        tuning=tuning_of(settings.recipe, data.name, asdict(settings)),
        model=settings.made_of(trainer.released_model(), data, trainer.plan),
        fixed=settings.fixed_parts(data),
    )
    if folder is not None:
        write_json(folder.figures, private_figures(release, data), private=True)
        if trainer.canaries is not None:  # its scores would give the noise away: see there
            audit = RunAudit.of(trainer.canaries, subject=ITSELF)
            write_json(folder.audit, {"audit": audit.rows()}, private=True)
        release.save(folder.folder)
    # Only now: killed before this line, the run can still be resumed.
    trainer.account.books.settle()
    if folder is not None:
        folder.forget_keys()
    return release


def take_steps(
    trainer: PrivateTrainer, settings: Settings, folder: RunFolder | None, watch: Watcher | None
) -> None:
    """All steps that are left, with checkpoints in `folder` if there is one."""
    saved = time.monotonic()
    for batch in trainer.batches():
        for group in trainer.optimizer.param_groups:
            group["lr"] = _learning_rate(settings, batch.step / trainer.plan.steps)
        trainer.step(batch)
        with trainer.ranks.agreed():
            if watch is not None and trainer.ranks.leads:
                watch(trainer)
            if folder is not None and checkpoint_due(settings, trainer.next_step, saved):
                save_checkpoint(folder.checkpoint, trainer, keep_keys=settings.keep_keys)
                saved = time.monotonic()


def _learning_rate(settings: Settings, done: float) -> float:
    """SGD's is divided by the clip norm, to tune the two apart; Adam does that by itself."""
    scale = 1.0 if settings.optimizer == "adam" else 1.0 / settings.clip_norm
    share = share_of_peak(done, settings.schedule, settings.warmup)
    return settings.learning_rate * scale * share


def checkpoint_due(settings: OrdinarySettings, step: int, saved: float) -> bool:
    """After so many steps, or so long after the last one was `saved`."""
    if settings.checkpoint_every is not None:
        return step % settings.checkpoint_every == 0
    return time.monotonic() - saved > CHECKPOINT_SECONDS


def model_and_optimizer(
    data: Dataset, settings: OrdinarySettings, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """For filled settings; the first weights are those of the seed."""
    model = settings.network(data).to(device)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "adam":
        optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate)
    else:
        rate, momentum = settings.learning_rate, settings.momentum
        optimizer = torch.optim.SGD(parameters, lr=rate, momentum=momentum)
    return model, settings.constrained(optimizer, model, data.shape)


class Seeded(Protocol):
    """Settings of a run whose noise may be known, for tests."""

    @property
    def init_seed(self) -> int:
        """Of the first weights."""

    @property
    def noise_seed(self) -> int | None:
        """None for secret noise."""


def fresh_randomness(settings: Seeded) -> Randomness:
    """The streams of a new run."""
    if settings.noise_seed is None:
        return Randomness.fresh(settings.init_seed)
    return Randomness.seeded(settings.noise_seed, settings.init_seed)


def require_device(name: str) -> torch.device:
    """A usable device, or a fault of the environment."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise FaultyEnvironment(
            "device not usable",
            got=f"'{name}' ({str(error).splitlines()[0]})",
            fix="use --device cpu",
        ) from None
    return device
