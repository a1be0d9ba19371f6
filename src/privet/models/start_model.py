"""What stays begin with: static columns and outcomes, drawn one after the other.

    p(start) = prod_c p(code_c | codes before it), softmax over the options, logits linear

Outcomes come last, given the static columns: the rows are then made for both.
"""

from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.models.columns import Shift, Triangular
from privet.models.row_transformer import block_order, one_hot

GAINS: Final = {"shift": 16.0, "order": 5.0}  # as static columns of `row_transformer` have them


@final
class StartModel(nn.Module):
    """Negative log-likelihoods of start codes, and draws.

    Args:
        levels: of each column; a code may also be 0, missing.
    """

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels = tuple(levels)
        self.order = Triangular(block_order(self.levels), gain=GAINS["order"])
        self.shift = Shift(sum(count + 1 for count in self.levels), gain=GAINS["shift"])

    def forward(self, start: Tensor) -> Tensor:
        """(n, S) codes -> (n,): -log p."""
        total = torch.zeros(len(start), device=start.device)
        for place, part in enumerate(self.logits(start)):
            total = total + F.cross_entropy(part, start[:, place], reduction="none")
        return total

    def logits(self, start: Tensor) -> tuple[Tensor, ...]:
        """Of the options of each column; each sees the codes before it."""
        if not self.levels:
            return ()
        said: Tensor = self.shift(self.order(one_hot(start, self.levels)))
        return torch.split(said, [count + 1 for count in self.levels], 1)

    @torch.no_grad()
    def draw(self, given: Tensor, upto: int, generator: torch.Generator) -> Tensor:
        """Codes (n, `upto`): those of the first columns as given, (n, some), the others drawn."""
        n, known = given.shape
        codes = given.new_zeros(n, len(self.levels), dtype=torch.long)
        codes[:, :known] = given
        for place in range(known, upto):
            chances = self.logits(codes)[place].softmax(1)
            drawn = torch.multinomial(chances.to(generator.device), 1, generator=generator)
            codes[:, place] = drawn[:, 0].to(codes.device)
        return codes[:, :upto]


def uniform_start(levels: Sequence[int], n: int, generator: torch.Generator) -> Tensor:
    """Codes (n, S), each at random among all options, none missing: as published."""
    device = generator.device
    parts = [
        torch.randint(1, count + 1, (n, 1), generator=generator, device=device) for count in levels
    ]
    return torch.cat([torch.zeros(n, 0, dtype=torch.long, device=device), *parts], 1)
