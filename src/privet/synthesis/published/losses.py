"""The losses of IGAMT and of what it is compared with, as published.

| papers                  | here                                                              |
|-------------------------|-------------------------------------------------------------------|
| (x, m)                  | a record's values and masks                                       |
| (x-hat, m-hat)          | what Dec makes of Enc's latents z, from the true rows before      |
| (x-tilde, m-tilde)      | what Dec makes of G's latents, row by row                         |
| (x-bar, m-bar)          | what the imitator makes of the same latents, row by row           |
| D(u)                    | what a critic says of u: `real`, `fakes`, one number a record     |

    l_d   = sum over the fakes of D(fake)  -  (how many) D(real)     of D_x, D_m and D_z
    l_dec = l_recon - D_x(x-hat m-hat) - D_x(x-tilde m-tilde)        and likewise - D_m
    l_enc = l_recon + D_z(z)
    l_g   = - D_z(z-tilde)
    l_imi = l_im - D_x(x-bar m-bar)                                  and likewise - D_m
    l_im  = sum of MSE(u, x-bar m-bar) for u = x-hat m-hat, x-tilde m-tilde, x m
          + sum of MSE(v, m-bar)       for v = m-hat, m-tilde, m

All are means over the batch, of sums over the cells of a record: so the texts write CE, and MSE may
stand in its place. l_recon is `models.record_losses.reconstruction`. The second line of l_im is the
authors' program's: without it, and without a critic of masks, nothing says what m-bar should be.

The text prints other things in places, which cannot be meant. Thesis, Algorithm 1: D_x(x m) counts
once; equation 4.1 and the paper have three times, once for each kind of fake. AAAI: l_dz with the
other sign, by which G and D_z would help each other. Thesis: x-hat m-tilde in l_im; AAAI, equation
4: MSE(x-bar, x-bar).
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def critic_loss(real: Tensor, fakes: Sequence[Tensor]) -> Tensor:
    """l_dx, l_dm or l_dz: what is real counts as often as there are kinds of fakes."""
    return (torch.stack(list(fakes)).sum(0) - len(fakes) * real).mean()


def decoder_loss(recon: Tensor | None, judged: Sequence[Tensor]) -> Tensor:
    """l_dec, of l_recon (none without an encoder) and of what critics say of its fakes."""
    total = torch.zeros(()) if recon is None else recon.mean()
    return total - sum(said.mean() for said in judged)


def encoder_loss(recon: Tensor, judged: Tensor | None, divergence: Tensor | None) -> Tensor:
    """l_enc: with D_z(z) where there is a critic of latents, with KL where z is a law."""
    terms = [part.mean() for part in (recon, judged, divergence) if part is not None]
    return torch.stack(terms).sum()


def generator_loss(judged: Sequence[Tensor]) -> Tensor:
    """l_g: minus what critics say of G's latents, or of what is made of them."""
    return -torch.stack([said.mean() for said in judged]).sum()


def imitator_loss(
    made: Sequence[Tensor], models: Sequence[Sequence[Tensor]], judged: Sequence[Tensor]
) -> Tensor:
    """l_imi: `made` is (x-bar m-bar, m-bar), `models` are pairs that it should be like."""
    likeness = [square_error(m, u) for model in models for m, u in zip(model, made, strict=True)]
    return torch.stack(likeness).sum() - sum(said.mean() for said in judged)


def square_error(a: Tensor, b: Tensor) -> Tensor:
    """MSE of (n, L, F): the mean over records of sums over cells."""
    return (a - b).square().sum((1, 2)).mean()
