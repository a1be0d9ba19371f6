import numpy as np
import torch

from privet.data import load
from privet.studies.attack_parity import network, worker

CPU = torch.device("cpu")


def test_the_same_seed_gives_the_same_network_and_it_has_learned(monkeypatch):
    monkeypatch.setattr(network, "STEPS", 150)
    data = load("digits")
    first, again = (network.trained(data, 60, CPU) for _ in range(2))
    other = network.trained(data, 60, CPU, seed=1)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
        assert not torch.equal(value, other.model.state_dict()[name])
    assert first.clean > 0.85
    assert first.x.shape == (60, 1, 8, 8)
    assert 0 <= float(first.x.min()) < float(first.x.max()) <= 1


def test_the_generator_of_the_caller_is_left_alone(monkeypatch):
    monkeypatch.setattr(network, "STEPS", 1)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    network.trained(load("digits"), 5, CPU)
    assert torch.equal(torch.rand(1), expected)


def test_layers_fit_small_and_large_images():
    for shape in ((1, 8, 8), (1, 28, 28), (3, 32, 32)):
        model = network.built(network.layers_for(shape, 7))
        assert model(torch.rand(2, *shape)).shape == (2, 7)


def test_the_worker_reads_the_same_network(linear, tmp_path):
    linear.save(tmp_path)
    model, x, y = worker._loaded(tmp_path, linear.layers, "cpu")
    assert torch.equal(x, linear.x)
    assert torch.equal(y, linear.y)
    assert torch.equal(model(x), linear.model(linear.x))
    assert np.load(tmp_path / "weights.npz").files == ["1.weight", "1.bias"]
