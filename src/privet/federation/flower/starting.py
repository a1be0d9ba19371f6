"""A model's folder, set up or brought up to date, with a Flower app that is ready for `flwr run`.

The app names no dependency: what it needs is installed on every host beforehand. To install at run
time would fetch PyTorch with CUDA, and would run on every host what a package index says then.
"""

import json
from pathlib import Path
from typing import Final

from privet.errors import InputError
from privet.federation.flower.folder import ABOUT, Folder, require_for_flower
from privet.federation.flower.nodes import ENDING, Roster
from privet.federation.server.plan import ModelPlan
from privet.files import make_folder, write_atomically
from privet.release import CUSTOM

SERVER_APP: Final = "privet.federation.flower.server_app:app"
CLIENT_APP: Final = "privet.federation.flower.client_app:app"

_APP: Final = """\
# Written by `privet federate flower`; run it by `flwr run`.
[project]
name = "{name}"
version = "1.0.0"
description = "A model of privet's"
license = "Apache-2.0"
dependencies = []  # installed on every host beforehand: pip install 'privet[flower]'

[tool.flwr.app]
publisher = "privet"

[tool.flwr.app.components]
serverapp = "{server}"
clientapp = "{client}"

[tool.flwr.app.config]
privet-folder = {folder}
privet-poll = 1.0
"""


def set_up(
    path: Path, *, plan: Path | None, nodes: Path | None, ledger: Path
) -> tuple[Folder, ModelPlan]:
    """A new folder, or the one that is there with another plan or other nodes."""
    folder = Folder(path.resolve())
    folder.require_outside_apps()
    new = not (folder.path / ABOUT).exists()
    if new and plan is None:
        raise InputError("a new model without a plan", got=path, fix="--plan PLAN.toml")
    if new and folder.path.exists() and any(folder.path.iterdir()):
        raise InputError("not an empty folder", got=path, fix="name a new one")
    asked = ModelPlan.load(plan or folder.plan, own_network=True)
    if nodes is not None:
        _require_keys(nodes)
    roster = Roster.read(nodes or folder.nodes)
    if not new and folder.begun:
        ModelPlan.load(folder.plan, own_network=True).require_successor(asked)
    asked.require_runnable()
    require_for_flower(asked, roster)
    make_folder(folder.path)
    folder.note(ledger)
    make_folder(folder.nodes)
    if plan is not None and plan.resolve() != folder.plan:
        write_atomically(folder.plan, plan.read_bytes())
    if nodes is not None and nodes.resolve() != folder.nodes:
        _exchange(nodes, folder.nodes)
    _write_app(folder, asked)
    return folder, asked


def lines_for(folder: Folder) -> list[tuple[str, str]]:
    """What an existing Flower app says instead of its own ServerApp."""
    return [
        ("[tool.flwr.app.components]", f'serverapp = "{SERVER_APP}"'),
        ("[tool.flwr.app.config]", f"privet-folder = {json.dumps(str(folder.path))}"),
    ]


def _require_keys(folder: Path) -> None:
    """A mistyped folder would take all keys away, and let whoever comes take part."""
    if not any(folder.glob(f"*{ENDING}")):
        raise InputError(
            "no keys of nodes", got=folder, expected=f"a folder with NAME{ENDING} for every node"
        )


def _exchange(there: Path, here: Path) -> None:
    """New keys first: a folder without any, were it left so, would let anybody take part."""
    keys = {key.name: key.read_bytes() for key in sorted(there.glob(f"*{ENDING}"))}
    for name, key in keys.items():
        write_atomically(here / name, key)
    for old in here.glob(f"*{ENDING}"):
        if old.name not in keys:
            old.unlink()


def _write_app(folder: Folder, plan: ModelPlan) -> None:
    """Not for a network of the caller's own: that comes with an app of its own."""
    if plan.settings.model == CUSTOM:
        return
    make_folder(folder.app)
    text = _APP.format(
        name=plan.name.lower(),
        server=SERVER_APP,
        client=CLIENT_APP,
        folder=json.dumps(str(folder.path)),
    )
    write_atomically(folder.app / "pyproject.toml", text.encode())
