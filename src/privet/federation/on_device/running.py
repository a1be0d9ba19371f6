"""A phone's folder at work on this machine: what a phone's own program does, in few lines.

It is the reference for phones' programs and for tests, and each export is tried with it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import torch
from torch import Tensor

from privet.errors import InputError
from privet.federation.local_work import LocalWork
from privet.federation.on_device.programs import METHOD, quiet, require_installed
from privet.files import read_json

FORMAT: Final = "privet-phone/1"
MANIFEST: Final = "manifest.json"
TRAINING: Final = "training.pte"
INFERENCE: Final = "inference.pte"
ONNX: Final = "inference.onnx"
README: Final = "README.md"


@final
@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter, and which part of an update is its own.

    Attributes:
        name: in the training program.
        shape: of it.
        offset: of its first number in the flat vector.
    """

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(torch.Size(self.shape).numel())


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a folder, once every file that it names is as it says."""
    folder = Path(folder)
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT or "files" not in manifest:
        raise InputError(
            "not a phone's folder",
            got=f"format {manifest.get('format')}",
            expected=FORMAT,
            fix="make one: privet federate to-phone",
        )
    for name, said in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise InputError("a file of the phone's folder is missing", got=path)
        if hashlib.sha256(path.read_bytes()).hexdigest() != said["sha256"]:
            raise InputError(
                "a file of the phone's folder was changed",
                got=path,
                expected="the SHA-256 in manifest.json",
                fix="make the folder again: privet federate to-phone",
            )
    return manifest


@final
class OnPhone:
    """A training program with its parameters.

    Args:
        program: the content of `training.pte`.
        parameters: in the order of the flat vector.
        batch: records of a step.
        rates, kept: of dropouts, and the shapes of their factors.
    """

    def __init__(
        self,
        program: bytes,
        parameters: Sequence[Parameter],
        *,
        batch: int,
        shape: tuple[int, ...],
        rates: tuple[float, ...] = (),
        kept: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        require_installed("executorch")
        self.batch, self.shape, self.rates, self.kept = batch, shape, rates, kept
        self._parameters = tuple(parameters)
        self._program = program  # ExecuTorch reads on in it, and does not keep it alive
        with quiet():
            from executorch.extension.training import _load_for_executorch_for_training_from_buffer

            self._module = _load_for_executorch_for_training_from_buffer(program)
            # Its parameters can be had once it has computed something; that changes none of them.
            self.gradients(torch.zeros(0, *shape), torch.zeros(0, dtype=torch.int64))
        found = {name: tuple(p.shape) for name, p in self._module.named_parameters().items()}
        if found != {p.name: p.shape for p in self._parameters}:
            raise InputError(
                "the training program has other parameters than its manifest",
                got=", ".join(sorted(set(found) ^ {p.name for p in self._parameters})) or "shapes",
                fix="make the folder again: privet federate to-phone",
            )
        self._optimizer: Any = None
        self._proximal = 0.0

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """From a folder; a changed file is refused. The manifest itself is believed."""
        manifest = read_manifest(folder)
        if TRAINING not in manifest["files"]:
            raise InputError(
                "this folder has no training program",
                got=folder,
                fix="make one with it: privet federate to-phone --format executorch",
            )
        phone = cls(
            (Path(folder) / TRAINING).read_bytes(),
            [
                Parameter(name=p["name"], shape=tuple(p["shape"]), offset=p["offset"])
                for p in manifest["parameters"]
            ],
            batch=manifest["batch"],
            shape=tuple(manifest["shape"]),
            rates=tuple(drop["rate"] for drop in manifest["dropouts"]),
            kept=tuple(tuple(drop["shape"]) for drop in manifest["dropouts"]),
        )
        if digest_of(phone.weights()) != manifest["start"]["sha256"]:
            raise InputError(
                "the parameters do not give the vector that the manifest tells",
                got=digest_of(phone.weights()),
                expected=manifest["start"]["sha256"],
                fix="keep the order of `parameters` in manifest.json",
            )
        return phone

    def weights(self) -> Tensor:
        """All parameters as the one vector that travels; a copy."""
        own = self._module.named_parameters()
        return torch.cat([own[p.name].detach().reshape(-1) for p in self._parameters])

    def set_weights(self, vector: Tensor) -> None:
        """Begin with a version of the server's."""
        size = sum(p.size for p in self._parameters)
        if vector.shape != (size,):
            raise InputError(
                "a vector does not fit the model", got=tuple(vector.shape), expected=f"({size},)"
            )
        own = self._module.named_parameters()
        for p in self._parameters:
            own[p.name].copy_(vector[p.offset : p.offset + p.size].reshape(p.shape))

    def begin(self, work: LocalWork, *, proximal: float = 0.0) -> None:
        """An optimiser without a past, as every phone has one in every round."""
        own = self._module.named_parameters()
        self._proximal = proximal
        self._anchors = {name: p.clone() for name, p in own.items()} if proximal else {}
        if work.optimizer == "adam":
            self._optimizer = _Adam(own, work.learning_rate)
            return
        with quiet():
            from executorch.extension.training import get_sgd_optimizer

            self._optimizer = get_sgd_optimizer(own, work.learning_rate)

    def step(self, x: Tensor, y: Tensor, kept: Sequence[Tensor] = ()) -> float:
        """One step on at most a batch of records; the loss before it.

        `kept`: factors of each dropout, a row a record; without them nothing is dropped.
        """
        if self._optimizer is None:
            raise InputError("no optimiser yet", fix="call begin(work) first")
        loss, _, gradients = self.gradients(x, y, kept)
        for name, gradient in gradients.items():
            if self._proximal:
                now = self._module.named_parameters()[name]
                gradient.add_(now - self._anchors[name], alpha=self._proximal)
        self._optimizer.step(gradients)
        return loss

    def gradients(
        self, x: Tensor, y: Tensor, kept: Sequence[Tensor] = ()
    ) -> tuple[float, Tensor, dict[str, Tensor]]:
        """Mean loss, scores and gradients by name; the batch is filled up by records of share 0."""
        n = len(x)
        if n > self.batch:
            raise InputError("too many records for a step", got=n, expected=f"at most {self.batch}")
        share = torch.full((n,), 1.0 / max(n, 1))
        factors = kept or [torch.ones(n, *shape[1:]) for shape in self.kept]
        inputs = [_filled(part, self.batch) for part in (x.float(), y, share, *factors)]
        loss, scores = self._module.forward_backward(METHOD, inputs)
        return float(loss), scores[:n], dict(self._module.named_gradients())


@final
class _Adam:
    """As PyTorch's: ExecuTorch's AdamW without decay is the same, and not bound to Python."""

    def __init__(self, parameters: dict[str, Tensor], rate: float) -> None:
        self._parameters = parameters
        self._adam = torch.optim.Adam(list(parameters.values()), lr=rate)

    def step(self, gradients: dict[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.grad = gradients[name]
        self._adam.step()


def digest_of(vector: Tensor) -> str:
    """SHA-256 of the numbers of a vector, in single precision, little endian."""
    return hashlib.sha256(vector.numpy().astype("<f4").tobytes()).hexdigest()


def _filled(part: Tensor, batch: int) -> Tensor:
    """With rows of zeros behind its own, up to a batch."""
    rest = torch.zeros(batch - len(part), *part.shape[1:], dtype=part.dtype)
    return torch.cat([part, rest]).contiguous()
