"""What the operator asks of a server, behind the routes: how it stands, apps, plans, and orders."""

import asyncio
import io
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from privet.errors import BudgetExceeded, InputError
from privet.federation.server.administration import (
    OVER_BUDGET,
    AddApp,
    AddPlan,
    AppAdded,
    PlanAdded,
)
from privet.federation.server.desk import Desk
from privet.federation.server.errors import CONFLICT, NOT_FOUND, Refused
from privet.federation.server.host import ModelHost
from privet.federation.server.plan import ModelPlan
from privet.federation.server.state import State

if TYPE_CHECKING:
    from privet.federation.server.service import Service


@final
class Office:
    """Where the operator of a service is heard; belongs to the event loop."""

    def __init__(self, service: "Service", state: State) -> None:
        self._service, self._state = service, state
        self._desks, self._identity = service.desks, service.identity
        self.happenings = service.happenings

    async def status(self) -> dict[str, Any]:
        """How everything stands."""
        return await asyncio.to_thread(self._status)

    def _status(self) -> dict[str, Any]:
        desks = sorted(self._desks.items())
        return {
            "server": self._service.name,
            "public_key": self._service.keys.public_key,
            "started": self._service.started,
            "turned_away": dict(self._service.refusals),
            "apps": self._apps(),
            "models": {
                name: desk.host.standing() | {"devices": len(self._state.devices_of(name))}
                for name, desk in desks
            },
        }

    async def apps(self) -> list[dict[str, Any]]:
        """All apps and their models."""
        return await asyncio.to_thread(self._apps)

    def _apps(self) -> list[dict[str, Any]]:
        return [
            {"name": app.name, "models": self._state.models_of_app(app.name), "since": app.since}
            for app in self._state.apps()
        ]

    async def add_app(self, message: AddApp) -> AppAdded:
        """A new app with a new key, or more models for one that there is."""
        unknown = sorted(set(message.models) - set(self._desks))
        if unknown:
            raise Refused(
                NOT_FOUND,
                "model-unknown",
                "no such model",
                got=unknown[0],
                expected=", ".join(sorted(self._desks)) or "none is there yet",
                fix="privet federate plan add",
            )
        known = {app.name for app in await asyncio.to_thread(self._state.apps)}
        if message.name in known:
            return await self._more_models(message)
        key = await asyncio.to_thread(self._identity.add_app, message.name, message.models)
        self.happenings.tell("app", name=message.name, models=message.models)
        return AppAdded(name=message.name, key=key)

    async def renew_app(self, name: str) -> AppAdded:
        """Another key for an app, where the old one is in wrong hands."""
        key = await asyncio.to_thread(self._identity.renew_app, name)
        self.happenings.tell("app-renewed", name=name)
        return AppAdded(name=name, key=key)

    async def _more_models(self, message: AddApp) -> AppAdded:
        if not message.models:
            raise Refused(CONFLICT, "app-exists", "there is such an app", got=message.name)
        await asyncio.to_thread(self._identity.subscribe, message.name, message.models)
        self.happenings.tell("app", name=message.name, models=message.models)
        return AppAdded(name=message.name, key=None)

    def plans(self) -> list[dict[str, Any]]:
        """What is planned for every model."""
        return [
            {
                "model": name,
                "version": desk.host.version,
                "stopped": desk.host.stopped,
                "plan": desk.host.plan.to_json(),
            }
            for name, desk in sorted(self._desks.items())
        ]

    async def add_plan(self, message: AddPlan) -> PlanAdded:
        """A new model, or a new revision of its plan."""
        plan = ModelPlan.from_json(_toml(message.toml))
        try:
            new = await self._service.plan(plan)
        except BudgetExceeded as no:
            raise Refused(CONFLICT, OVER_BUDGET, str(no)) from None
        self.happenings.tell("plan", model=plan.name, new=new)
        return PlanAdded(model=plan.name, new=new)

    async def roll_back(self, model: str, to: int) -> dict[str, Any]:
        """Publish an earlier version again."""
        desk = self._managed(model)
        version = await desk.change(desk.host.roll_back, to)
        self.happenings.tell("rolled-back", model=model, to=to, version=version)
        return {"model": model, "version": version}

    async def stop(self, model: str, *, stopped: bool) -> dict[str, Any]:
        """Train a model no more, or again."""
        desk = self._managed(model)
        await desk.change(desk.host.stop if stopped else desk.host.resume)
        self.happenings.tell("stopped" if stopped else "resumed", model=model)
        return {"model": model, "stopped": stopped}

    async def devices(self, after: str, most: int) -> list[dict[str, Any]]:
        """The next devices behind a name, and the models that each has."""
        return await asyncio.to_thread(self._devices, after, most)

    def _devices(self, after: str, most: int) -> list[dict[str, Any]]:
        return [
            {
                "name": device.name,
                "phone": device.phone,
                "system": device.system,
                "since": device.since,
                "blocked": device.blocked,
                "models": self._state.models_of(device.name),
            }
            for device in self._state.devices(after=after, most=most)
        ]

    async def block(self, device: str, *, blocked: bool) -> dict[str, Any]:
        """Let a device in no more, or again."""
        await asyncio.to_thread(lambda: self._identity.block(device, blocked=blocked))
        self.happenings.tell("blocked" if blocked else "admitted", device=device)
        return {"device": device, "blocked": blocked}

    def _managed(self, model: str) -> Desk:
        if model not in self._desks:
            raise Refused(NOT_FOUND, "model-unknown", "no such model", got=model)
        return self._desks[model]

    async def released(self, model: str) -> bytes:
        """The newest version as a release with its trust card, in a ZIP file."""
        return await asyncio.to_thread(_zipped, self._managed(model).host)


def _zipped(host: ModelHost) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        folder = host.export(Path(place) / "release")
        found = io.BytesIO()
        with zipfile.ZipFile(found, "w") as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(file, file.relative_to(folder))
    return found.getvalue()


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("not TOML", got=str(error)) from None
