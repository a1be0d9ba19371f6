"""What is known of natural images: the spectrum, the colours, and that no data enter."""

import numpy as np
import pytest
import torch

from privet.models import create
from privet.models.natural import LumaChroma, PinkStandardised, pink_images


def test_the_amplitude_of_pink_noise_falls_as_one_over_f():
    """Along a line the power 1 / (f^2 + g^2) is summed over g up to 1/2: atan(1 / 2f) / f."""
    lines = pink_images(250, (1, 128, 128))[:, 0, ::4].double()
    lines = (lines - lines.mean(-1, keepdim=True)) * torch.hann_window(128, dtype=torch.float64)
    power = torch.fft.rfft(lines).abs().square().mean((0, 1))[4:48].numpy()
    f = np.arange(4, 48) / 128
    share = power / (np.arctan(0.5 / f) / f)
    # Each of 8,000 lines has one value a frequency, and neighbours are alike: good to 5 %.
    np.testing.assert_allclose(share / share.mean(), 1.0, atol=0.2)
    slope, _ = np.polyfit(np.log(f), np.log(share), 1)
    assert abs(slope) < 0.05


def test_noise_has_the_colours_and_the_range_of_photographs():
    images = pink_images(400, (3, 32, 32))
    likeness = torch.corrcoef(images.transpose(0, 1).flatten(1))
    # One mean an image: 400 draws of the slowest wave, so these are good to about 0.03.
    torch.testing.assert_close(
        likeness, 0.8 * torch.ones(3, 3) + 0.2 * torch.eye(3), atol=0.05, rtol=0
    )
    assert images.mean().item() == pytest.approx(0.47, abs=0.04)
    assert images.std().item() == pytest.approx(0.22, abs=0.02)


def test_it_is_always_the_same_noise_and_leaves_the_global_stream_alone():
    torch.manual_seed(5)
    first = pink_images(2, (3, 8, 8))
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    assert torch.equal(first, pink_images(2, (3, 8, 8)))


def test_grey_has_no_colour_difference_and_other_channels_stay():
    grey = torch.full((1, 3, 2, 2), 0.4)
    torch.testing.assert_close(LumaChroma(3)(grey)[0, 0], grey[0, 0])
    assert LumaChroma(3)(grey)[0, 1:].abs().max() < 1e-6
    images = torch.rand(2, 4, 3, 3)
    assert torch.equal(LumaChroma(4)(images), images)


def test_each_map_of_noise_has_mean_zero_and_deviation_one():
    front = create("scatter-natural", (3, 16, 16), 10).front[0]
    assert isinstance(front, PinkStandardised)
    maps = front(pink_images(256, (3, 16, 16)))
    torch.testing.assert_close(maps.mean((0, 2, 3)), torch.zeros(243), atol=1e-3, rtol=0)
    torch.testing.assert_close(maps.std((0, 2, 3)), torch.ones(243), atol=1e-3, rtol=0)


def test_statistics_travel_with_the_weights():
    """So that a release gives the same scores where noise is drawn otherwise."""
    ours, theirs = (create("scatter-natural", (3, 8, 8), 10) for _ in range(2))
    theirs.front[0].mean += 1.0
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(ours(images), theirs(images))
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours(images), theirs(images))
