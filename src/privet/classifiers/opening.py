"""From a release, a PyTorch module or a file to a `Classifier`."""

from pathlib import Path

import torch
from torch import Tensor, nn

from privet.classifiers.classifier import Classifier, weights_digest
from privet.errors import InputError
from privet.models.attacked import Attacked
from privet.release import Release


def open_classifier(
    source: Release | nn.Module | Classifier | str | Path,
    *,
    shape: tuple[int, ...] | None = None,
    low: float = 0.0,
    high: float = 1.0,
    device: str | torch.device | None = None,
) -> Classifier:
    """A classifier on inputs in [0, 1].

    A module is put in evaluation mode, and moved to the device if one is given.

    Args:
        source: a release or its folder, a module that gives scores, or an `.onnx` file.
        shape: of one input; needed for a module.
        low: what 0 means to the source; releases know their own range.
        high: what 1 means to it.
        device: where to compute; default: where the weights are.
    """
    if isinstance(source, Classifier):
        return source
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix == ".onnx":
            from privet.classifiers.onnx_file import from_onnx

            return from_onnx(path, low=low, high=high, device=device)
        source = Release.load(path)
    if isinstance(source, Release):
        require_not_attacking(source.model, source.trust.get("method"))
        return _of_module(source.model, tuple(source.config["shape"]), "release", 0.0, 1.0, device)
    if isinstance(source, nn.Module):
        if shape is None:
            raise InputError("unknown shape of inputs", fix="say shape=(channels, height, width)")
        return _of_module(source, shape, type(source).__name__, low, high, device)
    raise InputError(
        "nothing that classifies",
        got=type(source).__name__,
        expected="a release, a module or a file",
    )


def require_not_attacking(model: nn.Module, method: object = None) -> None:
    """Refuse a network that attacks: its scores are those of a classifier under attack."""
    if not isinstance(model, Attacked):
        return
    by = "" if method is None else f", method '{method}'"
    raise InputError(
        "not a classifier",
        got=f"a network that attacks{by}",
        expected="a classifier",
        fix="name the one that it attacks; to attack by it: privet attack RELEASE --attacks FOLDER",
    )


def _of_module(
    model: nn.Module,
    shape: tuple[int, ...],
    name: str,
    low: float,
    high: float,
    device: str | torch.device | None,
) -> Classifier:
    if not low < high:
        raise InputError("bad range of inputs", got=f"{low} to {high}", expected="low < high")
    where = torch.device(device) if device is not None else _device_of(model)
    model = model.to(where).eval()

    as_it_is = (low, high) == (0.0, 1.0)

    def scores(x: Tensor) -> Tensor:
        outputs: Tensor = model(x if as_it_is else low + (high - low) * x)
        return outputs

    probe = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(where)
    try:
        with torch.no_grad():
            first, again = scores(probe), scores(probe)
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(
            "a model that cannot take such inputs",
            got=next(iter(str(error).splitlines()), type(error).__name__)[:120],
            expected=f"inputs of shape {shape}",
            fix="say shape=, that of one input",
        ) from None
    if first.dim() != 2 or len(first) != 2:
        raise InputError(
            "not one row of scores for each input",
            got=f"shape {tuple(first.shape)} for 2 inputs",
            expected="(2, classes)",
        )
    return Classifier(
        name=name,
        scores=scores,
        shape=shape,
        classes=first.shape[1],
        device=where,
        random=not torch.allclose(first, again, rtol=0, atol=0, equal_nan=True),
        module=model if as_it_is else None,
        digest=lambda: f"{weights_digest(model)} {low:g} {high:g}",
    )


def _device_of(model: nn.Module) -> torch.device:
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")
