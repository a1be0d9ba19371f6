"""Checkpoints: everything a killed run needs to go on, kept private beside the release.

A checkpoint may hold the secret keys (`keep_keys`): then redone steps repeat exactly and cost
nothing, but whoever gets the file can undo the noise. Without them, resuming takes fresh keys and
the redone steps are charged again.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from privet.engine.trainer import PrivateTrainer
from privet.errors import InputError
from privet.files import write_atomically
from privet.privacy.randomness import Randomness, SecretStream


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state after `step` steps; `randomness` is None where the keys were not kept."""

    step: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    randomness: Randomness | None


def save_checkpoint(path: Path, trainer: PrivateTrainer, *, keep_keys: bool) -> None:
    """Write the trainer's state, readable by the owner alone."""
    random = trainer.randomness
    keys = {
        "init_seed": random.init_seed,
        "sampling": random.sampling.key.hex(),
        "noise": random.noise.key.hex(),
        "secret": random.secret,
    }
    state = {
        "step": trainer.next_step,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "keys": keys if keep_keys else None,
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue(), private=True)


def load_checkpoint(path: Path, device: torch.device) -> Checkpoint:
    """Read a checkpoint; tensors and plain values only, no code is run."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        keys = state["keys"]
        random = keys and Randomness(
            init_seed=keys["init_seed"],
            sampling=SecretStream(bytes.fromhex(keys["sampling"])),
            noise=SecretStream(bytes.fromhex(keys["noise"])),
            secret=keys["secret"],
        )
        return Checkpoint(
            step=state["step"],
            model=state["model"],
            optimizer=state["optimizer"],
            randomness=random,
        )
    except FileNotFoundError:
        raise InputError(
            "the run was killed before its first step",
            got=path,
            fix="delete its folder, train again",
        ) from None
    except Exception as error:  # torch raises many kinds for a broken file
        raise InputError("corrupt checkpoint", got=f"{path}: {error}") from None


def restore(trainer: PrivateTrainer, checkpoint: Checkpoint) -> None:
    """Put a fresh trainer where the checkpoint left off."""
    trainer.model.load_state_dict(checkpoint.model)
    trainer.optimizer.load_state_dict(checkpoint.optimizer)
    trainer.next_step = checkpoint.step
    trainer.repeating = checkpoint.randomness is not None
