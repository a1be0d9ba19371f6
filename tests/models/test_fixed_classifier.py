"""A classifier that never changes, with its range and normalisation."""

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import create
from privet.models.fixed_classifier import FixedClassifier, build_classifier
from privet.models.onnx_network import OnnxNetwork


def with_batchnorm():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 2)
    )


def test_it_stays_as_it_is_in_every_mode():
    fixed, x = FixedClassifier(with_batchnorm()), torch.rand(4, 3, 8, 8)
    before = {name: value.clone() for name, value in fixed.state_dict().items()}
    scores = fixed(x)
    assert torch.equal(fixed.train()(x), scores)
    assert not any(module.training for module in fixed.modules())
    assert not any(p.requires_grad for p in fixed.parameters())
    assert all(torch.equal(value, before[name]) for name, value in fixed.state_dict().items())


def test_a_part_of_something_that_is_trained_stays_so_too():
    whole = nn.Sequential(nn.Conv2d(3, 3, 1), FixedClassifier(with_batchnorm())).train()
    assert whole[0].training
    assert not whole[1].network[1].training


def test_inputs_are_scaled_by_channel():
    """ImageNet's normalisation, as torchvision does it."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    fixed = FixedClassifier(
        nn.Identity(), gain=(1 / std).tolist(), shift=(-mean / std).tolist()
    )  # fmt: skip
    x = torch.rand(2, 3, 5, 4)
    expected = (x - mean[:, None, None]) / std[:, None, None]
    assert torch.allclose(fixed(x), expected, atol=1e-6)


def test_inputs_are_scaled_alike_or_not_at_all():
    for x in (torch.rand(2, 3, 4, 4), torch.rand(2, 7)):
        assert torch.equal(FixedClassifier(nn.Identity())(x), x)
        assert torch.allclose(FixedClassifier(nn.Identity(), gain=2.0, shift=-1.0)(x), 2 * x - 1)


def test_scaling_travels_with_the_weights():
    saved = FixedClassifier(nn.Identity(), gain=[1.0, 2.0, 3.0], shift=[0.0, 0.5, 1.0])
    loaded = FixedClassifier(nn.Identity())
    loaded.load_state_dict(saved.state_dict())
    x = torch.rand(2, 3, 4, 4)
    assert torch.equal(loaded(x), saved(x))
    again = FixedClassifier(nn.Identity(), gain=[1.0, 2.0, 3.0])
    again.load_state_dict(FixedClassifier(nn.Identity(), gain=0.5).state_dict())
    assert torch.equal(again(x), 0.5 * x)


def test_gradients_reach_the_input_and_no_weight():
    network = with_batchnorm()
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    FixedClassifier(network, gain=2.0)(x).sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(p.grad is None for p in network.parameters())


def test_networks_are_built_by_name():
    torch.manual_seed(3)
    built = build_classifier("cnn-tiny", (1, 8, 8), 4)
    assert built(torch.rand(2, 1, 8, 8)).shape == (2, 4)
    assert built.state_dict().keys() == create("cnn-tiny", (1, 8, 8), 4).state_dict().keys()
    assert isinstance(build_classifier("onnx", (1, 8, 8), 4), OnnxNetwork)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("custom", r"a user's own.*privet\.load\(folder, model=MyClassifier\(\)\)"),
        ("cnn-tny", "did you mean 'cnn-tiny'"),
        ("keras:resnet", "unknown model"),
    ],
)
def test_what_cannot_be_built_is_refused(name, said):
    with pytest.raises(InputError, match=said):
        build_classifier(name, (1, 8, 8), 4)
