"""Wide residual networks: the papers' sizes, their shape, names of the family."""

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import create
from privet.models.standardised import ChannelAffine, WSConv2d
from privet.models.wideresnet import Block


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "published"),
    [("wrn-16-4", 2.75e6), ("wrn-40-4", 8.95e6), ("wrn-28-10", 36.5e6)],
)
def test_networks_have_the_published_number_of_parameters(name, published):
    """Zagoruyko and Komodakis, table 4; GroupNorm and gains add less than a hundredth."""
    with torch.device("meta"):
        model = create(name, (3, 32, 32), 10)
    assert count(model) == pytest.approx(published, rel=0.005)


def test_every_parameter_of_a_small_one_is_accounted_for():
    convolutions = 9 * (3 * 16 + 2 * 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64)
    projections = 16 * 16 + 16 * 32 + 32 * 64
    gains = 2 * (16 + 3 * 16 + 3 * 32 + 3 * 64)
    norms = 2 * (2 * 16 + 16 + 2 * 16 + 32 + 2 * 32 + 64 + 64)
    head = 64 * 5 + 5
    expected = convolutions + projections + gains + norms + head
    assert count(create("wrn-10-1", (3, 32, 32), 5)) == expected


def test_the_layers_are_those_of_de_et_al():
    model = create("wrn-16-2", (3, 32, 32), 10)
    assert all(m.num_groups == 16 for m in model.modules() if isinstance(m, nn.GroupNorm))
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert {type(m) for m in convolutions} == {WSConv2d}
    assert len(convolutions) == 16  # which gives the name: 12 in blocks, 3 projections, the first
    gains = [m for m in model.modules() if isinstance(m, ChannelAffine)]
    assert len(gains) == len(convolutions)
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())


def test_the_second_and_third_stage_halve_the_image():
    sizes = []
    model = create("wrn-16-1", (1, 28, 28), 10)
    for block in model:
        if isinstance(block, Block):
            block.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    model(torch.rand(1, 1, 28, 28))
    assert sizes == [
        (16, 28, 28), (16, 28, 28), (32, 14, 14), (32, 14, 14), (64, 7, 7), (64, 7, 7)
    ]  # fmt: skip


def test_a_block_without_projection_passes_its_input_on():
    block = Block(16, 16, 1, projected=False)
    for layer in block.through:
        if isinstance(layer, ChannelAffine):
            nn.init.zeros_(layer.weight)
    x = torch.rand(2, 16, 5, 5)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("name", ["wrn-15-4", "wrn-4-4", "wrn-16-0"])
def test_depths_that_do_not_exist_are_refused(name):
    with pytest.raises(InputError, match=rf"no such wide residual network: got {name}"):
        create(name, (3, 32, 32), 10)
