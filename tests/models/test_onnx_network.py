"""An ONNX file among the weights: what is loaded computes what was saved."""

import copy
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from privet.errors import InputError
from privet.models.onnx_graph import file_content
from privet.models.onnx_network import OnnxNetwork

sys.path.insert(0, str(Path(__file__).parents[1]))
from onnx_files import small_network, write_small


@pytest.fixture(params=[(), ("Erf",)], ids=["known", "black box"])
def file(request, tmp_path):
    return write_small(tmp_path / "cnn.onnx", small_network(), last=request.param), request.param


def test_the_file_travels_with_the_weights(file, tmp_path):
    path, last = file
    network, x = OnnxNetwork(file_content(path)), torch.rand(4, 1, 8, 8)
    safetensors.torch.save_file(network.state_dict(), tmp_path / "w.safetensors")
    path.unlink()
    state = safetensors.torch.load_file(tmp_path / "w.safetensors")
    assert list(state) == ["file"]
    loaded = OnnxNetwork()
    loaded.load_state_dict(state)
    expected = torch.erf(small_network()(x)) if last else small_network()(x)
    assert torch.allclose(loaded(x), expected, atol=1e-5)
    assert loaded.differentiable == (not last)
    assert torch.equal(loaded.file, network.file)


def test_a_copy_computes_the_same(file):
    network, x = OnnxNetwork(file_content(file[0])), torch.rand(4, 1, 8, 8)
    assert torch.equal(copy.deepcopy(network)(x), network(x))


def test_gradients_reach_the_input_of_a_known_file(tmp_path):
    network = OnnxNetwork(file_content(write_small(tmp_path / "n.onnx", small_network())))
    x = torch.rand(2, 1, 8, 8, requires_grad=True)
    found, expected = (
        torch.autograd.grad(n(x)[:, 0].sum(), x)[0] for n in (network, small_network())
    )
    assert torch.allclose(found, expected, atol=1e-5)


def test_another_file_takes_the_place_of_the_first(tmp_path):
    """From a black box to a known file: nothing of the first is left."""
    first, second = (
        file_content(write_small(tmp_path / f"{len(last)}.onnx", small_network(), last=last))
        for last in (["Erf"], [])
    )
    network, x = OnnxNetwork(first), torch.rand(2, 1, 8, 8)
    network.load_state_dict(OnnxNetwork(second).state_dict())
    assert network.differentiable
    assert torch.allclose(network(x), small_network()(x), atol=1e-5)


def test_without_a_file_there_is_nothing_to_compute():
    with pytest.raises(InputError, match="without its file"):
        OnnxNetwork()(torch.rand(1, 1, 8, 8))


def test_broken_bytes_are_refused():
    broken = {"file": torch.arange(20, dtype=torch.uint8)}
    with pytest.raises(InputError, match="not a valid ONNX file"):
        OnnxNetwork().load_state_dict(broken)
