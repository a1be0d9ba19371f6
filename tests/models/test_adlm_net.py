"""The networks of AdLM's comparisons."""

import pytest
import torch
from torch import nn

from privet.models import create
from privet.models.adlm_net import CentralCrop


@pytest.mark.parametrize(
    ("shape", "parameters", "units"),
    [((1, 28, 28), 130_821, 25), ((3, 32, 32), 2_245_638, 30)],
    ids=["mnist", "cifar"],
)
def test_the_published_sizes(shape, parameters, units):
    """Conv 832 + 51,264, 3136 x 25 + 25, 2 x 25, 25 x 10: about 130,800, as the paper's."""
    network = create("adlm", shape, 10)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert network[-1].in_features == units
    assert network[-1].bias is None


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (5,)], ids=str)
def test_the_last_hidden_layer_is_bounded(shape):
    network = create("adlm", shape, 3)
    with torch.no_grad():
        hidden = network[:-1](10 * torch.rand(16, *shape))
    assert hidden.abs().max() <= 1.0
    assert isinstance(network[-1], nn.Linear)


def test_the_middle_is_kept():
    x = torch.arange(36.0).view(1, 1, 6, 6)
    assert CentralCrop(2)(x).flatten().tolist() == [14.0, 15.0, 20.0, 21.0]
