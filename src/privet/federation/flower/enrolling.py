"""The nodes in the server's memory, from which it draws by secret coins."""

import hashlib
import time
from typing import Final

from privet.errors import InputError
from privet.federation.flower.nodes import Roster
from privet.federation.server.state import State
from privet.federation.server.state.records import App, Device

FLOWER: Final = "flower"


def enrol(state: State, model: str, roster: Roster) -> None:
    """All of the roster and nobody else: whoever was taken off it is drawn no more."""
    if FLOWER not in [app.name for app in state.apps()]:
        app = App(name=FLOWER, key_digest=f"none: {FLOWER}", since=time.time())
        state.add_app(app, [model])
    known, wanted = set(state.devices_of(model)), set(roster.names.values())
    for key, name in roster.names.items():
        if state.device(name) is None:
            _require_same(name, state.add_device(_device(name, key), FLOWER).name)
    for name in known - wanted:
        state.block(name)
    for name in wanted - known:
        state.block(name, blocked=False)


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
    digest = hashlib.sha256(key).hexdigest()
    return Device(name=name, public_key=digest, phone=FLOWER, system=FLOWER, since=time.time())
