"""A classifier compiled for one size of batch."""

import dataclasses
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from privet.classifiers.classifier import Classifier
from privet.privacy.precision import Precision


def compiled(classifier: Classifier, batch: int, precision: Precision) -> tuple[Classifier, str]:
    """The classifier by `torch.compile`, and a note why not where that fails.

    It is tried on a made-up batch first. Compiled code rounds in other places, so it is a
    classifier of its own: what is certified is the one that is returned.

    Args:
        classifier: anything; what is not PyTorch is left as it is.
        batch: rows of every call.
        precision: that it will run under.
    """
    if not classifier.differentiable:
        return classifier, "it is not computed by PyTorch"
    probe = torch.rand(batch, *classifier.shape, generator=torch.Generator().manual_seed(0))
    try:
        scores = torch.compile(classifier.scores, dynamic=False)
        _try(scores, probe.to(classifier.device), precision)
    except Exception as error:  # compilers fail in many ways; none of them matters to the result
        first = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        return classifier, f"{type(error).__name__}: {first.strip()[:120]}"
    return dataclasses.replace(classifier, scores=scores), ""


@torch.inference_mode()
def _try(scores: Callable[[Tensor], Tensor], probe: Tensor, precision: Precision) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a compiler's advice
        with precision.passes(probe.device), precision.products(probe.device):
            scores(probe)
