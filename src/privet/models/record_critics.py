"""Wasserstein critics on rows and on latent vectors.

`RowCritic` is a text-CNN: windows of neighbouring rows, a few filters for each size of window, the
strongest answer over time, one number. Windows are laid out first, so that a filter is a product,
called once in a pass however many inputs lie side by side: (n, k, L, F) -> (n, k).

A critic must not be too steep. As published a gradient penalty sees to it, which looks at records;
`limit_slopes` looks at weights alone.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InputError

SLOPE: Final = 0.2


@final
class RowCritic(nn.Module):
    """D_x, D_m, and D_z of latents with rows.

    Args:
        features: numbers of a row.
        filters: for each size of window.
        windows: sizes, in rows.
        dropout: of the answers; as published one half, which draws.
    """

    def __init__(
        self,
        features: int,
        *,
        filters: int = 16,
        windows: Sequence[int] = (2, 3),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.windows = tuple(windows)
        self.filters = nn.ModuleList(nn.Linear(w * features, filters) for w in windows)
        self.dropout = nn.Dropout(dropout)
        self.judge = nn.Linear(filters * len(self.windows), 1)

    def forward(self, u: Tensor) -> Tensor:
        """(..., L, F) -> (...)."""
        padded = F.pad(u, (0, 0, 1, 1))
        answers = [
            F.leaky_relu(layer(windows_of(padded, window)), SLOPE).amax(-2)
            for window, layer in zip(self.windows, self.filters, strict=True)
        ]
        judged: Tensor = self.judge(self.dropout(torch.cat(answers, -1)))
        return judged[..., 0]


def windows_of(rows: Tensor, window: int) -> Tensor:
    """(..., L, F) -> (..., L - window + 1, window F): neighbouring rows side by side."""
    steps = rows.shape[-2] - window + 1
    return torch.cat([rows[..., k : k + steps, :] for k in range(window)], -1)


@final
class VectorCritic(nn.Module):
    """D_z of latents that are one vector."""

    def __init__(self, features: int, *, hidden: Sequence[int] = (256, 128)) -> None:
        super().__init__()
        widths = (features, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.judge = nn.Linear(widths[-1], 1)

    def forward(self, u: Tensor) -> Tensor:
        """(..., k) -> (...)."""
        for layer in self.layers:
            u = F.leaky_relu(layer(u), SLOPE)
        judged: Tensor = self.judge(u)
        return judged[..., 0]


@torch.no_grad()
def limit_slopes(critic: nn.Module, most: float = 1.0) -> None:
    """Shorten each product of a critic whose largest singular value is above `most`.

    Looks at weights alone. Leaky rectifiers and maxima over time are 1-Lipschitz; a row is in as
    many windows as they are long; so D_x and D_m are Lipschitz with constant
    most^2 sqrt(sum of the windows), and a critic of vectors with most^layers.
    """
    for layer in critic.modules():
        if isinstance(layer, nn.Linear):
            if not torch.isfinite(layer.weight).all():
                raise InputError(
                    "training diverged",
                    got="weights of a critic that are not finite",
                    fix="a smaller --learning-rate",
                )
            steepest = torch.linalg.matrix_norm(layer.weight, 2)
            layer.weight.mul_((most / steepest).clamp_max(1.0))


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, generator: torch.Generator
) -> Tensor:
    """The mean over records of (|grad D(u)| - 1)^2 at points u between real and fake.

    As published. It looks at real records: for training without a proof.
    """
    share = torch.rand(
        len(real), *[1] * (real.dim() - 1), generator=generator, device=generator.device
    )
    between = (share.to(real) * real + (1 - share.to(real)) * fake).detach().requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    # Not the norm itself: its gradient at zero is not a number.
    steepness = (slope.flatten(1).square().sum(1) + 1e-12).sqrt()
    return (steepness - 1.0).square().mean()
