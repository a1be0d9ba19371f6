"""The way in for tokens: from values in [0, 1] back to whole numbers."""

from typing import Final, final

from torch import Tensor, nn

from privet.errors import InputError

MOST_TOKENS: Final = 2**22


@final
class Tokens(nn.Module):
    """What an `nn.Embedding` can read: the first layer of a model of tokens.

    Every model gets its inputs scaled to [0, 1] by the declared bounds. For tokens 0 .. size - 1
    these are 0 and size - 1, and this layer gives the tokens back, exactly: single precision
    moves token v by at most v / 2^23, which is below one half for fewer than 2^22 tokens.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        if not (isinstance(size, int) and 2 <= size <= MOST_TOKENS):
            raise InputError(
                "bad number of tokens", got=size, expected=f"a whole number, 2 to {MOST_TOKENS}"
            )
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Any shape of numbers in [0, 1] -> the same shape of tokens."""
        return (x * (self.size - 1)).round().long()

    def extra_repr(self) -> str:
        """The size of the vocabulary."""
        return str(self.size)
