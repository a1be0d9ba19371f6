"""What is kept by attacks for the smallest perturbation is still adversarial for another batch."""

import torch
from torch import nn

from privet.attacks.keeping import CLEAR, Nearest
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.classifiers import open_classifier


def found(halvings):
    """Images on one side of a half-space, and their mirror images on the other."""
    model = nn.Linear(6, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0]]))
    victim = Victim(open_classifier(model, shape=(6,)), 1)
    x = torch.rand(200, 6, generator=torch.Generator().manual_seed(0))
    x[:, 0], x[:, 1] = 0.9, 0.1
    goal = Goal(labels=torch.zeros(200, dtype=torch.int64), targeted=False)
    nearest = Nearest(victim, x, goal, "l2")
    mirrored = x[:, [1, 0, 2, 3, 4, 5]]
    nearest.offer(torch.arange(200), mirrored, victim.scores(mirrored))
    nearest.shorten(victim, halvings)
    return nearest, victim, goal


def test_a_shortened_way_ends_near_the_boundary_and_clearly_beyond():
    nearest, victim, goal = found(halvings=30)
    exact = 0.8 / 2**0.5
    assert torch.allclose(nearest.distance, torch.full((200,), exact), rtol=1e-5)
    scores = victim.scores(nearest.x)
    rounded = scores * (1 + 2.0**-20 * torch.tensor([1.0, -1.0]))
    assert goal.reached(rounded).all()
    assert (goal.margin(scores) <= -CLEAR * scores.abs().amax(1)).all()


def test_what_was_found_is_kept_where_nothing_nearer_is_clear():
    nearest, victim, goal = found(halvings=0)
    assert goal.reached(victim.scores(nearest.x)).all()
    assert torch.allclose(nearest.distance, torch.full((200,), 0.8 * 2**0.5))


def test_one_that_reaches_the_goal_clearly_beats_a_nearer_one_that_may_be_rounding():
    nearest, victim, goal = found(halvings=0)
    x = torch.full((2, 6), 0.5)
    x[:, 0] = 0.6
    goal = Goal(labels=torch.zeros(2, dtype=torch.int64), targeted=False)
    nearest, rows = Nearest(victim, x, goal, "l2"), torch.arange(2)

    def offer(lead):
        tried = x.clone()
        tried[:, 0] = 0.5 - lead
        return nearest.offer(rows, tried, victim.scores(tried)).all()

    assert not offer(2.0**-22)  # kept, for want of a better one
    assert torch.allclose(nearest.distance, torch.tensor(0.1))
    assert offer(0.02)
    assert torch.allclose(nearest.distance, torch.tensor(0.12))
    assert not offer(2.0**-22)
    assert torch.allclose(nearest.distance, torch.tensor(0.12))
    assert offer(0.01)
    assert torch.allclose(nearest.distance, torch.tensor(0.11))
