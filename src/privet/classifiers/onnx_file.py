"""A classifier from an ONNX file: by onnxruntime, and with gradients where its operators are known.

Which these are, and what becomes of others: `models.onnx_graph`. The file's first output is taken
for the scores.
"""

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from privet.classifiers.classifier import Classifier
from privet.errors import InputError
from privet.models.onnx_graph import file_content, read_onnx


def from_onnx(
    path: str | Path,
    *,
    low: float = 0.0,
    high: float = 1.0,
    device: str | torch.device | None = None,
) -> Classifier:
    """A classifier on inputs in [0, 1]; `low` and `high` are what these mean to the file."""
    where, name, content = torch.device(device or "cpu"), Path(path).name, file_content(Path(path))
    read = read_onnx(content, device=where, low=low, high=high)
    if len(read.output) != 1:
        raise InputError(
            "not one row of scores for each input",
            got=f"output of shape {read.output} for an input",
            expected="(classes,)",
        )
    digest = hashlib.sha256(content).hexdigest()

    def scores(x: Tensor) -> Tensor:
        return read.apply(x if (low, high) == (0.0, 1.0) else low + (high - low) * x)

    return Classifier(
        name=f"{name} (black box: {read.unknown})" if read.unknown else name,
        scores=scores,
        shape=read.shape,
        classes=read.output[0],
        device=where,
        differentiable=read.differentiable,
        digest=lambda: f"{digest} {low:g} {high:g}",
    )
