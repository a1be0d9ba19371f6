"""The judge, on a linear network: images of one grey g are right where g > 0.4975."""

import numpy as np
import pytest
import torch

from privet.studies.attack_parity.contests import Contest
from privet.studies.attack_parity.judging import judge, mean_norms


def contest(attack="pgd", norm="linf", size=0.1):
    return Contest(attack=attack, norm=norm, size=size, budget={})


def test_wrong_images_do_not_hold_even_if_they_are_turned_right(linear):
    verdict = judge(linear, contest(size=1.0), torch.ones_like(linear.x))
    assert verdict.holds.tolist() == [False] * 4 + [True] * 5
    assert verdict.robust_accuracy == 5 / 9
    assert verdict.outside == 0


def test_a_shift_fools_exactly_whom_it_must(linear):
    """0.5 and 0.55 fall below 0.4975 by 0.1; 0.6 does not, by a hair."""
    verdict = judge(linear, contest(), linear.x - 0.1)
    assert verdict.holds.tolist() == [False] * 6 + [True] * 3
    torch.testing.assert_close(verdict.distance, torch.full((9,), 0.1))


@pytest.mark.parametrize(
    "found",
    [
        lambda x: x - 0.1001,  # beyond the ball
        lambda x: torch.where(torch.arange(9)[:, None, None, None] < 9, x - np.nan, x),
    ],
)
def test_what_leaves_the_ball_fools_nobody(found, linear):
    verdict = judge(linear, contest(), found(linear.x))
    assert verdict.outside == 9
    assert verdict.robust_accuracy == 5 / 9


def test_what_leaves_the_box_fools_nobody(linear):
    found = linear.x.clone()
    found[:, :, 0, 0] = -1.5
    verdict = judge(linear, contest(size=3.0), found)
    assert verdict.outside == 9
    assert not verdict.fooled.any()


def test_rounding_is_forgiven(linear):
    verdict = judge(linear, contest(), linear.x - 0.1 - 5e-6)
    assert verdict.outside == 0
    assert verdict.robust_accuracy == 3 / 9


def test_smallest_perturbations_may_be_far_and_then_do_not_count(linear):
    verdict = judge(linear, contest("deepfool", "l2", 0.15), torch.zeros_like(linear.x))
    assert verdict.outside == 0
    assert verdict.fooled.tolist() == [False] * 4 + [True] * 5
    assert verdict.robust_accuracy == 5 / 9
    near = judge(linear, contest("deepfool", "l2", 0.15), linear.x - 0.07)
    assert near.robust_accuracy == 3 / 9  # 0.14 in l2: 0.5 and 0.55 fall


def test_mean_norms_are_over_images_that_all_fooled(linear):
    far = judge(linear, contest("cw", "l2", 9.0), torch.zeros_like(linear.x))
    near = judge(linear, contest("cw", "l2", 9.0), linear.x - 0.1)
    assert near.fooled.sum() == 2
    told = mean_norms({"far": far, "near": near})
    assert told["near"] == pytest.approx(0.2)
    assert told["far"] == pytest.approx(2 * (0.5 + 0.55) / 2)
    none = judge(linear, contest("cw", "l2", 9.0), linear.x)
    assert mean_norms({"far": far, "none": none}) == {"far": None, "none": None}


def test_inputs_of_another_shape_are_refused(linear):
    with pytest.raises(ValueError, match="inputs of shape"):
        judge(linear, contest(), linear.x[:3])
