"""Views: order, distribution, independence of other examples."""

import pytest
import torch

from privet.errors import InputError
from privet.models.augmentation import AUGMENTATIONS, Views


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n, *shape, seed=0):
    return torch.rand(n, *shape, generator=seeded(seed))


def marked(n, size=16):
    """Image i: pixel (r, c) holds a number that tells i, r and c."""
    pixels = torch.arange(size * size, dtype=torch.float64).reshape(1, 1, size, size)
    return pixels + size * size * torch.arange(n, dtype=torch.float64).reshape(n, 1, 1, 1)


def offsets(views, size=16):
    """(example, row, column) that the pixel in the middle of each view came from."""
    value = views[:, 0, size // 2, size // 2].long()
    example, place = value // size**2, value % size**2
    return example, place // size, place % size


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_rows_come_example_by_example(name):
    views = Views(name, 5)(marked(7), seeded())
    assert views.shape == (35, 1, 16, 16)
    example, _, _ = offsets(views)
    assert example.tolist() == [i for i in range(7) for _ in range(5)]


def test_none_repeats():
    x = images(3, 2, 4)
    assert torch.equal(Views("none", 2)(x, seeded()), x.repeat_interleave(2, 0))


def test_a_shifted_image_is_the_image_moved_with_black_coming_in():
    views = Views("shift", 50)(marked(1, 28) + 1.0, seeded())
    _, rows, columns = offsets(views - 1.0, 28)
    original = torch.nn.functional.pad(marked(1, 28) + 1.0, [2] * 4)[0, 0]
    for view, r, c in zip(views[:, 0], rows - 14, columns - 14, strict=True):
        assert torch.equal(view, original[2 + r : 30 + r, 2 + c : 30 + c])


@pytest.mark.parametrize(
    ("size", "reach"), [(5, 1), (8, 1), (16, 1), (20, 1), (21, 2), (28, 2), (32, 2), (64, 5)]
)
def test_a_shift_reaches_as_far_as_the_image_allows(size, reach):
    """300 views: one place in (2 reach + 1) is missed with probability below 11 e^(-300/11)."""
    _, rows, columns = offsets(Views("shift", 300)(marked(1, size) + 1.0, seeded()) - 1.0, size)
    for moved in (rows - size // 2, columns - size // 2):
        assert sorted(set(moved.tolist())) == list(range(-reach, reach + 1))


def test_the_shorter_side_decides_and_other_examples_do_not():
    tall = torch.zeros(1, 1, 28, 8)
    tall[0, 0, 14, 4] = 1.0
    views = Views("shift", 200)(torch.cat([tall, torch.ones_like(tall)]), seeded())[:200, 0]
    rows, columns = (views.sum(axis).argmax(1) for axis in (2, 1))
    assert set(rows.tolist()) == {13, 14, 15}
    assert set(columns.tolist()) == {3, 4, 5}


def test_a_cropped_image_is_a_window_of_the_reflected_one_perhaps_flipped():
    views = Views("flip-crop", 60)(marked(1), seeded())
    reflected = torch.nn.functional.pad(marked(1), [4] * 4, mode="reflect")[0, 0]
    windows = [reflected[r : r + 16, c : c + 16] for r in range(9) for c in range(9)]
    allowed = torch.stack([*windows, *(w.flip(1) for w in windows)])
    for view in views[:, 0]:
        assert (allowed == view).all(2).all(1).any()


def frequencies(name, n=20_000, size=28):
    views, middle = Views(name, n)(marked(1, size), seeded(3)), size // 2
    flipped = views[:, 0, middle, middle] > views[:, 0, middle, middle + 1]
    back = torch.where(flipped[:, None, None, None], views.flip(3), views)
    # In a flipped-back view the middle column stands at size / 2, not one before.
    _, rows, columns = offsets(back, size)
    return flipped, rows - middle, columns - middle


@pytest.mark.parametrize(("name", "reach"), [("shift", 2), ("flip-crop", 4)])
def test_every_offset_is_equally_likely(name, reach):
    """20,000 draws; chi-square over the (2 reach + 1)^2 cells, error rate 1e-4, fixed seed."""
    from scipy.stats import chi2

    _, rows, columns = frequencies(name)
    assert rows.abs().max() == columns.abs().max() == reach
    side = 2 * reach + 1
    counts = torch.bincount((rows + reach) * side + columns + reach, minlength=side**2).double()
    expected = 20_000 / side**2
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-4, side**2 - 1)


def test_half_of_the_views_are_flipped_whatever_their_offset():
    """20,000 draws: 0.5 +- 4 standard deviations of 0.0035, error rate 6e-5 each."""
    flipped, rows, _ = frequencies("flip-crop")
    assert abs(flipped.double().mean() - 0.5) < 0.0142
    above = flipped[rows > 0].double()
    assert abs(above.mean() - 0.5) < 4 * 0.5 / len(above) ** 0.5
    assert not frequencies("shift")[0].any()


def test_views_of_one_example_differ():
    """All views are random; the unchanged image has no place of its own (De et al.)."""
    views = Views("flip-crop", 8)(images(50, 3, 32, 32), seeded()).reshape(50, 8, -1)
    first_is_original = (views[:, 0] == images(50, 3, 32, 32).flatten(1)).all(1)
    assert first_is_original.sum() < 5  # one in 162 is expected
    assert (views[:, 0] != views[:, 1]).any(1).sum() > 45


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_an_example_does_not_enter_the_views_of_others(name):
    x = images(6, 3, 12, 10)
    changed = x.clone()
    changed[2] = 1.0 - changed[2]
    before, after = (Views(name, 4)(batch, seeded(5)) for batch in (x, changed))
    same = (before == after).flatten(1).all(1).reshape(6, 4)
    assert same[[0, 1, 3, 4, 5]].all()
    assert not same[2].any()


@pytest.mark.parametrize("name", ["shift", "flip-crop"])
def test_channels_move_together(name):
    x = images(4, 1, 12, 12).repeat(1, 3, 1, 1)
    views = Views(name, 6)(x, seeded())
    assert torch.equal(views[:, 0], views[:, 1])
    assert torch.equal(views[:, 0], views[:, 2])


@pytest.mark.parametrize("name", ["shift", "flip-crop"])
def test_the_generator_alone_decides(name):
    x = images(4, 1, 12, 12)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one, same, other = (Views(name, 3)(x, seeded(s)) for s in (7, 7, 8))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_empty_batch_stays_empty():
    for name in AUGMENTATIONS:
        assert Views(name, 3)(torch.zeros(0, 1, 28, 28), seeded()).shape == (0, 1, 28, 28)


def test_refusals():
    with pytest.raises(InputError, match="unknown augmentation: got 'flip'"):
        Views("flip", 2)
    with pytest.raises(InputError, match="no views: got 0"):
        Views("shift", 0)
    with pytest.raises(InputError, match=r"images only: got examples of shape \(5,\)"):
        Views("shift", 2)(torch.rand(2, 5), seeded())
    with pytest.raises(InputError, match=r"more than 4 pixels"):
        Views("flip-crop", 2)(torch.rand(2, 1, 4, 9), seeded())


# --- noise -------------------------------------------------------------------------------------


def test_noise_is_gaussian_of_the_scale_asked_for_and_fresh_in_every_entry():
    """60,000 draws: Kolmogorov and Smirnov at 1e-4; entries and views uncorrelated at 5 sigma."""
    from scipy.stats import kstest

    x = images(100, 3, 10, 10).double()
    noise = (Views("none", 2, 0.25)(x, seeded(4)) - x.repeat_interleave(2, 0)) / 0.25
    assert kstest(noise.flatten().numpy(), "norm").pvalue > 1e-4
    first, second = noise.reshape(100, 2, -1).unbind(1)
    for a, b in ((first, second), (first[:, 1:], first[:, :-1]), (first[1:], first[:-1])):
        assert abs((a * b).mean()) < 5 / a.numel() ** 0.5


def test_noise_is_not_cut_off():
    views = Views("none", 4, 0.5)(images(20, 5), seeded())
    assert views.min() < -0.5
    assert views.max() > 1.5


def test_noise_comes_after_the_shift():
    """The same generator moves the same way; what came in from outside is noisy, too."""
    x = images(8, 1, 28, 28).double()
    moved, noisy = (Views("shift", 3, noise)(x, seeded(2)) for noise in (0.0, 0.1))
    difference = (noisy - moved) / 0.1
    assert abs(difference.std() - 1) < 0.05
    assert (difference[moved == 0] != 0).all()


def test_noise_does_not_carry_one_example_into_another():
    x = images(6, 4)
    changed = x.clone()
    changed[2] = 1.0 - changed[2]
    before, after = (Views("none", 3, 0.3)(batch, seeded(5)) for batch in (x, changed))
    same = (before == after).all(1).reshape(6, 3)
    assert same[[0, 1, 3, 4, 5]].all()
    assert not same[2].any()


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_bad_noise_is_refused(noise):
    with pytest.raises(InputError, match="bad noise"):
        Views("none", 1, noise)
