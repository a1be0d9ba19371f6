import pytest
import torch

from privet.attacks import create, square
from privet.attacks.geometry import norms
from privet.errors import InputError


def test_the_windows_shrink_as_in_the_paper(monkeypatch, make_classifier):
    """p halves after 10, 50, 200, ... of 10,000 queries; here one query stands for ten."""
    shares = []

    def flipped(delta, x, size, p, generator):
        shares.append(p)
        return delta

    monkeypatch.setattr(square, "_flipped", flipped)
    flat = make_classifier(lambda x: x.flatten(1)[:, :2] * 0 + torch.tensor([1.0, 0]), (1, 2, 2), 2)
    create("square", queries=1000)(flat, torch.rand(1, 1, 2, 2), torch.tensor([0]), size=0.1)
    starts = [0] + [i for i in range(1, 1000) if shares[i] != shares[i - 1]]
    assert starts == [0, 2, 6, 21, 51, 101, 201, 401, 601, 801]
    assert shares[0] == 0.8
    assert shares[-1] == 0.8 / 512


def test_a_window_changes_nothing_else():
    delta, x = torch.zeros(3, 2, 6, 6), torch.full((3, 2, 6, 6), 0.5)
    changed = square._flipped(delta, x, 0.1, 9 / 36, torch.Generator().manual_seed(0))
    assert torch.equal((changed != 0).sum((2, 3)), torch.full((3, 2), 9))
    assert torch.allclose(changed[changed != 0].abs(), torch.tensor(0.1))
    places = {tuple(image.nonzero()[0].tolist()) for image in changed}
    assert len(places) > 1  # each image at a place of its own


@pytest.mark.parametrize("shape", [(3, 6, 6), (1, 1, 9), (1, 1, 2)])
def test_mass_is_moved_and_the_ball_is_used_up(shape):
    generator = torch.Generator().manual_seed(0)
    x = torch.full((5, *shape), 0.5)
    delta = square._tiles(x, 0.2, generator)
    torch.testing.assert_close(norms(delta, "l2"), torch.full((5,), 0.2))
    for p in (0.8, 0.2, 0.01):
        delta = square._transported(0.7 * delta, x, 0.2, p, generator)
        assert (norms(delta, "l2") <= 0.2 + 1e-6).all()
        assert (norms(delta, "l2") > 0.14).all()  # what was unused went into the window


def test_the_first_window_gets_the_mass_of_both_and_the_second_is_emptied():
    """Per channel, squares are kept: what was there and an equal share of what the ball had left.
    Catches a second window that is left out, not emptied, or not counted."""
    generator = torch.Generator().manual_seed(0)
    x = torch.full((12, 3, 12, 12), 0.5)
    delta = 0.02 * torch.randn(x.shape, generator=generator)
    delta *= 0.1 / norms(delta, "l2").view(-1, 1, 1, 1)
    changed = square._transported(delta, x, 0.2, 16 / 144, generator)
    unused = 0.2**2 - 0.1**2
    kept = (delta**2).sum((2, 3)) + unused / 3
    torch.testing.assert_close((changed**2).sum((2, 3)), kept, rtol=1e-4, atol=0)
    emptied, same = changed == 0, (changed - delta).abs() < 1e-7
    filled = ~emptied & ~same
    side = int(filled[0, 0].any(0).sum())
    apart = 0
    for image in range(12):
        for channel in range(3):  # both windows are at the same place in all channels
            assert torch.equal(filled[image, channel], filled[image, 0])
            assert torch.equal(emptied[image, channel], emptied[image, 0])
        assert int(filled[image, 0].sum()) == side**2
        hole = emptied[image, 0].nonzero()
        if len(hole) == side**2:
            apart += 1
            assert (hole.amax(0) - hole.amin(0) == side - 1).all()  # a window, too
    assert side >= 3
    assert apart > 3


def test_patterns_are_two_opposite_bumps_of_norm_one():
    pattern = square._pattern(5, 6, torch.zeros(1))
    assert float(pattern.norm()) == pytest.approx(1)
    assert (pattern[:, :3] > 0).all()
    assert (pattern[:, 3:] < 0).all()
    bump = square._bump(5, 5, torch.zeros(1))
    assert bump[2, 2] == bump.max() == pytest.approx(1 + 1 / 4 + 1 / 9)
    assert bump[0, 0] == pytest.approx(1 / 9)


def test_a_bad_share_is_refused():
    with pytest.raises(InputError, match="bad share of square"):
        create("square", share=0.0)
