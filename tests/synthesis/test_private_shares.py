"""Shares from noisy histograms: true without noise, near with it, and no tail made up."""

import pytest
import torch

from privet.synthesis.private_shares import RARE_GAP, shares

BELL = torch.exp(-0.5 * ((torch.arange(24.0) - 10) / 3) ** 2)
BELL = 5 * BELL / BELL.sum()


def drawing(seed):
    return torch.Generator().manual_seed(seed)


def noisy(counts, noise, seed):
    return counts + noise * torch.randn(counts.shape, generator=drawing(seed))


@pytest.mark.parametrize("ordered", [True, False])
def test_without_noise_they_are_the_shares(ordered):
    found = shares(BELL, 1e-5, ordered=ordered)
    assert torch.allclose(found, (BELL / BELL.sum()).double(), atol=1e-4)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_they_are_shares_whatever_the_counts(ordered, seed):
    """Negative counts, noise alone, two bins: never an error, no bin ruled out."""
    for counts in (noisy(torch.zeros(24), 1.0, seed), noisy(torch.ones(2), 1.0, seed), -BELL):
        found = shares(counts, 1.0, ordered=ordered)
        assert (found > 0).all()
        assert found.sum() == pytest.approx(1.0)


def test_they_are_nearer_than_the_counts():
    """Over ten noises: less than a quarter of the squared error, and never worse."""
    true, ours, plain = (BELL / BELL.sum()).double(), [], []
    for seed in range(10):
        counts = noisy(BELL, 0.05, seed)
        ours.append(float((shares(counts, 0.05) - true).square().sum()))
        plain.append(float((counts / counts.sum() - true).square().sum()))
    assert all(a < b for a, b in zip(ours, plain, strict=True))
    assert sum(ours) < 0.5 * sum(plain)


def test_noise_makes_up_no_long_gaps():
    """The last bins are empty: what they get lies well below what noise puts there."""
    tails = [float(shares(noisy(BELL, 0.02, s), 0.02, rare=RARE_GAP)[20:].sum()) for s in range(10)]
    raw = [float((noisy(BELL, 0.02, s).clamp_min(0) / 5)[20:].sum()) for s in range(10)]
    assert sum(tails) < 0.5 * sum(raw)


def test_a_single_bin_stays_one():
    """All first gaps are none: neighbours get next to nothing."""
    counts = torch.zeros(24)
    counts[0] = 1.0
    for seed in range(5):
        assert shares(noisy(counts, 0.008, seed), 0.008, rare=RARE_GAP)[0] > 0.97


def test_categories_are_not_smoothed():
    counts = torch.tensor([5.0, 0.2, 4.0, 0.3])
    found = shares(counts, 0.02, ordered=False)
    assert torch.allclose(found, (counts / counts.sum()).double(), atol=5e-3)
