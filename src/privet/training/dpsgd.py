"""DP-SGD (Abadi et al., 2016): train a classifier whose every update is private.

The loop itself is `engine/trainer.py`; here are its settings, a run's folder, and resuming.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from privet.data.dataset import Dataset
from privet.data.identity import enter_in_ledger
from privet.engine.account import RunAccount
from privet.engine.checkpoint import load_checkpoint, restore, save_checkpoint
from privet.engine.handover import private_figures, state
from privet.engine.plan import Plan
from privet.engine.prepare import assemble, left_for_training
from privet.engine.trainer import PrivateTrainer
from privet.errors import FaultyEnvironment, InputError
from privet.files import write_json
from privet.guarantee import check_target
from privet.ledger import Ledger, default_ledger_path, new_run_id
from privet.models import create, default_model
from privet.privacy.clipping import cross_entropy
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.training.run_folder import RunFolder

Watcher = Callable[[PrivateTrainer], None]
CHECKPOINT_SECONDS: Final = 20.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user may choose. None of it is read off the data.

    Attributes:
        epsilon: target, add/remove neighbours.
        delta: of the target.
        batch: expected batch; default: a fifth of the nominal size, at most 2048.
        epochs: expected passes over the data.
        learning_rate: of SGD on the update in units of the clip norm; falls linearly to zero.
        momentum: of SGD.
        clip_norm: bound on one example's gradient.
        model: a name of `privet.models`; default: by the shape of the examples.
        init_seed: of the first weights; public.
        device: 'cpu', 'cuda', ...
        keep_keys: keep the secret keys in `internal/` until the run ends, so that a killed run
            repeats its lost steps exactly; otherwise they are charged again.
        checkpoint_every: steps between checkpoints; default: every 20 seconds.
        noise_seed: for tests only: known noise, hence no epsilon.
    """

    epsilon: float
    delta: float = 1e-5
    batch: int | None = None
    epochs: float = 30.0
    learning_rate: float = 0.25
    momentum: float = 0.9
    clip_norm: float = 1.0
    model: str | None = None
    init_seed: int = 0
    device: str = "cpu"
    keep_keys: bool = True
    checkpoint_every: int | None = None
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        for name in ("learning_rate", "clip_norm", "epochs"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"bad {name}", got=value, expected="a positive, finite number")
        if not 0 <= self.momentum < 1:
            raise InputError("bad momentum", got=self.momentum, expected="0 <= momentum < 1")

    def filled_for(self, data: Dataset) -> "Settings":
        """The same with every default that depends on public facts filled in."""
        return replace(
            self,
            batch=max(1, min(2048, data.nominal_size // 5)) if self.batch is None else self.batch,
            model=self.model or default_model(data.shape),
        )

    def plan_for(self, data: Dataset) -> Plan:
        """The plan, calibrated to the target."""
        filled = self.filled_for(data)
        assert filled.batch is not None
        return Plan.calibrate(
            epsilon=left_for_training(self.epsilon, data),
            delta=self.delta,
            nominal_size=data.nominal_size,
            batch=filled.batch,
            epochs=self.epochs,
            clip_norm=self.clip_norm,
            unit=data.unit,
        )


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
    if out is not None:
        RunFolder(Path(out)).require_free()
    settings = settings.filled_for(data)
    device = require_device(settings.device)
    model, optimizer = _model_and_optimizer(data, settings, device)
    plan = settings.plan_for(data)
    ledger = ledger if ledger is not None else Ledger(default_ledger_path())
    digest = enter_in_ledger(data, ledger)
    randomness = _randomness(settings)
    run_id = new_run_id()
    record = {
        "method": "dpsgd",
        "settings": asdict(settings),
        "plan": plan.to_json(),
        "data": reference,
        "data_digest": digest,
        "ledger": str(ledger.path.resolve()),
        "run": run_id,
        "threads": torch.get_num_threads(),
    }
    folder = None if out is None else RunFolder.create(out, record)

    def open_account() -> RunAccount:
        return RunAccount.open(
            ledger,
            data.name,
            plan,
            label="dpsgd" if folder is None else f"dpsgd {folder.folder.name}",
            private=randomness.secret,
            journal=None if folder is None else folder.journal,
            run_id=run_id,
        )

    try:
        trainer = assemble(
            model, optimizer, data, plan,
            loss=cross_entropy, randomness=randomness, open_account=open_account,
        )  # fmt: skip
    except BaseException:
        if folder is not None:
            folder.discard()
        raise
    if folder is None:
        return _finish(trainer, data, settings, folder, watch)
    with folder.locked():
        save_checkpoint(folder.checkpoint, trainer, keep_keys=settings.keep_keys)
        return _finish(trainer, data, settings, folder, watch)


def resume(
    out: str | Path, data: Dataset, *, ledger: Ledger | None = None, watch: Watcher | None = None
) -> Release:
    """Go on with a killed run; its lost steps are repeated exactly, or charged again."""
    folder, _ = RunFolder.open(out)
    with folder.locked():  # before anything is read: another process may be writing it
        folder, record = RunFolder.open(out)
        ledger = ledger if ledger is not None else Ledger(record["ledger"])
        if folder.is_saved:  # killed after the release was written: only the cleaning up is left
            ledger.settle(record["run"])
            folder.forget_keys()
            return Release.load(folder.folder)
        settings = Settings(**record["settings"])
        trainer = _restored_trainer(folder, record, settings, data, ledger)
        return _finish(trainer, data, settings, folder, watch)


def _restored_trainer(
    folder: RunFolder, record: dict[str, Any], settings: Settings, data: Dataset, ledger: Ledger
) -> PrivateTrainer:
    plan = Plan.from_json(record["plan"])
    # Sums are rounded by the number of threads; only the same one repeats the lost steps exactly.
    torch.set_num_threads(record["threads"])
    if enter_in_ledger(data, ledger) != record["data_digest"]:
        raise InputError(
            "the data changed since the run began", got=data.name, fix="start a new run"
        )
    randomness = _randomness(settings)
    RunAccount.require_reserved(ledger, record["run"], data.name, plan, private=randomness.secret)
    device = require_device(settings.device)
    checkpoint = load_checkpoint(folder.checkpoint, device)
    model, optimizer = _model_and_optimizer(data, settings, device)
    trainer = assemble(
        model,
        optimizer,
        data,
        plan,
        loss=cross_entropy,
        randomness=checkpoint.randomness or randomness,
        open_account=lambda: RunAccount(ledger, record["run"], folder.journal),
    )
    restore(trainer, checkpoint)
    return trainer


def _finish(
    trainer: PrivateTrainer,
    data: Dataset,
    settings: Settings,
    folder: RunFolder | None,
    watch: Watcher | None,
) -> Release:
    _train(trainer, settings, folder, watch)
    assert settings.model is not None
    release = state(
        trainer,
        data,
        method="dpsgd",
        model_name=settings.model,
        config=asdict(settings) | {"noise_seed": None},
    )
    if folder is not None:
        write_json(folder.figures, private_figures(release, data), private=True)
        release.save(folder.folder)
    # Only now: killed before this line, the run can still be resumed.
    trainer.account.settle()
    if folder is not None:
        folder.forget_keys()
    return release


def _train(
    trainer: PrivateTrainer, settings: Settings, folder: RunFolder | None, watch: Watcher | None
) -> None:
    saved = time.monotonic()
    for batch in trainer.batches():
        for group in trainer.optimizer.param_groups:
            group["lr"] = _learning_rate(settings, batch.step / trainer.plan.steps)
        trainer.step(batch)
        if watch is not None:
            watch(trainer)
        if folder is not None and _checkpoint_due(settings, trainer.next_step, saved):
            save_checkpoint(folder.checkpoint, trainer, keep_keys=settings.keep_keys)
            saved = time.monotonic()


def _learning_rate(settings: Settings, done: float) -> float:
    """Falls linearly to zero. Divided by the clip norm, so that the two can be tuned apart."""
    return settings.learning_rate / settings.clip_norm * (1.0 - done)


def _checkpoint_due(settings: Settings, step: int, saved: float) -> bool:
    if settings.checkpoint_every is not None:
        return step % settings.checkpoint_every == 0
    return time.monotonic() - saved > CHECKPOINT_SECONDS


def _model_and_optimizer(
    data: Dataset, settings: Settings, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer]:
    assert settings.model is not None
    model = create(settings.model, data.shape, len(data.classes), init_seed=settings.init_seed).to(
        device
    )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum
    )
    return model, optimizer


def _randomness(settings: Settings) -> Randomness:
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
