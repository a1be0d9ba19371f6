"""Warnings fire on planted masks and stay away from an honest network."""

import pytest
import torch

from privet.attacks import attack, create
from privet.attacks.masking import disagreements, huge_size, survivors, unaveraged, vanished

MASKS = {
    "rounded": lambda s: (2 * s).round(),
    "saturated": lambda s: 1e4 * s,
}


@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_is_noticed_from_three_sides(mask, digits):
    masked = digits.through(MASKS[mask])
    x, y = digits.x[:100], digits.y[:100]
    result = attack(["fgsm", "pgd", "square"], masked, x, y, sizes=[0.1, 0.2], steps=10)
    said = " | ".join(result.warnings)
    assert "square fools" in said
    assert "the gradient of the cross entropy is zero" in said
    assert "where each has an adversarial input for certain" in said


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_an_honest_network_is_not_accused(norm, digits):
    x, y = digits.x[:100], digits.y[:100]
    sizes = {"linf": [0.1, 0.2], "l2": [0.5, 1.0]}[norm]
    names = ["fgsm", "pgd", "apgd-ce", create("square", norm=norm, queries=500)]
    assert attack(names, digits.classifier, x, y, norm=norm, sizes=sizes).warnings == ()


def test_a_constant_classifier_is_robust_not_masked(make_classifier):
    """Its images of one class hold at any size, and rightly so: grey is of that class, too."""
    constant = make_classifier(lambda x: x[:, :3] * 1e-3 + torch.tensor([1.0, 0, 0]), (4,), 3)
    x, y = torch.rand(30, 4), torch.arange(30) % 3
    right = constant.labels(x) == y
    assert list(survivors(create("pgd"), constant, x, y, right)) == []
    assert list(vanished(constant, x, y, right)) == []


def holding(*rows):
    return torch.tensor([[i < held for i in range(100)] for held in rows])


def test_fgsm_ahead_of_an_iterative_attack_is_a_sign():
    attacks = {"fgsm": create("fgsm"), "pgd": create("pgd")}
    told = list(
        disagreements(attacks, {"fgsm": holding(80, 40), "pgd": holding(80, 60)}, (0.1, 0.2))
    )
    assert told == [
        "gradient masking, or a loss that does not fit: fgsm fools 20 of 100 images more than pgd"
        " at size 0.2"
    ]
    by_chance = {"fgsm": holding(80, 40), "pgd": holding(80, 42)}
    assert list(disagreements(attacks, by_chance, (0.1, 0.2))) == []
    assert list(disagreements({"pgd": create("pgd")}, {"pgd": holding(80, 60)}, (0.1, 0.2))) == []


def test_square_is_compared_with_all_gradients_together():
    attacks = {name: create(name) for name in ("fgsm", "pgd", "square")}
    holds = {"fgsm": holding(70), "pgd": holding(50), "square": holding(51)}
    assert list(disagreements(attacks, holds, (0.1,))) == []
    assert "square fools 10" in next(
        disagreements(attacks, holds | {"square": holding(40)}, (0.1,))
    )


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_at_the_huge_size_grey_is_in_every_ball(norm):
    from privet.attacks.geometry import norms

    corners = torch.randint(2, (50, 3, 4, 5), generator=torch.Generator().manual_seed(0)).float()
    assert norms(0.5 - corners, norm).max() <= huge_size(norm, (3, 4, 5)) + 1e-5
    assert norms(0.5 - corners, norm).min() >= huge_size(norm, (3, 4, 5)) - 1e-5  # and not before


def test_a_single_draw_of_a_random_classifier_is_a_warning(digits):
    random = digits.through(lambda s: s + torch.randn_like(s), random=True)
    attacks = {"pgd": create("pgd"), "fgsm": create("fgsm", eot=20)}
    assert "pgd saw one draw at a time" in next(unaveraged(random, attacks))
    assert list(unaveraged(random, {"fgsm": create("fgsm", eot=20)})) == []
    assert list(unaveraged(digits.classifier, attacks)) == []
