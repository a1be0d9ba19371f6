"""What a phone asks of one model: its versions, a place in a round, and that its update counts."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from privet.federation.server.desk import MOST_WAIT
from privet.federation.server.routes.asking import (
    TheCaller,
    TheDesk,
    TheModel,
    TheService,
    TheTicket,
)
from privet.federation.server.serving import weights_response
from privet.federation.wire import (
    Accepted,
    Commit,
    Count,
    Denied,
    Message,
    News,
    Outcome,
    Ready,
    Report,
    SignedManifest,
)

router = APIRouter(tags=["models"])


def _json(message: Message) -> Response:
    """Said as it is: FastAPI would check our own answer once more, which is half of the time."""
    return Response(message.model_dump_json(), media_type="application/json")


@router.get("/v1/models/{model}/manifest")
async def manifest(
    desk: TheDesk, version: Annotated[Count | None, Query()] = None
) -> SignedManifest:
    """What a version is (default: the newest), signed by the server."""
    return desk.manifest(version)


@router.get("/v1/models/{model}/versions/{version}", response_class=Response)
async def weights(version: Count, desk: TheDesk, request: Request) -> Response:
    """The weights of a version: safetensors, one tensor `weights`. Knows ETag and Range."""
    signed = desk.manifest(version)
    content = await desk.weights(version)
    return weights_response(content, signed.manifest.sha256, request.headers)


@router.post("/v1/models/{model}/ready", response_model=Accepted | Denied)
async def ready(
    model: TheModel, message: Ready, caller: TheCaller, service: TheService
) -> Response:
    """RTCm: a place in this round, or why there is none. To ask again gives the same ticket."""
    return _json(await service.ready(caller, model, message))


@router.post("/v1/tickets/{ticket}/commit", response_model=Outcome)
async def commit(
    ticket: TheTicket, message: Commit, caller: TheCaller, service: TheService
) -> Response:
    """The update has been put; whether it counts. To ask again is to be told the same."""
    return _json(await service.commit(ticket, caller, message.sha256))


@router.post("/v1/models/{model}/reports", status_code=204)
async def report(
    message: Report, desk: TheDesk, caller: TheCaller, service: TheService
) -> Response:
    """Federated evaluation: how a version does on a device's held-out records."""
    service.identity.fresh(message.sent, message.nonce, caller.name)
    await desk.report(caller.name, message)
    return Response(status_code=204)


@router.get("/v1/models/{model}/news")
async def news(
    desk: TheDesk,
    after: Annotated[Count, Query()],
    wait: Annotated[float, Query(ge=0, le=MOST_WAIT)] = MOST_WAIT,
) -> News:
    """The newest version, as soon as it is above `after`, or when the wait is over."""
    return await desk.newer_than(after, wait)
