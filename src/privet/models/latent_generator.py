"""G: from noise to latents that look like an encoder's.

An MLP with residual hidden layers. As published it ends in a tanh and normalises by batch
statistics, which see noise alone. With `near_noise` it begins as the noise itself and learns what
to add: where latents are taught to be standard normal, that is nearly right from the start.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOPE: Final = 0.2


@final
class LatentGenerator(nn.Module):
    """Noise (n, L, k) or (n, k) -> z of the same rows.

    Args:
        latent: k, the width of z.
        noise: of the noise.
        hidden: widths of hidden layers.
        steps: L, or None where z is one vector.
        by_batch: whether hidden layers are normalised over the batch, as published; else each row
            by itself.
        near_noise: whether z is the noise and something learned; then it is not bounded.
    """

    def __init__(
        self,
        latent: int,
        *,
        steps: int | None,
        noise: int = 128,
        hidden: Sequence[int] = (128, 128),
        by_batch: bool = False,
        near_noise: bool = False,
    ) -> None:
        super().__init__()
        self.noise, self.steps = (latent if near_noise else noise), steps
        self.near_noise = near_noise
        widths = (self.noise, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width) if by_batch else nn.LayerNorm(width) for width in hidden
        )
        self.last = nn.Linear(widths[-1], latent)
        if near_noise:
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

    def forward(self, noise: Tensor) -> Tensor:
        """One latent vector for each of noise."""
        flat = hidden = noise.reshape(-1, self.noise)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            thought = F.leaky_relu(norm(layer(hidden)), SLOPE)
            hidden = thought + hidden if thought.shape == hidden.shape else thought
        z = self.last(hidden)
        z = flat + z if self.near_noise else torch.tanh(z)
        return z.reshape(*noise.shape[:-1], -1)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Noise for n stays."""
        shape = (n, self.noise) if self.steps is None else (n, self.steps, self.noise)
        return torch.randn(shape, generator=generator, device=generator.device)
