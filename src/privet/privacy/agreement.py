"""Whether a clipper's numbers are right for a model, on a made-up batch.

The judge is plain autograd, one unit at a time. Compared are every unit's gradient for every
parameter (sums would not do: where nothing is clipped, gradients booked to the wrong unit add up to
the right sum), with and without views, weights and gaps, and the clipped sum in the geometry asked
for. In evaluation mode each unit goes through the model alone; in training mode all go together,
with the same dropout masks on both sides. At the weights given and at made-up ones: a last layer of
zeros hides what is below it.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from privet.privacy.geometry import Geometry, layer_of, trainable
from privet.privacy.probing import make_up_weights, undisturbed
from privet.privacy.units import PerExampleLoss, Units, per_example_losses


class Candidate(Protocol):
    """What is judged; see `clipping.Clipper`."""

    model: nn.Module
    loss: PerExampleLoss
    geometry: Geometry

    def per_example_gradients(
        self, x: Tensor, y: Tensor, *, views: int = 1, weights: Tensor | None = None
    ) -> Tensor:
        """One row a unit."""

    def clipped_sum(
        self, x: Tensor, y: Tensor, *, views: int = 1, weights: Tensor | None = None
    ) -> Tensor:
        """In the geometry's coordinates."""

    def with_clip_norm(self, clip_norm: float) -> "Candidate":
        """The same with another norm."""


def fault_of(clipper: Candidate, probe: tuple[Tensor, Tensor], *, training: bool) -> str:
    """What is wrong with a clipper's numbers on the probe; "" if nothing is.

    `training` says whether training mode is compared too: a clipper that draws dropout masks of its
    own cannot be.
    """
    model = clipper.model
    # Without cuDNN: its TF32 convolutions differ by more than the tolerance from one batch size to
    # another, and its recurrent layers draw dropout masks of their own.
    exact = torch.backends.cudnn.flags(enabled=False, allow_tf32=False)
    with undisturbed(model), exact:
        try:
            for _ in range(2):
                model.eval()
                fault = _fault_in_evaluation(clipper, *probe)
                if not fault and training:
                    model.train()
                    fault = _fault_in_training(clipper, *probe)
                if fault:
                    return fault
                make_up_weights(model)
        except Exception as error:  # whatever the model does that a clipper cannot follow
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def _fault_in_evaluation(clipper: Candidate, x: Tensor, y: Tensor) -> str:
    if len(x) > 1:  # a second size, by which what has no rows for examples is told apart
        clipper.per_example_gradients(x[1:].clone(), y[1:])
    expected = one_at_a_time(clipper, Units.of(x.clone(), y))
    if not _close(clipper.model, clipper.per_example_gradients(x.clone(), y), expected):
        return "per-example gradients differ from plain autograd"
    if not _sums_are_right(clipper, x, y, expected):
        return f"clipped sums are wrong in the {clipper.geometry.name} geometry"
    even = len(x) - len(x) % 2
    if even and not _views_are_right(clipper, x[:even], y[:even]):
        return "gradients of units with several views differ from plain autograd"
    return ""


def _fault_in_training(clipper: Candidate, x: Tensor, y: Tensor) -> str:
    torch.manual_seed(0)  # the same dropout masks on both paths
    found = clipper.per_example_gradients(x.clone(), y)
    torch.manual_seed(0)
    losses = per_example_losses(clipper.loss, clipper.model(x.clone()), y)
    if _close(clipper.model, found, _rows(clipper.model, list(losses))):
        return ""
    return "per-example gradients differ from plain autograd in training mode"


def _views_are_right(clipper: Candidate, x: Tensor, y: Tensor) -> bool:
    """Two rows a unit, with weights of their own; one row of the last unit is a gap."""
    weights = torch.linspace(0.2, 1.0, len(x), device=x.device)
    weights[-1] = 0.0
    expected = one_at_a_time(clipper, Units(x.clone(), y, 2, weights))
    gap = x.clone()
    if gap.is_floating_point():
        gap[-1] = math.nan
    found = clipper.per_example_gradients(gap, y, views=2, weights=weights)
    return _close(clipper.model, found, expected)


def _sums_are_right(clipper: Candidate, x: Tensor, y: Tensor, rows: Tensor) -> bool:
    """At a norm that clips about half of the units; a few units do, and spare memory."""
    x, y, rows = x[:3], y[:3], rows[:3]
    norm = float(rows.norm(dim=1).median())
    if not 0 < norm < math.inf:
        return True
    found = clipper.with_clip_norm(norm).clipped_sum(x.clone(), y).double()
    expected = clipped_by_hand(rows, clipper.model, clipper.geometry, norm)
    return bool((found - expected).norm() <= 1e-4 * norm * len(rows))


def clipped_by_hand(rows: Tensor, model: nn.Module, geometry: Geometry, clip_norm: float) -> Tensor:
    """The sum of clipped rows in the geometry's coordinates, by its definition."""
    sizes = [p.numel() for p in trainable(model).values()]
    layers = [layer_of(name) for name in trainable(model)]
    numbers = dict(geometry.numbers)
    parts = torch.split(rows.double(), sizes, 1)
    if geometry.name != "per-layer":
        scales = [numbers[layer] if numbers else 1.0 for layer in layers]
        scaled = [scale * part for scale, part in zip(scales, parts, strict=True)]
        return _clipped(torch.cat(scaled, 1), clip_norm).sum(0)
    length = math.sqrt(sum(share**2 for share in numbers.values()))
    sums: dict[int, Tensor] = {}
    for layer, share in numbers.items():
        own = [j for j, other in enumerate(layers) if other == layer]
        joined = torch.cat([parts[j] for j in own], 1)
        total = _clipped(joined, clip_norm * share / length).sum(0)
        sums |= dict(zip(own, torch.split(total, [sizes[j] for j in own]), strict=True))
    return torch.cat([sums[j] for j in range(len(sizes))])


def _clipped(rows: Tensor, clip_norm: float) -> Tensor:
    factors: Tensor = (clip_norm / rows.norm(dim=1, keepdim=True)).clamp_max(1.0)
    return rows * factors.nan_to_num(1.0)


def one_at_a_time(clipper: Candidate, units: Units) -> Tensor:
    """Every unit's gradient, by a forward and backward pass of its own."""
    losses = []
    for x, y, w in zip(*units.split(), strict=True):
        outputs = clipper.model(x)
        losses.append((w * per_example_losses(clipper.loss, outputs, y)).sum())
    return _rows(clipper.model, losses)


def _rows(model: nn.Module, losses: Sequence[Tensor]) -> Tensor:
    """The gradient of each loss; they may share a graph."""
    parameters = list(trainable(model).values())
    rows = []
    for loss in losses:
        if loss.requires_grad:
            gradient: Sequence[Tensor] = torch.autograd.grad(
                loss, parameters, retain_graph=True, materialize_grads=True
            )
        else:
            gradient = [torch.zeros_like(p) for p in parameters]
        rows.append(torch.cat([g.flatten() for g in gradient]))
    return torch.stack(rows)


def _close(model: nn.Module, one: Tensor, other: Tensor) -> bool:
    sizes = [p.numel() for p in trainable(model).values()]
    whole = other.norm(dim=1)
    return all(
        bool(((a - b).norm(dim=1) <= 1e-4 * b.norm(dim=1) + 1e-5 * whole + 1e-12).all())
        for a, b in zip(torch.split(one, sizes, 1), torch.split(other, sizes, 1), strict=True)
    )
