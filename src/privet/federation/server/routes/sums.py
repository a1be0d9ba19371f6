"""Secure sums: a phone asks where its sum stands, and says what is due.

What it says may be as long as an update, so it goes where updates go, past the limit of messages.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from privet.federation.server.routes.asking import TheCaller, TheService, TheTicket
from privet.federation.wire import Name, SumStep

router = APIRouter(tags=["sums"])


@router.post("/v1/tickets/{ticket}/sum")
async def step(ticket: TheTicket, caller: TheCaller, service: TheService) -> SumStep:
    """Join the secure sum of the round, or hear what is due; to ask again changes nothing."""
    return await service.sum_step(ticket, caller)


@router.put("/v1/uploads/sums/{ticket}/{stage}", status_code=204)
async def say(
    ticket: TheTicket, stage: Name, request: Request, caller: TheCaller, service: TheService
) -> Response:
    """What is due in a stage: a message of `secure_sum`, as JSON. Again is no harm."""
    await service.said_in_sum(ticket, caller, stage, request.stream())
    return Response(status_code=204)
