"""What the operator asks; every request shows the operator's key."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from privet.federation.server.administration import (
    AddApp,
    AddPlan,
    AppAdded,
    Block,
    PlanAdded,
    RollBack,
)
from privet.federation.server.routes.asking import TheModel, TheOffice
from privet.federation.wire import Count, Name

MOST_DEVICES: Final = 1000  # in an answer

router = APIRouter(prefix="/v1/admin", tags=["operator"])


@router.get("/status")
async def status(office: TheOffice) -> dict[str, Any]:
    """How all models, apps and devices stand."""
    return await office.status()


@router.get("/apps")
async def apps(office: TheOffice) -> list[dict[str, Any]]:
    """All apps and their models; not their keys."""
    return await office.apps()


@router.post("/apps")
async def add_app(message: AddApp, office: TheOffice) -> AppAdded:
    """A new app; its key is shown this once."""
    return await office.add_app(message)


@router.post("/apps/{app}/renew")
async def renew_app(app: TheModel, office: TheOffice) -> AppAdded:
    """Another key for an app, shown this once; the old one registers nobody any more."""
    return await office.renew_app(app)


@router.get("/plans")
async def plans(office: TheOffice) -> list[dict[str, Any]]:
    """All models and what is planned for them."""
    return office.plans()


@router.post("/plans")
async def add_plan(message: AddPlan, office: TheOffice) -> PlanAdded:
    """A new model, or a new revision of its plan."""
    return await office.add_plan(message)


@router.post("/models/{model}/rollback")
async def roll_back(model: TheModel, message: RollBack, office: TheOffice) -> dict[str, Any]:
    """Publish an earlier version again, as a new one."""
    return await office.roll_back(model, message.to)


@router.post("/models/{model}/stop")
async def stop(model: TheModel, office: TheOffice) -> dict[str, Any]:
    """Train this model no more, until `resume`."""
    return await office.stop(model, stopped=True)


@router.post("/models/{model}/resume")
async def resume(model: TheModel, office: TheOffice) -> dict[str, Any]:
    """Train it again."""
    return await office.stop(model, stopped=False)


@router.get("/devices")
async def devices(
    office: TheOffice,
    after: Annotated[str, Query(max_length=64)] = "",
    most: Annotated[int, Query(ge=1, le=MOST_DEVICES)] = MOST_DEVICES,
) -> list[dict[str, Any]]:
    """The devices behind a name, by name, a page of them; not their keys."""
    return await office.devices(after, most)


@router.post("/devices/{device}/block")
async def block(device: Name, message: Block, office: TheOffice) -> dict[str, Any]:
    """Let a device in no more, or again."""
    return await office.block(device, blocked=message.blocked)


@router.get("/models/{model}/release", response_class=Response)
async def release(model: TheModel, office: TheOffice) -> Response:
    """The newest version with its trust card, as a ZIP file."""
    return Response(await office.released(model), media_type="application/zip")


@router.get("/events", response_class=StreamingResponse)
async def events(office: TheOffice, after: Annotated[Count, Query()] = 0) -> StreamingResponse:
    """What happens, as server-sent events; first those after a number that are still known."""
    return StreamingResponse(
        office.happenings.watched(after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
