"""The nodes in the server's memory, from which it draws by secret coins."""

import hashlib
import time
from pathlib import Path
from typing import Final

from privet.errors import InputError
from privet.federation.flower.nodes import Roster
from privet.federation.server.state import State
from privet.federation.server.state.records import App, Device
from privet.files import read_json, write_json

FLOWER: Final = "flower"
EVERY_KEY: Final = "nodes.json"  # in the home: names by keys, also of keys that were exchanged


def enrol(state: State, model: str, roster: Roster, home: Path) -> None:
    """All of the roster and nobody else: whoever was taken off it is drawn no more."""
    _remember(roster, home / EVERY_KEY)
    if FLOWER not in [app.name for app in state.apps()]:
        app = App(name=FLOWER, key_digest=f"none: {FLOWER}", since=time.time())
        state.add_app(app, [model])
    known, wanted = set(state.devices_of(model)), set(roster.names.values())
    for key, name in roster.names.items():
        if state.device(name) is None:
            state.add_device(_device(name, key), FLOWER)
    for name in known - wanted:
        state.block(name)
    for name in wanted - known:
        state.block(name, blocked=False)


def _remember(roster: Roster, file: Path) -> None:
    """Every key for good, before anyone is asked for anything."""
    known: dict[str, str] = read_json(file) if file.exists() else {}
    for key, name in roster.names.items():
        _require_same(name, known.setdefault(_digest(key), name))
    write_json(file, known, private=True)


def _require_same(name: str, known: str) -> None:
    """A key that was here before is that node: under another name it would begin anew."""
    if name != known:
        raise InputError(
            "a node under another name",
            got=f"{name}.pub",
            expected=f"{known}.pub, as in earlier runs: what it has spent goes by its name",
        )


def _device(name: str, key: bytes) -> Device:
    """Flower looks after the key; here it only has to be one of its own."""
    return Device(
        name=name, public_key=_digest(key), phone=FLOWER, system=FLOWER, since=time.time()
    )


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()
