"""The group-normalised network: size, scale, refusal."""

import pytest
import torch

from privet.errors import InputError
from privet.models import create


def test_size():
    convolutions = 9 * (1 * 32 + 32 * 64 + 64 * 128)
    norms = 2 * (32 + 64 + 128)
    expected = convolutions + norms + 128 * 3 * 3 * 10 + 10
    assert sum(p.numel() for p in create("cnn-gn", (1, 28, 28), 10).parameters()) == expected


def test_contrast_does_not_matter():
    """What normalisation is for: about the same scores for a pale image."""
    model = create("cnn-gn", (3, 32, 32), 10)
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    pale = 0.5 + 0.5 * (x - 0.5)
    same = torch.nn.functional.cosine_similarity(model(x), model(pale))
    assert same.min() > 0.999


def test_images_too_small_are_refused():
    assert create("cnn-gn", (1, 8, 8), 2)(torch.rand(1, 1, 8, 8)).shape == (1, 2)
    with pytest.raises(InputError, match="too small for three halvings: got 7x28 pixels"):
        create("cnn-gn", (1, 7, 28), 2)
