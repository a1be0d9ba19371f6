"""What an ONNX file computes: by onnxruntime, and with gradients where its operators are known.

| operators      | attacks see                                                            |
|----------------|------------------------------------------------------------------------|
| all in `RULES` | a differentiable function, rebuilt in PyTorch; it must agree with      |
|                | onnxruntime on made-up inputs, or the file is refused                  |
| others         | scores only, by onnxruntime: black-box attacks                         |

The file's first input takes the examples; its first output is what counts. Batch sizes that are
fixed in the file are filled up. A file is one piece here: weights that it keeps in files beside it
are read into it, and content that came without them is refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import FaultyEnvironment, InputError

AGREED: Final = 1e-3  # of the largest score, between PyTorch and onnxruntime
PROBED: Final = 4

Attributes = dict[str, Any]
Rule = Callable[..., Tensor]
"""(attributes, *inputs) -> output; a missing optional input is None."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxMap:
    """What a file computes, on a device.

    Attributes:
        apply: by PyTorch where all operators are known: a module, whose numbers move with it; else
            by onnxruntime, on the CPU, wherever inputs are.
        shape: of one input.
        output: of one made-up input.
        unknown: why it is a black box; "" where it is none.
    """

    apply: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    output: tuple[int, ...]
    unknown: str

    @property
    def differentiable(self) -> bool:
        """Whether autograd goes through it."""
        return not self.unknown


def read_onnx(
    content: bytes,
    *,
    device: torch.device,
    low: float = 0.0,
    high: float = 1.0,
    ends: tuple[int, ...] | None = None,
) -> OnnxMap:
    """A file as a function; it is tried on made-up inputs from `low` to `high`.

    Args:
        content: of the file.
        device: where inputs are taken.
        low: the least that a made-up input has.
        high: the most.
        ends: the shape that one input and one output must have; refused before anything is
            computed where the file declares another.
    """
    model = _read(content)
    if ends is not None:
        _require_declared(model, ends)
    by_runtime, shape = _session(content)
    probe = low + (high - low) * torch.rand(
        PROBED, *shape, generator=torch.Generator().manual_seed(0)
    )
    expected = _first_run(by_runtime, probe)
    graph, why = _rebuilt(model, probe.to(device))
    if graph is not None:
        _require_agreement(graph(probe.to(device)).cpu(), expected)

    return OnnxMap(
        apply=by_runtime if graph is None else graph,
        shape=shape,
        output=tuple(expected.shape[1:]) if len(expected) == PROBED else (),
        unknown=why if graph is None else "",
    )


def _rebuilt(model: Any, probe: Tensor) -> tuple["OnnxGraph | None", str]:
    """The file in PyTorch; or None, and what of it is not known."""
    unknown = sorted({node.op_type for node in model.graph.node} - set(RULES))
    if unknown:
        return None, ", ".join(unknown)
    try:
        graph = OnnxGraph(model).to(probe.device)
        graph(probe)
    except InputError as error:  # a variant of an operator
        return None, str(error)
    return graph, ""


def _require_declared(model: Any, ends: tuple[int, ...]) -> None:
    """Both ends, as far as the file says; a size that is a name may be any."""
    weights = {weight.name for weight in model.graph.initializer}
    given = next((value for value in model.graph.input if value.name not in weights), None)
    for what, value in (("inputs", given), ("outputs", next(iter(model.graph.output), None))):
        if value is None or not value.type.tensor_type.HasField("shape"):
            continue
        dims = value.type.tensor_type.shape.dim[1:]
        sizes = [d.dim_value if d.HasField("dim_value") else "?" for d in dims]
        pairs = zip(sizes, ends, strict=False)
        if len(sizes) != len(ends) or any(size not in ("?", end) for size, end in pairs):
            raise InputError(
                "an ONNX file of another shape",
                got=f"{what} of shape ({', '.join(map(str, sizes))})",
                expected=f"({', '.join(map(str, ends))}), that of the data",
                fix="export it for these data",
            )


def _first_run(by_runtime: Callable[[Tensor], Tensor], probe: Tensor) -> Tensor:
    """What onnxruntime makes of made-up inputs; refused where it cannot take them."""
    try:
        return by_runtime(probe)
    except Exception as error:  # onnxruntime raises many kinds: other types, several inputs
        raise _not_run(error) from None


def _not_run(error: Exception) -> InputError:
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return InputError(
        "an ONNX file that cannot be run", got=first[:120], expected="one input of float32 numbers"
    )


def _require_agreement(found: Tensor, expected: Tensor) -> None:
    if not bool(torch.isfinite(expected).all()):
        raise InputError(
            "an ONNX file whose outputs are no numbers",
            got="NaN or infinity on made-up inputs",
            fix="look for weights that are not finite",
        )
    difference = float((found.detach() - expected).abs().max())
    if not difference <= AGREED * max(1.0, float(expected.abs().max())):
        raise InputError(
            "an ONNX file that PyTorch computes differently",
            got=f"scores {difference:.2g} apart from onnxruntime's",
            expected=f"within {AGREED:g}",
            fix="please report the file's operators",
        )


def file_content(path: Path) -> bytes:
    """The bytes of a file, with the weights that it keeps beside it."""
    onnx = _onnx()
    if not path.is_file():
        raise InputError("no such file", got=path)
    try:
        content = path.read_bytes()
        if not content:
            raise ValueError("an empty file")
        if any(_outside(onnx.load_from_string(content).graph)):
            return bytes(onnx.load(str(path)).SerializeToString())
    except Exception as error:  # whatever a broken file makes the library raise
        raise _invalid(error, f"{path.name}: ") from None
    return content


def _read(content: bytes) -> Any:
    onnx = _onnx()
    try:
        model = onnx.load_from_string(content)
        onnx.checker.check_model(model)
    except Exception as error:
        raise _invalid(error) from None
    if any(_outside(model.graph)):  # it would name files of whoever opens it
        raise InputError(
            "an ONNX file whose weights lie in other files", fix="save it with all of its weights"
        )
    return model


def _outside(graph: Any) -> Iterator[str]:
    """Names of tensors that are not in the file, those of inner graphs among them."""
    for tensor in graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            yield tensor.name
    for attribute in (a for node in graph.node for a in node.attribute):
        for tensor in (attribute.t, *attribute.tensors):
            if tensor.data_location == tensor.EXTERNAL:
                yield tensor.name
        for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            yield from _outside(inner)


def _invalid(error: Exception, where: str = "") -> InputError:
    first = next(iter(str(error).splitlines()), "")
    return InputError("not a valid ONNX file", got=f"{where}{first[:120]}")


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise _missing() from None
    return onnx


def _missing() -> FaultyEnvironment:
    return FaultyEnvironment(
        "ONNX files need packages of their own", fix="pip install privet[onnx]"
    )


def _session(content: bytes) -> tuple[Callable[[Tensor], Tensor], tuple[int, ...]]:
    """Outputs by onnxruntime, and the shape of one input."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise _missing() from None
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # operators or versions that this onnxruntime does not have
        raise _not_run(error) from None
    first = session.get_inputs()[0]
    size, *shape = first.shape
    if not shape or not all(isinstance(n, int) for n in shape):
        raise InputError(
            "an ONNX file whose inputs have no fixed shape",
            got=f"{first.shape}",
            expected="(batch, ...) with numbers",
        )
    fixed = size if isinstance(size, int) else 0

    def run(x: Tensor) -> Tensor:
        rows = x.detach().cpu().float()
        parts = torch.split(_filled(rows, fixed), fixed) if fixed else [rows]
        outputs = [session.run(None, {first.name: part.numpy()})[0] for part in parts]
        return torch.from_numpy(np.concatenate(outputs))[: len(rows)].to(x.device)

    return run, tuple(shape)


def _filled(rows: Tensor, size: int) -> Tensor:
    missing = -len(rows) % size
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


class OnnxGraph(nn.Module):
    """The file's nodes in order, each by its rule.

    Its numbers are buffers that move with it and are saved with nothing: the file has them.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        from onnx import numpy_helper

        graph = model.graph
        self._places = {weight.name: f"_{i}" for i, weight in enumerate(graph.initializer)}
        for weight in graph.initializer:
            value = torch.from_numpy(numpy_helper.to_array(weight).copy())
            self.register_buffer(self._places[weight.name], value, persistent=False)
        self._nodes = [
            (RULES[n.op_type], _attributes(n), list(n.input), list(n.output)) for n in graph.node
        ]
        given = [value.name for value in graph.input if value.name not in self._places]
        self._input, self._output = given[0], graph.output[0].name

    def forward(self, x: Tensor) -> Tensor:
        """The file's first output."""
        values: dict[str, Tensor | None] = {
            name: self.get_buffer(place) for name, place in self._places.items()
        }
        values |= {self._input: x, "": None}
        for rule, attributes, inputs, outputs in self._nodes:
            values[outputs[0]] = rule(attributes, *(values[name] for name in inputs)).to(x.device)
        result = values[self._output]
        assert result is not None
        return result


def _attributes(node: Any) -> Attributes:
    import onnx

    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


# The operators that gradients are known for


def _conv(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dims = weight.dim() - 2
    x = _padded(a, x, dims, 0.0)
    convolve: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    strides, dilations = a.get("strides", [1] * dims), a.get("dilations", [1] * dims)
    return convolve(x, weight, bias, strides, 0, dilations, a.get("group", 1))


def _padded(a: Attributes, x: Tensor, dims: int, value: float) -> Tensor:
    if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise InputError("ONNX padding by 'auto_pad' is not known", got=a["auto_pad"])
    pads = a.get("pads", [0] * 2 * dims)
    both = [pads[axis + side * dims] for axis in reversed(range(dims)) for side in (0, 1)]
    return F.pad(x, both, value=value) if any(both) else x


def _max_pool(a: Attributes, x: Tensor) -> Tensor:
    kernel = a["kernel_shape"]
    pool: Callable[..., Tensor] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
    x = _padded(a, x, len(kernel), -torch.inf)
    strides, dilations = a.get("strides", [1] * len(kernel)), a.get("dilations", 1)
    return pool(x, kernel, strides, 0, dilations, ceil_mode=bool(a.get("ceil_mode", 0)))


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    kernel = a["kernel_shape"]
    if any(a.get("pads", [])) and not a.get("count_include_pad", 0):
        raise InputError("ONNX average pooling that leaves padding out is not known")
    pool: Callable[..., Tensor] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
    strides = a.get("strides", [1] * len(kernel))
    return pool(_padded(a, x, len(kernel), 0.0), kernel, strides)


def _gemm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    left = x.T if a.get("transA", 0) else x
    right = weight.T if a.get("transB", 0) else weight
    product: Tensor = a.get("alpha", 1.0) * (left @ right)
    return product if bias is None else product + a.get("beta", 1.0) * bias


def _batch_norm(
    a: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    return F.batch_norm(x, mean, var, scale, bias, eps=a.get("epsilon", 1e-5))


def _flatten(a: Attributes, x: Tensor) -> Tensor:
    axis = a.get("axis", 1)
    return x.flatten(axis) if axis == 1 else x.reshape(int(np.prod(x.shape[:axis])), -1)


def _reshape(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    sizes = [int(x.shape[i]) if n == 0 else n for i, n in enumerate(shape.tolist())]
    return x.reshape(sizes)


def _reduce_mean(a: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    over = a.get("axes") if axes is None else axes.tolist()
    return x.mean(over, keepdim=bool(a.get("keepdims", 1)))


def _clip(
    a: Attributes, x: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> Tensor:
    return x.clamp(
        a.get("min") if low is None else float(low), a.get("max") if high is None else float(high)
    )


def _constant(a: Attributes) -> Tensor:
    from onnx import numpy_helper

    if "value" not in a:
        raise InputError("an ONNX constant that is no tensor", got=", ".join(a))
    return torch.from_numpy(numpy_helper.to_array(a["value"]).copy())


def _axis(a: Attributes) -> int:
    return int(a.get("axis", -1))


RULES: Final[dict[str, Rule]] = {
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda a, *parts: torch.cat(parts, _axis(a)),
    "Constant": _constant,
    "Conv": _conv,
    "Div": lambda a, x, y: x / y,
    "Dropout": lambda a, x, *rest: x,
    "Exp": lambda a, x: x.exp(),
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "Identity": lambda a, x: x,
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "LogSoftmax": lambda a, x: F.log_softmax(x, _axis(a)),
    "MatMul": lambda a, x, y: x @ y,
    "MaxPool": _max_pool,
    "Mul": lambda a, x, y: x * y,
    "ReduceMean": _reduce_mean,
    "Relu": lambda a, x: F.relu(x),
    "Reshape": _reshape,
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "Softmax": lambda a, x: F.softmax(x, _axis(a)),
    "Sqrt": lambda a, x: x.sqrt(),
    "Sub": lambda a, x, y: x - y,
    "Tanh": lambda a, x: torch.tanh(x),
    "Transpose": lambda a, x: x.permute(a["perm"]),
}
"""Operators with gradients; a file with any other is a black box."""
