"""Classifiers from ONNX files: the network that a file was written from is the oracle."""

import sys
from pathlib import Path

import pytest
import torch

from privet.classifiers import open_classifier
from privet.classifiers.onnx_file import from_onnx
from privet.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[1]))
from onnx_files import helper, save, small_network, write_small


@pytest.fixture
def network():
    return small_network()


@pytest.fixture
def written(network, tmp_path):
    return write_small(tmp_path / "cnn.onnx", network)


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


def test_a_black_box_says_so_in_its_name(written, network, tmp_path):
    found = from_onnx(write_small(tmp_path / "erf.onnx", network, last=["Erf"]))
    x = torch.rand(6, 1, 8, 8)
    assert not found.differentiable
    assert found.name == "erf.onnx (black box: Erf)"
    assert torch.allclose(found.scores(x), torch.erf(network(x)), atol=1e-5)


def test_the_digest_is_of_the_file_and_the_range(written, network, tmp_path):
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(written.read_bytes())
    assert from_onnx(copy).digest() == from_onnx(written).digest()
    assert from_onnx(copy, high=2.0).digest() != from_onnx(written).digest()
    with torch.no_grad():
        network[-1].bias.add_(1.0)
    other = write_small(tmp_path / "other.onnx", network)
    assert from_onnx(other).digest() != from_onnx(written).digest()


def test_images_are_no_scores(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(InputError, match="not one row of scores"):
        from_onnx(save(tmp_path / "images.onnx", [node], {}, (1, 4, 4)))


def test_a_broken_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match="not a valid ONNX file"):
        open_classifier(path)
    with pytest.raises(InputError, match="no such file"):
        open_classifier(tmp_path / "none.onnx")
