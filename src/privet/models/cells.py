"""How likely the measured cells of rows are, without touching the others.

Most cells of a record are empty. For each column the measured cells are gathered, their logits
formed, and the gradient taken in the same pass, while the numbers are still in the cache.

    z_l  = sum_k c_k basis_fkl + gain w_fl + offset_fl + (l is the last code) u
    loss = log sum_l exp z_l - z_x,   d loss / d z_l = softmax(z)_l - (l is x)

Cost: in proportion to the measured cells, times levels (K + a few).
"""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from privet.privacy.rules.forms import Dense
from privet.privacy.rules.registry import Booked, Tape, expansion


@final
class Cells(nn.Module):
    """Negative log-likelihoods of the codes of measured cells, one number for each stay.

    `weight` moves the logits of each code of each column.
    """

    basis: Tensor
    levels: tuple[int, ...]

    def __init__(self, basis: Tensor, levels: Sequence[int], *, gain: float = 1.0) -> None:
        super().__init__()
        self.levels, self.gain = tuple(levels), gain
        self.register_buffer("basis", basis, persistent=False)
        self.weight = nn.Parameter(torch.zeros(basis.shape[0], basis.shape[2]))

    def logits(self, column: int, coefficients: Tensor, stay: Tensor, last: Tensor) -> Tensor:
        """(cells, levels of the column), of cells in one column."""
        levels = self.levels[column]
        shift = self.gain * self.weight[column, :levels]
        logits = torch.addmm(shift, coefficients, self.basis[column, :, :levels])
        bonus = torch.where(last > 0, stay, 0.0)[:, None]
        return logits.scatter_add(1, (last - 1).clamp_min(0)[:, None], bonus)

    def forward(self, coefficients: Tensor, stay: Tensor, last: Tensor, codes: Tensor) -> Tensor:
        """(n, T, F, K), (n, T, F), codes of the last value and of this one -> (n,)."""
        return _losses(self, self.weight, coefficients, stay, last, codes)[0]


class _Loss(torch.autograd.Function):
    """The losses of stays, and (n, F, levels): what the logits' gradients of a stay add up to."""

    @staticmethod
    def forward(
        ctx: Any,
        cells: Cells,
        weight: Tensor,
        coefficients: Tensor,
        stay: Tensor,
        last: Tensor,
        codes: Tensor,
    ) -> tuple[Tensor, Tensor]:
        n, steps, columns, k = coefficients.shape
        flat, bonus = coefficients.reshape(-1, columns, k), stay.reshape(-1, columns)
        last, codes = last.reshape(-1, columns), codes.reshape(-1, columns)
        loss = coefficients.new_zeros(n)
        moved = weight.new_zeros(n, *weight.shape)
        to_coefficients, to_stay = torch.zeros_like(flat), torch.zeros_like(bonus)
        for f in range(columns):
            cell = codes[:, f].nonzero()[:, 0]
            if not len(cell):
                continue
            owner, before = cell // steps, last[cell, f]
            logits = cells.logits(f, flat[cell, f], bonus[cell, f], before)
            chosen = (codes[cell, f] - 1)[:, None]
            logs = logits.log_softmax(1)
            loss.index_add_(0, owner, -logs.gather(1, chosen)[:, 0])
            slope = logs.exp_().scatter_add_(1, chosen, -torch.ones_like(logs[:, :1]))
            moved[:, f, : cells.levels[f]].index_add_(0, owner, slope)
            to_coefficients[cell, f] = slope @ cells.basis[f, :, : cells.levels[f]].T
            own = slope.gather(1, (before - 1).clamp_min(0)[:, None])[:, 0]
            to_stay[cell, f] = torch.where(before > 0, own, 0.0)
        ctx.save_for_backward(
            to_coefficients.reshape(coefficients.shape), to_stay.reshape(stay.shape), moved
        )
        ctx.gain = cells.gain
        ctx.mark_non_differentiable(moved)
        return loss, moved

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        to_coefficients, to_stay, moved = ctx.saved_tensors
        b = upstream[0]
        return (
            None,
            ctx.gain * torch.einsum("n,nfl->fl", b, moved),
            to_coefficients * b[:, None, None, None],
            to_stay * b[:, None, None],
            None,
            None,
        )


def _losses(*given: Any) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = _Loss.apply(*given)  # type: ignore[no-untyped-call]
    return found


@expansion(Cells)
def _recorded(
    layer: Cells, tape: Tape, coefficients: Tensor, stay: Tensor, last: Tensor, codes: Tensor
) -> Tensor:
    """The same, with each stay's own gradient of the weights."""
    loss, moved = _losses(layer, layer.weight.detach(), coefficients, stay, last, codes)

    def book(gradients: Sequence[Tensor]) -> Booked:
        rows = layer.gain * gradients[0][:, None, None] * moved
        return [(layer.weight, Dense(rows))]

    tape.watch([loss], book)
    return loss
