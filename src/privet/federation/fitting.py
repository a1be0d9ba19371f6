"""A federation from start to release, and resuming: `simulate(data, out="runs/fed", epsilon=8)`.

The ledger is charged before the noise of a step is drawn. A checkpoint is the whole of a
simulation, with its secret keys: a killed run repeats its lost steps bit for bit.
"""

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import dp_accounting as dp
import torch
from torch import nn

from privet.data.dataset import Dataset
from privet.data.identity import set_digest
from privet.engine.account import RunAccount
from privet.engine.arguments import require_dataset
from privet.engine.checkpoint import keys_of, randomness_from
from privet.engine.handover import private_figures
from privet.engine.prepare import left_for_training
from privet.errors import CheckFailed, InputError
from privet.federation.card import rounds_of, stated
from privet.federation.charging import StepAccount
from privet.federation.plot import rounds_plot
from privet.federation.population import population_of
from privet.federation.running import Federation
from privet.federation.settings import DETAILS, FederationSettings, require_no_details
from privet.federation.spent import both_ways, spent_by_clients
from privet.federation.user_privacy import UserPrivacy
from privet.files import write_atomically, write_json
from privet.ledger import Ledger, OtherUnit, default_ledger_path
from privet.privacy.accounting import DpEvent
from privet.privacy.participation import FEDERATION, adjacencies
from privet.privacy.randomness import Randomness
from privet.release import CUSTOM, Release
from privet.training.books import Books
from privet.training.dpsgd import CHECKPOINT_SECONDS, fresh_randomness, require_device, set_as_begun
from privet.training.run_folder import RunFolder

ROUNDS: Final = "rounds.json"
PICTURE: Final = "rounds.svg"
Watcher = Callable[[Federation], None]


def simulate(
    data: Dataset,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    watch: Watcher | None = None,
    reference: dict[str, Any] | None = None,
    network: nn.Module | None = None,
    **options: Any,
) -> Release:
    """Let a population learn together, and save the release to `out` if given.

    Args:
        data: whose users are the clients, or whose records are dealt out to `clients`.
        out: folder, new or empty.
        ledger: the user's own by default.
        watch: told after every round.
        reference: how to load the data again when a killed run is resumed.
        network: any module that gives scores of the classes, in place of a `model` by name. Under
            privacy its first weights must be public; to resume such a run, give it again.
        options: see `FederationSettings`.
    """
    require_dataset(data)
    settings = settings_of(options if network is None else _with_own_network(options))
    require_device(settings.device)
    settings.work().require_on(torch.device(settings.device))
    if out is not None:
        RunFolder(Path(out)).require_free()
    population = population_of(data, settings)
    settings = settings.filled_for(population.data)
    privacy, randomness = _privacy(settings, population.data), fresh_randomness(settings)
    # What may be refused is refused before it is on the books.
    federation = Federation(population, settings, randomness, privacy=privacy, network=network)
    record = {
        "method": settings.rule,
        "verb": FEDERATION,
        "settings": asdict(settings),
        "data": reference,
        "threads": torch.get_num_threads(),
    }
    ledger = ledger if ledger is not None else Ledger(default_ledger_path())
    if settings.clients is not None:
        _require_same_deal(population.data, ledger)
    try:
        books = Books.begin(record, population.data, out=out, ledger=ledger)
    except OtherUnit as error:
        raise error if settings.clients is None else _dealt_otherwise(error) from error
    try:
        _reserve(books, federation, secret=randomness.secret)
    except BaseException:
        books.discard()
        raise
    with contextlib.nullcontext() if books.folder is None else books.folder.locked():
        _put_on_the_books(federation, books)
        _save(federation, randomness, books.folder)
        return _finish(federation, randomness, books, watch)


def resume(
    out: str | Path,
    data: Dataset,
    *,
    ledger: Ledger | None = None,
    watch: Watcher | None = None,
    network: nn.Module | None = None,
) -> Release:
    """Go on with a killed run; it ends with the weights that it would have ended with."""
    with contextlib.ExitStack() as held:
        books, record = Books.reopen(out, ledger=ledger, held=held)
        release = books.saved_release()
        if release is not None:
            return release
        assert books.folder is not None
        settings = FederationSettings(**record["settings"])
        population = population_of(data, settings)
        set_as_begun(record, population.data, books.ledger)
        kept = _kept(books.folder)
        randomness = randomness_from(kept["keys"])
        privacy = _privacy(settings, population.data)
        federation = Federation(population, settings, randomness, privacy=privacy, network=network)
        _require_reserved(books, federation, secret=randomness.secret)
        _put_on_the_books(federation, books)
        federation.restore(kept["state"])
        _require_noted(federation)
        return _finish(federation, randomness, books, watch)


def _with_own_network(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("model") is not None:
        raise InputError("two models", got=f"'{options['model']}' and a network", fix="give one")
    return {**options, "model": CUSTOM}


def _require_same_deal(data: Dataset, ledger: Ledger) -> None:
    """Records that changed are dealt out otherwise, also where all settings are the same."""
    if data.name not in ledger.names():
        return
    spent = ledger.spent_privately(data.name)
    if spent and set_digest(data, ledger.digest_key) not in ledger.snapshots(data.name):
        raise OtherUnit(
            f"the records of '{data.name}' are not those that were dealt out under this name",
            expected="the same records in the same order: others make other clients",
            fix="load them as they were, or keep a ledger of its own (PRIVET_HOME)",
        )


def _dealt_otherwise(error: OtherUnit) -> OtherUnit:
    said, _, _ = str(error).partition(" Fix: ")
    return OtherUnit(
        said.rstrip("."),
        fix="deal them out as before, or keep a ledger of its own for experiments:"
        " PRIVET_HOME=DIR privet federate ...",
    )


def settings_of(options: Mapping[str, Any]) -> FederationSettings:
    """Checked; a name that is not there is bad input, and so is a delta of no epsilon."""
    known = [field.name for field in fields(FederationSettings)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InputError("no such setting", got=unknown[0], expected=", ".join(known))
    if options.get("epsilon") is None:  # said aloud, it counts also where it is the default
        require_no_details([name for name in DETAILS if options.get(name) is not None])
    return FederationSettings(**options)


def _privacy(settings: FederationSettings, data: Dataset) -> UserPrivacy | None:
    """Of filled settings; what learning public facts has cost is taken off the target."""
    if settings.epsilon is None:
        return None
    return settings.privacy(epsilon=left_for_training(settings.epsilon, data))


def _turns(federation: Federation, *, secret: bool) -> tuple[DpEvent, int]:
    """What is reserved: one turn, and how many; without proof one access without privacy."""
    privacy = federation.privacy
    if privacy is None:
        return dp.NonPrivateDpEvent(), 1
    turn = privacy.participation.turn_event(privacy.multiplier)
    return (turn if secret else dp.NonPrivateDpEvent()), privacy.participation.turns


def _reserve(books: Books, federation: Federation, *, secret: bool) -> None:
    event, turns = _turns(federation, secret=secret)
    name = "" if books.folder is None else f" {books.folder.folder.name}"
    by_clock = federation.by_clock or federation.privacy is None
    books.ledger.reserve(
        federation.data.name,
        label=f"{federation.settings.rule}{name}",
        step_event=event,
        steps=turns,
        run_id=books.run_id,
        adjacency=adjacencies(by_clock=by_clock)[0],
    )


def _require_reserved(books: Books, federation: Federation, *, secret: bool) -> None:
    entered = books.ledger.run(books.run_id)
    planned = (federation.data.name, *_turns(federation, secret=secret))
    if (entered.dataset, entered.step_event, entered.planned) != planned:
        raise CheckFailed(f"run {books.run_id} is not in the ledger as what it is")


def _put_on_the_books(federation: Federation, books: Books) -> None:
    """From now on the ledger is asked for leave: once, or before each step under privacy."""
    if federation.privacy is None:
        books.ledger.charge(books.run_id, 0)
        return
    journal = None if books.folder is None else books.folder.journal
    account = RunAccount(books.ledger, books.run_id, journal)
    federation.charge_to(StepAccount(account, federation.privacy.participation))


def _require_noted(federation: Federation) -> None:
    """A step that came out different could not be told from one that was lost."""
    coordinator = federation.simulator.coordinator
    if federation.privacy is not None:
        coordinator.account.books.require_noted(coordinator.sums)


def _finish(
    federation: Federation, randomness: Randomness, books: Books, watch: Watcher | None
) -> Release:
    saved = time.monotonic()
    while federation.next_step < federation.plan.steps:
        federation.step()
        if watch is not None:
            watch(federation)
        if _due(federation, saved):
            _save(federation, randomness, books.folder)
            saved = time.monotonic()
    release = stated(federation, ledger=books.ledger, run_id=books.run_id, secret=randomness.secret)
    if books.folder is not None:
        _write(federation, release, books.folder)
    # Only now: killed before this line, the run can still be resumed.
    books.ledger.settle(books.run_id)
    if books.folder is not None:
        books.folder.forget_keys()
    return release


def _write(federation: Federation, release: Release, folder: RunFolder) -> None:
    """The release; what became of whose work, and the course of the accuracy, stay inside."""
    tally, participation = federation.simulator.tally, federation.simulator.coordinator.times
    figures = (
        private_figures(release, federation.data)
        | _spent(federation)
        | {
            "jobs": dict(tally.jobs),
            "records_trained_on": dict(tally.records),
            "wasted_share": tally.wasted,
            "clients_that_took_part": len(participation),
            "most_steps_of_a_client": max(participation.values(), default=0),
        }
    )
    write_json(folder.figures, figures, private=True)
    write_json(folder.internal / ROUNDS, rounds_of(federation), private=True)
    write_atomically(folder.internal / PICTURE, rounds_plot(federation.history), private=True)
    release.save(folder.folder)


def _spent(federation: Federation) -> dict[str, Any]:
    privacy, settings = federation.privacy, federation.settings
    if privacy is None:
        return {}
    coordinator, clients = federation.simulator.coordinator, len(federation.simulator.phones)
    population, delta = settings.population(federation.data), settings.delta
    return {
        "epsilon": both_ways(privacy, rounds=settings.rounds, population=population, delta=delta),
        "spent_by_clients": spent_by_clients(coordinator, clients=clients, delta=delta),
        "participation": privacy.participation.sampler,
    }


def _due(federation: Federation, saved: float) -> bool:
    every = federation.settings.checkpoint_every
    if every is not None:
        return federation.next_step % every == 0
    return time.monotonic() - saved > CHECKPOINT_SECONDS


def _save(federation: Federation, randomness: Randomness, folder: RunFolder | None) -> None:
    if folder is None:
        return
    buffer = io.BytesIO()
    torch.save({"state": federation.state(), "keys": keys_of(randomness)}, buffer)
    write_atomically(folder.checkpoint, buffer.getvalue(), private=True)


def _kept(folder: RunFolder) -> dict[str, Any]:
    """Tensors and plain values only, no code is run."""
    try:
        kept: dict[str, Any] = torch.load(folder.checkpoint, map_location="cpu", weights_only=True)
        return {"state": kept["state"], "keys": kept["keys"]}
    except Exception as error:  # torch raises many kinds for a broken file
        raise InputError("corrupt checkpoint", got=f"{folder.checkpoint}: {error}") from None
