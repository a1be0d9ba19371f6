"""Elastic weight consolidation (Kirkpatrick et al., 2017): weights that mattered are held back.

    step <- step + c F (theta - theta*),    F the mean of g^2 over the steps of earlier tasks

Deviation: F is the diagonal of the Fisher information there, from the records. Here it comes from
the gradients that the steps were made of, less the variance of their noise; so it costs nothing
where these are private. It is scaled to a mean of 1 before c.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import safetensors.torch
import torch
from torch import Tensor, nn

from privet.files import write_atomically
from privet.release import read_weights


@final
class Springs:
    """A hook on an optimiser: notes what matters, and pulls towards earlier weights."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        *,
        weight: float,
    ) -> None:
        self._optimizer, self._parameters, self._weight = optimizer, list(parameters), weight
        self._held: tuple[Tensor, Tensor] | None = None
        optimizer.register_step_pre_hook(self)

    def hold(self, weights: Sequence[nn.Parameter], importance: Tensor) -> None:
        """Pull towards these weights of an earlier task, each as far as it mattered."""
        device = self._parameters[0].device
        self._held = flat(w.detach() for w in weights).to(device), importance.to(device)

    def __call__(self, *_: Any) -> None:
        """Before the optimiser moves a weight."""
        for parameter in self._parameters:
            assert parameter.grad is not None
            # Among the optimiser's own numbers, so that a checkpoint has it.
            noted = self._optimizer.state[parameter]
            noted["squares"] = noted.get("squares", 0.0) + parameter.grad.detach() ** 2
        if self._held is not None:
            self._pull(*self._held)

    def _pull(self, anchor: Tensor, importance: Tensor) -> None:
        away = flat(p.detach() for p in self._parameters) - anchor
        pull = torch.split(self._weight * importance * away, [p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, pull, strict=True):
            assert parameter.grad is not None
            parameter.grad = parameter.grad + part.view_as(parameter)

    def mattered(self, steps: int, noise_variance: float) -> Tensor:
        """What mattered in this task and in those before: the mean of both, of mean 1."""
        squares = flat(self._optimizer.state[p]["squares"] for p in self._parameters) / steps
        own = (squares - noise_variance).clamp_min(0.0)
        own = own / own.mean().clamp_min(1e-12)
        return own if self._held is None else (own + self._held[1]) / 2.0


def flat(parts: Any) -> Tensor:
    """All in one row."""
    return torch.cat([part.flatten() for part in parts])


def keep(path: Path, importance: Tensor) -> None:
    """For the next task."""
    content = safetensors.torch.save({"importance": importance.cpu().contiguous()})
    write_atomically(path, content, private=True)


def kept(path: Path) -> Tensor:
    """What `keep` wrote."""
    return read_weights(path)["importance"]
