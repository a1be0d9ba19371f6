"""A denoiser in front of a classifier: denoised smoothing (Salman et al., 2020).

The two together are one classifier, x -> scores(denoiser(x)). Noise goes in before the denoiser, so
a certificate of the pair needs no property of either: denoising is post-processing of noisy inputs.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from privet.classifiers.classifier import Classifier, weights_digest
from privet.errors import InputError

Denoiser = nn.Module | str | Path
"""A module, or an `.onnx` file, from inputs to inputs."""


def denoised(classifier: Classifier, denoiser: Denoiser) -> Classifier:
    """The classifier on what the denoiser makes of an input.

    A row that the denoiser turns into a NaN gets scores of NaN, whatever the classifier would make
    of it: it votes for no class.

    Args:
        classifier: on inputs in [0, 1].
        denoiser: takes noisy inputs of the classifier's shape, which may leave [0, 1], and gives
            inputs of the same shape. A module is put in evaluation mode and moved to the
            classifier's device.
    """
    clean, differentiable, name, digest = _opened(denoiser, classifier)
    _require_same_shape(clean, classifier)

    def scores(x: Tensor) -> Tensor:
        images = clean(x)
        lost = images.flatten(1).isnan().any(1, keepdim=True)
        return classifier.scores(images).masked_fill(lost, torch.nan)

    return dataclasses.replace(
        classifier,
        name=f"{name}, then {classifier.name}",
        scores=scores,
        differentiable=classifier.differentiable and differentiable,
        module=None,
        digest=lambda: f"{digest()} {classifier.digest()}",
    )


def _opened(
    denoiser: Denoiser, classifier: Classifier
) -> tuple[Callable[[Tensor], Tensor], bool, str, Callable[[], str]]:
    if isinstance(denoiser, nn.Module):
        name = type(denoiser).__name__
        moved = denoiser.to(classifier.device).eval()
        return moved, True, name, partial(weights_digest, denoiser)
    path = Path(denoiser)
    if path.suffix != ".onnx":
        raise InputError(
            "not a denoiser", got=path, expected="a module or an .onnx file from images to images"
        )
    from privet.models.onnx_graph import file_content, read_onnx

    content = file_content(path)
    read = read_onnx(content, device=classifier.device, ends=classifier.shape)
    return read.apply, read.differentiable, path.name, hashlib.sha256(content).hexdigest


def _require_same_shape(clean: Callable[[Tensor], Tensor], classifier: Classifier) -> None:
    probe = torch.rand(2, *classifier.shape, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            found = tuple(clean(probe.to(classifier.device)).shape)
    except Exception as error:  # whatever a network of another shape makes PyTorch or ONNX raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            "a denoiser that does not take the classifier's inputs",
            got=first[:120],
            expected=f"inputs of shape {classifier.shape}",
        ) from None
    if found != tuple(probe.shape):
        raise InputError(
            "a denoiser of another shape",
            got=f"{found[1:]} from inputs of shape {classifier.shape}",
            expected="the shape of its inputs",
        )
