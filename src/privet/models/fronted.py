"""Networks of two parts: a front that never changes, and a head that is trained."""

from typing import Self

from torch import Tensor, nn


class Fronted(nn.Module):
    """head(front(x)): only the head is trained.

    The front is frozen and always in evaluation mode, so what it makes of an example depends on
    that example alone and is the same in every step. Without augmentation it can be computed once
    for all examples; training the head on that is the same as training the whole.
    """

    def __init__(self, front: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.front = front.requires_grad_(False).eval()
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Scores; gradients still reach x, as attacks on a release need them."""
        scores: Tensor = self.head(self.front(x))
        return scores

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the head; the front has one only."""
        super().train(mode)
        self.front.eval()
        return self
