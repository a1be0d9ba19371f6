import pytest
import torch
import torch.nn.functional as F

from privet.attacks.losses import Goal, cross_entropy, logits_ratio, negative_margin

SCORES = torch.tensor([[4.0, 1.0, 3.0, 0.0], [0.0, 5.0, 1.0, 2.0]])
AWAY = Goal(labels=torch.tensor([0, 2]), targeted=False)
TOWARDS = Goal(labels=torch.tensor([2, 1]), targeted=True)


def test_margins_tell_how_far_the_goal_is():
    assert AWAY.margin(SCORES).tolist() == [1.0, -4.0]
    assert AWAY.reached(SCORES).tolist() == [False, True]
    assert TOWARDS.margin(SCORES).tolist() == [1.0, -3.0]
    assert TOWARDS.reached(SCORES).tolist() == [False, True]
    assert negative_margin(SCORES, AWAY).tolist() == [-1.0, 4.0]


def test_the_ratio_of_logits_is_the_papers():
    """Away: -(4 - 3) / (4 - 1); -(1 - 5) / (5 - 1). Towards: z1 - (z3 + z4) / 2 below."""
    torch.testing.assert_close(logits_ratio(SCORES, AWAY), torch.tensor([-1 / 3, 1.0]))
    torch.testing.assert_close(logits_ratio(SCORES, TOWARDS), torch.tensor([-1 / 3.5, 3 / 4.5]))


def test_the_ratio_of_logits_ignores_scale_and_shift():
    torch.testing.assert_close(logits_ratio(7 * SCORES - 3, AWAY), logits_ratio(SCORES, AWAY))


def test_cross_entropy_is_raised_away_from_the_label_and_lowered_towards_the_target():
    expected = F.cross_entropy(SCORES, AWAY.labels, reduction="none")
    torch.testing.assert_close(cross_entropy(SCORES, AWAY), expected)
    expected = F.cross_entropy(SCORES, TOWARDS.labels, reduction="none")
    torch.testing.assert_close(cross_entropy(SCORES, TOWARDS), -expected)


@pytest.mark.parametrize("loss", [cross_entropy, negative_margin, logits_ratio])
@pytest.mark.parametrize("goal", [AWAY, TOWARDS])
def test_every_loss_rises_on_the_way_to_the_goal(loss, goal):
    """Where the goal is not reached; the ratio of logits stands still in places behind it."""
    sign = 1 if goal.targeted else -1
    nearer = SCORES + sign * 0.1 * F.one_hot(goal.labels, 4)
    assert loss(nearer, goal)[0] > loss(SCORES, goal)[0]
