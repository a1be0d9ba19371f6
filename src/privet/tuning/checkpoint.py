"""What a killed search needs to go on: its keys, how many trials are done, and the best so far.

A private file, written anew after every trial. Of trials that lost nothing is kept. The number of
trials is not in it, but follows from the keys: the file is deleted when the release is written.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from privet.engine.checkpoint import keys_of, randomness_from
from privet.errors import InputError
from privet.files import write_atomically
from privet.models import create
from privet.privacy.randomness import Randomness
from privet.release import Release


@dataclass(frozen=True, kw_only=True, eq=False)
class Best:
    """The best trial so far, ready to be released, with its noisy score."""

    score: float
    release: Release


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """Where a search stands."""

    randomness: Randomness
    done: int = 0
    best: Best | None = None

    def save(self, path: Path) -> None:
        """Write it, readable by the owner alone."""
        state = {
            "keys": keys_of(self.randomness),
            "done": self.done,
            "best": None if self.best is None else _plain(self.best),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(path, buffer.getvalue(), private=True)

    @classmethod
    def load(cls, path: Path, device: torch.device) -> "Standing":
        """Read it; tensors and plain values only, no code is run."""
        try:
            state = torch.load(path, map_location=device, weights_only=True)
            return cls(
                randomness=randomness_from(state["keys"]),
                done=state["done"],
                best=None if state["best"] is None else _best(state["best"], device),
            )
        except FileNotFoundError:
            raise InputError(
                "the search was killed before its first trial",
                got=path,
                fix="delete its folder, search again",
            ) from None
        except Exception as error:  # torch raises many kinds for a broken file
            raise InputError("corrupt checkpoint", got=f"{path}: {error}") from None


def _plain(best: Best) -> dict[str, Any]:
    return {
        "score": best.score,
        "weights": best.release.model.state_dict(),
        "config": json.dumps(best.release.config),
        "trust": json.dumps(best.release.trust),
    }


def _best(state: Mapping[str, Any], device: torch.device) -> Best:
    config = json.loads(state["config"])
    model = create(config["model"], tuple(config["shape"]), len(config["classes"])).to(device)
    model.load_state_dict(state["weights"])
    release = Release(model=model, config=config, trust=json.loads(state["trust"]))
    return Best(score=state["score"], release=release)
