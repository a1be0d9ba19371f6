"""The schedule of the paper, step by step."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from privet.attacks import create
from privet.attacks.apgd import _started, checkpoints
from privet.errors import InputError


def test_checkpoints_are_the_papers():
    assert checkpoints(100) == [0, 22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(10) == [0, 3, 5, 6, 7, 8, 9, 10]


@pytest.fixture
def state():
    x = torch.full((4, 2), 0.5)
    made = _started(torch.arange(4), x, 0.1, "linf", torch.Generator().manual_seed(0))
    made.loss = torch.zeros(4)
    made.top = torch.full((4, 2), 0.55)
    made.top_gradient = torch.full((4, 2), 9.0)
    return made


def test_steps_begin_at_twice_the_size(state):
    assert state.eta.tolist() == pytest.approx([0.2] * 4)


def test_a_loss_that_seldom_rose_halves_the_step_and_goes_back(state):
    """Condition 1: fewer than 0.75 of the steps; exactly 0.75 will do."""
    state.rises, state.top_loss = torch.tensor([14.0, 15.0, 20.0, 0.0]), torch.ones(4)
    before = state.x.clone()
    gradient = state.check(torch.zeros(4, 2), 20)
    assert state.eta.tolist() == pytest.approx([0.1, 0.2, 0.2, 0.1])
    assert (gradient[:, 0] == 9).tolist() == [True, False, False, True]
    assert torch.equal(state.x[1:3], before[1:3])
    assert (state.x[[0, 3]] == 0.55).all()
    assert state.rises.tolist() == [0.0] * 4


def test_no_new_best_halves_the_step_unless_it_was_just_halved(state):
    """Condition 2, which can hold from the second checkpoint on."""
    state.top_loss = torch.ones(4)
    state.rises = torch.tensor([20.0, 20.0, 20.0, 0.0])
    state.check(torch.zeros(4, 2), 20)  # the last one is halved here
    state.rises, state.top_loss = torch.full((4,), 20.0), torch.tensor([1.0, 1.0, 2.0, 1.0])
    state.check(torch.zeros(4, 2), 20)
    assert state.eta.tolist() == pytest.approx([0.1, 0.1, 0.2, 0.1])


def test_the_best_point_is_remembered(state):
    state.top_loss = torch.tensor([0.0, 5.0, 0.0, 5.0])
    state.note(torch.tensor([1.0, 1.0, -1.0, -1.0]), torch.full((4, 2), 7.0))
    assert state.top_loss.tolist() == [1.0, 5.0, 0.0, 5.0]
    assert (state.top_gradient[:, 0] == 7).tolist() == [True, False, False, False]
    assert state.rises.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert torch.equal(state.top[0], state.x[0])


def projected(point, x, size, norm):
    d = point - x
    if norm == "linf":
        return x + np.clip(d, -size, size)
    return x + d * min(1.0, size / np.linalg.norm(d))


def algorithm_1(hilly, x, start, size, norm, steps):
    """The paper's, for one image far from the box's ends; the points that it visits, and how often
    it went back. As in the authors' code, a checkpoint replaces the point just reached."""
    unit = np.sign if norm == "linf" else lambda g: g / np.linalg.norm(g)
    points, losses, eta, back = [start], [hilly.loss(start)], 2 * size, 0
    previous, halved_then, best_then, last = start, True, None, 0
    for k in range(1, steps + 1):
        here = points[-1]
        z = projected(here + eta * unit(hilly.gradient(here)), x, size, norm)
        if k > 1:
            z = projected(here + 0.75 * (z - here) + 0.25 * (here - previous), x, size, norm)
        previous = here
        points.append(z)
        losses.append(hilly.loss(z))
        if k in checkpoints(steps)[1:] and k < steps:
            best = int(np.argmax(losses))
            rises = sum(after > before for before, after in pairwise(losses[last : k + 1]))
            stuck = not halved_then and max(losses) == best_then
            halved_then = rises < 0.75 * (k - last) or stuck
            best_then, last = max(losses), k
            if halved_then:
                eta, back = eta / 2, back + 1
                points[-1] = points[best]  # the next step begins there; its loss stays noted
    return points, back


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_every_step_is_that_of_algorithm_1(norm, hilly):
    """Catches a loss noted with the wrong sign, a lost momentum, a step that is never halved."""
    size, steps = 0.12, 60
    create("apgd-ce", norm=norm, steps=steps)(hilly.classifier, hilly.x, hilly.y, size=size)
    asked = np.stack(hilly.seen[1:])  # the first are the images themselves
    assert len(asked) == steps + 1
    backs = []
    for i, x in enumerate(hilly.x.numpy()):
        points, back = algorithm_1(hilly, x, asked[0, i], size, norm, steps)
        moved = np.stack(points)
        at = [k for k in range(steps + 1) if k not in checkpoints(steps)]
        np.testing.assert_allclose(asked[at, i], moved[at], atol=1e-9)
        backs.append(back)
    assert max(backs) > 2
    assert min(backs) < max(backs)


def test_it_fools_what_others_do_within_a_point(digits):
    """FGSM >= I-FGSM >= PGD >= APGD in accuracy, each within one point."""
    x, y, accuracy = digits.x[:300], digits.y[:300], []
    attacks = [
        create("fgsm"), create("ifgsm"), create("pgd", restarts=3), create("apgd-ce", restarts=3)
    ]  # fmt: skip
    for attack in attacks:
        found = attack(digits.classifier, x, y, size=0.1)
        accuracy.append(float((digits.classifier.labels(found) == y).float().mean()))
    assert all(a >= b - 0.01 for a, b in pairwise(accuracy)), accuracy
    assert accuracy[0] > accuracy[-1]
    assert 0.2 < accuracy[-1] < 0.7


def test_the_ratio_of_logits_is_not_flattened_by_scale(digits):
    """Scores times 10^4: the cross entropy has no gradient left, the ratio does not notice."""
    x, y = digits.x[:100], digits.y[:100]
    steep = digits.through(lambda s: 1e4 * s)
    held = {
        name: float((steep.labels(create(name)(steep, x, y, size=0.2)) == y).float().mean())
        for name in ("apgd-ce", "apgd-dlr")
    }
    assert held["apgd-dlr"] < 0.1
    assert held["apgd-ce"] > 0.5


def test_the_ratio_needs_three_classes_and_four_with_targets(make_linear):
    linear = make_linear()
    with pytest.raises(InputError, match=r"got 2, expected at least 3\. Fix: use apgd-ce"):
        create("apgd-dlr")(linear.classifier, linear.x, linear.y, size=0.1)
    with pytest.raises(InputError, match="expected at least 4"):
        create("apgd-dlr")(linear.classifier, linear.x, linear.y, size=0.1, target=1 - linear.y)
