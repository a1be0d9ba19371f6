"""ONNX files for tests, written node by node."""

import numpy as np
import pytest
import torch
from torch import nn

onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def save(path, nodes, weights, shape, *, batch="n"):
    """A file with these nodes from `x` to `y`."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, "c"])],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


def small_network():
    """(1, 8, 8) to three scores, with BatchNorm that has seen something."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).eval()
    network[1].running_mean.uniform_()
    network[1].running_var.uniform_(0.5, 2.0)
    return network


def write_small(path, network, *, last=()):
    """That network as a file; `last`: operators of one argument behind it."""
    conv, norm, _, _, _, linear = network
    a, b, c = (_numbers(layer) for layer in (conv, norm, linear))
    weights = {"w": a["weight"], "b": a["bias"], "g": b["weight"], "h": b["bias"]}
    weights |= {"m": b["running_mean"], "v": b["running_var"], "l": c["weight"], "k": c["bias"]}
    names = [f"s{i}" for i in range(len(last))] + ["y"]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["1", "g", "h", "m", "v"], ["2"]),
        helper.make_node("Relu", ["2"], ["3"]),
        helper.make_node("MaxPool", ["3"], ["4"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["4"], ["5"]),
        helper.make_node("Gemm", ["5", "l", "k"], names[:1], transB=1),
    ]
    behind = zip(last, names, names[1:], strict=False)
    nodes += [helper.make_node(operator, [x], [y]) for operator, x, y in behind]
    return save(path, nodes, weights, (1, 8, 8))


def _numbers(layer):
    return {name: value.detach().numpy() for name, value in layer.state_dict().items()}
