"""Who asks: what the routes know of a request before they look at it."""

import asyncio
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privet.federation.server.desk import Desk
from privet.federation.server.errors import NO_ACCESS, Refused
from privet.federation.server.identity import Caller
from privet.federation.server.office import Office
from privet.federation.server.service import Service
from privet.federation.wire import Name, Secret

_token = HTTPBearer(
    auto_error=False, scheme_name="token", description="of a device: POST /v1/tokens"
)
_admin = HTTPBearer(auto_error=False, scheme_name="admin key", description="the operator's")
Shown = HTTPAuthorizationCredentials | None


async def service_of(request: Request) -> Service:
    """The server that is asked."""
    service: Service = request.app.state.service
    return service


async def caller_of(request: Request, shown: Annotated[Shown, Depends(_token)]) -> Caller:
    """The device whose token is shown, unless it asks too often."""
    service: Service = request.app.state.service
    if shown is None:
        raise _unknown("no token", "POST /v1/tokens")
    token, identity = shown.credentials, service.identity
    known = identity.knows(token)
    caller = identity.caller(token) if known else await asyncio.to_thread(identity.caller, token)
    service.device_limit.take(caller.name, "device")
    return caller


async def operator(request: Request, shown: Annotated[Shown, Depends(_admin)]) -> Office:
    """The office, if it is the operator who asks."""
    service: Service = request.app.state.service
    if shown is None or not service.keys.is_admin(shown.credentials):
        raise _unknown("not the operator's key", "the key in keys/admin.key of the server's folder")
    return service.office


async def desk_of(
    model: Annotated[Name, Path()], request: Request, caller: Annotated[Caller, Depends(caller_of)]
) -> Desk:
    """A model that there is, and that the device's app has."""
    service: Service = request.app.state.service
    return service.desk_for(caller, model)


def _unknown(what: str, fix: str) -> Refused:
    return Refused(NO_ACCESS, "no-access", what, fix=fix, headers={"WWW-Authenticate": "Bearer"})


TheService = Annotated[Service, Depends(service_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
TheDesk = Annotated[Desk, Depends(desk_of)]
TheOffice = Annotated[Office, Depends(operator)]
TheModel = Annotated[Name, Path()]
TheTicket = Annotated[Secret, Path()]
