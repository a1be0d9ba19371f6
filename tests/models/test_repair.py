"""without_batchnorm: what it replaces, what it keeps, what it leaves alone."""

import pytest
import torch
from torch import nn

from privet.models import without_batchnorm


def batchnorms(model):
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(6), (3, 6)),
        (nn.BatchNorm1d(6), (3, 6, 5)),
        (nn.BatchNorm2d(6), (3, 6, 5, 5)),
        (nn.BatchNorm3d(6), (3, 6, 2, 2, 2)),
        (nn.SyncBatchNorm(6), (3, 6, 5, 5)),
        (nn.BatchNorm2d(6, affine=False), (3, 6, 5, 5)),
    ],
)
def test_each_kind_is_replaced_and_the_new_layer_takes_the_same_inputs(layer, shape):
    repaired = without_batchnorm(nn.Sequential(layer))
    assert not batchnorms(repaired)
    assert repaired(torch.rand(shape)).shape == shape


def test_scale_and_shift_are_kept_and_running_statistics_dropped():
    bn = nn.BatchNorm2d(4)
    nn.init.normal_(bn.weight)
    nn.init.normal_(bn.bias)
    bn(torch.rand(3, 4, 5, 5))
    repaired = without_batchnorm(nn.Sequential(bn))[0]
    assert torch.equal(repaired.weight, bn.weight)
    assert torch.equal(repaired.bias, bn.bias)
    assert set(repaired.state_dict()) == {"weight", "bias"}
    x = torch.rand(2, 4, 5, 5)
    per_channel = (x - x.mean((2, 3), keepdim=True)) / (
        x.var((2, 3), unbiased=False, keepdim=True) + bn.eps
    ).sqrt()
    expected = per_channel * bn.weight[:, None, None] + bn.bias[:, None, None]
    assert torch.allclose(repaired(x), expected, atol=1e-5)  # four groups of one channel


def test_the_original_is_untouched():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    repaired = without_batchnorm(model)
    with torch.no_grad():
        for p in repaired.parameters():
            p.zero_()
    assert isinstance(model[1], nn.BatchNorm1d)
    assert torch.equal(model[1].weight, torch.ones(4))


@pytest.mark.parametrize("width", [2, 5, 8, 16])
def test_on_vectors_the_output_still_depends_on_the_values(width):
    """A group of one feature would be normalised to a constant, one of two to a sign."""
    repaired = without_batchnorm(nn.Sequential(nn.BatchNorm1d(width)))
    x = torch.rand(64, width, generator=torch.Generator().manual_seed(0))
    out = repaired(x)
    assert out.abs().max() > 0.5
    if width > 2:
        assert len(out[:, 0].detach().abs().mul(100).round().unique()) > 10


@pytest.mark.parametrize(("width", "groups"), [(8, 8), (12, 6), (7, 7), (11, 1), (64, 8), (1, 1)])
def test_the_number_of_groups_divides_the_width(width, groups):
    assert without_batchnorm(nn.BatchNorm2d(width)).num_groups == groups


def test_nested_layers_and_the_model_itself_are_replaced():
    model = nn.Sequential(nn.Sequential(nn.ModuleList([nn.BatchNorm2d(2)])), nn.BatchNorm1d(3))
    assert not batchnorms(without_batchnorm(model))
    assert isinstance(without_batchnorm(nn.BatchNorm1d(3)), nn.GroupNorm)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.BatchNorm2d(4)
        self.b = self.a
        self.inside = nn.Sequential(self.a)


def test_a_layer_in_several_places_is_replaced_in_all_and_stays_one():
    repaired = without_batchnorm(Shared())
    assert not batchnorms(repaired)
    assert repaired.a is repaired.b
    assert repaired.a is repaired.inside[0]


def test_precision_frozenness_and_mode_are_kept():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)).double().eval()
    model[1].weight.requires_grad_(False)
    repaired = without_batchnorm(model)
    assert repaired(torch.rand(2, 1, 5, 5).double()).dtype == torch.float64
    assert not repaired[1].weight.requires_grad
    assert repaired[1].bias.requires_grad
    assert not repaired[1].training


def test_a_model_without_batchnorm_comes_back_equal():
    model = nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4))
    repaired = without_batchnorm(model)
    x = torch.rand(2, 3)
    assert torch.equal(model(x), repaired(x))
