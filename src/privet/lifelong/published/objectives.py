"""The objectives of L2DP-ML and their gradients; and the loss of A-GEM, for comparison.

| thesis | here                 | meaning                                                |
|--------|----------------------|--------------------------------------------------------|
| R-bar  | `reconstruction`     | first-order Taylor polynomial, noised: equation 3.86   |
| L-bar  | `classification`     | second-order one, of which the label term is noised    |
| g      | `published_gradient` | (dR-bar/dtheta1, dL-bar/dtheta2), one flat vector      |

    R-bar = mean_r sum_s (1/2 - x-bar_rs) theta1_s h-bar_r / beta    h-bar counts as a constant
    dR-bar/dtheta1_s = mean_r h-bar_r (1/2 - x-bar_rs) / beta

    L-bar = mean_r sum_k [ (1/2 - y_rk) z_rk + z_rk^2 / 8 ] - sum_k <chi3/N, W_k>,   z = h_pi W
    dL-bar/dW_k    = mean_r [ (1/2 - y_rk) + z_rk / 4 ] h_pi_r - chi3/N
    dL-bar/dh_pi_r = sum_k [ (1/2 - y_rk) + z_rk / 4 ] W_k / N       then back-propagation

Both are StoBatch's costs (`training.published.costs`) without adversarial examples; feature maps
are treated one by one, which for a polynomial that is linear in each is their sum.

Deviations. Means over records instead of sums (the learning rate is that of means), and of R-bar
over the beta neurons of a map, too: as a sum it outweighs L-bar so far that the projection, which
sees both as one vector, climbs the loss of the memory. Equation 3.85 prints z for max(z, 0), which
gives negative scores the slope 3/2; `printed` follows it all the same.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from privet.models.published_lifelong import Autoencoded
from privet.training.published.costs import (
    classification_cost,
    quadratic_losses,
    reconstruction_cost,
)

Gradient = Callable[[Autoencoded, Tensor, Tensor, Tensor], Tensor]
"""(network, noised inputs, labels, chi3/N) to a flat gradient of all parameters."""


def reconstruction(network: Autoencoded, noised: Tensor) -> Tensor:
    """R-bar of noised inputs; a function of theta1 in the last product alone."""
    with torch.no_grad():
        hidden = network.first(noised)
    cost = reconstruction_cost(network.first, noised, hidden, network.hidden_noise, "linear")
    return cost / network.hidden_noise[0].numel()


def classification(
    network: Autoencoded,
    noised: Tensor,
    labels: Tensor,
    label_noise: Tensor,
    *,
    printed: bool = False,
) -> Tensor:
    """L-bar of noised inputs; a function of theta2 alone. `label_noise`: chi3/N."""
    with torch.no_grad():
        encoded = network.encoded(noised)
    scores = network.above(encoded)
    losses = quadratic_losses(scores, labels)
    if printed:  # z - |z|/2 in the place of z/2
        losses = losses + (scores - scores.abs()).sum(1) / 2.0
    return classification_cost(losses, len(losses), 0.0, network.last.weight, label_noise, 1)


def published_gradient(
    network: Autoencoded,
    noised: Tensor,
    labels: Tensor,
    label_noise: Tensor,
    *,
    printed: bool = False,
) -> Tensor:
    """Both algorithms' g, in the order of `network.parameters()`."""
    r = reconstruction(network, noised)
    l = classification(network, noised, labels, label_noise, printed=printed)  # noqa: E741
    theta1, *theta2 = network.parameters()
    return _flat([*torch.autograd.grad(r, [theta1]), *torch.autograd.grad(l, theta2)])


def agem_gradient(
    network: Autoencoded, noised: Tensor, labels: Tensor, label_noise: Tensor
) -> Tensor:
    """Of the cross-entropy of the whole network; there is no noise on labels."""
    loss = F.cross_entropy(network.above(network.encoded(noised)), labels)
    return _flat(torch.autograd.grad(loss, list(network.parameters())))


def _flat(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])
