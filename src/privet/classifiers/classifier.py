"""What is attacked and certified: class scores of inputs in [0, 1].

Sizes of attacks and radii are in these units. A model that was made for another range is wrapped
(`opening`): an l-infinity size of 0.2 on [-1, 1], as some papers have it, is 0.1 here.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from privet.errors import InputError


def weights_digest(module: nn.Module) -> str:
    """SHA-256 of all parameters and buffers."""
    weights = hashlib.sha256()
    for tensor in module.state_dict().values():
        weights.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return weights.hexdigest()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """Scores of classes, higher is likelier; one row for each input.

    Attributes:
        name: for tables.
        scores: (n, *shape) in [0, 1] to (n, classes): logits, or any increasing function of them.
            Each input's scores depend on that input alone.
        shape: of one input.
        classes: how many.
        device: where inputs are taken.
        differentiable: whether autograd goes through `scores`.
        random: whether two calls differ: the model draws noise of its own.
        module: what `scores` applies, where it is one module and nothing else.
        digest: names the numbers that `scores` computes with; "" where nobody knows them. Votes of
            two classifiers must not be mixed in a run that is resumed.
    """

    name: str
    scores: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    classes: int
    device: torch.device
    differentiable: bool = True
    random: bool = False
    module: nn.Module | None = None
    digest: Callable[[], str] = lambda: ""

    def labels(self, x: Tensor) -> Tensor:
        """The likeliest class of each input."""
        with torch.no_grad():
            return self.scores(x).argmax(1)

    def require(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and their labels on the device, refused where they are not what is expected."""
        return self.require_inputs(x), self.require_labels(y, len(x))

    def require_inputs(self, x: Tensor) -> Tensor:
        """Inputs on the device, refused where they are not what `scores` takes."""
        if tuple(x.shape[1:]) != self.shape:
            raise InputError(
                "inputs that the classifier cannot take",
                got=f"x of shape {tuple(x.shape)}",
                expected=f"(n, {', '.join(map(str, self.shape))})",
            )
        if not x.is_floating_point() or not bool(((x >= 0) & (x <= 1)).all()):
            raise InputError(
                "inputs outside of [0, 1]",
                got=f"{x.dtype}, {float(x.min()):g} to {float(x.max()):g}" if len(x) else "none",
                expected="floating-point numbers between 0 and 1",
                fix="scale them, and the sizes of attacks with them",
            )
        return x.to(self.device)

    def require_labels(self, y: Tensor, inputs: int) -> Tensor:
        """Class numbers on the device, one for each of so many inputs."""
        if tuple(y.shape) != (inputs,):
            raise InputError(
                "not one label for each input",
                got=f"labels of shape {tuple(y.shape)}",
                expected=f"({inputs},)",
            )
        if y.dtype != torch.int64 or not bool(((y >= 0) & (y < self.classes)).all()):
            raise InputError(
                "labels that are no class numbers",
                got=y.dtype if y.dtype != torch.int64 else f"{int(y.min())} to {int(y.max())}",
                expected=f"int64, 0 to {self.classes - 1}",
            )
        return y.to(self.device)
