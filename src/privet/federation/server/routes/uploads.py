"""Where a phone puts its update, when the server itself keeps it.

The URL is signed by the server: whoever has it may put one update of limited size, for a while.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from privet.federation.server.routes.asking import TheModel, TheService, TheTicket
from privet.federation.server.store import upload_key
from privet.federation.server.uploads import Part
from privet.federation.wire import OFFSET_HEADER, Count

router = APIRouter(tags=["uploads"])

Expires = Annotated[int, Query(ge=0, le=2**53)]
Most = Annotated[Count, Query()]
Signature = Annotated[str, Query(max_length=64)]


@router.put("/v1/uploads/updates/{model}/{number}/{ticket}", status_code=204)
async def put(
    model: TheModel,
    number: Count,
    ticket: TheTicket,
    expires: Expires,
    most: Most,
    signature: Signature,
    request: Request,
    service: TheService,
) -> Response:
    """An update, or the rest of it: Content-Range says which part."""
    key = upload_key(model, number, ticket)
    service.keys.check_upload(key, expires, most, signature)
    service.require_undecided(ticket)
    headers = request.headers
    part = Part.announced(
        headers.get("content-range"), headers.get("content-length"), headers.get("repr-digest")
    )
    return _there(await service.uploads.take(key, part, request.stream(), most_bytes=most))


@router.head("/v1/uploads/updates/{model}/{number}/{ticket}", status_code=204)
async def offset(
    model: TheModel,
    number: Count,
    ticket: TheTicket,
    expires: Expires,
    most: Most,
    signature: Signature,
    service: TheService,
) -> Response:
    """How many bytes of the update are here."""
    key = upload_key(model, number, ticket)
    service.keys.check_upload(key, expires, most, signature)
    return _there(service.uploads.offset(key))


def _there(size: int) -> Response:
    return Response(status_code=204, headers={OFFSET_HEADER: str(size)})
