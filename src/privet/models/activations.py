"""Bounded activations: they keep activations, hence gradients, small before they are clipped."""

from torch import Tensor, nn


class TemperedSigmoid(nn.Module):
    """s sigmoid(T x) - o (Papernot et al., "Tempered sigmoid activations", 2020).

    | symbol | here          | tanh |
    |--------|---------------|------|
    | s      | `scale`       | 2    |
    | T      | `temperature` | 2    |
    | o      | `offset`      | 1    |

    The paper's other choices were found on the private data of its experiments, so the default
    is tanh.
    """

    def __init__(self, scale: float = 2.0, temperature: float = 2.0, offset: float = 1.0) -> None:
        super().__init__()
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, x: Tensor) -> Tensor:
        """Values between -o and s - o."""
        return self.scale * (self.temperature * x).sigmoid() - self.offset

    def extra_repr(self) -> str:
        """The three constants."""
        return f"scale={self.scale}, temperature={self.temperature}, offset={self.offset}"
