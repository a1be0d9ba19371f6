"""Adversarial examples of noised inputs: I-FGSM, MIM and Madry's, a third of a batch each.

| papers | here     | meaning                                   |
|--------|----------|-------------------------------------------|
| mu_t   | `size`   | l-infinity size, on the scale [-1, 1]     |
| T_mu   | `steps`  | gradients; a step is mu_t / T_mu long     |
| y-hat  | `guess`  | the model's own label: no true one leaks  |

    I-FGSM   x <- P(x + mu/T sign(gradient of the loss of y-hat(x)))
    MIM      g <- g + gradient / |gradient|_1,  x <- P(x + mu/T sign(g))
    Madry    as I-FGSM, from a uniform point of the ball

I-FGSM guesses anew in each step; the others keep the guess at the input. P is the projection onto
the ball alone: inputs with noise are in no box. The loss is the cross-entropy of the scores. All go
through the network together; what its batch normalisation does is for the caller to say.

Deviation: where it uses the statistics of the batch, a row moves the scores of the others, and the
gradient at a row is that of the losses of all of them, of all three attacks. The papers' is that of
a row's own loss, which it also is here wherever rows do not concern each other.
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from privet.attacks.iterated import per_l1

Scores = Callable[[Tensor], Tensor]
ENSEMBLE: Final = ("ifgsm", "mim", "madry")


def crafted(
    scores: Scores, x: Tensor, *, size: float, steps: int, generator: torch.Generator
) -> Tensor:
    """One adversarial example of each input; the attacks take equal parts of them, in order."""
    ends = [len(part) for part in torch.tensor_split(x, len(ENSEMBLE))]
    ends = [sum(ends[: n + 1]) for n in range(len(ends))]
    parts = dict(zip(ENSEMBLE, map(slice, [0, *ends[:-1]], ends), strict=True))
    return _ascended(scores, x, parts, size=size, steps=steps, generator=generator)


def ascended(
    scores: Scores, x: Tensor, name: str, *, size: float, steps: int, generator: torch.Generator
) -> Tensor:
    """By one attack of the ensemble."""
    parts = {name: slice(0, len(x))}
    return _ascended(scores, x, parts, size=size, steps=steps, generator=generator)


def _ascended(
    scores: Scores,
    x: Tensor,
    parts: Mapping[str, slice],
    *,
    size: float,
    steps: int,
    generator: torch.Generator,
) -> Tensor:
    """Each part by its attack."""
    anew, momentum = (parts.get(name, slice(0, 0)) for name in ("ifgsm", "mim"))
    with torch.no_grad():
        guess = scores(x).argmax(1)
    d, memory = torch.zeros_like(x), torch.zeros_like(x[momentum])
    d[parts.get("madry", slice(0, 0))].uniform_(-size, size, generator=generator)
    for _ in range(steps):
        gradient = _gradient(scores, x + d, guess, anew)
        memory = memory + per_l1(gradient[momentum])
        gradient[momentum] = memory
        d = (d + size / steps * gradient.sign()).clamp(-size, size)
    return x + d


def _gradient(scores: Scores, x: Tensor, guess: Tensor, anew: slice) -> Tensor:
    """Of the sum of all rows' losses of their guesses; for `anew`, of the labels given here.

    At a row that is the gradient of its own loss, unless the rows share statistics of their batch.
    """
    inputs = x.detach().requires_grad_()
    found = scores(inputs)
    label = guess.clone()
    label[anew] = found[anew].detach().argmax(1)
    loss = F.cross_entropy(found, label, reduction="sum")
    return torch.autograd.grad(loss, inputs)[0]
