"""A classifier from anywhere, to stand behind a denoiser as it is.

| source                                            | name in a release | its weights          |
|---------------------------------------------------|-------------------|----------------------|
| the folder of a release                           | that of its model | the release's        |
| an `.onnx` file                                   | `onnx`            | the file             |
| a network of Privet, `torchvision:N` or `timm:N`  | the same          | a file that is named |
| a module of the user's own                        | `custom`          | its own, or a file   |

A source is looked for by name where weights are given, and as a file or folder where none are.
"""

import math
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn

from privet.classifiers.classifier import Classifier, weights_digest
from privet.classifiers.opening import require_not_attacking
from privet.classifiers.separate import require_rows_apart
from privet.errors import InputError
from privet.files import read_json
from privet.models.fixed_classifier import ONNX, OWN, FixedClassifier, build_classifier
from privet.models.onnx_graph import file_content
from privet.models.onnx_network import OnnxNetwork
from privet.release import Release, named_once, read_weights

PARALLEL: Final = "module."  # before every name that nn.DataParallel saves
COUNTED: Final = "num_batches_tracked"  # by BatchNorm; evaluation does not read it
Numbers = tuple[float, ...]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Fixed:
    """A classifier that is never trained, and where it is from.

    Attributes:
        module: on inputs in [0, 1].
        name: the CLASSIFIER of `denoised:DENOISER:CLASSIFIER`.
        source: as it was given.
        digest: SHA-256 of its weights, range and normalisation.
        card: of a release.
        differentiable: whether autograd goes through it.
    """

    module: FixedClassifier
    name: str
    source: str
    digest: str
    card: Mapping[str, Any] | None
    differentiable: bool


def open_fixed(
    source: str | Path | nn.Module,
    *,
    shape: tuple[int, ...],
    classes: int,
    weights: Path | None = None,
    low: float = 0.0,
    high: float = 1.0,
    mean: Numbers | None = None,
    std: Numbers | None = None,
) -> Fixed:
    """Open a classifier, freeze it, and try it on made-up inputs; a module is frozen in place.

    Args:
        source: see above.
        shape: of one input.
        classes: how many scores it must give.
        weights: `.safetensors`, `.npz`, or a state dict in `.pt` or `.pth`.
        low: what 0 means to the source.
        high: what 1 means to it.
        mean: what it takes off after that, one number or one for each channel.
        std: what it divides by then.
    """
    gain, shift = _scaling(shape, low, high, mean, std)
    ends = [value for g, s in zip(gain, shift, strict=True) for value in (s, g + s)]
    network, name, card = _opened(source, shape, classes, weights, (min(ends), max(ends)))
    require_not_attacking(network, None if card is None else card.get("method"))
    alike = len(set(gain)) == len(set(shift)) == 1
    module = FixedClassifier(
        network, gain=gain[0] if alike else gain, shift=shift[0] if alike else shift
    ).cpu()
    _require_finite(module)
    _require_scores(module, shape, classes)
    told = type(source).__name__ if isinstance(source, nn.Module) else str(source)
    require_rows_apart(
        Classifier(
            name=told, scores=module, shape=shape, classes=classes, device=torch.device("cpu")
        )
    )
    files = [part for part in module.modules() if isinstance(part, OnnxNetwork)]
    return Fixed(
        module=module,
        name=name,
        source=told,
        digest=weights_digest(module),
        card=card,
        differentiable=all(file.differentiable for file in files),
    )


def _scaling(
    shape: tuple[int, ...], low: float, high: float, mean: Numbers | None, std: Numbers | None
) -> tuple[list[float], list[float]]:
    """Gain and shift of each channel: x -> (low + (high - low) x - mean) / std."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            "bad range of a classifier's inputs", got=f"{low:g} to {high:g}", expected="low < high"
        )
    means, stds = (
        _each("mean", mean, 0.0, shape[0]),
        _each("std", std, 1.0, shape[0]),
    )
    if not all(s > 0 for s in stds):
        raise InputError("bad std of a classifier's inputs", got=std, expected="above 0")
    gain = [(high - low) / s for s in stds]
    return gain, [(low - m) / s for m, s in zip(means, stds, strict=True)]


def _each(what: str, given: Numbers | None, otherwise: float, channels: int) -> list[float]:
    values = [otherwise] if given is None else list(given)
    if len(values) not in (1, channels) or not all(math.isfinite(value) for value in values):
        raise InputError(
            f"bad {what} of a classifier's inputs",
            got=given,
            expected=f"a finite number, or one for each of {channels} channels",
        )
    return values * (channels // len(values))


def _opened(
    source: str | Path | nn.Module,
    shape: tuple[int, ...],
    classes: int,
    weights: Path | None,
    seen: tuple[float, float],
) -> tuple[nn.Module, str, Mapping[str, Any] | None]:
    """Network, its name, and the card of a release; `seen`: least and largest number it sees."""
    if isinstance(source, nn.Module):
        return (source if weights is None else _loaded(source, weights)), OWN, None
    path = Path(source)
    if weights is not None:
        if path.suffix == ".onnx" or (path / "config.json").exists():
            raise InputError("the classifier has weights of its own", got=f"{source} and {weights}")
        network = _loaded(build_classifier(str(source), shape, classes), weights)
        return network, str(source), _card_beside(weights)
    if path.suffix == ".onnx":
        file = OnnxNetwork(file_content(path), low=seen[0], high=seen[1])
        _require_same_inputs("an ONNX file", file.shape, shape)
        return file, ONNX, None
    if path.is_dir():
        release = Release.load(path)
        _require_same_inputs("a release", tuple(release.config["shape"]), shape)
        return release.model, str(release.config["model"]), release.trust
    raise _not_found(str(source), shape, classes)


def _card_beside(weights: Path) -> Mapping[str, Any] | None:
    """That of the release whose file the weights are."""
    card = weights.parent / "trust.json"
    return read_json(card) if card.exists() else None


def _require_same_inputs(what: str, theirs: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if theirs != shape:
        raise InputError(
            f"{what} for other inputs", got=f"shape {theirs}", expected=f"{shape}, of the data"
        )


def _not_found(source: str, shape: tuple[int, ...], classes: int) -> InputError:
    """Neither file nor folder: a network without weights, or nothing that is known."""
    if "/" in source:
        return InputError(
            "no such classifier", got=source, expected="a release's folder or an .onnx file"
        )
    build_classifier(source, shape, classes)  # which says what an unknown name is near to
    return InputError(
        "a network without weights is no classifier",
        got=f"'{source}'",
        fix="name its weights: .safetensors, .npz, .pt or .pth",
    )


def _loaded(network: nn.Module, path: Path) -> nn.Module:
    """The network with the weights of a file, each in its place."""
    state = _without_prefix(_state(Path(path)))
    try:
        missing, unexpected = network.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise _misfit(str(error).splitlines()[-1].strip()) from None
    second_names = set(network.state_dict()) - set(named_once(network))
    lacking = [n for n in missing if n not in second_names and not n.endswith(COUNTED)]
    if unexpected or lacking:
        raise _misfit(f"no place for '{unexpected[0]}'" if unexpected else f"no '{lacking[0]}'")
    return network


def _misfit(what: str) -> InputError:
    return InputError("weights do not fit the classifier", got=what)


def _without_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    if all(name.startswith(PARALLEL) for name in state):
        return {name.removeprefix(PARALLEL): value for name, value in state.items()}
    return state


def _state(path: Path) -> dict[str, Tensor]:
    readers = {
        ".safetensors": read_weights,
        ".npz": _of_numpy,
        ".pt": _of_torch,
        ".pth": _of_torch,
    }
    if path.suffix not in readers:
        raise InputError(
            "unknown kind of weights", got=path.name, expected=f"one of {', '.join(readers)}"
        )
    if not path.is_file():
        raise InputError("no such weights", got=path)
    return readers[path.suffix](path)


def _of_numpy(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception as error:  # whatever a broken file makes the library raise
        raise _unreadable(path, error) from None


def _of_torch(path: Path) -> dict[str, Tensor]:
    """A state dict, alone or as `state_dict` of a checkpoint; no code of the file is run."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _unreadable(path, error) from None
    inner = found.get("state_dict", found) if isinstance(found, Mapping) else found
    if not isinstance(inner, Mapping) or not all(isinstance(v, Tensor) for v in inner.values()):
        raise _unreadable(path, TypeError("it holds other things than tensors by name"))
    return dict(inner)


def _unreadable(path: Path, error: Exception) -> InputError:
    first = next(iter(str(error).splitlines()), type(error).__name__).partition(". ")[0]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", first)
    return InputError(
        "weights that cannot be read",
        got=f"{path.name}: {textwrap.shorten(plain, 120, placeholder=' ...')}",
        fix="save them as safetensors, or by torch.save(model.state_dict(), ...)",
    )


def _require_finite(module: nn.Module) -> None:
    for name, value in module.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError("a weight of the classifier is not finite", got=f"'{name}'")


def _require_scores(module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    probe = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            scores = module(probe)
    except Exception as error:  # whatever a network of another shape makes its package raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            "a classifier that does not take such inputs",
            got=first[:120],
            expected=f"inputs of shape {shape}",
        ) from None
    if not isinstance(scores, Tensor) or tuple(scores.shape) != (2, classes):
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise InputError(
            "not one score for each class of the data",
            got=f"{found} for 2 inputs",
            expected=f"(2, {classes})",
        )
    if not bool(torch.isfinite(scores).all()):
        raise InputError("scores of the classifier that are no numbers", got="NaN or infinity")
