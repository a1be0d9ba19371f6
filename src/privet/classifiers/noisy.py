"""A classifier behind Gaussian noise on its inputs: what smoothing predicts with, a draw at a time.

An attacker of a smoothed classifier faces this: every call draws anew. Attacks average their
gradients over draws (`--eot`), and what they find is judged by the majority of fresh draws, as the
smoothed classifier would.
"""

import dataclasses
import math

import torch
from torch import Tensor

from privet.classifiers.classifier import Classifier
from privet.errors import InputError


def noisy(classifier: Classifier, scale: float, *, seed: int = 0) -> Classifier:
    """The classifier on x + N(0, scale^2 I), drawn for every input of every call by itself.

    Args:
        classifier: on inputs in [0, 1]; the noise is not cut off there.
        scale: standard deviation.
        seed: of the draws.
    """
    if not 0.0 < scale < math.inf:
        raise InputError("bad scale of noise", got=scale, expected="a positive, finite number")
    generator = torch.Generator(device=classifier.device).manual_seed(seed)

    def scores(x: Tensor) -> Tensor:
        draws = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        return classifier.scores(x + scale * draws)

    return dataclasses.replace(
        classifier,
        name=f"{classifier.name} behind noise {scale:g}",
        scores=scores,
        random=True,
        module=None,
        digest=lambda: f"{classifier.digest()} noise {scale:g} {seed}",
    )
