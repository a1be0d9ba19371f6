"""What a client does in one round: which records, in which order, how often, by which optimiser.

| FLSys  | here             | meaning                                                            |
|--------|------------------|--------------------------------------------------------------------|
| D_L    | `own_per_class`  | records of the client's own that a round uses, of each class       |
| A, D_A | `pool_per_class` | records of the pool, of each class, also of those it lacks         |
| eta    | `learning_rate`  | of the client                                                      |

A `Lesson` is all of that drawn: rows of the `Material`, in order, with -1 where a batch is not
full. Every engine is given the same lessons, so that they can be compared number by number. A
lesson depends on the seed, the client's key and how often the client has been asked, and on nothing
else: not on who was trained before, nor in which process.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.errors import InputError
from privet.federation.draws import Keys, Kind, drawn_from
from privet.privacy.precision import FULL, TF32, find_precision

OPTIMIZERS: Final = ("sgd", "adam")
PRECISIONS: Final = (FULL.name, TF32.name)
EMPTY: Final = -1
Rows = NDArray[np.int64]


@final
@dataclass(frozen=True, kw_only=True)
class LocalWork:
    """The plan of every client.

    Attributes:
        epochs: over the records of a round.
        batch: records of a step.
        learning_rate: eta.
        optimizer: 'sgd' or 'adam', begun anew by every client in every round.
        own_per_class: fewest and most records of a class in a round; None: all there are.
        pool_per_class: of the pool, likewise; None: no pool.
        precision: of the products in which clients learn: 'float32', or 'tf32' (CUDA only).
    """

    epochs: int = 5
    batch: int = 64
    learning_rate: float = 0.005
    optimizer: str = "sgd"
    own_per_class: tuple[int, int] | None = None
    pool_per_class: tuple[int, int] | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name, value in (("local epochs", self.epochs), ("records of a step", self.batch)):
            if value < 1:
                raise InputError(f"bad number of {name}", got=value, expected="at least 1")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError("bad client learning rate", got=self.learning_rate, expected="> 0")
        if self.optimizer not in OPTIMIZERS:
            raise InputError(
                "unknown local optimiser", got=self.optimizer, expected=" | ".join(OPTIMIZERS)
            )
        if self.precision not in PRECISIONS:
            raise InputError(
                "unknown precision", got=f"'{self.precision}'", expected=" | ".join(PRECISIONS)
            )
        for span in (self.own_per_class, self.pool_per_class):
            if span is not None and not 1 <= span[0] <= span[1]:
                raise InputError(
                    "bad number of records of a class",
                    got=f"{span[0]}..{span[1]}",
                    expected="1 <= fewest <= most",
                )

    def require_on(self, device: torch.device) -> None:
        """Refuse a precision that a device does not have."""
        if self.precision == TF32.name and device.type != "cuda":
            raise InputError(
                "no TF32 here",
                got=f"device {device.type}",
                expected="a CUDA device",
                fix=f"--precision {FULL.name}",
            )

    @contextmanager
    def products(self, device: torch.device) -> Iterator[None]:
        """For all that clients compute: this precision, whatever PyTorch is set to.

        And on a GPU the same bits whenever it is done: a killed run repeats its lost steps.
        """
        before = torch.backends.cudnn.deterministic
        torch.backends.cudnn.deterministic = True
        try:
            with find_precision(self.precision, device).products(device):
                yield
        finally:
            torch.backends.cudnn.deterministic = before


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Material:
    """The records of all clients, and after them those of the pool.

    Attributes:
        x, y: inputs as the model is given them, and labels.
        clients: for each client, which rows are its own.
        pool: rows that every client has; none without a pool.
        classes: number of classes.
        keys: of clients, by which all is drawn for them; by default their places.
    """

    x: Tensor
    y: Tensor
    clients: Sequence[Rows]
    pool: Rows
    classes: int
    keys: Keys | None = None

    def on(self, device: torch.device) -> "Material":
        """The same with its records on a device."""
        return Material(
            x=self.x.to(device),
            y=self.y.to(device),
            clients=self.clients,
            pool=self.pool,
            classes=self.classes,
            keys=self.keys,
        )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Lesson:
    """The rows of each step, (steps, batch), and a seed for what the model draws itself."""

    rows: Rows
    seed: int


@contextmanager
def own_draws(seed: int, device: torch.device) -> Iterator[None]:
    """What a model draws here follows from the seed alone; outside nobody notices.

    As `torch.manual_seed` does, but for the one device: it visits them all, which takes longer than
    a small client's whole work.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


class Teacher:
    """Draws lessons.

    Args:
        material: the records.
        work: the plan.
        seed: of the simulation.
    """

    def __init__(self, material: Material, work: LocalWork, *, seed: int) -> None:
        self.work, self.seed = work, seed
        self._labels, self._classes = material.y.cpu().numpy(), material.classes
        self._own = [self._in_classes(rows) for rows in material.clients]
        self._pool = self._in_classes(material.pool)
        places = np.arange(len(self._own), dtype=np.uint64)
        self.keys: Keys = places if material.keys is None else material.keys
        if work.pool_per_class is not None and not len(material.pool):
            raise InputError(
                "records of a pool are asked for, and there is no pool", fix="give a pool"
            )

    @property
    def clients(self) -> int:
        """How many there are."""
        return len(self._own)

    def lesson(self, client: int, turn: int) -> Lesson:
        """Of one client, when it is asked for the `turn`-th time."""
        draw = drawn_from(self.seed, Kind.LESSON, int(self.keys[client]), turn)
        rows, batch = self._chosen(client, draw), self.work.batch
        epochs = np.full((self.work.epochs, -(-len(rows) // batch) * batch), EMPTY, dtype=np.int64)
        for epoch in epochs:
            epoch[: len(rows)] = draw.permutation(rows)
        return Lesson(rows=epochs.reshape(-1, batch), seed=int(draw.integers(2**31)))

    def records(self, client: int, turn: int) -> int:
        """How many records a lesson goes through, every epoch counted."""
        if self._always_whole:
            return self.work.epochs * len(self._own[client])
        draw = drawn_from(self.seed, Kind.LESSON, int(self.keys[client]), turn)
        return self.work.epochs * len(self._chosen(client, draw))

    @property
    def _always_whole(self) -> bool:
        return self.work.own_per_class is None and self.work.pool_per_class is None

    def _chosen(self, client: int, draw: np.random.Generator) -> Rows:
        if self._always_whole:
            return self._own[client]
        span = self.work.own_per_class
        parts = [self._own[client]] if span is None else self._some(self._own[client], span, draw)
        if self.work.pool_per_class is not None:
            parts += self._some(self._pool, self.work.pool_per_class, draw)
        return np.concatenate(parts)

    def _in_classes(self, rows: Rows) -> Rows:
        """One class after the other, ascending in each."""
        order = np.sort(rows)
        return order[np.argsort(self._labels[order], kind="stable")]

    def _some(self, rows: Rows, span: tuple[int, int], draw: np.random.Generator) -> list[Rows]:
        """Of each class, so many without repetition; all if there are not so many."""
        ends = np.searchsorted(self._labels[rows], np.arange(1, self._classes))
        counts = draw.integers(span[0], span[1] + 1, self._classes)
        return [
            draw.choice(own, min(int(n), len(own)), replace=False) if len(own) else own
            for own, n in zip(np.split(rows, ends), counts, strict=True)
        ]
