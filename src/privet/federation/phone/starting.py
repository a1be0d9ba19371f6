"""Phones that are ready to go: registered, with their models, records and surroundings."""

import platform
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, final

from privet.data.activities import simulated
from privet.data.activities.by_user import WHOLE_RANGE
from privet.errors import CheckFailed, InputError
from privet.federation import trace_files, traces, wire
from privet.federation.phone import recordings
from privet.federation.phone.clock import FastClock
from privet.federation.phone.collecting import (
    Collector,
    RawStorage,
    Switches,
    kept_days,
    merged,
)
from privet.federation.phone.conditions import Surroundings
from privet.federation.phone.energy import PROFILES, Profile
from privet.federation.phone.given import GivenData
from privet.federation.phone.hub import Phone
from privet.federation.phone.line import Declined, Line, Unreachable, wait_of
from privet.federation.phone.model import ModelOnPhone
from privet.federation.phone.policies import Policies
from privet.federation.phone.processing import Processor, Sensing
from privet.federation.phone.records import Records
from privet.federation.phone.shared import Shared, Watcher
from privet.federation.phone.storage import own_folder
from privet.federation.phone.talking import Server
from privet.federation.phone.virtual import Traced

ALWAYS, DRAWN = "always", "phones"
SIMULATED: Final = "simulated"
DRAWN_DAYS: Final = 60


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all phones of a process have in common.

    Attributes:
        url, ca: of the server.
        app_keys: of the apps on each phone.
        folder: of all of them.
        models: only these; none: all that the apps have.
        data: by model, or under "" for all of them.
        recordings: instead: streams that collectors are played.
        first, count: numbers of the users.
        traces: always, phones, or a file.
        profile: kind of phone.
        speedup: of the phones' clock.
        policies: the users'.
        seed: of lessons and drawn traces.
    """

    url: str
    ca: Path | None
    app_keys: Sequence[str]
    folder: Path
    models: Sequence[str]
    data: Mapping[str, GivenData]
    recordings: str | None
    first: int
    count: int
    traces: str
    profile: str
    speedup: float
    policies: Policies
    seed: int
    watch: Callable[[int], Watcher] = field(repr=False)


def folder_of(plan: Plan, user: int) -> Path:
    """One phone has the folder, many have folders in it."""
    return plan.folder if plan.count == 1 else plan.folder / f"phone-{user}"


def surroundings_of(plan: Plan) -> list[Surroundings]:
    """By user, those before the first among them."""
    users, profile = plan.first + plan.count, _profile(plan.profile)
    if plan.traces not in (ALWAYS, DRAWN):
        users = max(users, trace_files.clients_in(plan.traces))
    if plan.traces == ALWAYS:
        phones = traces.always(users)
    else:
        phones = traces.drawn(range(users), days=DRAWN_DAYS, seed=plan.seed)
        if plan.traces != DRAWN:
            phones = trace_files.read(plan.traces, phones)
    return [Traced(phone, profile=profile) for phone in phones]


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise InputError("unknown kind of phone", got=name, expected=" | ".join(PROFILES))
    return PROFILES[name]


@final
class Starter:
    """Starts phones, one after the other; a server that is not there yet is waited for."""

    def __init__(self, plan: Plan, clock: FastClock, stop: threading.Event) -> None:
        self.plan, self.clock, self.stop = plan, clock, stop
        self._around = surroundings_of(plan)
        self.line = Line(plan.url, ca=plan.ca)

    def start(self, user: int) -> Phone | None:
        """The phone of one user; None if it was stopped meanwhile."""
        folder = own_folder(folder_of(self.plan, user))
        models: dict[str, ModelOnPhone] = {}
        servers = []
        for app_key in self.plan.app_keys:
            found = self._persistently(partial(self._entered, folder, app_key))
            if found is None:
                return None
            server, offers = found
            servers.append(server)
            models |= self._models(user, folder, server, offers)
        self._require_wanted(models)
        senses = self._senses(user, folder, models) if self.plan.recordings else None
        return Phone(folder, models, [server.me for server in servers], senses)

    def _entered(self, folder: Path, app_key: str) -> tuple[Server, list[wire.Offer]]:
        system = f"{platform.system()} {platform.release()}"[:60].replace("+", "-")
        server = Server.entered(
            self.line, folder, app_key=app_key, phone=self.plan.profile, system=system
        )
        return server, server.offers()

    def _persistently(
        self, does: Callable[[], tuple[Server, list[wire.Offer]]]
    ) -> tuple[Server, list[wire.Offer]] | None:
        tries = 0
        while not self.stop.is_set():
            try:
                return does()
            except Unreachable as error:
                self.plan.watch(-1)("later", {"why": str(error)})
                self.stop.wait(wait_of(tries, error.retry_after, random.random()))
                tries += 1
            except Declined as no:
                raise CheckFailed(
                    f"the server does not let the phone in: {no}", fix="ask for the app's key"
                ) from None
        return None

    def _models(
        self, user: int, folder: Path, server: Server, offers: Sequence[wire.Offer]
    ) -> dict[str, ModelOnPhone]:
        shared = Shared(
            server=server,
            clock=self.clock,
            surroundings=self._around[user],
            policies=self.plan.policies,
            seed=self.plan.seed,
            jitter=random.random,
            watch=self.plan.watch(user),
        )
        wanted = [o for o in offers if not self.plan.models or o.model in self.plan.models]
        return {
            offer.model: ModelOnPhone(
                offer, folder / "models" / offer.model, self._records(user, folder, offer), shared
            )
            for offer in wanted
        }

    def _records(self, user: int, folder: Path, offer: wire.Offer) -> Records:
        given = self.plan.data.get(offer.model, self.plan.data.get(""))
        records = Records(
            folder / "records" / offer.model,
            shape=tuple(offer.shape),
            classes=len(offer.classes),
            key=user if given is None else given.key(user),
        )
        if given is not None and not records.count():
            given.give(user, records)
        if given is None and self.plan.recordings is None:
            raise InputError(
                f"no data for '{offer.model}'", fix=f"--data {offer.model}=NAME, or --data NAME"
            )
        return records

    def _senses(self, user: int, folder: Path, models: Mapping[str, ModelOnPhone]) -> Sensing:
        """One collector for each sensor that any model wants, and a processor for each model."""
        wishes = [wish for model in models.values() for wish in model.offer.sensing]
        switches, around = Switches(folder), self._around[user]
        now = self.clock.now()
        collectors = {
            sensor: Collector(
                self._source(user, sensor, models),
                RawStorage(folder / "raw" / sensor),
                began=now,
            )
            for sensor in dict.fromkeys(wish.sensor for wish in wishes)
        }
        processors = [
            Processor(
                collectors[wish.sensor],
                model.records,
                bounds=WHOLE_RANGE,
                folder=model.folder,
                keep_days=wish.keep_days,
            )
            for model in models.values()
            for wish in model.offer.sensing[:1]
        ]
        return Sensing(
            lambda saving: merged(wishes, presets=switches.presets, saving=saving),
            collectors,
            processors,
            switches,
            lambda moment: self.plan.policies.saves(around.at(moment)),
            kept_days(wishes),
        )

    def _source(
        self, user: int, sensor: str, models: Mapping[str, ModelOnPhone]
    ) -> recordings.Recording:
        if self.plan.recordings == SIMULATED:
            return recordings.of_sessions(list(simulated.sessions_of([user + 1])))
        classes = next(iter(models.values())).offer.classes
        return recordings.read(
            Path(str(self.plan.recordings)) / str(user) / f"{sensor}.csv", classes
        )

    def _require_wanted(self, models: Mapping[str, ModelOnPhone]) -> None:
        missing = sorted(set(self.plan.models) - set(models))
        if missing or not models:
            raise InputError(
                "the app does not have this model" if missing else "the app has no models",
                got=missing[0] if missing else None,
                expected=", ".join(models) or "a model",
            )
