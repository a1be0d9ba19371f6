"""Training without privacy: what private training is compared with, and what attacks are tried on.

The loop is `engine/plain.py`: minibatch gradient descent on the mean loss, in a new order each
epoch. Ledger and card say what it is: an access to the records without any privacy.
"""

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import dp_accounting as dp
import torch

from privet.data.dataset import Dataset
from privet.engine.adversary import require_adversary
from privet.engine.arguments import require_fitting, require_views
from privet.engine.averaging import WeightAverage
from privet.engine.examples import Examples, made_up_batch
from privet.engine.handover import (
    accuracy_figures,
    data_facts,
    private_figures,
    provenance,
    release_config,
)
from privet.engine.plain import Course, PlainTrainer
from privet.engine.ranks import Ranks
from privet.engine.tuned import DECLARED
from privet.engine.turns import Turns
from privet.errors import CheckFailed, InputError
from privet.files import write_atomically, write_json
from privet.ledger import Ledger
from privet.models.fronted import Fronted
from privet.privacy.events import to_json
from privet.privacy.precision import find_precision
from privet.privacy.randomness import Randomness
from privet.privacy.units import cross_entropy
from privet.release import Release
from privet.training.books import Books
from privet.training.dpsgd import (
    checkpoint_due,
    model_and_optimizer,
    require_device,
    set_as_begun,
)
from privet.training.ordinary import OrdinarySettings
from privet.training.run_folder import RunFolder
from privet.training.schedule import share_of_peak

Watcher = Callable[[PlainTrainer], None]
NO_PRIVACY: Final = (
    "trained without privacy: the weights may reveal any record that they were trained on"
)


@dataclass(frozen=True, kw_only=True)
class PlainSettings(OrdinarySettings):
    """The ordinary settings, with defaults that suit plain gradient descent.

    Attributes:
        batch: units in a step; default: 128, or the nominal size where that is smaller.
        learning_rate: highest one.
    """

    learning_rate: float = 0.05

    def _batch_for(self, nominal_size: int) -> int:
        return min(128, nominal_size)

    def course_for(self, data: Dataset) -> Course:
        """Steps and batches, of filled settings."""
        assert self.batch is not None
        sampler, steps = Turns(
            sampler="shuffled",
            batch=self.batch,
            nominal_size=data.nominal_size,
            epochs=self.epochs,
        ).resolved()
        return Course(steps=steps, sampler=sampler)


def run(
    data: Dataset,
    settings: PlainSettings,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    watch: Watcher | None = None,
    reference: dict[str, Any] | None = None,
) -> Release:
    """Train, and save the release to `out` if given.

    `reference` says how to load the data again when a killed run is resumed.
    """
    _require_alone()
    settings = settings.filled_for(data)
    if out is not None:
        RunFolder(Path(out)).require_free()
    trainer = _trainer(data, settings)
    record = {
        "method": "plain",
        "settings": asdict(settings),
        "data": reference,
        "threads": torch.get_num_threads(),
    }
    books = Books.begin(record, data, out=out, ledger=ledger)
    try:
        _enter(books, data)
    except BaseException:
        books.discard()
        raise
    with contextlib.nullcontext() if books.folder is None else books.folder.locked():
        _save(trainer, books.folder)
        return _finish(trainer, data, settings, books, watch)


def resume(
    out: str | Path, data: Dataset, *, ledger: Ledger | None = None, watch: Watcher | None = None
) -> Release:
    """Go on with a killed run; it ends with the weights that it would have ended with."""
    _require_alone()
    with contextlib.ExitStack() as held:
        books, record = Books.reopen(out, ledger=ledger, held=held)
        release = books.saved_release()
        if release is not None:
            return release
        set_as_begun(record, data, books.ledger)
        entered = books.ledger.run(books.run_id)
        if (entered.dataset, entered.step_event) != (data.name, dp.NonPrivateDpEvent()):
            raise CheckFailed(f"run {books.run_id} is not in the ledger as one without privacy")
        settings = PlainSettings(**record["settings"])
        trainer = _trainer(data, settings)
        assert books.folder is not None
        _restore(trainer, books.folder.checkpoint)
        return _finish(trainer, data, settings, books, watch)


def _require_alone() -> None:
    with Ranks.joined() as ranks:
        if ranks.size > 1:
            raise InputError(
                "plain training runs in one process", got=ranks.size, fix="leave torchrun out"
            )


def _trainer(data: Dataset, settings: PlainSettings) -> PlainTrainer:
    device = require_device(settings.device)
    model, optimizer = model_and_optimizer(data, settings, device)
    precision, probe = find_precision(settings.precision, device), made_up_batch(data, device)
    trained, augmentation, adversary = model, settings.augmentation, settings.adversary
    require_fitting(model, cross_entropy, data, probe)
    if augmentation is not None:
        require_views(augmentation, probe[0])
    if adversary is not None:
        require_adversary(adversary, model, probe)
    examples = Examples.of(data.train, data.bounds, device, contribution=settings.contribution)
    if isinstance(model, Fronted) and augmentation is None and adversary is None:
        examples, trained = examples.seen_by(model.front), model.head
    return PlainTrainer(
        model=trained,
        whole=model,
        optimizer=optimizer,
        examples=examples,
        plan=settings.course_for(data),
        stream=Randomness.seeded(settings.init_seed).sampling,
        precision=precision,
        average=WeightAverage(trained, settings.ema) if settings.ema else None,
        augmentation=augmentation,
        adversary=adversary,
    )


def _enter(books: Books, data: Dataset) -> None:
    """One access without privacy, on the books before a record is used; no cap has room for it."""
    name = "" if books.folder is None else f" {books.folder.folder.name}"
    books.ledger.reserve(
        data.name,
        label=f"plain{name}",
        step_event=dp.NonPrivateDpEvent(),
        steps=1,
        run_id=books.run_id,
    )


def _finish(
    trainer: PlainTrainer,
    data: Dataset,
    settings: PlainSettings,
    books: Books,
    watch: Watcher | None,
) -> Release:
    books.ledger.charge(books.run_id, 0)
    _take_steps(trainer, settings, books.folder, watch)
    release = _stated(trainer, data, settings, books)
    if books.folder is not None:
        write_json(books.folder.figures, private_figures(release, data), private=True)
        release.save(books.folder.folder)
    # Only now: killed before this line, the run can still be resumed.
    books.ledger.settle(books.run_id)
    if books.folder is not None:
        books.folder.forget_keys()
    return release


def _take_steps(
    trainer: PlainTrainer, settings: PlainSettings, folder: RunFolder | None, watch: Watcher | None
) -> None:
    saved = time.monotonic()
    while trainer.next_step < trainer.plan.steps:
        done = trainer.next_step / trainer.plan.steps
        for group in trainer.optimizer.param_groups:
            share = share_of_peak(done, settings.schedule, settings.warmup)
            group["lr"] = settings.learning_rate * share
        trainer.step()
        if watch is not None:
            watch(trainer)
        if folder is not None and checkpoint_due(settings, trainer.next_step, saved):
            _save(trainer, folder)
            saved = time.monotonic()


def _stated(trainer: PlainTrainer, data: Dataset, settings: PlainSettings, books: Books) -> Release:
    """The release, with a card that promises nothing."""
    assert settings.model is not None
    trust: dict[str, Any] = {
        "format": "privet-trust/1",
        "method": "plain",
        "analysis": "none",
        "data": data_facts(data),
        "privacy": [],
        "withheld": [NO_PRIVACY],
        "tuning": DECLARED.to_json(),
        "mechanism": _mechanism(trainer, settings),
        "events": [
            *(
                {"label": f"learned: {f.name}", "event": to_json(dp.LaplaceDpEvent(1 / f.epsilon))}
                for f in data.learned
            ),
            {"label": "train", "event": to_json(dp.NonPrivateDpEvent())},
        ],
        "robustness": [],
        "attacks": [],
        "audit": [],
        "utility": {},
        "provenance": provenance(
            data,
            trainer.model,
            ledger=books.ledger,
            run_id=books.run_id,
            init_seed=settings.init_seed,
            config=asdict(settings),
        ),
    }
    model, config = trainer.released_model(), release_config(data, settings.model)
    release = Release(model=model, config=config, trust=trust)
    if data.test_is_public:
        trust["utility"] = accuracy_figures(release, data)
    return release


def _mechanism(trainer: PlainTrainer, settings: PlainSettings) -> Mapping[str, Any]:
    return {
        "steps": trainer.plan.steps,
        "steps_run": trainer.next_step,
        "batch": settings.batch,
        "precision": settings.precision,
        "contribution": trainer.contribution,
        "noise": "none",
    }


def _save(trainer: PlainTrainer, folder: RunFolder | None) -> None:
    if folder is None:
        return
    state = {
        "step": trainer.next_step,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "average": None if trainer.average is None else trainer.average.state(),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(folder.checkpoint, buffer.getvalue(), private=True)


def _restore(trainer: PlainTrainer, path: Path) -> None:
    """Tensors and plain values only, no code is run."""
    device = next(trainer.model.parameters()).device
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        trainer.model.load_state_dict(state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        if trainer.average is not None:
            trainer.average.restore(state["average"])
        trainer.next_step = state["step"]
    except Exception as error:  # torch raises many kinds for a broken file
        raise InputError("corrupt checkpoint", got=f"{path}: {error}") from None
