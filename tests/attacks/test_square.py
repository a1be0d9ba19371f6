import pytest
import torch

from privet.attacks import create, square
from privet.attacks.geometry import norms
from privet.errors import InputError


def test_the_windows_shrink_as_in_the_paper(monkeypatch, make_classifier):
    """p halves after 10, 50, 200, ... of 10,000 queries; here one query stands for ten."""
    shares = []

    def flipped(here, x, size, p, generator):
        shares.append(p)
        return here

    monkeypatch.setattr(square, "_flipped", flipped)
    flat = make_classifier(lambda x: x.flatten(1)[:, :2] * 0 + torch.tensor([1.0, 0]), (1, 2, 2), 2)
    create("square", queries=1000)(flat, torch.rand(1, 1, 2, 2), torch.tensor([0]), size=0.1)
    starts = [0] + [i for i in range(1, 1000) if shares[i] != shares[i - 1]]
    assert starts == [0, 2, 6, 21, 51, 101, 201, 401, 601, 801]
    assert shares[0] == 0.8
    assert shares[-1] == 0.8 / 512


def test_a_window_changes_nothing_else():
    x = torch.full((3, 2, 6, 6), 0.5)
    changed = square._flipped(x, x, 0.1, 9 / 36, torch.Generator().manual_seed(0)) - x
    assert torch.equal((changed != 0).sum((2, 3)), torch.full((3, 2), 9))
    assert torch.allclose(changed[changed != 0].abs(), torch.tensor(0.1))
    places = {tuple(image.nonzero()[0].tolist()) for image in changed}
    assert len(places) > 1  # each image at a place of its own


def test_no_query_is_wasted_on_a_window_that_stays_as_it_is():
    """Half of all one-pixel windows would: of grey pixels, and of black ones, which cannot fall."""
    generator = torch.Generator().manual_seed(0)
    for clean in (0.0, 0.5):
        x = torch.full((200, 1, 4, 4), clean)
        here = square._stripes(x, 0.1, generator)
        changed = square._flipped(here, x, 0.1, 1 / 16, generator)
        assert ((changed != here).flatten(1).sum(1) == 1).all()
        allowed = torch.tensor([max(clean - 0.1, 0.0), clean + 0.1])
        assert torch.isclose(changed[..., None], allowed).any(-1).all()


def test_tiles_are_patterns_in_the_middle():
    """5 x 5 of side 5 in 28 x 28, one line off the edge; each has a rising and a falling half."""
    x = torch.full((40, 2, 28, 28), 0.5)
    delta = square._tiles(x, 0.2, torch.Generator().manual_seed(0)) - x
    torch.testing.assert_close(norms(delta, "l2"), torch.full((40,), 0.2))
    frame = torch.ones(28, 28, dtype=torch.bool)
    frame[1:26, 1:26] = False
    assert (delta[..., frame] == 0).all()
    tiles = delta[..., 1:26, 1:26].reshape(40, 2, 5, 5, 5, 5).transpose(3, 4)
    eta = square._pattern(5, 5) * tiles.flatten(4).norm(dim=4).max()
    kinds = torch.stack([eta, -eta, eta.T, -eta.T])
    fits = (tiles[..., None, :, :] - kinds).abs().amax((-1, -2)) < 1e-5
    assert (fits.sum(-1) == 1).all()
    assert (fits.flatten(0, 3).float().mean(0) > 0.2).all()  # 2000 tiles, a quarter each


def test_sides_are_odd_in_l2():
    image, strip = torch.zeros(1, 1, 28, 28), torch.zeros(1, 1, 1, 100)
    shares = [0.8, 0.4, 0.2, 0.1, 0.05, 0.025, 0.001]
    assert [square._sides(p, image, odd=False)[0] for p in shares] == [25, 18, 13, 9, 6, 4, 1]
    assert [square._sides(p, image, odd=True)[0] for p in shares] == [25, 19, 13, 9, 7, 5, 3]
    assert square._sides(0.2, strip, odd=True) == (1, 21)
    assert square._sides(0.8, torch.zeros(1, 1, 2, 2), odd=True) == (2, 2)


@pytest.mark.parametrize("shape", [(3, 6, 6), (1, 1, 9), (1, 1, 2)])
def test_the_ball_is_used_up(shape):
    generator = torch.Generator().manual_seed(0)
    x = torch.full((5, *shape), 0.5)
    here = square._tiles(x, 0.2, generator)
    for p in (0.8, 0.2, 0.01):
        here = square._transported(x + 0.7 * (here - x), x, 0.2, p, generator)
        torch.testing.assert_close(norms(here - x, "l2"), torch.full((5,), 0.2))


def test_what_the_box_cuts_off_is_made_up_for():
    """Black images: only what rises is left. One more scaling uses most of the ball again."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(20, 1, 12, 12)
    lengths = norms(square._tiles(x, 0.2, generator), "l2")
    torch.testing.assert_close(lengths, torch.full((20,), 0.2))
    bright = torch.full((20, 1, 12, 12), 0.98)
    lengths = norms(square._tiles(bright, 0.5, generator) - bright, "l2")
    assert (lengths <= 0.5 + 1e-6).all()
    assert (lengths > 0.45).all()  # 0.39 on average without


def test_the_first_window_gets_the_mass_of_both_and_the_second_is_emptied():
    """Per channel, squares are kept: what was there and an equal share of what the ball had left.
    Catches a second window that is left out, not emptied, or not counted."""
    generator = torch.Generator().manual_seed(0)
    x = torch.full((30, 3, 12, 12), 0.5)
    delta = 0.02 * torch.randn(x.shape, generator=generator)
    delta *= 0.1 / norms(delta, "l2").view(-1, 1, 1, 1)
    changed = square._transported(x + delta, x, 0.2, 16 / 144, generator) - x
    unused = 0.2**2 - 0.1**2
    kept = (delta**2).sum((2, 3)) + unused / 3
    torch.testing.assert_close((changed**2).sum((2, 3)), kept, rtol=1e-4, atol=0)
    emptied, same = changed == 0, (changed - delta).abs() < 1e-6
    filled = ~emptied & ~same
    side, apart = 5, 0  # 4, and odd
    for image in range(30):
        for channel in range(3):  # both windows are at the same place in all channels
            assert torch.equal(emptied[image, channel], emptied[image, 0])
        hole, full = emptied[image, 0].nonzero(), filled[image].any(0).nonzero()
        assert (full.amax(0) - full.amin(0) == side - 1).all()
        if len(hole) == side**2:
            apart += 1
            assert (hole.amax(0) - hole.amin(0) == side - 1).all()  # a window, too
    assert apart > 3


def test_patterns_are_two_opposite_bumps_of_norm_one():
    pattern = square._pattern(5, 6)
    assert float(pattern.norm()) == pytest.approx(1)
    assert (pattern[:, :3] > 0).all()
    assert (pattern[:, 3:] < 0).all()
    bump = square._bump(5, 5)
    assert bump[2, 2] == bump.max() == pytest.approx(1 + 1 / 4 + 1 / 9)
    assert bump[0, 0] == pytest.approx(1 / 9)


def test_a_bad_share_is_refused():
    with pytest.raises(InputError, match="bad share of square"):
        create("square", share=0.0)
