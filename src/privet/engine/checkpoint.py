"""Checkpoints: everything a killed run needs to go on, kept private beside the release.

A checkpoint may hold the secret keys (`keep_keys`): then redone steps repeat exactly and cost
nothing, but whoever gets the file can undo the noise. Without them, resuming takes fresh keys and
the redone steps are charged again. That is allowed where a lost step may be drawn anew (plain
Poisson sampling, independent noise); where every unit has its turn, fresh keys would give it
another one, so such a checkpoint is neither written nor restored.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from privet.engine.ranks import Ranks
from privet.engine.trainer import PrivateTrainer
from privet.errors import InputError
from privet.files import write_atomically
from privet.privacy.correlated import History
from privet.privacy.randomness import Randomness, SecretStream


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state after `step` steps; `randomness` is None where the keys were not kept."""

    step: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    average: dict[str, Any] | None
    noise_history: History
    randomness: Randomness | None
    origin: str  # the data and the run, sealed
    canaries: dict[str, Any] | None = None


def save_checkpoint(path: Path, trainer: PrivateTrainer, *, keep_keys: bool) -> None:
    """Write the trainer's state, readable by the owner alone."""
    if not keep_keys:
        _require_redoable(trainer)
    state = {
        "origin": _sealed_origin(trainer),
        "step": trainer.next_step,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "average": None if trainer.average is None else trainer.average.state(),
        "keys": keys_of(trainer.randomness) if keep_keys else None,
        "noise_history": _history_state(trainer.noise_history) if keep_keys else None,
        "canaries": None if trainer.canaries is None else trainer.canaries.state(),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue(), private=True)


def load_checkpoint(path: Path, device: torch.device) -> Checkpoint:
    """Read a checkpoint; tensors and plain values only, no code is run."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        return Checkpoint(
            step=state["step"],
            model=state["model"],
            optimizer=state["optimizer"],
            average=state["average"],
            noise_history=_history(state["noise_history"], state["step"]),
            randomness=state["keys"] and randomness_from(state["keys"]),
            origin=state["origin"],
            canaries=state.get("canaries"),
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
    """Put a fresh trainer where the checkpoint left off.

    Guarantee: the steps that follow are those that the plan accounts, or are charged again. So the
    records stand where they stood, under the keys of the checkpoint or fresh ones where the sampler
    allows that, and the journal tells what was done since.
    """
    if trainer.next_step > 0 or trainer.repeating:
        raise InputError("the trainer has begun already", fix="restore into a new one")
    if trainer.ranks.leads:  # the others hold what the lead holds, and no account
        _require_same_origin(trainer, checkpoint)
        _require_its_keys(trainer, checkpoint)
        trainer.account.books.require_noted(checkpoint.step)
    trainer.model.load_state_dict(checkpoint.model)
    trainer.untouched.note()
    trainer.optimizer.load_state_dict(checkpoint.optimizer)
    if trainer.average is not None and checkpoint.average is not None:
        trainer.average.restore(checkpoint.average)
    if trainer.canaries is not None and checkpoint.canaries is not None:
        trainer.canaries.restore(checkpoint.canaries)
    trainer.noise_history = checkpoint.noise_history
    trainer.next_step = checkpoint.step
    trainer.repeating = checkpoint.randomness is not None


def shared(checkpoint: Checkpoint | None, ranks: Ranks) -> Checkpoint:
    """The lead's checkpoint on every rank. Keys and history of the noise stay with the lead."""
    said = ranks.told(
        checkpoint and (checkpoint.step, checkpoint.model, checkpoint.optimizer, checkpoint.average)
    )
    if checkpoint is not None:
        return checkpoint
    step, model, optimizer, average = said
    return Checkpoint(
        step=step,
        model=model,
        optimizer=optimizer,
        average=average,
        noise_history=History.empty(step=step),
        randomness=None,
        origin="",
    )


def keys_of(random: Randomness) -> dict[str, Any]:
    """The streams as plain values, for a private file."""
    return {
        "init_seed": random.init_seed,
        "sampling": random.sampling.key.hex(),
        "noise": random.noise.key.hex(),
        "secret": random.secret,
    }


def randomness_from(keys: Mapping[str, Any]) -> Randomness:
    """Inverse of `keys_of`."""
    return Randomness(
        init_seed=keys["init_seed"],
        sampling=SecretStream(bytes.fromhex(keys["sampling"])),
        noise=SecretStream(bytes.fromhex(keys["noise"])),
        secret=keys["secret"],
    )


def _history_state(history: History) -> dict[str, Any]:
    return {"draws": history.draws, "owner": history.owner.hex()}


def _history(state: dict[str, Any] | None, step: int) -> History:
    if state is None:
        return History.empty(step=step)
    return History(next_step=step, draws=state["draws"], owner=bytes.fromhex(state["owner"]))


def _sealed_origin(trainer: PrivateTrainer) -> str:
    books = trainer.account.books
    return trainer.origin.sealed(books.ledger, books.run_id)


def _require_same_origin(trainer: PrivateTrainer, checkpoint: Checkpoint) -> None:
    if _sealed_origin(trainer) != checkpoint.origin:
        raise InputError(
            "the checkpoint was made with other data, or in another run",
            expected="the same records in the same order, declared alike",
            fix="load the data as they were when the run began; or start a new run",
        )


def _require_its_keys(trainer: PrivateTrainer, checkpoint: Checkpoint) -> None:
    kept = checkpoint.randomness
    if kept is None:
        _require_redoable(trainer)
    elif keys_of(kept) != keys_of(trainer.randomness):
        raise InputError(
            "the trainer has other keys than the checkpoint",
            fix="make it with the randomness of the checkpoint",
        )


def _require_redoable(trainer: PrivateTrainer) -> None:
    plan = trainer.plan
    if not plan.sampler.redoable or plan.bands:
        raise InputError(
            "a run in which every unit has its turn can only go on with its keys",
            got=f"no kept keys, {plan.sampler.name} sampling, {len(plan.bands)} bands",
            fix="keep the keys, or use independent noise and Poisson sampling",
        )
