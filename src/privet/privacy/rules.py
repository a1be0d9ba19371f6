"""How a layer's per-example gradients follow from its input and its output's gradient.

A rule takes (layer, input a, output gradient b), both with examples on the first axis, and returns
for each of the layer's parameters a `PerExample`: the gradients of all examples, in a form that
yields their norms and a weighted sum without forming more than it must.

| layer           | weight                                    | bias         |
|-----------------|-------------------------------------------|--------------|
| Linear, 2-d in  | rank one: b_i a_i^T, norm = |b_i| |a_i|    | b_i          |
| Linear, n-d in  | sum_t b_it a_it^T, formed                  | sum_t b_it   |
| Conv1d, Conv2d  | sum_t b_it (patch of a_i at t)^T, formed   | sum_t b_it   |
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Rule = Callable[[Any, Tensor, Tensor], dict[str, "PerExample"]]
RULES: dict[type[nn.Module], Rule] = {}


def rule(*layers: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register the rule of one or more layer types."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(layers, function))
        return function

    return register


def has_rule(module: nn.Module) -> bool:
    """Whether the fast path may treat `module`: a plain known layer, or one without parameters.

    Exact types only: a subclass may compute something else. So may a layer with re-parametrised
    weights or unusual padding.
    """
    own = {name for name, p in module.named_parameters(recurse=False) if p.requires_grad}
    if not own:
        return True
    if type(module) not in RULES or not own <= {"weight", "bias"}:
        return False
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return True


class PerExample(ABC):
    """The gradients of one parameter for all examples of a batch."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Squared L2 norm for each example."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Sum over examples of weight times gradient."""

    @abstractmethod
    def formed(self) -> Tensor:
        """All gradients, examples on the first axis."""

    @abstractmethod
    def without(self, broken: Tensor) -> Self:
        """The same, with the gradients of the marked examples set to zero."""


@final
@dataclass(frozen=True, eq=False)
class Dense(PerExample):
    """Formed gradients, shape (batch, *parameter)."""

    gradients: Tensor

    @classmethod
    def sum_of(cls, parts: Sequence[PerExample]) -> Self:
        """The gradient of a parameter that is used several times."""
        return cls(torch.stack([part.formed() for part in parts]).sum(0))

    def squared_norms(self) -> Tensor:
        """Sum of squares over all but the first axis."""
        return self.gradients.flatten(1).pow(2).sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One matrix-vector product."""
        return (weights @ self.gradients.flatten(1)).reshape(self.gradients.shape[1:])

    def formed(self) -> Tensor:
        """Already there."""
        return self.gradients

    def without(self, broken: Tensor) -> Self:
        """Zero the marked rows."""
        return type(self)(_zero_rows(self.gradients, broken))


@final
@dataclass(frozen=True, eq=False)
class RankOne(PerExample):
    """Gradients b_i a_i^T, never formed; the norm is a product, so nothing can cancel."""

    b: Tensor
    a: Tensor

    def squared_norms(self) -> Tensor:
        """|b_i|^2 |a_i|^2, in double precision: one square may underflow, the product not."""
        return self.b.double().pow(2).sum(1) * self.a.double().pow(2).sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One matrix product, as in a plain backward pass."""
        return (self.b * weights[:, None]).T @ self.a

    def formed(self) -> Tensor:
        """The outer products."""
        return torch.einsum("bo,bi->boi", self.b, self.a)

    def without(self, broken: Tensor) -> Self:
        """Zero both factors of the marked examples."""
        return type(self)(_zero_rows(self.b, broken), _zero_rows(self.a, broken))


@rule(nn.Linear)
def linear(layer: nn.Linear, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Linear on vectors (rank one) or on sequences of any depth (formed)."""
    if a.dim() == 2:
        weight: PerExample = RankOne(b, a)
        bias = b
    else:
        a, b = a.flatten(1, -2), b.flatten(1, -2)
        weight = Dense(torch.einsum("bto,bti->boi", b, a))
        bias = b.sum(1)
    return {"weight": weight} | ({} if layer.bias is None else {"bias": Dense(bias)})


@rule(nn.Conv1d)
def conv1d(layer: nn.Conv1d, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """A Conv2d of height one."""
    patches = F.unfold(
        a.unsqueeze(2),
        (1, layer.kernel_size[0]),
        dilation=(1, layer.dilation[0]),
        padding=(0, int(layer.padding[0])),
        stride=(1, layer.stride[0]),
    )
    return _convolution(layer, patches, b)


@rule(nn.Conv2d)
def conv2d(layer: nn.Conv2d, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Patches times output gradients, group by group."""
    patches = F.unfold(
        a,
        layer.kernel_size,
        dilation=layer.dilation,
        padding=(int(layer.padding[0]), int(layer.padding[1])),
        stride=layer.stride,
    )
    return _convolution(layer, patches, b)


def _convolution(layer: nn.Conv1d | nn.Conv2d, patches: Tensor, b: Tensor) -> dict[str, PerExample]:
    n, groups = len(b), layer.groups
    positions = patches.shape[2]
    outputs = b.reshape(n, groups, -1, positions)
    inputs = patches.reshape(n, groups, -1, positions)
    weight = torch.einsum("bgol,bgil->bgoi", outputs, inputs).reshape(n, *layer.weight.shape)
    gradients: dict[str, PerExample] = {"weight": Dense(weight)}
    if layer.bias is not None:
        gradients["bias"] = Dense(b.flatten(2).sum(2))
    return gradients


def _zero_rows(values: Tensor, broken: Tensor) -> Tensor:
    mask = broken.reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(mask, torch.zeros_like(values), values)
