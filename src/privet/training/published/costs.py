"""The two costs of DPAL and StoBatch: Taylor polynomials, with noise in their coefficients.

Reconstruction, of inputs x by v = theta1 h, h = theta1' x in [-1, 1]; sum over pixels j:

    x log(1 + e^-v) + (1 - x) log(1 + e^v)  =  log 2 + (1/2 - x) v + O(v^2)

The papers' gradient for row j of theta1 is h (1/2 - x_j): h counts as a constant. For a convolution
v is the transposed convolution with the same weights.

Classification, of the score z = h_pi W_k with y_k in {0, 1}; sum over classes k:

    log(1 + e^z) - z y  =  log 2 + z/2 - z y + z^2/8 + O(z^4)

Noise. h and x carry theirs already. Of the second cost only the label term -<h_pi y_k, W_k> gets
some: chi3 / m for each record, so -<chi3, W_k> for a batch of m. Its derivative with respect to any
lower layer is zero.

Deviations. The first polynomial has no minimum in theta1; the authors' program takes the absolute
value of each pixel's term, and so do we (`bounded`), unless `linear` is asked for, the text's. Both
costs are means over records, as the second is in the text; a constant factor is nothing to Adam.
"""

import math
from typing import Final

import torch.nn.functional as F
from torch import Tensor, nn

RECONSTRUCTIONS: Final = ("bounded", "linear")


def reconstructed(first: nn.Conv2d, hidden: Tensor, like: Tensor) -> Tensor:
    """theta1 h: the transposed convolution with the first layer's own weights."""
    kernel, stride, padding = first.kernel_size, first.stride, first.padding
    assert not isinstance(padding, str)
    sizes = zip(like.shape[2:], hidden.shape[2:], kernel, stride, padding, strict=True)
    left = [full - ((n - 1) * s - 2 * p + k) for full, n, k, s, p in sizes]
    return F.conv_transpose2d(hidden, first.weight, None, stride, padding, left)


def reconstruction_cost(
    first: nn.Conv2d, noised: Tensor, hidden: Tensor, hidden_noise: Tensor, kind: str
) -> Tensor:
    """R-bar, a mean over records.

    Args:
        first: theta1.
        noised: x-bar.
        hidden: theta1' x-bar.
        hidden_noise: 2 chi2 / m.
        kind: 'bounded' or 'linear', see above.
    """
    h = hidden.detach().clamp(-1.0, 1.0) + hidden_noise
    terms = math.log(2.0) + (0.5 - noised) * reconstructed(first, h, noised)
    return (terms.abs() if kind == "bounded" else terms).sum() / len(noised)


def quadratic_losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Of each record, without noise."""
    y = F.one_hot(labels, scores.shape[1]).to(scores)
    return (math.log(2.0) + scores / 2.0 - scores * y + scores**2 / 8.0).sum(1)


def classification_cost(
    losses: Tensor, benign: int, xi: float, last: Tensor, label_noise: Tensor, batch: int
) -> Tensor:
    """L-bar = (sum over benign + xi sum over adversarial) / (m (1 + xi)) - <chi3, W> / m.

    Args:
        losses: of the benign records, then of as many adversarial ones.
        benign: how many: m, or the part of it that is at hand.
        xi: what an adversarial example counts.
        last: W, a row for each class.
        label_noise: chi3, alike.
        batch: m.
    """
    total = losses[:benign].sum() + xi * losses[benign:].sum()
    return total / (benign * (1.0 + xi)) - (label_noise * last).sum() / batch
