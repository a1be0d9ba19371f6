"""Layer-wise relevance propagation: how much of a score rests on which input.

Bach et al., "On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance
propagation" (2015), the rule with a stabiliser.

| symbol | here         | meaning                                                           |
|--------|--------------|-------------------------------------------------------------------|
| a_p    | `a`          | what a layer is given                                             |
| z_m    | `z`          | what a linear layer makes of it: sum_p a_p W_pm + b_m             |
| mu     | `stabiliser` | keeps quotients finite                                            |
| R_m    | `above`      | relevance of what a layer gives; above the last, the score itself |
| R_p    | result       | relevance of what it is given                                     |

    linear layers        R_p = sum_m a_p W_pm / (z_m + mu sgn(z_m)) R_m,  sgn(0) = 1
    max-pooling, crops   the winner has all; what is left out has nothing
    activations          R_p = R_m

Conservation: without biases, and as mu goes to 0, the relevances of the inputs add up to the score.
Biases keep their share of it, and so does the stabiliser.

Each row is treated by itself, in evaluation mode: its relevances depend on it and on the network.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.adlm_net import CentralCrop
from privet.models.published import BesideInput
from privet.models.registry import Centre

STABILISER: Final = 1e-6
_LINEAR: Final = (
    nn.Linear,
    nn.Conv2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.modules.batchnorm._BatchNorm,
)
_SELECTING: Final = (nn.MaxPool2d, nn.Flatten, CentralCrop)
_ELEMENTWISE: Final = (nn.ReLU, nn.Tanh, nn.Hardtanh, nn.Identity, nn.Dropout, Centre)


def relevance(
    network: nn.Module, x: Tensor, *, classes: Tensor | None = None, stabiliser: float = STABILISER
) -> Tensor:
    """The relevance of every input, shaped like `x`.

    Args:
        network: nested `nn.Sequential`s of linear layers, pooling and activations.
        x: a batch.
        classes: whose score is laid out, for each row; default: the highest.
        stabiliser: mu.
    """
    if not 0 <= stabiliser < float("inf"):
        raise InputError("bad stabiliser", got=stabiliser, expected="a finite number, at least 0")
    with _evaluating(network):
        scores = network(x).detach()
        chosen = scores.argmax(1) if classes is None else classes
        score = scores.gather(1, chosen[:, None])
        above = torch.zeros_like(scores).scatter(1, chosen[:, None], score)
        return _below(network, x, above, stabiliser)


def _below(layer: nn.Module, a: Tensor, above: Tensor, stabiliser: float) -> Tensor:
    """From the relevance of what a layer gives to that of what it is given."""
    if isinstance(layer, nn.Sequential):
        return _below_all(layer, a, above, stabiliser)
    if isinstance(layer, BesideInput):
        own, made = above[:, : a.shape[1]], above[:, a.shape[1] :]
        return own + _below(layer.through, a, made, stabiliser)
    if isinstance(layer, _ELEMENTWISE):
        return above
    if isinstance(layer, _SELECTING):
        return _pulled_back(layer, a, above)
    if isinstance(layer, _LINEAR):
        z = layer(a).detach()
        steady = z + stabiliser * torch.where(z < 0, -1.0, 1.0).to(z.dtype)
        shares = torch.where(steady == 0, 0.0, above / steady)
        return a * _pulled_back(layer, a, shares)
    raise InputError(
        "no rule for the relevance of this layer",
        got=type(layer).__name__,
        expected="linear layers, convolutions, pooling, ReLU, tanh, in nn.Sequential",
    )


def _below_all(layers: nn.Sequential, a: Tensor, above: Tensor, stabiliser: float) -> Tensor:
    given = [a]
    for layer in layers:
        given.append(layer(given[-1]).detach())
    for layer, seen in zip(reversed(layers), reversed(given[:-1]), strict=True):
        above = _below(layer, seen, above, stabiliser)
    return above


def _pulled_back(layer: nn.Module, a: Tensor, above: Tensor) -> Tensor:
    """The transposed Jacobian at `a`, times `above`."""
    with torch.enable_grad():
        a = a.detach().requires_grad_()
        (result,) = torch.autograd.grad(layer(a), a, above)
    return result


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(training)
