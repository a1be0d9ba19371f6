"""A network of the papers with noise that was drawn once and stays: what DPAL and StoBatch release.

| papers   | here           | meaning                                         |
|----------|----------------|-------------------------------------------------|
| chi1 / m | `input_noise`  | on the input, on the scale [-1, 1]              |
| 2chi2/m  | `hidden_noise` | on the first layer                              |
| theta1   | `first`        | the first layer, linear                         |
| theta2   | `hidden`, `last` | the rest; h_pi, in [-1, 1], lies between them |

The noise is saved with the weights: the papers predict with it. Whoever has the network can take it
off again. Before a run has drawn any, it is zero.

Differs from `published` in what the papers' formulas know nothing of: the first and the last layer
have no biases (zeros, never trained), and of images of 32x32 the middle 28x28 are seen.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.models.published import parts, published
from privet.models.registry import Shape, model

NOISED: Final = "published-noised"
CROPPED: Final[dict[Shape, int]] = {(3, 32, 32): 2}  # pixels at each side that are not seen


class Noised(nn.Module):
    """last(hidden(first(x + input noise) + hidden noise)), x centred to [-1, 1]."""

    input_noise: Tensor
    hidden_noise: Tensor

    def __init__(self, network: nn.Module, shape: Shape, margin: int = 0) -> None:
        """A network for inputs of `shape`, of which `margin` is cut off."""
        super().__init__()
        (self.centre, first), self.hidden, self.last = parts(network)
        assert isinstance(first, nn.Conv2d)
        self.first, self.margin = first, margin
        for bias in (self.first.bias, self.last.bias):
            assert bias is not None
            nn.init.zeros_(bias).requires_grad_(False)
        with torch.no_grad():
            hidden = first(torch.zeros(1, *shape))[0]
        self.register_buffer("input_noise", torch.zeros(shape))
        self.register_buffer("hidden_noise", torch.zeros_like(hidden))

    def noised(self, x: Tensor) -> Tensor:
        """Inputs in [0, 1], cropped, centred and noised: x-bar."""
        seen = F.pad(x, [-self.margin] * 4)
        noised: Tensor = self.centre(seen) + self.input_noise
        return noised

    def above(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The last hidden layer, and the scores, of a noised first layer: h_pi, h_pi W."""
        features: Tensor = self.hidden(hidden)
        return features, self.last(features)

    def scored(self, noised: Tensor) -> Tensor:
        """Scores of inputs that are noised already."""
        return self.above(self.first(noised) + self.hidden_noise)[1]

    def forward(self, x: Tensor) -> Tensor:
        """Scores of inputs in [0, 1]."""
        return self.scored(self.noised(x))


@model(NOISED)
def published_noised(shape: Shape, n_classes: int) -> nn.Module:
    """`published` with noise of its own that never changes: what DPAL and StoBatch release."""
    margin = CROPPED.get(tuple(shape), 0)
    seen = (*shape[:-2], *(side - 2 * margin for side in shape[-2:]))
    return Noised(published(seen, n_classes), seen, margin)
