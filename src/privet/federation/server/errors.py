"""What a phone or an operator is told when something is refused: JSON, one form for all.

`{"error", "what", "got", "expected", "fix"}`: `error` is for programs, the others for people. What
was sent is never repeated where it may be a secret, and a fault of the server says nothing of how
it came about: that is in its log.
"""

import logging
import math
from http import HTTPStatus
from typing import Any, Final, final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from privet.errors import InputError, PrivetError

BAD_REQUEST: Final = 400
NO_ACCESS: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
TOO_SLOW: Final = 408
CONFLICT: Final = 409
TOO_LARGE: Final = 413
UNPROCESSABLE: Final = 422
TOO_MANY: Final = 429
FAULT: Final = 500
UNAVAILABLE: Final = 503
TRY_AGAIN: Final = 5  # seconds
LONGEST_SAID: Final = 300

LOG: Final = logging.getLogger("privet.server")


@final
class Refused(InputError):  # noqa: N818 - says what became of it
    """A request that is not granted: a status, a name for programs, and a line for people."""

    def __init__(
        self,
        status: int,
        error: str,
        what: str,
        *,
        got: object = None,
        expected: str = "",
        fix: str = "",
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(what, got=got, expected=expected, fix=fix)
        self.status, self.headers = status, dict(headers or {})
        self.said = _said(error, what, got=got, expected=expected, fix=fix)
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))

    def response(self) -> JSONResponse:
        """As it goes over the wire."""
        return JSONResponse(self.said, status_code=self.status, headers=self.headers)


def speak_of_errors(app: FastAPI) -> None:
    """Let all errors of the application speak this form."""
    app.add_exception_handler(PrivetError, _of_privet)
    app.add_exception_handler(RequestValidationError, _of_form)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _of_a_fault)


async def _of_privet(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, Refused):
        request.app.state.service.turned_away(error.said["error"], error.status)
        return error.response()
    if isinstance(error, InputError):
        return _answer(BAD_REQUEST, _said("bad-input", str(error)))
    LOG.error("%s", error)
    said = _said("unavailable", "the server cannot do this now", fix="try again later")
    return JSONResponse(said, UNAVAILABLE, headers={"Retry-After": str(TRY_AGAIN)})


async def _of_form(_: Request, error: Exception) -> JSONResponse:
    """Where a message does not fit, and how; not what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    place = place.encode(errors="replace").decode()  # half a character is none that JSON can say
    what = f"the message does not fit at '{place}'" if place else "the message does not fit"
    return _answer(UNPROCESSABLE, _said("bad-message", what, expected=first["msg"]))


async def _of_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    name = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    said = _said(name, str(error.detail))
    return JSONResponse(said, status_code=error.status_code, headers=error.headers)


async def _of_a_fault(_: Request, __: Exception) -> JSONResponse:
    return _answer(FAULT, _said("fault", "the server failed", fix="its log says more; try again"))


def _answer(status: int, said: dict[str, Any]) -> JSONResponse:
    return JSONResponse(said, status_code=status)


def _said(
    error: str, what: str, *, got: object = None, expected: str = "", fix: str = ""
) -> dict[str, Any]:
    return {
        "error": error,
        "what": what[:LONGEST_SAID],
        "got": None if got is None else str(got)[:LONGEST_SAID],
        "expected": expected[:LONGEST_SAID] or None,
        "fix": fix or None,
    }
