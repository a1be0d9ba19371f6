"""The ServerApp: `serverapp = "privet.federation.flower.server_app:app"` in a Flower app.

It is told in `[tool.flwr.app.config]`

    privet-folder   absolute path of the model's folder, on the host where the ServerApp runs
    privet-form     `message` (default), or `numpy-client`: how the ClientApp is written
    privet-network  `module:callable` of the app, which makes the network of a plan with
                    `network = "custom"`; called without arguments
    privet-poll     seconds between two looks at the messages; default 1

A run that is killed or stopped is gone on with by the next `flwr run`.
"""

import importlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, cast

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from privet.engine.assumptions import NODE, SERVED
from privet.errors import InputError
from privet.federation.flower.arrays import Layout
from privet.federation.flower.enrolling import enrol
from privet.federation.flower.folder import Folder, require_for_flower
from privet.federation.flower.messages import OFFER, SEED, Config, Form
from privet.federation.flower.nodes import Roster
from privet.federation.flower.rounds import LOG, Rounds
from privet.federation.server import cards
from privet.federation.server.home import Home
from privet.federation.server.opening import Place, network_for, opened
from privet.federation.server.plan import ModelPlan
from privet.federation.server.served import ServedModel
from privet.files import read_json
from privet.ledger import Ledger
from privet.release import CUSTOM, MANIFEST

POLL_SECONDS: Final = 1.0
FORM: Final = ("privet-form", Form.MESSAGE)
Network = Callable[[], nn.Module]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds that are left; then the release."""
    if not LOG.handlers:
        LOG.addHandler(logging.StreamHandler(sys.stdout))
        LOG.setLevel(logging.INFO)
    serve(grid, context.run_config)


def serve(
    grid: Grid,
    config: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """One model, from its folder; where its release is."""
    folder, form = Folder.existing(config.get("privet-folder")), Form.named(config.get(*FORM))
    pause, own = _pause(config), _own_network(config.get("privet-network"))
    plan = ModelPlan.load(folder.plan, own_network=own is not None)
    roster = Roster.read(folder.nodes)
    require_for_flower(plan, roster)
    with _place(folder, own, clock) as place:
        enrol(place.state, plan.name, roster, folder.home)
        model = opened(plan, place, lambda: None)
        rounds = Rounds(
            grid,
            model,
            roster,
            Layout(network_for(model.plan, own)),
            form=form,
            offer=_offer(model.plan),
            clock=clock,
        )
        rounds.run(pause=pause, sleep=sleep)
        return _handed_over(folder, model, place)


@contextmanager
def _place(folder: Folder, own: Network | None, clock: Callable[[], float]) -> Iterator[Place]:
    """What the model lives in, for one ServerApp at a time.

    The ledger knows of models without privacy, too: else a cap would not hold for all together.
    """
    with ExitStack() as held:
        home, _ = Home.entered(folder.home, name=folder.server)
        held.callback(home.leave)
        yield Place(
            state=held.enter_context(closing(home.open_state())),
            store=home.open_store(),
            secrets=home.secrets,
            ledger=held.enter_context(closing(Ledger(folder.ledger))),
            server=home.choices.name,
            clock=clock,
            unit=NODE,
            network=own,
        )


def _handed_over(folder: Folder, model: ServedModel, place: Place) -> Path:
    """The release, once: a run after the last one finds it there.

    That of an earlier end, before a revision with more rounds, is kept beside it.
    """
    if (folder.release / MANIFEST).exists():
        before = read_json(folder.release / "trust.json")["federation"][SERVED]["version"]
        if before != model.coordinator.version:
            folder.release.rename(folder.path / f"release-{before}")
    if not (folder.release / MANIFEST).exists():
        cards.export(model, folder.release, server=place.server, own=place.network)
    LOG.info("all rounds are over; the release is in %s", folder.release)
    return folder.release


def _offer(plan: ModelPlan) -> Config:
    """What a ClientApp of ours is told; a network of the caller's own has one of its own."""
    if plan.settings.model == CUSTOM:
        return {}
    return {OFFER: plan.offer(0).model_dump_json(), SEED: plan.settings.init_seed}


def _pause(config: Mapping[str, Any]) -> float:
    said = config.get("privet-poll", POLL_SECONDS)
    if not isinstance(said, int | float) or not 0 < said < math.inf:
        raise InputError("bad privet-poll", got=said, expected="seconds, more than 0")
    return float(said)


def _own_network(said: object) -> Network | None:
    """The callable that an app names; its folder is where modules are looked for."""
    if not said:
        return None
    module, _, name = str(said).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            "no such network", got=f"{said} ({error})", expected="module:callable of the app"
        ) from None
    return cast(Network, found)
