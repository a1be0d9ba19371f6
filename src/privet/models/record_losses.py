"""What the networks of the IGAMT family learn by, one number for each stay.

CE(a, b)  = sum over rows and columns of - a log b - (1 - a) log(1 - b)
l_recon   = CE(x m, x-hat m-hat) + CE(m, m-hat)
KL        = sum of (mean^2 + variance - log variance - 1) / 2
"""

from typing import Final

import torch
from torch import Tensor

from privet.models.record_coders import Made, Said
from privet.models.record_rows import Rows

TINY: Final = 1e-12


def cross_entropy_of(a: Tensor, b: Tensor) -> Tensor:
    """CE(a, b) for each cell, for shares and chances in [0, 1]."""
    return -(a * torch.log(b + TINY) + (1.0 - a) * torch.log((1.0 - b) + TINY))


def reconstruction(said: Said, rows: Rows, asked: Tensor | None = None) -> Tensor:
    """l_recon of each stay.

    `asked` (n, L) says which rows count; None for all, padding as well, as published.
    """
    m = said.m
    cells = cross_entropy_of(rows.xm, said.x * m) + cross_entropy_of(rows.m, m)
    return (cells if asked is None else cells * asked[..., None]).sum((1, 2))


def likelihood(said: Said, rows: Rows, values: float) -> Tensor:
    """Of each stay as it is drawn: whether there is a row, then its masks, then their values.

    CE(m, m-hat), of the gap in the rows that are there and the one after, of other columns in rows
    that are there; and so many times CE(x, x-hat) of measured cells.
    """
    asked = torch.cat([rows.m[..., -1:].expand_as(rows.m)[..., :-1], rows.asked[..., None]], -1)
    cells = asked * cross_entropy_of(rows.m, said.m)
    return (cells + values * rows.m * cross_entropy_of(rows.x, said.x)).sum((1, 2))


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL to the standard normal law of each row of z, (n, ...)."""
    return 0.5 * (mean.square() + log_variance.exp() - log_variance - 1.0).sum(-1)


def imitation(made: Made, model: Made) -> Tensor:
    """MSE of values where measured and of chances, summed over a stay: (n,)."""
    values = (made.xm - model.xm).square().sum((1, 2))
    return values + (made.chance - model.chance).square().sum((1, 2))
