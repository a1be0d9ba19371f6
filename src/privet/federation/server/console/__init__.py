"""The operator's page: `GET /console`, and the files that it is made of.

The page itself holds nothing: whoever may reach the server may load it. What it shows it asks for
with the operator's key (`/v1/admin/...`), and it says nothing to anybody else. Its policy allows no
script and no style but the files here, no image from elsewhere, no frame around it, and no text
that becomes HTML (trusted types without a policy): what devices and plans say stays text.
"""

from functools import cache
from importlib import resources
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response
from jinja2 import Environment, StrictUndefined

from privet.federation.server.errors import NOT_FOUND, Refused
from privet.federation.wire import Reason
from privet.reports.look import stylesheet

router = APIRouter(include_in_schema=False)

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
LOOK: Final = "look.css"


@router.get("/console")
async def page() -> Response:
    """The page."""
    return Response(_page(), media_type="text/html", headers=HEADERS)


@router.get("/console/{name}")
async def part(name: str) -> Response:
    """One of its files."""
    content = _parts().get(name)
    if content is None:
        raise Refused(NOT_FOUND, "not-found", "the console has no such file")
    return Response(content, media_type=KINDS[name.rpartition(".")[2]], headers=HEADERS)


@cache
def _page() -> str:
    """With the reasons for which updates are refused, so that the script need not know them."""
    source = resources.files(__name__).joinpath("page.html.jinja").read_text("utf-8")
    reasons = {reason.name: str(reason) for reason in Reason}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(source).render(reasons=reasons)


@cache
def _parts() -> dict[str, str]:
    """All files that may be asked for, and the look of all pages of ours."""
    files = {
        file.name: file.read_text("utf-8")
        for file in resources.files(__name__).iterdir()
        if file.name.rpartition(".")[2] in KINDS
    }
    return files | {LOOK: stylesheet()}
