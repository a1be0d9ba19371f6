"""What a model is trained and tried on: windows with labels, in files, in the order of time.

A file is a batch of windows that were made together; its name is when they begin. Held-out ones are
never trained on. Files are mapped when they are needed, so a phone that sleeps holds none.
"""

from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from privet.errors import InputError
from privet.federation.local_work import Material
from privet.federation.phone.storage import load_tensors, own_folder, save_tensors

TRAIN, HELD_OUT, POOL = "train", "held-out", "pool"
ENDING: Final = ".safetensors"


@final
class Records:
    """Those of one model on one phone.

    Args:
        folder: theirs alone.
        shape: of an example.
        classes: how many there are.
        key: by which lessons are drawn from them; the simulator's, of a client of its own.
    """

    def __init__(self, folder: Path, *, shape: tuple[int, ...], classes: int, key: int = 0) -> None:
        self.folder, self.shape, self.classes = own_folder(folder), shape, classes
        self.key = key
        self._counts: dict[str, int] = {}

    def add(self, part: str, start: float, x: Tensor, y: Tensor) -> None:
        """Windows that begin at `start`; the same start replaces what was there."""
        if tuple(x.shape[1:]) != self.shape or len(x) != len(y):
            raise InputError(
                "records do not fit the model",
                got=f"{tuple(x.shape)} and {len(y)} labels",
                expected=f"examples of shape {self.shape}",
            )
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < self.classes:
            raise InputError("labels of no class", expected=f"0..{self.classes - 1}")
        if len(y):
            save_tensors(self._path(part, start), {"x": x.float(), "y": y.long()})
        self._counts.pop(part, None)

    def forget_before(self, moment: float) -> int:
        """Delete what is older, as the user was told; how many files."""
        old = [path for path in self.folder.glob(f"*/*{ENDING}") if float(path.stem) < moment]
        for path in old:
            path.unlink(missing_ok=True)
        self._counts.clear()
        return len(old)

    def count(self, part: str = TRAIN) -> int:
        """How many there are."""
        if part not in self._counts:
            self._counts[part] = sum(len(load_tensors(path)["y"]) for path in self._files(part))
        return self._counts[part]

    def read(self, part: str) -> tuple[Tensor, Tensor]:
        """All of a part."""
        batches = [load_tensors(path) for path in self._files(part)]
        if not batches:
            return torch.zeros(0, *self.shape), torch.zeros(0, dtype=torch.int64)
        if len(batches) == 1:
            return batches[0]["x"], batches[0]["y"]
        return torch.cat([b["x"] for b in batches]), torch.cat([b["y"] for b in batches])

    def material(self) -> Material:
        """As the simulator has it, of this client alone."""
        x, y = self.read(TRAIN)
        own, (pool_x, pool_y) = np.arange(len(y), dtype=np.int64), self.read(POOL)
        if len(pool_y):
            x, y = torch.cat([x, pool_x]), torch.cat([y, pool_y])
        return Material(
            x=x,
            y=y,
            clients=[own],
            pool=np.arange(len(own), len(y), dtype=np.int64),
            classes=self.classes,
            keys=np.array([self.key], dtype=np.uint64),
        )

    def _files(self, part: str) -> list[Path]:
        return sorted((self.folder / part).glob(f"*{ENDING}"), key=lambda path: float(path.stem))

    def _path(self, part: str, start: float) -> Path:
        return own_folder(self.folder / part) / f"{start:.6f}{ENDING}"
