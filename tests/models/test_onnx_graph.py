"""What ONNX files compute: PyTorch's own functions are the oracle."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import onnx_graph
from privet.models.onnx_graph import file_content, read_onnx

sys.path.insert(0, str(Path(__file__).parents[1]))
from onnx_files import helper, onnx, save, small_network, write_small

CPU = torch.device("cpu")


def read(path):
    return read_onnx(file_content(path), device=CPU)


@pytest.fixture
def written(tmp_path):
    return write_small(tmp_path / "cnn.onnx", small_network())


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
    found = read(save(tmp_path / "f.onnx", [node], {}, (4,)))
    x = torch.rand(6, 4)
    assert found.differentiable
    assert torch.allclose(found.apply(x), function(x), atol=1e-6)


def test_an_unknown_operator_makes_a_black_box(tmp_path):
    nodes = [
        helper.make_node("Erf", ["x"], ["1"]),
        helper.make_node("Relu", ["1"], ["y"]),
    ]
    found = read(save(tmp_path / "erf.onnx", nodes, {}, (4,)))
    x = torch.rand(6, 4)
    assert not found.differentiable
    assert found.unknown == "Erf"
    assert torch.allclose(found.apply(x), torch.erf(x), atol=1e-6)


def test_an_unknown_variant_of_a_known_operator_makes_one_too(tmp_path):
    weight = np.ones((2, 1, 2, 2), dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["1"], auto_pad="SAME_UPPER"),
        helper.make_node("GlobalAveragePool", ["1"], ["2"]),
        helper.make_node("Flatten", ["2"], ["y"]),
    ]
    found = read(save(tmp_path / "padded.onnx", nodes, {"w": weight}, (1, 4, 4)))
    x = torch.rand(3, 1, 4, 4)
    padded = nn.functional.pad(x, (0, 1, 0, 1))
    expected = nn.functional.conv2d(padded, torch.from_numpy(weight)).mean((2, 3))
    assert not found.differentiable
    assert "auto_pad" in found.unknown
    assert torch.allclose(found.apply(x), expected, atol=1e-5)


def test_a_batch_size_that_is_fixed_in_the_file_is_filled_up(tmp_path):
    node = helper.make_node("Erf", ["x"], ["y"])
    found = read(save(tmp_path / "one.onnx", [node], {}, (4,), batch=2))
    x = torch.rand(5, 4)
    assert torch.allclose(found.apply(x), torch.erf(x), atol=1e-6)


def test_a_rule_that_is_wrong_is_noticed(written, monkeypatch):
    monkeypatch.setitem(onnx_graph.RULES, "Relu", lambda a, x: x)
    with pytest.raises(InputError, match="computes differently"):
        read(written)


def test_the_numbers_of_a_known_file_move_with_it(written):
    """In double precision the graph agrees with the network to double precision."""
    graph, network = read(written).apply.double(), small_network().double()
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    assert torch.allclose(graph(x), network(x), rtol=1e-12)
    assert graph.state_dict() == {}  # the file has them


def test_weights_that_lie_beside_the_file_are_taken_in(written, tmp_path):
    expected = read(written).apply(torch.full((1, 1, 8, 8), 0.5))
    (tmp_path / "apart").mkdir()
    path = tmp_path / "apart" / "cnn.onnx"
    onnx.save(
        onnx.load(str(written)), str(path), save_as_external_data=True, location="w.bin",
        size_threshold=0,
    )  # fmt: skip
    content = file_content(path)
    (path.parent / "w.bin").unlink()
    found = read_onnx(content, device=CPU)
    assert torch.equal(found.apply(torch.full((1, 1, 8, 8), 0.5)), expected)


def test_content_that_names_other_files_is_refused(written, tmp_path, monkeypatch):
    """A release must not make whoever loads it read files of their own."""
    monkeypatch.chdir(tmp_path)
    onnx.save(
        onnx.load(str(written)), "named.onnx", save_as_external_data=True, location="w.bin",
        size_threshold=0,
    )  # fmt: skip
    with pytest.raises(InputError, match="weights lie in other files"):
        read_onnx((tmp_path / "named.onnx").read_bytes(), device=CPU)


def test_a_constant_inside_an_inner_graph_that_names_a_file_is_found():
    outside = onnx.TensorProto(name="hidden", dims=[1], data_type=1)
    outside.data_location = onnx.TensorProto.EXTERNAL
    constant = helper.make_node("Constant", [], ["c"], value=outside)
    branch = helper.make_graph([constant], "inner", [], [])
    chosen = helper.make_node("If", ["q"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([chosen], "outer", [], [])
    assert list(onnx_graph._outside(graph)) == ["hidden", "hidden"]


def test_what_is_no_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match=r"not a valid ONNX file: got broken\.onnx"):
        file_content(path)
    with pytest.raises(InputError, match="not a valid ONNX file"):
        read_onnx(b"not a model", device=CPU)
    with pytest.raises(InputError, match="no such file"):
        file_content(tmp_path / "none.onnx")
