"""The folder for a phone's team: programs, what is in them, and how they are used.

    training.pte    ExecuTorch: one step's loss, scores and gradients; holds the parameters
    inference.pte   ExecuTorch: scores of one example
    inference.onnx  scores of any number of examples
    manifest.json   SHA-256 of each; shapes, inputs, the order of the parameters in an update, ...
    README.md       how to use them

Before anything is written, the programs are tried: the gradients of `training.pte` and the scores
of the others must be PyTorch's on made-up examples.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from privet.errors import FaultyEnvironment, InputError
from privet.federation.flat import flat, travelling
from privet.federation.on_device.handed import Handed
from privet.federation.on_device.instructions import instructions
from privet.federation.on_device.networks import Learner
from privet.federation.on_device.programs import (
    PREFIX,
    Program,
    drawn_kept,
    inference_onnx,
    inference_program,
    made_up_batch,
    quiet,
    require_installed,
    training_program,
)
from privet.federation.on_device.running import (
    FORMAT,
    INFERENCE,
    MANIFEST,
    ONNX,
    README,
    TRAINING,
    OnPhone,
    Parameter,
    digest_of,
)
from privet.files import make_folder, write_atomically, write_json

EXECUTORCH, ONLY_ONNX, BOTH = FORMATS = ("executorch", "onnx", "both")
AGREED: Final = 1e-4  # of the largest number, between a program and PyTorch
TRIED: Final = 3  # examples by which scores are compared


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """A folder that was made.

    Attributes:
        folder: where it is.
        manifest: what it says.
    """

    folder: Path
    manifest: Mapping[str, Any]


def write(
    path: str | Path, out: str | Path, *, formats: str = BOTH, batch: int | None = None
) -> Written:
    """Make the folder for phones of a release, or of a plan (.toml).

    Args:
        path: of the release or plan.
        out: folder, new or empty.
        formats: 'executorch', 'onnx', or 'both'.
        batch: records of a step; default: the plan's, or 64.
    """
    if formats not in FORMATS:
        raise InputError("unknown format", got=formats, expected=" | ".join(FORMATS))
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("the folder is not empty", got=out, fix="name a new one")
    require_installed(*(() if formats == ONLY_ONNX else ("executorch",)))
    require_installed(*(() if formats == EXECUTORCH else ("onnx", "onnxruntime")))
    handed = Handed.open(Path(path))
    files, manifest = made(handed, formats=formats, batch=_batch_of(handed, batch))
    make_folder(out)
    for name, content in files.items():
        write_atomically(out / name, content)
    write_json(out / MANIFEST, manifest)  # last: without it a folder is not finished
    return Written(folder=out, manifest=manifest)


def made(handed: Handed, *, formats: str, batch: int) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files by name, tried, and their manifest."""
    files: dict[str, bytes] = {}
    manifest = _about(handed)
    if formats != ONLY_ONNX:
        files[TRAINING], training = _training(handed, batch)
        files[INFERENCE] = _inference(handed).content
        manifest |= training
    if formats != EXECUTORCH:
        files[ONNX] = inference_onnx(copy.deepcopy(handed.network), handed.shape)
        _require_onnx_agrees(files[ONNX], handed)
    files[README] = instructions(manifest, files).encode()
    digests = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        for name, content in files.items()
    }
    return files, manifest | {"files": digests, "versions": _versions(formats)}


def parameters_of(network: nn.Module) -> tuple[Parameter, ...]:
    """In the order of an update, by their names in the training program."""
    found, offset = [], 0
    for name, tensor in travelling(network).items():
        found.append(Parameter(name=PREFIX + name, shape=tuple(tensor.shape), offset=offset))
        offset += tensor.numel()
    return tuple(found)


def _batch_of(handed: Handed, asked: int | None) -> int:
    planned = None if handed.work is None else int(handed.work["batch"])
    if asked is not None and planned is not None and asked != planned:
        raise InputError(
            "another batch than the plan's",
            got=asked,
            expected=f"{planned}",
            fix="change [work] batch in the plan, or leave out --batch",
        )
    batch = asked or planned or 64
    if batch < 1:
        raise InputError("bad batch", got=batch, expected="at least 1 record")
    return batch


def _about(handed: Handed) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "source": handed.source,
        "network": handed.model,
        "shape": list(handed.shape),
        "classes": list(handed.classes),
        "bounds": {"low": list(handed.bounds.low), "high": list(handed.bounds.high)},
    }


def _training(handed: Handed, batch: int) -> tuple[bytes, dict[str, Any]]:
    network = copy.deepcopy(handed.network).train()
    learner, parameters = Learner(network), parameters_of(network)
    x, y, share = made_up_batch(handed.shape, len(handed.classes), batch)
    kept = learner.kept_shapes(x)
    factors = tuple(torch.ones(shape) for shape in kept)
    program = training_program(learner, (x, y, share, *factors))
    phone = OnPhone(
        program.content,
        parameters,
        batch=batch,
        shape=handed.shape,
        rates=learner.rates,
        kept=kept,
    )
    difference = _tried(phone, learner, (x, y, share), seed=1)
    return program.content, {
        "batch": batch,
        "inputs": _inputs(x, y, share, factors),
        "outputs": ["loss", f"scores, [{batch}, {len(handed.classes)}]", "gradients, by name"],
        "dropouts": [
            {"rate": rate, "shape": list(shape)}
            for rate, shape in zip(learner.rates, kept, strict=True)
        ],
        "weights": sum(p.size for p in parameters),
        "parameters": [
            {"name": p.name, "shape": list(p.shape), "offset": p.offset} for p in parameters
        ],
        "start": {"sha256": digest_of(flat(network))},
        "work": None if handed.work is None else dict(handed.work),
        "operators": list(program.operators),
        "working_bytes": program.working_bytes,
        "tried": {"largest_difference_of_gradients": difference},
    }


def _tried(phone: OnPhone, learner: Learner, batch: tuple[Tensor, ...], *, seed: int) -> float:
    """The largest difference of a gradient to PyTorch's, relative to the largest gradient."""
    x, y, share = batch
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        kept = drawn_kept(learner.rates, phone.kept)
    loss, _ = learner(x, y, share, *kept)
    expected = dict(
        zip(
            (name for name, _ in learner.named_parameters()),
            torch.autograd.grad(loss, list(learner.parameters())),
            strict=True,
        )
    )
    with quiet():
        _, _, found = phone.gradients(x, y, kept)
    return _require_agreement(TRAINING, [found[name] for name in expected], [*expected.values()])


def _inference(handed: Handed) -> Program:
    network = copy.deepcopy(handed.network).eval()
    program = inference_program(network, handed.shape)
    x = made_up_batch(handed.shape, len(handed.classes), TRIED)[0]
    with quiet():
        from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

        module = _load_for_executorch_from_buffer(program.content)
        found = torch.cat([module.forward([one[None]])[0] for one in x])
    _require_agreement(INFERENCE, [found], [_scores(handed, x)])
    return program


def _require_onnx_agrees(content: bytes, handed: Handed) -> None:
    from privet.models.onnx_graph import read_onnx

    x = made_up_batch(handed.shape, len(handed.classes), TRIED)[0]
    found = read_onnx(content, device=torch.device("cpu")).apply(x)
    _require_agreement(ONNX, [found], [_scores(handed, x)])


def _scores(handed: Handed, x: Tensor) -> Tensor:
    with torch.no_grad():
        scores: Tensor = copy.deepcopy(handed.network).eval()(x)
    return scores


def _require_agreement(what: str, found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    pairs = list(zip(found, expected, strict=True))
    most = max(float(e.abs().max()) for _, e in pairs) or 1.0
    difference = max(float((f.detach() - e.detach()).abs().max()) for f, e in pairs) / most
    if not difference <= AGREED:
        raise FaultyEnvironment(
            f"{what} does not compute what PyTorch does",
            got=f"{difference:.1e} of the largest number apart",
            expected=f"at most {AGREED:g}",
            fix="use the versions in constraints.txt",
        )
    return difference


def _inputs(x: Tensor, y: Tensor, share: Tensor, kept: tuple[Tensor, ...]) -> list[dict[str, Any]]:
    named = [("x", x), ("y", y), ("share", share)]
    named += [(f"kept_{number}", factors) for number, factors in enumerate(kept)]
    return [
        {"name": name, "dtype": str(part.dtype).removeprefix("torch."), "shape": list(part.shape)}
        for name, part in named
    ]


def _versions(formats: str) -> dict[str, str]:
    packages = ["privet", "torch"]
    packages += [] if formats == ONLY_ONNX else ["executorch"]
    packages += [] if formats == EXECUTORCH else ["onnx"]
    return {package: version(package) for package in packages}
