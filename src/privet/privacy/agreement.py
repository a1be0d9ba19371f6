"""Whether a clipper's numbers are right for a model, on a made-up batch.

The judge is plain autograd, one unit at a time. Compared are every unit's gradient for every
parameter (sums would not do: where nothing is clipped, gradients booked to the wrong unit add up to
the right sum), with and without views, weights and gaps, and the clipped sum in the geometry asked
for. Each unit goes through the model alone, in evaluation mode, and in training mode if nothing is
drawn there; otherwise all go together, with the same dropout masks on both sides, under several
seeds. At the weights given and at made-up ones: a last layer of zeros hides what is below it.

What the fast clipper rests on, and what the batch is made for:

- Rows keep their places inside the model. If it sorts them (by length, by brightness) and sorts
  them back, outputs are right and the books are not. So the batch has full, short, empty and
  saturated rows, and the first one again at the end: no key that tells any two of them apart is in
  order. The empty and the saturated one are not judged (what is constant may be ill-conditioned),
  but no move of theirs leaves all the others in place.
- A gradient flows back through its own row alone. A hook that scales by the norm of all rows shows
  only where that is large. So units weigh from 1e-3 to 1e6.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from privet.privacy.geometry import BY_INPUT, BY_PART, Geometry, layer_of, part_of, trainable
from privet.privacy.probing import (
    draws,
    exact,
    in_double,
    make_up_weights,
    seed_all,
    undisturbed,
)
from privet.privacy.units import PerExampleLoss, Units, per_example_losses

SEEDS: Final = 8
JUDGED: Final = [0, 1, 3, 5]  # of the six rows of `varied`


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


Check = Callable[[Candidate, Tensor, Tensor], bool]
"""Of a clipper on the probe's inputs and labels."""


def fault_of(clipper: Candidate, probe: tuple[Tensor, Tensor], *, training: bool) -> str:
    """What is wrong with a clipper's numbers on the probe; "" if nothing is.

    `training` says whether training mode is compared too: a clipper that draws dropout masks of its
    own cannot be.
    """
    model = clipper.model
    with undisturbed(model), exact():
        try:
            for _ in range(2):
                for mode in (False, True) if training else (False,):
                    model.train(mode)
                    for check, fault in CHECKS[mode].items():
                        if not _holds(check, clipper, *probe):
                            return fault.format(clipper.geometry.name)
                make_up_weights(model)
        except Exception as error:  # whatever the model does that a clipper cannot follow
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def _holds(check: Check, clipper: Candidate, x: Tensor, y: Tensor) -> bool:
    """In single precision; or in double, where gradients of different batches are compared.

    In a large network some ReLU stands so near its kink that rounding decides it, and rounding
    depends on the batch size. Not so in double precision, if the model can do that. Sums are
    compared with rows of the same batch and have no such excuse.
    """
    right = check(clipper, x, y)
    if right or check is _sums_are_right:
        return right
    doubled = [part.double() if part.is_floating_point() else part for part in (x, y)]
    with in_double(clipper.model), suppress(Exception):
        return check(clipper, *doubled)
    return False


def varied(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A full row, one that ends in zeros as padded ones do, an empty, another full, a saturated.

    And the first again. Labels are those of the probe in turn.
    """
    first, last = x[0], x[-1]
    short = first.flatten().clone()
    short[(len(short) + 1) // 2 :] = 0
    top = x.max().ceil() if x.is_floating_point() else x.max()
    empty, saturated = torch.zeros_like(first), top.expand_as(first)
    rows = torch.stack([last, short.reshape(first.shape), empty, first, saturated, last])
    return rows, y[torch.arange(len(rows), device=y.device) % len(y)]


def _magnitudes(units: int, device: torch.device) -> Tensor:
    """Weights of units, from large to small."""
    return torch.logspace(6, -3, units, device=device)


def _sums_are_right(clipper: Candidate, x: Tensor, y: Tensor) -> bool:
    """At a norm that clips about half of the units. Its own rows, which are judged by themselves.

    They are fewer than in the other checks: by a second size is told apart what has no rows for
    examples.
    """
    x, y = (part[JUDGED] for part in varied(x, y))
    rows = clipper.per_example_gradients(x.clone(), y)
    norm = float(rows.norm(dim=1).median())
    if not 0 < norm < math.inf:
        return True
    found = clipper.with_clip_norm(norm).clipped_sum(x.clone(), y).double()
    expected = clipped_by_hand(rows, clipper.model, clipper.geometry, norm)
    return bool((found - expected).norm() <= 1e-4 * norm * len(rows))


def _gradients_are_right(clipper: Candidate, x: Tensor, y: Tensor) -> bool:
    x, y = varied(x, y)
    found = clipper.per_example_gradients(x.clone(), y)[JUDGED]
    alone = Units.of(x[JUDGED], y[JUDGED])
    return _close(clipper.model, found, one_at_a_time(clipper, alone))


def _views_are_right(clipper: Candidate, x: Tensor, y: Tensor) -> bool:
    """Two rows a unit, with weights of their own; a row among the others is a gap."""
    even = len(x) - len(x) % 2
    if not even:
        return True
    x, y = x[:even], y[:even]
    weights = torch.linspace(0.2, 1.0, len(x), device=x.device)
    weights *= _magnitudes(len(x) // 2, x.device).repeat_interleave(2)
    weights[1] = 0.0
    expected = one_at_a_time(clipper, Units(x.clone(), y, 2, weights))
    gap = x.clone()
    if gap.is_floating_point():
        gap[1] = math.nan
    found = clipper.per_example_gradients(gap, y, views=2, weights=weights)
    return _close(clipper.model, found, expected)


def _training_is_right(clipper: Candidate, x: Tensor, y: Tensor) -> bool:
    """Under several seeds where the model draws; otherwise one unit at a time."""
    x, y = varied(x, y)
    weights = _magnitudes(len(x), x.device)
    drawn = draws(clipper.model, x)
    seed_all(0)  # the same dropout masks on both paths
    found = clipper.per_example_gradients(x.clone(), y, weights=weights)[JUDGED]
    if not drawn:
        alone = Units.of(x[JUDGED], y[JUDGED], weights=weights[JUDGED])
        return _close(clipper.model, found, one_at_a_time(clipper, alone))
    seed_all(0)
    losses = per_example_losses(clipper.loss, clipper.model(x.clone()), y)
    expected = _rows(clipper.model, list((weights.to(losses.dtype) * losses)[JUDGED]))
    return _close(clipper.model, found, expected) and all(
        _mixture_is_right(clipper, x, y, seed) for seed in range(1, SEEDS)
    )


def _mixture_is_right(clipper: Candidate, x: Tensor, y: Tensor, seed: int) -> bool:
    """One backward pass for all units: those that changed places have other coefficients."""
    seed_all(seed)
    rows = clipper.per_example_gradients(x.clone(), y)[JUDGED]
    seed_all(seed)
    losses = per_example_losses(clipper.loss, clipper.model(x.clone()), y)[JUDGED]
    mixture = torch.linspace(-1.0, 2.0, len(rows), dtype=losses.dtype, device=x.device)
    expected = _rows(clipper.model, [mixture @ losses])
    return _close(clipper.model, (mixture.to(rows.dtype) @ rows).unsqueeze(0), expected)


CHECKS: Final[Mapping[bool, Mapping[Check, str]]] = {
    False: {
        _sums_are_right: "clipped sums are wrong in the {} geometry",
        _gradients_are_right: "per-example gradients differ from plain autograd",
        _views_are_right: "gradients of units with several views differ from plain autograd",
    },
    True: {
        _training_is_right: "per-example gradients differ from plain autograd in training mode",
    },
}
"""By mode, training or not: each check with what is said when it fails."""


def clipped_by_hand(rows: Tensor, model: nn.Module, geometry: Geometry, clip_norm: float) -> Tensor:
    """The sum of clipped rows in the geometry's coordinates, by its definition."""
    sizes = [p.numel() for p in trainable(model).values()]
    layers = [layer_of(name) for name in trainable(model)]
    numbers = dict(geometry.numbers)
    parts = torch.split(rows.double(), sizes, 1)
    if geometry.name == BY_INPUT:
        by_input = rows.new_tensor(list(numbers.values()), dtype=torch.float64)
        first = parts[0].reshape(len(rows), -1, len(by_input)) * by_input
        return _clipped(torch.cat([first.flatten(1), *parts[1:]], 1), clip_norm).sum(0)
    if geometry.name == BY_PART:
        owners = [part_of(name, numbers) for name in trainable(model)]
        return _clipped(_by_part(parts, owners, numbers, clip_norm), clip_norm).sum(0)
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


def _by_part(
    parts: Sequence[Tensor], owners: Sequence[str], radii: Mapping[str, float], clip_norm: float
) -> Tensor:
    """Rows in which each part is clipped by itself."""
    shortened = list(parts)
    for part, radius in radii.items():
        own = [j for j, owner in enumerate(owners) if owner == part]
        clipped = _clipped(torch.cat([parts[j] for j in own], 1), clip_norm * radius)
        pieces = torch.split(clipped, [parts[j].shape[1] for j in own], 1)
        for j, piece in zip(own, pieces, strict=True):
            shortened[j] = piece
    return torch.cat(shortened, 1)


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
