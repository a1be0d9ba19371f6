"""What of a model must stay with the server: keys of noise, coins and snapshots, and its run.

One private file for each model, never in the database and never in the store. Without it a model
cannot go on: noise under fresh keys would be noise of another run.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from privet.engine.checkpoint import keys_of, randomness_from
from privet.errors import InputError
from privet.federation.server.plan import ModelPlan
from privet.federation.server.snapshots import KEY_BYTES
from privet.files import flush_folder, make_folder, read_json, write_json
from privet.ledger import new_run_id
from privet.privacy.randomness import Randomness
from privet.training.dpsgd import fresh_randomness

FILE: Final = "keys.json"
STEPS: Final = "steps.journal"


@final
@dataclass(frozen=True, kw_only=True)
class ModelKeys:
    """The secrets of one model; `steps` is where fingerprints of its noisy sums are noted."""

    randomness: Randomness
    snapshots: bytes
    run_id: str
    steps: Path

    @classmethod
    def of(cls, plan: ModelPlan, folder: Path, *, begun: bool) -> Self:
        """Those of a model that has begun, or new ones, which are on disk when this returns."""
        place = folder / plan.name / FILE
        if begun and not place.exists():
            raise InputError(
                f"the keys of '{plan.name}' are gone",
                got=f"no {place}",
                fix="restore the server's folder; without its keys a model cannot go on",
            )
        if not place.exists():
            make_folder(place.parent)
            place.parent.chmod(0o700)
            fresh = {
                "streams": keys_of(fresh_randomness(plan.settings)),
                "snapshots": secrets.token_hex(KEY_BYTES),
                "run": new_run_id(),
            }
            write_json(place, fresh, private=True)
            for above in (place.parent, folder):
                flush_folder(above)
        said = read_json(place)
        return cls(
            randomness=randomness_from(said["streams"]),
            snapshots=bytes.fromhex(said["snapshots"]),
            run_id=said["run"],
            steps=place.with_name(STEPS),
        )
