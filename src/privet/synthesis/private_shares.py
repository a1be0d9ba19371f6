"""From a noisy histogram to the shares of its bins: no less than nothing, and not rough.

    h       noisy counts; their noise has the deviation s, which is public
    h_j     below z s count as none: noise alone makes up as much
    p       softmax(theta), where this is least:
            |p sum(h) - h|^2 / s^2 + |second differences of theta|^2 / tau^2 + small |theta|^2

Of categories, which have no order, there are no differences. A tail that noise hides then falls as
it fell where it could be seen, and no bin is ruled out. What is far on a logarithmic scale costs
most where it is wrong, so of elapsed times z is larger.

Guarantee: post-processing. A function of the noisy counts and of public numbers.
"""

from typing import Final

import torch
from torch import Tensor

RARE: Final = 1.0  # z
RARE_GAP: Final = 3.0
ROUGH: Final = 0.3  # tau
SMALL: Final = 3e-3
TURNS: Final = 60


def shares(counts: Tensor, noise: float, *, ordered: bool = True, rare: float = RARE) -> Tensor:
    """p, in doubles, on the CPU.

    Args:
        counts: (bins,), noisy.
        noise: deviation of each, above 0.
        ordered: whether the bins have an order.
        rare: z.
    """
    h = counts.detach().cpu().double()
    h = torch.where(h < rare * noise, 0.0, h)
    if not h.any():
        return torch.full_like(h, 1.0 / len(h))
    total = h.sum()
    theta = (h / total).clamp_min(0.1 * noise / total).log()
    theta, stiffness = theta - theta.mean(), _stiffness(len(h), ordered)
    for _ in range(TURNS):
        theta, better = _turned(theta, h, total / noise, noise, stiffness)
        if not better:
            break
    return theta.softmax(0)


def _stiffness(bins: int, ordered: bool) -> Tensor:
    """The matrix of the last two terms."""
    whole = torch.eye(bins, dtype=torch.float64)
    if not ordered or bins < 3:
        return SMALL * whole
    rough = whole.diff(n=2, dim=0)
    return rough.T @ rough / ROUGH**2 + SMALL * whole


def _cost(theta: Tensor, h: Tensor, scale: Tensor, noise: float, stiffness: Tensor) -> Tensor:
    return 0.5 * ((scale * theta.softmax(0) - h / noise).square().sum() + theta @ stiffness @ theta)


def _turned(
    theta: Tensor, h: Tensor, scale: Tensor, noise: float, stiffness: Tensor
) -> tuple[Tensor, bool]:
    """One turn of Gauss and Newton, shortened until it helps; and whether it did."""
    p = theta.softmax(0)
    slope = scale * (p.diag() - torch.outer(p, p))
    down = slope @ (scale * p - h / noise) + stiffness @ theta
    step = torch.linalg.solve(slope @ slope + stiffness, down)
    now = _cost(theta, h, scale, noise, stiffness)
    for halvings in range(20):
        tried = theta - step / 2**halvings
        if _cost(tried, h, scale, noise, stiffness) < now:
            return tried, True
    return theta, False
