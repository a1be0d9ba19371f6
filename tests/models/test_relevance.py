"""Relevance: by hand on a tiny network, conserved, each record by itself."""

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import create
from privet.models.relevance import relevance


def tiny():
    """Two inputs, two hidden units, two scores."""
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, 1.0]]))
        network[0].bias.copy_(torch.tensor([1.0, 0.0]))
        network[2].weight.copy_(torch.tensor([[2.0, 1.0], [1.0, -1.0]]))
    return network


def test_a_tiny_network_by_hand():
    """x = (1, 3): hidden (8, 2), scores (18, 6); R_h = (16, 2); R_x = 16/8 (1, 6) + 2/2 (-1, 3)."""
    x = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    found = relevance(tiny(), x, stabiliser=0.0)
    assert found.tolist() == [[pytest.approx(1.0), pytest.approx(15.0)]]
    # The bias of the first unit, 1 of 8, keeps 2 of its 16.
    assert float(found.sum()) == pytest.approx(18.0 - 2.0)


def test_the_stabiliser_by_hand():
    """mu = 2: z of 8, 2, 18 becomes 10, 4, 20."""
    x = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    hidden = [16.0 / 20 * 18, 2.0 / 20 * 18]
    expected = [
        hidden[0] * 1 / 10 + hidden[1] * -1 / 4,
        hidden[0] * 6 / 10 + hidden[1] * 3 / 4,
    ]
    assert relevance(tiny(), x, stabiliser=2.0).tolist() == [pytest.approx(expected)]


def test_another_score_may_be_laid_out():
    """Score 1 is 8 - 2 = 6: R_h = (8, -2), R_x = 8/8 (1, 6) - 2/2 (-1, 3)."""
    x = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    found = relevance(tiny(), x, classes=torch.tensor([1]), stabiliser=0.0)
    assert found.tolist() == [[pytest.approx(2.0), pytest.approx(3.0)]]


def without_biases(network):
    for layer in network.modules():
        if getattr(layer, "bias", None) is not None:
            nn.init.zeros_(layer.bias)
    return network.double()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 28), (6,)], ids=str)
def test_relevances_add_up_to_the_score(shape):
    """Convolutions, pooling, batch statistics, crops and channels beside their input."""
    torch.manual_seed(0)
    network = without_biases(create("adlm", shape, 10))
    x = torch.rand(4, *shape, dtype=torch.float64)
    found = relevance(network, x, stabiliser=1e-12)
    highest = network.eval()(x).max(1).values
    cut_off = network[:-1](x).abs().max() >= 1.0
    assert not cut_off, "a clipped unit would not conserve"
    assert found.shape == x.shape
    assert torch.allclose(found.flatten(1).sum(1), highest, rtol=1e-6)


def test_average_pooling_conserves():
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(27, 2, bias=False),
    ).double()  # fmt: skip
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    found = relevance(network, x, stabiliser=0.0)
    assert torch.allclose(found.flatten(1).sum(1), network(x).max(1).values)


def test_each_record_by_itself_in_evaluation_mode():
    torch.manual_seed(0)
    network = create("adlm", (1, 8, 8), 10).train()
    before = {name: b.clone() for name, b in network.named_buffers()}
    x = torch.rand(6, 1, 8, 8)
    together = relevance(network, x)
    alone = torch.cat([relevance(network, row[None]) for row in x])
    assert torch.allclose(together, alone, rtol=1e-3, atol=1e-4)
    assert network.training
    assert all(torch.equal(before[name], b) for name, b in network.named_buffers())


def test_what_has_no_rule_is_named():
    with pytest.raises(InputError, match="no rule for the relevance of this layer: got GroupNorm"):
        relevance(nn.Sequential(nn.Flatten(), nn.GroupNorm(1, 4)), torch.rand(2, 4))
