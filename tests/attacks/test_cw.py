"""CW in both norms, against closed forms, linear programs and another Adam."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, linprog

from privet.attacks import create, cw_linf
from privet.attacks.geometry import norms
from privet.errors import InputError

DUAL = {"linf": 1, "l2": 2}


def of_the_least(attack, linear):
    """Lengths of what is found, in units of |f| / |w|_q: inside of the box, nothing is shorter."""
    least = linear.f(linear.x).abs() / np.linalg.norm(linear.w.flatten(), DUAL[attack.norm])
    found = attack.closest(linear.classifier, linear.x, linear.y)
    assert (linear.classifier.labels(found) != linear.y).all()
    return norms(found - linear.x, attack.norm) / least


@pytest.mark.parametrize("shape", [(3, 2, 2), (1, 14, 14)])
def test_the_smallest_linf_perturbation_of_a_linear_classifier_is_found(shape, make_linear):
    """Pixels from dark to bright, which are not equally fast in w."""
    ratio = of_the_least(create("cw", norm="linf"), make_linear(shape, spread=0.35))
    assert float(ratio.min()) >= 1 - 1e-4
    assert float(ratio.max()) <= 1.01


def test_the_smallest_l2_perturbation_of_a_linear_classifier_is_found(make_linear):
    ratio = of_the_least(create("cw", norm="l2"), make_linear(spread=0.2))
    assert float(ratio.min()) >= 1 - 1e-4
    assert float(ratio.max()) <= 1.005


def test_with_a_tau_that_never_shrinks_the_smallest_one_is_missed(monkeypatch, make_linear):
    monkeypatch.setattr(cw_linf.Shrinking, "_set", lambda *_: None)
    ratio = of_the_least(create("cw", norm="linf"), make_linear(spread=0.35))
    assert float(ratio.median()) > 1.02
    assert float(ratio.max()) > 1.05


def test_black_and_white_pixels_that_cannot_move_are_made_up_for(make_linear):
    """The least s with sum_i |w_i| min(room_i, s) = |f|, by another solver."""
    linear = make_linear((1, 5, 5), spread=0.5)
    linear.x = (3 * linear.x - 1).clamp(0, 1)
    linear.y = (linear.f(linear.x) < 0).long()
    gap = linear.f(linear.x).numpy()
    w, x = linear.w.flatten().numpy(), linear.x.flatten(1).numpy()
    room = np.where((w > 0) == (gap[:, None] > 0), x, 1 - x)
    least = [
        brentq(lambda s, g=g, r=r: (abs(w) * np.minimum(r, s)).sum() - abs(g), 0, 1)
        for g, r in zip(gap, room, strict=True)
    ]
    found = create("cw", norm="linf").closest(linear.classifier, linear.x, linear.y)
    ratio = norms(found - linear.x, "linf") / torch.tensor(least)
    assert float((linear.x * (1 - linear.x) == 0).float().mean()) > 0.5
    assert float(ratio.min()) >= 1 - 1e-4
    assert float(ratio.max()) <= 1.02


@pytest.fixture
def six(make_classifier):
    """Linear scores z = W x + b of six classes, and images in the middle of the box."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(6, 10, generator=generator)
    x = 0.5 + 0.3 * (torch.rand(30, 10, generator=generator) - 0.5)
    return make_classifier(lambda z: z @ w.T - 0.5 * w.sum(1), (10,), 6), w, x


def least_towards(w, scores, x, target):
    """The least s with |d_i| <= s, x + d in the box and no class above the target."""
    others = np.delete(np.arange(len(w)), target)
    lead = np.hstack([w[others] - w[target], np.zeros((len(others), 1))])
    each = np.eye(len(x))
    bound = np.vstack([np.hstack([sign * each, -np.ones((len(x), 1))]) for sign in (1, -1)])
    solved = linprog(
        np.eye(len(x) + 1)[-1],
        A_ub=np.vstack([lead, bound]),
        b_ub=np.hstack([scores[target] - scores[others], np.zeros(2 * len(x))]),
        bounds=[*zip(-x, 1 - x, strict=True), (0, None)],
    )
    return solved.fun if solved.success else np.inf


def least_of_six(classifier, w, x):
    """(images, classes): 0 for each image's own."""
    scores = classifier.scores(x).double().numpy()
    table = [
        [least_towards(w.double().numpy(), z, one, t) for t in range(6)]
        for z, one in zip(scores, x.double().numpy(), strict=True)
    ]
    return torch.tensor(table, dtype=torch.float64)


def test_targets_are_reached_by_the_shortest_way(six):
    classifier, w, x = six
    y = classifier.labels(x)
    target = (y + 1 + torch.arange(30) % 5) % 6
    least = least_of_six(classifier, w, x).gather(1, target[:, None])[:, 0]
    found = create("cw", norm="linf").closest(classifier, x, y, target=target)
    near = least < 0.5  # some targets lie outside of the box
    assert int(near.sum()) > 20
    assert torch.equal(classifier.labels(found)[near], target[near])
    ratio = norms(found - x, "linf")[near] / least[near]
    assert float(ratio.min()) >= 1 - 1e-4
    assert float(ratio.max()) <= 1.02


def of_the_nearest(six):
    """Lengths of what is found, in units of the least over the five other classes."""
    classifier, w, x = six
    y = classifier.labels(x)
    least = least_of_six(classifier, w, x).scatter(1, y[:, None], torch.inf).amin(1)
    found = create("cw", norm="linf").closest(classifier, x, y)
    assert (classifier.labels(found) != y).all()
    return norms(found - x, "linf") / least


def test_the_nearest_of_several_classes_is_taken(six):
    ratio = of_the_nearest(six)
    assert float(ratio.min()) >= 1 - 1e-4
    assert float(ratio.max()) <= 1.02


def test_to_aim_at_the_second_likeliest_class_misses_the_nearest(six, monkeypatch):
    monkeypatch.setattr(cw_linf, "CANDIDATES", 1)
    assert float(of_the_nearest(six).max()) > 1.05


def test_it_fools_no_fewer_than_pgd_and_stays_in_ball_and_box(digits):
    x, y = digits.x[:100], digits.y[:100]
    attack, pgd = create("cw", norm="linf"), create("pgd", steps=40)
    found = attack.closest(digits.classifier, x, y)
    assert ((found >= 0) & (found <= 1)).all()
    right = digits.classifier.labels(x) == y
    distance = norms(found - x, "linf")
    assert ((distance > 0) == right).all()
    assert (digits.classifier.labels(found) != y).all()
    ours, theirs = [], []
    for size in (0.04, 0.07, 0.1, 0.13, 0.16):
        fooled = digits.classifier.labels(pgd(digits.classifier, x, y, size=size)) != y
        ours.append(int((distance <= size).sum()))
        theirs.append(int(fooled.sum()))
    assert 10 < theirs[0] < theirs[-1] < 90
    assert sum(ours) >= sum(theirs)
    # Each size, too; one image may lie within rounding of it.
    assert all(mine >= peer - 1 for mine, peer in zip(ours, theirs, strict=True))


def test_the_units_of_scores_do_not_matter_in_linf(digits):
    x, y = digits.x[:10], digits.y[:10]
    attack = create("cw", norm="linf", searches=5, iterations=100)
    distances = [
        norms(attack.closest(digits.through(lambda s, k=k: k * s), x, y) - x, "linf")
        for k in (1.0, 2.0**12, 2.0**-12)
    ]
    for other in distances[1:]:
        torch.testing.assert_close(other, distances[0], rtol=0.01, atol=1e-4)


def test_an_image_that_one_run_cannot_fool_goes_on_in_the_next(make_linear):
    """One run moves w by 0.1 at most, and a grey pixel by half of that."""
    linear = make_linear(lift=1.0)
    least = linear.f(linear.x).abs() / linear.w.abs().sum()
    assert float(least.min()) > 0.05
    slow = {"norm": "linf", "rate": 0.01, "iterations": 20}
    once = create("cw", searches=1, **slow).closest(linear.classifier, linear.x, linear.y)
    assert torch.equal(once, linear.x)
    found = create("cw", searches=9, **slow).closest(linear.classifier, linear.x, linear.y)
    assert (linear.classifier.labels(found) != linear.y).all()


@pytest.mark.parametrize(("norm", "more"), [("l2", 0), ("linf", 2)])
def test_an_image_costs_as_many_gradients_in_both_norms(norm, more, digits):
    """In linf two more, to see which class is nearest."""
    asked = []
    counted = digits.through(lambda s: asked.append(len(s)) or s)
    attack = create("cw", norm=norm, searches=3, iterations=7, halvings=0)
    attack.closest(counted, digits.x[:1], digits.y[:1])
    assert len(asked) == 1 + more + 3 * 7


def test_in_l2_the_inputs_tried_are_those_of_another_adam(make_linear):
    """PyTorch's, on the paper's objective, under one c for each of two searches."""
    linear = make_linear((4,), n=6, spread=0.3, lift=1.0)
    seen = []

    def scores(x):
        seen.append(x.detach().clone())
        return linear.classifier.scores(x)

    watched = type(linear.classifier)(
        name="watched", scores=scores, shape=(4,), classes=2, device=linear.x.device
    )
    create("cw", searches=2, iterations=8, halvings=0).closest(watched, linear.x, linear.y)
    expected = []
    for c in (0.01, 0.1):  # nobody is fooled so soon
        w = torch.atanh((2 * linear.x - 1) * (1 - 1e-3)).requires_grad_()
        adam = torch.optim.Adam([w], lr=0.05)
        for t in range(8):
            adam.param_groups[0]["lr"] = 0.05 * (1 - t / 8)
            tried = (w.tanh() + 1) / 2
            expected.append(tried.detach())
            cost = ((tried - linear.x) ** 2).sum() + c * (2 * linear.f(tried)).clamp_min(0).sum()
            adam.zero_grad()
            cost.backward()
            adam.step()
    assert (linear.y == 0).all()
    torch.testing.assert_close(torch.stack(seen[1:]), torch.stack(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"norm": "l1"}, "cw does not work in this norm: got l1, expected one of l2, linf"),
        ({"searches": 0}, "bad searches of cw"),
        ({"iterations": 0}, "bad iterations of cw"),
        ({"rate": 0.0}, "bad settings of cw"),
        ({"first_c": -1.0}, "bad settings of cw"),
        ({"confidence": -0.1}, "bad settings of cw"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        create("cw", **settings)
