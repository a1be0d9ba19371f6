"""ONNX files: PyTorch's own layers are the oracle, written down node by node."""

import numpy as np
import pytest
import torch
from torch import nn

from privet.classifiers import open_classifier
from privet.classifiers.onnx_file import from_onnx
from privet.errors import InputError

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


def numbers(layer):
    return {name: value.detach().numpy() for name, value in layer.state_dict().items()}


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).eval()


@pytest.fixture
def written(network, tmp_path):
    conv, norm, _, _, _, last = network
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 2.0)
    a, b, c = numbers(conv), numbers(norm), numbers(last)
    weights = {"w": a["weight"], "b": a["bias"], "g": b["weight"], "h": b["bias"]}
    weights |= {"m": b["running_mean"], "v": b["running_var"], "l": c["weight"], "k": c["bias"]}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["1", "g", "h", "m", "v"], ["2"]),
        helper.make_node("Relu", ["2"], ["3"]),
        helper.make_node("MaxPool", ["3"], ["4"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["4"], ["5"]),
        helper.make_node("Gemm", ["5", "l", "k"], ["y"], transB=1),
    ]
    return save(tmp_path / "cnn.onnx", nodes, weights, (1, 8, 8))


def test_scores_and_gradients_are_those_of_the_network(written, network):
    found = open_classifier(written)
    assert (found.shape, found.classes, found.differentiable) == ((1, 8, 8), 3, True)
    x = torch.rand(5, 1, 8, 8, requires_grad=True)
    assert torch.allclose(found.scores(x), network(x), atol=1e-5)
    expected = torch.autograd.grad(network(x)[:, 1].sum(), x)[0]
    assert torch.allclose(
        torch.autograd.grad(found.scores(x)[:, 1].sum(), x)[0], expected, atol=1e-5
    )


def test_another_range(written, network):
    x = torch.rand(3, 1, 8, 8)
    found = from_onnx(written, low=-1.0, high=1.0)
    assert torch.allclose(found.scores(x), network(2 * x - 1), atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "attributes", "function"),
    [
        ("Sigmoid", {}, torch.sigmoid),
        ("Tanh", {}, torch.tanh),
        ("Softmax", {"axis": 1}, lambda x: x.softmax(1)),
        ("LogSoftmax", {"axis": -1}, lambda x: x.log_softmax(1)),
        ("LeakyRelu", {"alpha": 0.3}, lambda x: nn.functional.leaky_relu(x, 0.3)),
        ("Exp", {}, torch.exp),
        ("Sqrt", {}, torch.sqrt),
        ("Transpose", {"perm": [0, 1]}, lambda x: x),
        ("Identity", {}, lambda x: x),
    ],
)
def test_functions_of_one_argument(operator, attributes, function, tmp_path):
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    found = from_onnx(save(tmp_path / "f.onnx", [node], {}, (4,)))
    x = torch.rand(6, 4)
    assert found.differentiable
    assert torch.allclose(found.scores(x), function(x), atol=1e-6)


def test_an_unknown_operator_makes_a_black_box(tmp_path):
    nodes = [
        helper.make_node("Erf", ["x"], ["1"]),
        helper.make_node("Relu", ["1"], ["y"]),
    ]
    found = from_onnx(save(tmp_path / "erf.onnx", nodes, {}, (4,)))
    x = torch.rand(6, 4)
    assert not found.differentiable
    assert "Erf" in found.name
    assert torch.allclose(found.scores(x), torch.erf(x), atol=1e-6)


def test_an_unknown_variant_of_a_known_operator_makes_one_too(tmp_path):
    weight = np.ones((2, 1, 2, 2), dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["1"], auto_pad="SAME_UPPER"),
        helper.make_node("GlobalAveragePool", ["1"], ["2"]),
        helper.make_node("Flatten", ["2"], ["y"]),
    ]
    found = from_onnx(save(tmp_path / "padded.onnx", nodes, {"w": weight}, (1, 4, 4)))
    x = torch.rand(3, 1, 4, 4)
    padded = nn.functional.pad(x, (0, 1, 0, 1))
    expected = nn.functional.conv2d(padded, torch.from_numpy(weight)).mean((2, 3))
    assert not found.differentiable
    assert "auto_pad" in found.name
    assert torch.allclose(found.scores(x), expected, atol=1e-5)


def test_a_batch_size_that_is_fixed_in_the_file_is_filled_up(tmp_path):
    node = helper.make_node("Erf", ["x"], ["y"])
    found = from_onnx(save(tmp_path / "one.onnx", [node], {}, (4,), batch=2))
    x = torch.rand(5, 4)
    assert torch.allclose(found.scores(x), torch.erf(x), atol=1e-6)


def test_a_rule_that_is_wrong_is_noticed(written, monkeypatch):
    from privet.classifiers import onnx_file

    monkeypatch.setitem(onnx_file.RULES, "Relu", lambda a, x: x)
    with pytest.raises(InputError, match="computes differently"):
        from_onnx(written)


def test_a_broken_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match="not a valid ONNX file"):
        open_classifier(path)
    with pytest.raises(InputError, match="no such file"):
        open_classifier(tmp_path / "none.onnx")
