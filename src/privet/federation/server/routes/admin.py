"""What the operator asks; every request shows the operator's key."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from privet.federation.server.administration import (
    AddApp,
    AddPlan,
    AppAdded,
    Block,
    PlanAdded,
    RollBack,
)
from privet.federation.server.routes.asking import TheModel, TheOperator
from privet.federation.wire import Count, Name

router = APIRouter(prefix="/v1/admin", tags=["operator"])


@router.get("/status")
async def status(service: TheOperator) -> dict[str, Any]:
    """How all models, apps and devices stand."""
    return await service.status()


@router.get("/apps")
async def apps(service: TheOperator) -> list[dict[str, Any]]:
    """All apps and their models; not their keys."""
    return await service.apps()


@router.post("/apps")
async def add_app(message: AddApp, service: TheOperator) -> AppAdded:
    """A new app; its key is shown this once."""
    return await service.add_app(message)


@router.get("/plans")
async def plans(service: TheOperator) -> list[dict[str, Any]]:
    """All models and what is planned for them."""
    return service.plans()


@router.post("/plans")
async def add_plan(message: AddPlan, service: TheOperator) -> PlanAdded:
    """A new model, or a new revision of its plan."""
    return await service.add_plan(message)


@router.post("/models/{model}/rollback")
async def roll_back(model: TheModel, message: RollBack, service: TheOperator) -> dict[str, Any]:
    """Publish an earlier version again, as a new one."""
    return await service.roll_back(model, message.to)


@router.post("/models/{model}/stop")
async def stop(model: TheModel, service: TheOperator) -> dict[str, Any]:
    """Train this model no more, until `resume`."""
    return await service.stop(model, stopped=True)


@router.post("/models/{model}/resume")
async def resume(model: TheModel, service: TheOperator) -> dict[str, Any]:
    """Train it again."""
    return await service.stop(model, stopped=False)


@router.post("/devices/{device}/block")
async def block(device: Name, message: Block, service: TheOperator) -> dict[str, Any]:
    """Let a device in no more, or again."""
    return await service.block(device, blocked=message.blocked)


@router.get("/events", response_class=StreamingResponse)
async def events(service: TheOperator, after: Annotated[Count, Query()] = 0) -> StreamingResponse:
    """What happens, as server-sent events; first those after a number that are still known."""
    return StreamingResponse(
        service.happenings.watched(after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
