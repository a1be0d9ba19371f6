from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from privet.attacks import create
from privet.attacks.geometry import norms, random_point


def plain_loop(classifier, x, y, start, size, steps, length):
    """Madry et al.'s, the last point and nothing kept: what most tools run."""
    here = start
    for _ in range(steps):
        here = here.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(classifier.scores(here), y), here)
        d = here.detach() + length * gradient.sign() - x
        here = (x + d.clamp(-size, size)).clamp(0, 1)
    return here


def test_from_the_same_start_whoever_falls_to_a_plain_loop_falls_to_ours(digits):
    """One random start; catches a weaker step, projection or keeping. Two of 300 for rounding."""
    asked, size, steps = [], 0.1, 10
    scores = digits.classifier.scores
    recording = replace(
        digits.classifier, scores=lambda z: asked.append(z.detach().clone()) or scores(z)
    )
    right = digits.classifier.labels(digits.x[:300]) == digits.y[:300]
    x, y = digits.x[:300][right], digits.y[:300][right]
    ours = create("pgd", steps=steps, step=0.25)(recording, x, y, size=size)
    start = asked[1]  # after the images themselves
    plain = plain_loop(digits.classifier, x, y, start, size, steps, 0.25 * size)
    fooled, fooled_by_plain = (digits.classifier.labels(z) != y for z in (ours, plain))
    assert 50 < int(fooled_by_plain.sum()) < len(x) - 50
    assert int((fooled_by_plain & ~fooled).sum()) <= 2


def test_starts_fill_the_ball_uniformly():
    """In linf each coordinate is uniform, away from the box: mean and variance of 64,000 draws;
    within five standard errors, so by chance one in a million."""
    x = torch.full((1000, 1, 8, 8), 0.5)
    d = random_point(x, 0.1, "linf", torch.Generator().manual_seed(0)).double().flatten()
    assert float(d.abs().max()) <= 0.1
    error = 5 / len(d) ** 0.5
    assert abs(float(d.mean())) < 0.1 / 3**0.5 * error
    assert abs(float((d**2).mean()) - 0.1**2 / 3) < (4 / 45) ** 0.5 * 0.1**2 * error


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_starts_are_not_all_at_the_surface(norm):
    """In 64 dimensions a uniform point is at 0.98 of the radius; a uniform part of the way to it
    has mean 0.49 and standard deviation 0.28, a mean of 1000 of them 0.009: within five."""
    x = torch.full((1000, 1, 8, 8), 0.5)
    d = create("pgd", norm=norm)._start(x, 0.1, torch.Generator().manual_seed(0))
    lengths = norms(d, norm) / 0.1
    assert abs(float(lengths.mean()) - 64 / 65 / 2) < 5 * 0.009
    assert abs(float((lengths < 0.25).float().mean()) - 0.254) < 5 * 0.014
    assert float(lengths.max()) <= 1
