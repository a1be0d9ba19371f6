"""What a phone is given, as bytes: ExecuTorch programs for training and scores, ONNX for scores.

The training program is the joint graph of forward and backward: its method `forward` gives loss,
scores, and a gradient for each parameter, and holds the parameters. All sizes are fixed, so that
its memory is planned once; a batch that is not full has records with share 0.
"""

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import FaultyEnvironment, InputError
from privet.federation.on_device.networks import Learner

METHOD: Final = "forward"
PREFIX: Final = "network."  # of a parameter's name in the training program
OPSET: Final = 17
_EXTRAS: Final = {"executorch": "phone", "onnx": "onnx", "onnxruntime": "onnx"}


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A program of ExecuTorch.

    Attributes:
        content: of the file.
        operators: that the phone's runtime must have.
        working_bytes: planned for parameters and everything in between.
    """

    content: bytes
    operators: tuple[str, ...]
    working_bytes: int


def require_installed(*packages: str) -> None:
    """Say which extra is missing, if one is."""
    for package in packages:
        if find_spec(package) is None:
            raise FaultyEnvironment(
                "a phone's files need packages of their own",
                got=f"no {package}",
                fix=f"pip install 'privet[{_EXTRAS[package]}]'",
            )


def made_up_batch(
    shape: tuple[int, ...], classes: int, batch: int, *, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Examples, labels and equal shares, for tracing and for trying out."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(batch, *shape, generator=draw)
    y = torch.randint(0, classes, (batch,), generator=draw)
    return x, y, torch.full((batch,), 1.0 / batch)


def drawn_kept(rates: tuple[float, ...], shapes: tuple[tuple[int, ...], ...]) -> tuple[Tensor, ...]:
    """Factors of dropouts, as PyTorch's own layers would draw them now."""
    pairs = zip(rates, shapes, strict=True)
    return tuple(F.dropout(torch.ones(shape), rate) for rate, shape in pairs)


def training_program(learner: Learner, inputs: tuple[Tensor, ...]) -> Program:
    """The joint graph of a step, for batches like this one."""
    require_installed("executorch")
    with quiet():
        from executorch.exir import to_edge
        from torch.export.experimental import _export_forward_backward

        exported = torch.export.export(learner, inputs, strict=False)
        lowered = to_edge(_export_forward_backward(exported)).to_executorch()
    return _program(lowered)


def inference_program(network: nn.Module, shape: tuple[int, ...]) -> Program:
    """Scores of one example, by XNNPACK."""
    require_installed("executorch")
    with quiet():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        exported = torch.export.export(network.eval(), (torch.zeros(1, *shape),), strict=False)
        parts = [XnnpackPartitioner()]
        lowered = to_edge_transform_and_lower(exported, partitioner=parts).to_executorch()
    return _program(lowered)


def inference_onnx(network: nn.Module, shape: tuple[int, ...]) -> bytes:
    """Scores of any number of examples."""
    require_installed("onnx", "onnxruntime")
    with tempfile.TemporaryDirectory() as folder, quiet("ONNX"):
        file = Path(folder) / "scores.onnx"
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, *shape),),
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=["x"],
            output_names=["scores"],
            dynamic_axes={"x": {0: "n"}, "scores": {0: "n"}},
        )
        return file.read_bytes()


def _program(lowered: Any) -> Program:
    plan = next(p for p in lowered.executorch_program.execution_plan if p.name == METHOD)
    names = {f"{o.name}.{o.overload}" if o.overload else o.name for o in plan.operators}
    return Program(
        content=bytes(lowered.buffer),
        operators=tuple(sorted(names)),
        working_bytes=sum(plan.non_const_buffer_sizes),
    )


@contextlib.contextmanager
def quiet(who: str = "ExecuTorch") -> Iterator[None]:
    """Exporters speak of themselves; only where one fails is its first word of use.

    ExecuTorch writes to the process's standard error from C++: that is turned aside meanwhile.
    """
    with tempfile.TemporaryFile() as aside, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.stderr.flush()
        before, level = os.dup(2), logging.root.manager.disable
        os.dup2(aside.fileno(), 2)
        logging.disable(logging.WARNING)
        try:
            yield
        except RuntimeError as error:
            raise InputError(
                f"{who} cannot do this", got=_first_line(aside) or str(error).split("\n")[0]
            ) from error
        finally:
            logging.disable(level)
            os.dup2(before, 2)
            os.close(before)


def _first_line(file: Any) -> str:
    """What went wrong first, which is what it is about; not what is said of the processor."""
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return next((str(line) for line in lines if not line.startswith("[cpuinfo")), "")
