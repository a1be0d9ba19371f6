"""What a phone asks the server as a whole: who it is, to be let in, what there is to train."""

import asyncio

from fastapi import APIRouter

from privet.federation.server.routes.asking import TheCaller, TheService
from privet.federation.wire import (
    AboutServer,
    AskToken,
    Offers,
    Register,
    Registered,
    Token,
)

router = APIRouter(tags=["phones"])


@router.get("/v1/server")
async def server(service: TheService) -> AboutServer:
    """Who the server is; a phone pins its key when it registers."""
    return AboutServer(server=service.name, public_key=service.keys.public_key)


@router.post("/v1/devices")
async def register(message: Register, service: TheService) -> Registered:
    """Register a device of an app."""
    return await service.registered(message)


@router.post("/v1/tokens")
async def token(message: AskToken, service: TheService) -> Token:
    """A token for the next minutes, for a device that signs with its key."""
    return await asyncio.to_thread(service.identity.token, message)


@router.get("/v1/offers")
async def offers(caller: TheCaller, service: TheService) -> Offers:
    """The models that the device's app has, and what they ask of a phone."""
    return Offers(offers=[desk.offer() for desk in service.desks_of(caller)])
