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
the ball alone: inputs with noise are in no box. The loss is the cross-entropy of the scores; the
model is in evaluation mode.
"""

from collections.abc import Callable
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
    parts = torch.tensor_split(x, len(ENSEMBLE))
    made = [
        ascended(scores, part, name, size=size, steps=steps, generator=generator)
        for name, part in zip(ENSEMBLE, parts, strict=True)
        if len(part)
    ]
    return torch.cat(made)


def ascended(
    scores: Scores, x: Tensor, name: str, *, size: float, steps: int, generator: torch.Generator
) -> Tensor:
    """By one attack of the ensemble."""
    with torch.no_grad():
        guess = scores(x).argmax(1)
    d, memory = torch.zeros_like(x), torch.zeros_like(x)
    if name == "madry":
        d.uniform_(-size, size, generator=generator)
    for _ in range(steps):
        gradient = _gradient(scores, x + d, None if name == "ifgsm" else guess)
        memory = memory + per_l1(gradient) if name == "mim" else gradient
        d = (d + size / steps * memory.sign()).clamp(-size, size)
    return x + d


def _gradient(scores: Scores, x: Tensor, guess: Tensor | None) -> Tensor:
    """Of each row's own loss; without a guess, of the label that the model gives here."""
    inputs = x.detach().requires_grad_()
    found = scores(inputs)
    label = found.detach().argmax(1) if guess is None else guess
    loss = F.cross_entropy(found, label, reduction="sum")
    return torch.autograd.grad(loss, inputs)[0]
