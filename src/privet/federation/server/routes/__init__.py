"""The server's HTTP face: every route, and what stands before them all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from privet.federation.server import console
from privet.federation.server.errors import speak_of_errors
from privet.federation.server.limits import Gate
from privet.federation.server.routes import admin, models, phones, sums, uploads
from privet.federation.server.service import Service

API: Final = "1"


def application(service: Service) -> FastAPI:
    """A service as an ASGI application, which starts it and closes it.

    Its OpenAPI document is at /openapi.json; there is no page that would load scripts from
    elsewhere.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        try:
            await service.start()
            yield
        finally:
            await service.close()

    app = FastAPI(title="Privet", version=API, lifespan=life, docs_url=None, redoc_url=None)
    app.state.service = service
    speak_of_errors(app)
    for part in (phones, models, uploads, sums, admin, console):
        app.include_router(part.router)
    app.add_middleware(Gate, addresses=service.address_limit)
    return app
