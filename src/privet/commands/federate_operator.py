"""What an operator asks of a server that runs: `privet federate plan | app | status | ...`."""

import io
import time
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from privet.commands.federate_server import require_packages
from privet.commands.federate_standing import lines
from privet.commands.screen import Json, out, print_json, print_listing
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.federation.server.operating import Operator

Ca = Annotated[Path | None, Parameter(name="--ca")]
Models = Annotated[list[str] | None, Parameter(name="--models", negative="", consume_multiple=True)]
WATCH_SECONDS = 2.0

plan_app = App(
    name="plan",
    help="What a server trains: a model, its rounds, the work of a phone, and its privacy.\n\n"
    "SERVER is the server's folder; or its URL, with the key in PRIVET_ADMIN_KEY.",
)
apps_app = App(
    name="app",
    help="Which apps a server knows, and which models each has. A phone registers by its app's"
    " key.\n\nSERVER is the server's folder; or its URL, with the key in PRIVET_ADMIN_KEY.",
)


@plan_app.command(name="add")
def add_plan(server: str, file: Path, /, *, ca: Ca = None) -> None:
    """Give the server a model to train, or a new revision of its plan.

    A revision holds from the next round on. What decides on privacy cannot be revised.

    Example: privet federate plan add fleet har.toml

    Parameters
    ----------
    server
        Folder or URL.
    file
        The plan, TOML; its documentation, verbs/federate-server.md, has two.
    ca
        For a URL: certificates to believe, PEM; default: those of the system.
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the plan", got=f"{file}: {error}") from None
    told = _operator(server, ca).post("plans", {"toml": text})
    what = "is trained from now on" if told["new"] else "has a new plan from the next round on"
    out.print(f"{told['model']} {what}", highlight=False)


@plan_app.command(name="show")
def show_plan(server: str, model: str, /, *, ca: Ca = None) -> None:
    """Print a plan with all its defaults, as JSON.

    Parameters
    ----------
    server
        Folder or URL.
    model
        Its name.
    ca
        For a URL: certificates to believe, PEM.
    """
    plans = {plan["model"]: plan["plan"] for plan in _operator(server, ca).get("plans")}
    if model not in plans:
        known = ", ".join(sorted(plans)) or "none is there yet"
        raise InputError("no such model", got=f"'{model}'", expected=known)
    print_json(plans[model])


@plan_app.command(name="list")
def list_plans(server: str, /, *, ca: Ca = None, json: Json = False) -> None:
    """List the models of a server.

    Parameters
    ----------
    server
        Folder or URL.
    ca
        For a URL: certificates to believe, PEM.
    json
        Machine-readable.
    """
    plans = _operator(server, ca).get("plans")
    if json:
        print_json(plans)
        return
    print_listing(
        (plan["model"], f"version {plan['version']}" + (", stopped" if plan["stopped"] else ""))
        for plan in plans
    )


@apps_app.command(name="add")
def add_app(server: str, name: str, /, *, models: Models = None, ca: Ca = None) -> None:
    """Register an app and print its key, once; or give one that is there more models.

    Example: privet federate app add fleet diary --models har mood

    Parameters
    ----------
    server
        Folder or URL.
    name
        Of the app.
    models
        That it has; of an app that is there: more of them.
    ca
        For a URL: certificates to believe, PEM.
    """
    told = _operator(server, ca).post("apps", {"name": name, "models": models or []})
    if told["key"] is None:
        out.print(f"{name} has {', '.join(models or [])}, too, from now on", highlight=False)
        return
    print(told["key"])  # alone on stdout, so that a script can take it


@apps_app.command(name="renew")
def renew_app(server: str, name: str, /, *, ca: Ca = None) -> None:
    """Give an app another key and print it, once; the old one registers no device any more.

    Devices that are registered have keys of their own, and stay; `block` ends one of them.

    Parameters
    ----------
    server
        Folder or URL.
    name
        Of the app.
    ca
        For a URL: certificates to believe, PEM.
    """
    from urllib.parse import quote

    print(_operator(server, ca).post(f"apps/{quote(name, safe='')}/renew")["key"])


@apps_app.command(name="list")
def list_apps(server: str, /, *, ca: Ca = None, json: Json = False) -> None:
    """List the apps of a server and their models; keys are not kept.

    Parameters
    ----------
    server
        Folder or URL.
    ca
        For a URL: certificates to believe, PEM.
    json
        Machine-readable.
    """
    apps = _operator(server, ca).get("apps")
    if json:
        print_json(apps)
        return
    print_listing((app["name"], ", ".join(app["models"]) or "no model") for app in apps)


def status(
    server: str,
    /,
    *,
    ca: Ca = None,
    watch: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """How the models of a server stand: rounds, updates, what was refused, what was spent.

    Example: privet federate status fleet --watch

    Parameters
    ----------
    server
        Folder or URL.
    ca
        For a URL: certificates to believe, PEM.
    watch
        Again every two seconds, until Ctrl-C.
    json
        Machine-readable.
    """
    operator = _operator(server, ca)
    while True:
        told = operator.get("status")
        if json:
            print_json(told)
        else:
            if watch:
                out.clear()
            print_listing(lines(told))
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


def export(
    server: str,
    model: str,
    /,
    *,
    out_folder: Annotated[Path, Parameter(name="--out")],
    ca: Ca = None,
) -> None:
    """Write the newest version of a model as a release, with its trust card.

    Then: privet verify OUT, privet sign OUT

    Example: privet federate export fleet har --out runs/har

    Parameters
    ----------
    server
        Folder or URL.
    model
        Its name.
    out_folder
        Folder of the release, new or empty.
    ca
        For a URL: certificates to believe, PEM.
    """
    if out_folder.exists() and (not out_folder.is_dir() or any(out_folder.iterdir())):
        raise InputError("the folder is not empty", got=out_folder, fix="name a new one")
    content = _operator(server, ca).fetch(_of(model, "release"))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(out_folder)
    out.print(f"{model} is in {out_folder}; next: privet verify {out_folder}", highlight=False)


def rollback(server: str, model: str, /, *, to: int, ca: Ca = None) -> None:
    """Publish an earlier version of a model again, as its newest.

    Example: privet federate rollback fleet har --to 12

    Parameters
    ----------
    server
        Folder or URL.
    model
        Its name.
    to
        The version to publish again.
    ca
        For a URL: certificates to believe, PEM.
    """
    if to < 0:
        raise InputError("bad version", got=to, expected="0 or more")
    told = _operator(server, ca).post(_of(model, "rollback"), {"to": to})
    out.print(f"{model}: version {told['version']} is version {to} again", highlight=False)


def stop(
    server: str,
    model: str,
    /,
    *,
    undo: Annotated[bool, Parameter(negative="")] = False,
    ca: Ca = None,
) -> None:
    """Train a model no more; phones are told so, and what was accepted stays.

    Parameters
    ----------
    server
        Folder or URL.
    model
        Its name.
    undo
        Train it again.
    ca
        For a URL: certificates to believe, PEM.
    """
    _operator(server, ca).post(_of(model, "resume" if undo else "stop"))
    out.print(f"{model} is {'trained again' if undo else 'stopped'}", highlight=False)


def devices(server: str, /, *, ca: Ca = None, json: Json = False) -> None:
    """List the devices of a server: kind, models, since when, and which are blocked.

    Parameters
    ----------
    server
        Folder or URL.
    ca
        For a URL: certificates to believe, PEM.
    json
        Machine-readable.
    """
    found = _operator(server, ca).devices()
    if json:
        print_json(list(found))
        return
    print_listing((device["name"], _device_in_words(device)) for device in found)


def _device_in_words(device: dict[str, Any]) -> str:
    since = datetime.fromtimestamp(device["since"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    models = ", ".join(device["models"]) or "no model"
    blocked = "; blocked" if device["blocked"] else ""
    return f"{device['phone']}, {device['system']}; {models}; since {since}{blocked}"


def block(
    server: str,
    device: str,
    /,
    *,
    undo: Annotated[bool, Parameter(negative="")] = False,
    ca: Ca = None,
) -> None:
    """Let a device in no more, from this moment on; what it gave stays.

    Parameters
    ----------
    server
        Folder or URL.
    device
        Its name; `privet federate devices` lists them.
    undo
        Let it in again.
    ca
        For a URL: certificates to believe, PEM.
    """
    from urllib.parse import quote

    message = {"blocked": not undo}
    _operator(server, ca).post(f"devices/{quote(device, safe='')}/block", message)
    out.print(f"{device} is {'let in again' if undo else 'blocked'}", highlight=False)


def _operator(server: str, ca: Path | None) -> "Operator":
    require_packages()
    from privet.federation.server.operating import Operator

    return Operator.of(server, ca)


def _of(model: str, act: str) -> str:
    from urllib.parse import quote

    return f"models/{quote(model, safe='')}/{act}"
