"""He et al.'s networks: the published sizes, the ways past a block, the published weights."""

from pathlib import Path

import pytest
import torch
from torch import nn

from privet.classifiers.fixed import open_fixed
from privet.data import catalogue, cifar, load
from privet.errors import InputError
from privet.models import create
from privet.models.residual import ResidualBlock

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the published weights


@pytest.mark.parametrize(
    ("depth", "published"), [(20, 0.27e6), (32, 0.46e6), (44, 0.66e6), (56, 0.85e6)]
)
def test_networks_have_the_published_number_of_parameters(depth, published):
    """He et al., table 6."""
    model = create(f"resnet-cifar-{depth}", (3, 32, 32), 10)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(published, abs=5e3)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


def test_names_of_the_weights():
    names = list(create("resnet-cifar-20", (3, 32, 32), 10).state_dict())
    assert names[0] == "conv1.weight"
    assert {"bn1.running_var", "layer1.0.conv1.weight", "layer3.2.bn2.bias", "linear.bias"} < set(
        names
    )
    kept = [name for name in names if not name.endswith("num_batches_tracked")]
    assert len(kept) == 5 + 9 * 10 + 2


def test_the_way_past_a_block_that_halves_the_image():
    """Every other pixel, zeros in channels 0-7 and 24-31, and nothing of the block if it is 0."""
    block = ResidualBlock(16, 32, 2).eval()
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 16, 8, 8)
    y = block(x)
    assert y.shape == (2, 32, 4, 4)
    assert torch.equal(y[:, 8:24], x[:, :, ::2, ::2])
    assert y[:, :8].abs().sum() == y[:, 24:].abs().sum() == 0


def test_a_block_by_hand():
    """One channel, an image of one pixel: relu(x + c2 relu(c1 x)), BatchNorm aside."""
    block = ResidualBlock(1, 1, 1).eval()
    with torch.no_grad():
        for layer, centre in ((block.conv1, -2.0), (block.conv2, 3.0)):
            layer.weight.fill_(7.0)[0, 0, 1, 1] = centre
        for norm in (block.bn1, block.bn2):
            norm.running_var.fill_(1.0 - norm.eps)
    found = block(torch.tensor([-1.0, 1.0]).reshape(2, 1, 1, 1)).flatten()
    assert found.tolist() == pytest.approx([5.0, 1.0])


@pytest.mark.parametrize("depth", [18, 21, 0])
def test_other_depths_are_refused(depth):
    with pytest.raises(InputError, match="N = 20, 32, 44, 56"):
        create(f"resnet-cifar-{depth}", (3, 32, 32), 10)


def correct(images):
    """Shares of the first test images that the published weights get right."""
    folder = "shared/data/cifar10_resnet_weights"
    found = [p / folder for p in Path(__file__).parents if (p / folder).is_dir()]
    if not found or catalogue.locate.find_folder("cifar10", cifar.has_files) is None:
        pytest.skip("CIFAR-10 and published weights are no part of the project")
    data = load("cifar10")
    opened = open_fixed(
        "resnet-cifar-20", shape=data.shape, classes=10, mean=MEAN, std=STD,
        weights=found[0] / "resnet20.npz",
    )  # fmt: skip
    x = torch.from_numpy(data.bounds.clamp_and_scale(data.test.x[:images]))
    with torch.no_grad():
        labels = torch.cat([opened.module(part).argmax(1) for part in x.split(500)])
    return float((labels.numpy() == data.test.y[:images]).mean())


def test_the_published_weights_classify_the_first_thousand_images():
    assert correct(1000) == pytest.approx(0.915, abs=0.0011)


def test_the_published_weights_have_the_published_accuracy():
    assert correct(10_000) == pytest.approx(0.9173, abs=1.1e-4)
