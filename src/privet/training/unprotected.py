"""Runs without proved privacy, from start to release, and resuming.

Two kinds of method train so: one that promises nothing (`plain`), and a published one as its
authors wrote it (`--analysis paper`), whose promise is stated as claimed, with its gaps. For the
ledger both are one access to the records without any privacy; no cap has room for it.

A method brings a trainer that takes its steps, and says what its card states: `Unprotected`. Where
several processes may share the steps, the lead keeps books and folder, as in `dpsgd`.
"""

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import dp_accounting as dp
import torch
from torch import nn

from privet.data.dataset import Dataset
from privet.engine.fixed_parts import FIELD
from privet.engine.handover import (
    accuracy_figures,
    data_facts,
    private_figures,
    provenance,
    release_config,
)
from privet.engine.plain import Course
from privet.engine.ranks import Ranks, require_same_start, weights_of
from privet.engine.tuned import DECLARED
from privet.errors import CheckFailed, InputError
from privet.files import write_atomically, write_json
from privet.guarantee import Privacy
from privet.ledger import Ledger
from privet.privacy.events import to_json
from privet.release import Release
from privet.training.books import Books, handed_round, require_as_many
from privet.training.dpsgd import checkpoint_due, set_as_begun
from privet.training.ordinary import OrdinarySettings
from privet.training.run_folder import RunFolder
from privet.training.schedule import share_of_peak

NO_PRIVACY: Final = (
    "trained without privacy: the weights may reveal any record that they were trained on"
)
ONLY_CLAIMED: Final = (
    "nothing is proved: the weights may reveal any record that they were trained on; the authors'"
    " claim stands on the card with the gaps of its proof"
)


class Trainer(Protocol):
    """Takes the steps of a course; what it draws follows from public seeds, or is kept."""

    model: nn.Module
    note: str
    next_step: int

    @property
    def plan(self) -> Course:
        """How many steps there are."""

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Those whose learning rates follow the schedule."""

    def step(self) -> None:
        """The next one."""

    def released_model(self) -> nn.Module:
        """What is handed over."""

    def state(self) -> dict[str, Any]:
        """All that a run needs to go on: tensors and plain values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""


Watcher = Callable[[Any], None]
Claims = Callable[[Dataset, Any, Any], tuple[Privacy, ...]]


@dataclass(frozen=True, kw_only=True)
class Unprotected:
    """A method without proved privacy.

    Attributes:
        method: its name.
        settings: the class of its settings.
        build: (data, settings) to a trainer; where steps are shared, (data, settings, ranks).
        mechanism: (trainer, settings) to what the card says about the steps.
        claims: (data, settings, trainer) to what its authors claim; None where nobody claims
            anything.
        shared: whether `torchrun` may share the steps out. The trainers of all processes must end
            each step with the same state.
    """

    method: str
    settings: type[OrdinarySettings]
    build: Callable[..., Any]
    mechanism: Callable[[Any, Any], Mapping[str, Any]]
    claims: Claims | None = field(default=None)
    shared: bool = False

    def trainer(self, data: Dataset, settings: OrdinarySettings, ranks: Ranks) -> Any:
        """For filled settings."""
        if not self.shared:
            return self.build(data, settings)
        return self.build(data, settings, ranks)

    @property
    def analysis(self) -> str:
        """Of the card."""
        return "none" if self.claims is None else "paper"


def run(
    way: Unprotected,
    data: Dataset,
    settings: OrdinarySettings,
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
            _require_alone(way, ranks)
            if out is not None and ranks.leads:
                RunFolder(Path(out)).require_free()
            if ranks.leads:
                settings.require_public(data, ledger)
            trainer = way.trainer(data, settings, ranks)
        _begin_alike(trainer, data, settings, ranks)
        record = {
            "method": way.method,
            "analysis": way.analysis,
            "settings": asdict(settings),
            "data": reference,
            "threads": torch.get_num_threads(),
            "processes": ranks.size,
        }
        books: Books | None = None
        with ranks.agreed():
            if ranks.leads:
                books = _entered(way, record, data, out=out, ledger=ledger)
        folder = None if books is None else books.folder
        with contextlib.nullcontext() if folder is None else folder.locked():
            with ranks.agreed():
                save(trainer, folder)
            return _finish(way, trainer, data, settings, books, watch, ranks)


def resume(
    way: Unprotected,
    out: str | Path,
    data: Dataset,
    *,
    ledger: Ledger | None = None,
    watch: Watcher | None = None,
) -> Release:
    """Go on with a killed run; it ends with the weights that it would have ended with."""
    with Ranks.joined() as ranks, contextlib.ExitStack() as held:
        books: Books | None = None
        record: dict[str, Any] = {}
        with ranks.agreed():
            _require_alone(way, ranks)
            if ranks.leads:
                books, record = Books.reopen(out, ledger=ledger, held=held)
        record = ranks.told(record)
        with ranks.agreed():
            require_as_many(ranks, record.get("processes", 1))
            release = None if books is None else books.saved_release()
        if ranks.told(release is not None):
            return handed_round(release, ranks)
        with ranks.agreed():
            if books is None:
                torch.set_num_threads(record["threads"])
            else:
                set_as_begun(record, data, books.ledger)
                _require_entered(books, data)
            settings = way.settings(**record["settings"])
            trainer = way.trainer(data, settings, ranks)
            if books is not None and books.folder is not None:
                restore(trainer, books.folder.checkpoint)
        _begin_alike(trainer, data, settings, ranks)
        return _finish(way, trainer, data, settings, books, watch, ranks)


def _require_alone(way: Unprotected, ranks: Ranks) -> None:
    if ranks.size > 1 and not way.shared:
        raise InputError(
            f"{way.method} training without proof runs in one process",
            got=ranks.size,
            fix="leave torchrun out",
        )


def _begin_alike(trainer: Trainer, data: Dataset, settings: OrdinarySettings, ranks: Ranks) -> None:
    """Every process holds the lead's weights and noise; others' records are refused."""
    if ranks.size == 1:
        return
    trainer.next_step, state = ranks.told((trainer.next_step, trainer.state()))
    trainer.restore(state)
    require_same_start(ranks, data, trainer.model, asdict(settings))


def _entered(
    way: Unprotected,
    record: Mapping[str, Any],
    data: Dataset,
    *,
    out: str | Path | None,
    ledger: Ledger | None,
) -> Books:
    books = Books.begin(record, data, out=out, ledger=ledger)
    try:
        _enter(way, books, data)
    except BaseException:
        books.discard()
        raise
    return books


def _require_entered(books: Books, data: Dataset) -> None:
    entered = books.ledger.run(books.run_id)
    if (entered.dataset, entered.step_event) != (data.name, dp.NonPrivateDpEvent()):
        raise CheckFailed(f"run {books.run_id} is not in the ledger as one without privacy")


def _enter(way: Unprotected, books: Books, data: Dataset) -> None:
    """One access without privacy, on the books before a record is used; no cap has room for it."""
    name = "" if books.folder is None else f" {books.folder.folder.name}"
    books.ledger.reserve(
        data.name,
        label=f"{way.method}{name}",
        step_event=dp.NonPrivateDpEvent(),
        steps=1,
        run_id=books.run_id,
    )


def _finish(
    way: Unprotected,
    trainer: Trainer,
    data: Dataset,
    settings: OrdinarySettings,
    books: Books | None,
    watch: Watcher | None,
    ranks: Ranks,
) -> Release:
    with ranks.agreed():
        if books is not None:
            books.ledger.charge(books.run_id, 0)
    take_steps(trainer, settings, None if books is None else books.folder, watch, ranks)
    ranks.require_alike(
        "the weights they came to",
        weights_of(trainer.released_model()),
        kind=CheckFailed,
        fix="start a new run, on machines that compute alike",
    )
    release: Release | None = None
    with ranks.agreed():
        if books is not None:
            release = _closed(way, trainer, data, settings, books)
    return handed_round(release, ranks)


def _closed(
    way: Unprotected, trainer: Trainer, data: Dataset, settings: OrdinarySettings, books: Books
) -> Release:
    """The release, stated and saved; then the end of the run."""
    release = _stated(way, trainer, data, settings, books)
    if books.folder is not None:
        write_json(books.folder.figures, private_figures(release, data), private=True)
        release.save(books.folder.folder)
    # Only now: killed before this line, the run can still be resumed.
    books.ledger.settle(books.run_id)
    if books.folder is not None:
        books.folder.forget_keys()
    return release


def take_steps(
    trainer: Trainer,
    settings: OrdinarySettings,
    folder: RunFolder | None,
    watch: Watcher | None,
    ranks: Ranks,
) -> None:
    """All steps that are left, with checkpoints in `folder` if there is one."""
    saved = time.monotonic()
    while trainer.next_step < trainer.plan.steps:
        done = trainer.next_step / trainer.plan.steps
        for optimizer in trainer.optimizers:
            share = share_of_peak(done, settings.schedule, settings.warmup)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * share
        trainer.step()
        with ranks.agreed():
            if watch is not None and ranks.leads:
                watch(trainer)
            if folder is not None and checkpoint_due(settings, trainer.next_step, saved):
                save(trainer, folder)
                saved = time.monotonic()


def _stated(
    way: Unprotected, trainer: Trainer, data: Dataset, settings: OrdinarySettings, books: Books
) -> Release:
    """The release, with a card that proves nothing."""
    assert settings.model is not None
    claims = () if way.claims is None else way.claims(data, settings, trainer)
    trust: dict[str, Any] = {
        "format": "privet-trust/1",
        "method": way.method,
        "analysis": way.analysis,
        "data": data_facts(data),
        "privacy": [claim.to_json() for claim in claims],
        "withheld": [ONLY_CLAIMED if claims else NO_PRIVACY],
        "tuning": DECLARED.to_json(),
        "mechanism": {
            "steps": trainer.plan.steps,
            "steps_run": trainer.next_step,
            "batch": settings.batch,
            "precision": settings.precision,
            **way.mechanism(trainer, settings),
        },
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
    if fixed := settings.fixed_parts(data):
        trust[FIELD] = [part.to_json() for part in fixed]
    model, config = trainer.released_model(), release_config(data, settings.model)
    release = Release(model=model, config=config, trust=trust)
    if data.test_is_public:
        trust["utility"] = accuracy_figures(release, data)
    return release


def save(trainer: Trainer, folder: RunFolder | None) -> None:
    """The checkpoint that `restore` reads; none without a folder."""
    if folder is None:
        return
    buffer = io.BytesIO()
    torch.save({"step": trainer.next_step, "state": trainer.state()}, buffer)
    write_atomically(folder.checkpoint, buffer.getvalue(), private=True)


def restore(trainer: Trainer, path: Path) -> None:
    """Tensors and plain values only, no code is run."""
    device = next(trainer.model.parameters()).device
    try:
        kept = torch.load(path, map_location=device, weights_only=True)
        trainer.restore(kept["state"])
        trainer.next_step = kept["step"]
    except Exception as error:  # torch raises many kinds for a broken file
        raise InputError("corrupt checkpoint", got=f"{path}: {error}") from None
