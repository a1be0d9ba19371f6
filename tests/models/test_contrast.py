"""Fronts of high contrast: what passes them, and that they hide no gradient."""

import pytest
import torch
from torch import nn

from privet.attacks import attack
from privet.classifiers import open_classifier
from privet.models import create
from privet.models.contrast import LEAK, Blur, Contrast


def test_known_answers_of_the_ramp():
    x = torch.tensor([0.0, 0.2, 0.3, 0.5, 0.7, 1.0])
    ramp = torch.tensor([0.0, 0.0, 0.0, 0.5, 1.0, 1.0])
    assert torch.allclose(Contrast(0.3, 0.7)(x), ramp + LEAK * x)


def test_black_and_white_pixels_hardly_move():
    """An attack of size 0.1 moves them by the leak alone."""
    front, x = Contrast(0.1, 0.9), torch.tensor([0.0, 1.0])
    moved = front(torch.tensor([0.1, 0.9]))
    assert (moved - front(x)).abs().max() <= 0.1 * LEAK + 1e-6


def test_the_box_behind_the_front_is_what_an_attacker_can_reach():
    """t is increasing: intervals go to intervals, and nothing else is reached."""
    front = Contrast(0.3, 0.7)
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    low, high = front((x - 0.1).clamp(0, 1)), front((x + 0.1).clamp(0, 1))
    for share in torch.linspace(0, 1, 7):
        reached = front((x - 0.1 + 0.2 * share).clamp(0, 1))
        assert (reached >= low - 1e-6).all()
        assert (reached <= high + 1e-6).all()
    fine = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    assert (front(fine).diff() > 0).all(), "increasing everywhere"


def test_the_sign_of_the_gradient_passes():
    """Of each pixel alike, also where the ramp is flat: attacks by signs are not misled."""
    model = create("contrast-cnn", (1, 28, 28), 10, init_seed=3).eval()
    x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(1)).requires_grad_()
    behind = model.front(x).detach().requires_grad_()
    (through,) = torch.autograd.grad(model(x).logsumexp(1).sum(), x)
    (direct,) = torch.autograd.grad(model.head(behind).logsumexp(1).sum(), behind)
    assert torch.equal(through.sign(), direct.sign())
    assert (through != 0).float().mean() > 0.99


@pytest.mark.parametrize("leak", [LEAK, 0.0])
def test_a_front_without_the_leak_would_hide_the_gradient(leak):
    """Steps by signs find what the box allows with the leak, and are stuck without it."""
    front = Contrast(0.3, 0.7, leak)
    head = nn.Linear(16, 2, bias=True)
    with torch.no_grad():
        head.weight.copy_(torch.stack([torch.ones(16), -torch.ones(16)]))
        head.bias.copy_(torch.tensor([-0.4, 0.4]))  # class 0 from a mean of 0.025 on
    model = nn.Sequential(front, nn.Flatten(), head)
    x = torch.full((1, 1, 4, 4), 0.24)  # black; 0.1 more is not
    found = attack("ifgsm", open_classifier(model, shape=(1, 4, 4)), x, [1], sizes=0.1, check=False)
    assert bool(found.holds["ifgsm"].all()) == (leak == 0.0)


def test_a_blur_is_a_mean():
    blur = Blur(0.7)
    assert float(blur.kernel.sum()) == pytest.approx(1.0)
    spot = torch.zeros(1, 2, 11, 11)
    spot[0, 1, 5, 5] = 1.0
    seen = blur(spot)
    assert seen[0, 0].abs().max() == 0, "channels stay apart"
    neighbour, centre = seen[0, 1, 5, 6], seen[0, 1, 5, 5]
    assert float(neighbour / centre) == pytest.approx(float(torch.exp(torch.tensor(-0.5 / 0.49))))
    noise = torch.randn(1, 1, 200, 200, generator=torch.Generator().manual_seed(0))
    expected = float(blur.kernel.square().sum().sqrt())
    assert float(blur(noise).std()) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", ["contrast-cnn", "contrast-scatter", "still-scatter", "still-cnn"])
def test_the_front_is_not_trained_and_not_in_the_release(name):
    model = create(name, (1, 28, 28), 10)
    assert all(not p.requires_grad for p in model.front.parameters())
    assert all(key.startswith("head.") for key in model.state_dict())
