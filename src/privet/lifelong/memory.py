"""The episodic memory: records of earlier tasks that were kept by a secret coin of each unit.

It lies in the private folder of a run and is never released; later tasks read it through noise
(`recalling`). In a disjoint stream each task has coins of its own. In a shared stream a unit has
one coin for its lifetime, whatever tasks it is in, and all its records count as one unit.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Dataset, Split
from privet.errors import InputError
from privet.files import write_atomically
from privet.lifelong.stream import Stream, Task
from privet.privacy.randomness import SecretStream

ADMISSION: Final = "admission to the memory"


def admitted(task: Task, number: int, *, chance: float, coins: SecretStream) -> NDArray[np.bool_]:
    """Which records of a task are kept, by the coins of their units."""
    owners = task.data.train.unit_of_record
    if task.identities is None:
        own = coins.branch(purpose=ADMISSION, step=number)
        tossed = own.uniform(task.data.train.n_units, purpose=ADMISSION, step=0)
        return np.asarray((tossed < chance)[owners])
    lucky = np.array([_coin(identity, coins) < chance for identity in task.identities.tolist()])
    return np.asarray(lucky.astype(bool)[owners])


def _coin(identity: int, coins: SecretStream) -> float:
    """In [0, 1), by identity alone: the same unit has the same coin in every task."""
    drawn = coins.digest(identity.to_bytes(8, "little", signed=True), purpose=ADMISSION)
    return (int.from_bytes(drawn[:8], "little") >> 11) * 2.0**-53


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """What one task left to the memory. As private as the records."""

    x: NDArray[np.generic]
    y: NDArray[np.int64]
    owners: NDArray[np.int64]  # whose each record is: identities, or numbers within the task

    def save(self, path: Path) -> None:
        """Readable by the owner alone."""
        buffer = io.BytesIO()
        np.savez(buffer, x=self.x, y=self.y, owners=self.owners)
        write_atomically(path, buffer.getvalue(), private=True)

    @classmethod
    def load(cls, path: Path) -> "Kept":
        """What `save` wrote; no code is run."""
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls(x=file["x"], y=file["y"], owners=file["owners"])
        except FileNotFoundError:
            raise InputError(
                "a part of the memory is not there",
                got=path,
                fix="restore it: tasks that were learned are not asked again",
            ) from None
        except (OSError, ValueError, KeyError) as error:
            raise InputError("corrupt memory", got=f"{path}: {error}") from None


def kept_of(task: Task, number: int, *, chance: float, coins: SecretStream) -> Kept:
    """The records of a task whose units were lucky."""
    chosen = admitted(task, number, chance=chance, coins=coins)
    train = task.data.train
    owners = train.unit_of_record
    names = owners if task.identities is None else task.identities[owners]
    return Kept(x=train.x[chosen], y=train.y[chosen], owners=names[chosen].astype(np.int64))


def memory_of(stream: Stream, kept: Sequence[Kept], *, chance: float) -> Dataset:
    """All that earlier tasks left, as data of which the declared size is expected."""
    first = stream.tasks[0].data
    split = _joined(stream, kept)
    sizes = [task.data.nominal_size for task in stream.tasks[: len(kept)]]
    units = max(sizes) if stream.shared else sum(sizes)
    return first.training_on(split, nominal_size=max(1, round(chance * units)))


def _joined(stream: Stream, kept: Sequence[Kept]) -> Split:
    x = np.concatenate([one.x for one in kept])
    y = np.concatenate([one.y for one in kept])
    if not stream.shared and stream.tasks[0].data.train.units is None:
        return Split(x=x, y=y)
    # Numbers within a task mean another unit in the next one; identities mean the same.
    place = [0 if stream.shared else number for number in range(len(kept))]
    names = [
        np.stack([np.full_like(one.owners, at), one.owners])
        for at, one in zip(place, kept, strict=True)
    ]
    _, units = np.unique(np.concatenate(names, axis=1), axis=1, return_inverse=True)
    return Split(x=x, y=y, units=units.reshape(-1).astype(np.int64))
