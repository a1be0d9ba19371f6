"""Networks on scattering maps: the papers' sizes, and what stands in the front."""

import pytest
import torch
from torch import nn

from privet.models import Fronted, create


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("scatter-linear", (1, 28, 28), 81 * 49 * 10 + 10),
        ("scatter-linear", (3, 32, 32), 243 * 64 * 10 + 10),
        ("scatter-cnn", (1, 28, 28), 33_066),  # Tramer and Boneh: 33 thousand
        ("scatter-cnn", (3, 32, 32), 187_210),  # Tramer and Boneh: 187 thousand
        ("scatter-natural", (3, 32, 32), 243 * 128 + 128 + 9 * 128**2 + 128 + 2048 * 10 + 10),
    ],
)
def test_networks_have_the_stated_number_of_parameters(name, shape, parameters):
    model = create(name, shape, 10)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert sum(p.numel() for p in model.head.parameters()) == parameters


@pytest.mark.parametrize("name", ["scatter-linear", "scatter-cnn", "scatter-natural"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 11, 30), (3, 8, 8), (4, 17, 9)])
def test_any_size_from_8_pixels_on(name, shape):
    model = create(name, shape, 5)
    assert isinstance(model, Fronted)
    assert model(torch.rand(2, *shape)).shape == (2, 5)


def test_groups_of_maps_are_normalised_for_each_image_by_itself():
    model = create("scatter-cnn", (1, 28, 28), 10)
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    maps = model.front[0](images)
    normalised = model.front(images)
    for i in range(3):
        for start in range(0, 81, 3):  # 27 groups of three maps
            group = maps[i, start : start + 3]
            expected = (group - group.mean()) / (group.var(unbiased=False) + 1e-5).sqrt()
            torch.testing.assert_close(normalised[i, start : start + 3], expected)


def test_only_tanh_stands_between_the_layers():
    """Bounded activations: Tramer and Boneh follow Papernot et al."""
    for shape in ((1, 28, 28), (3, 32, 32)):
        head = create("scatter-cnn", shape, 10).head
        kinds = {type(layer) for layer in head}
        assert kinds <= {nn.Conv2d, nn.Tanh, nn.MaxPool2d, nn.Flatten, nn.Linear}
        assert nn.Tanh in kinds
