"""One table for all attacks: known answers, ball and box, targets, and planted bugs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from privet.attacks import ATTACKS, create, geometry, iterated, keeping
from privet.attacks.geometry import norms
from privet.classifiers import Classifier
from privet.errors import InputError

# AutoAttack is a package of its own, and slow: test_autoattack.py.
OWN = {name: kind for name, kind in ATTACKS.items() if name != "autoattack"}
TABLE = [(name, norm) for name, kind in OWN.items() for norm in kind.norms]
QUICK = {
    "ifgsm": {"steps": 5}, "mim": {"steps": 5}, "pgd": {"steps": 5, "restarts": 2},
    "apgd-ce": {"steps": 8}, "apgd-dlr": {"steps": 8}, "deepfool": {"iterations": 4},
    "cw": {"searches": 2, "iterations": 10}, "square": {"queries": 20},
}  # fmt: skip
# Steps as long as the size: ascent in l2 and l1 then turns towards the maximum by half each time.
EXACT = {"ifgsm": {"step": 1.0}, "mim": {"step": 1.0, "decay": 0.5}, "pgd": {"step": 1.0}}
CLIMBING = [row for row in TABLE if row[0] in ("fgsm", "ifgsm", "mim", "pgd", "apgd-ce")]
MINIMAL = [
    ("deepfool", "l2", 1e-3), ("deepfool", "linf", 2e-3), ("cw", "l2", 5e-3), ("cw", "linf", 5e-3),
]  # fmt: skip
DUAL = {"linf": 1, "l2": 2, "l1": np.inf}


def margin(classifier, x, y):
    scores = classifier.scores(x)
    return scores.gather(1, y[:, None])[:, 0] - scores.scatter(1, y[:, None], -1e30).amax(1)


def require_inside(attack, classifier, x, y, size):
    found = attack(classifier, x, y, size=size)
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert ((found >= 0) & (found <= 1)).all()
    assert (norms(found - x, attack.norm) <= size * (1 + 1e-5) + 1e-6).all()


def require_closed_form(attack, linear, size):
    """Without the box: the worst margin is 2 (|f| - size |w|_q), below zero where it is fooled."""
    worst = linear.f(linear.x).abs() - size * np.linalg.norm(linear.w.flatten(), DUAL[attack.norm])
    found = attack(linear.classifier, linear.x, linear.y, size=size)
    reached = margin(linear.classifier, found, linear.y) / 2
    holds = worst > 1e-4
    assert 5 < int(holds.sum()) < len(holds) - 5
    torch.testing.assert_close(reached[holds], worst[holds].float(), atol=1e-4, rtol=0)
    assert (reached[worst < -1e-4] < 0).all()


@pytest.mark.parametrize(("name", "norm"), CLIMBING)
def test_on_a_linear_classifier_the_worst_case_is_reached_exactly(name, norm, make_linear):
    linear = make_linear()
    typical = linear.f(linear.x).abs().median()
    size = float(typical / np.linalg.norm(linear.w.flatten(), DUAL[norm]))
    attack = create(name, norm=norm, **EXACT.get(name, {}))
    require_closed_form(attack, linear, size)


def drop_in_the_box(w, x, size, norm):
    """The most that <w, d> can fall, image by image: by filling, or by one equation."""
    room = np.where(w < 0, 1 - x, x)
    a = np.abs(w)
    if norm == "linf":
        return (a * np.minimum(room, size)).sum()
    if norm == "l1":
        left, total = size, 0.0
        for i in np.argsort(-a):
            take = min(room[i], left)
            left, total = left - take, total + take * a[i]
        return total
    if (room**2).sum() <= size**2:
        return (a * room).sum()
    s = brentq(lambda s: (np.minimum(s * a, room) ** 2).sum() - size**2, 0, 1e9, xtol=1e-14)
    return (a * np.minimum(s * a, room)).sum()


@pytest.mark.parametrize(("name", "norm"), CLIMBING)
def test_the_box_is_part_of_the_worst_case(name, norm, make_linear):
    """Inputs all over the box, many of them near its ends; nobody is fooled, so all must climb."""
    linear = make_linear(spread=0.5, lift=30.0)
    size = {"linf": 0.3, "l2": 0.8, "l1": 1.5}[norm]
    found = create(name, norm=norm, **EXACT.get(name, {}))(
        linear.classifier, linear.x, linear.y, size=size
    )
    dropped = linear.f(linear.x) - linear.f(found)
    best = [
        drop_in_the_box(linear.w.flatten().double().numpy(), x, size, norm)
        for x in linear.x.flatten(1).double().numpy()
    ]
    torch.testing.assert_close(dropped, torch.tensor(best).float(), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(("norm", "share"), [("linf", 0.97), ("l2", 0.6)])
def test_square_comes_near_the_worst_case_by_scores_alone(norm, share, make_linear):
    """In l2 its patterns are smooth, so the weights are; 1000 random directions reach 0.4."""
    linear = make_linear((2, 4, 4), lift=30.0)
    if norm == "l2":
        wave = torch.cos(torch.arange(8) * 0.8)
        linear = make_linear((1, 8, 8), lift=30.0, w=(wave[:, None] * wave)[None])
    found = create("square", norm=norm)(linear.classifier, linear.x, linear.y, size=0.2)
    best = 0.2 * np.linalg.norm(linear.w.flatten(), DUAL[norm])
    dropped = (linear.f(linear.x) - linear.f(found)) / best
    assert float(dropped.min()) > share
    assert float(dropped.mean()) > share + 0.02
    assert float(dropped.max()) <= 1 + 1e-5


@pytest.mark.parametrize(("name", "norm", "tolerance"), MINIMAL)
def test_the_smallest_perturbation_is_found(name, norm, tolerance, make_linear):
    linear = make_linear()
    least = linear.f(linear.x).abs() / np.linalg.norm(linear.w.flatten(), DUAL[norm])
    found = create(name, norm=norm).closest(linear.classifier, linear.x, linear.y)
    ratio = norms(found - linear.x, norm) / least
    assert (linear.classifier.labels(found) != linear.y).all()
    assert float(ratio.min()) >= 1 - 1e-4  # nothing nearer exists
    assert float(ratio.max()) <= 1 + tolerance


@pytest.mark.parametrize(("name", "norm", "tolerance"), MINIMAL)
def test_a_size_decides_which_of_them_count(name, norm, tolerance, make_linear):
    linear = make_linear()
    least = linear.f(linear.x).abs() / np.linalg.norm(linear.w.flatten(), DUAL[norm])
    size = float(least.median())
    found = create(name, norm=norm)(linear.classifier, linear.x, linear.y, size=size)
    fooled = linear.classifier.labels(found) != linear.y
    assert fooled[least < size / (1 + tolerance)].all()
    assert torch.equal(found[least > size], linear.x[least > size])


@pytest.mark.parametrize(("name", "norm"), TABLE)
@given(st.integers(0, 10**6), st.floats(1e-3, 3.0), st.sampled_from([(5,), (1, 4, 3), (3, 5, 5)]))
@settings(max_examples=12, deadline=None)
def test_every_attack_stays_in_ball_and_box(name, norm, seed, size, shape):
    generator = torch.Generator().manual_seed(seed)
    x = (1.6 * torch.rand(6, *shape, generator=generator) - 0.3).clamp(0, 1)
    w = 3 * torch.randn(x[0].numel(), 4, generator=generator)
    classifier = Classifier(
        name="made up",
        scores=lambda z: torch.sin(z.flatten(1) @ w),
        shape=shape,
        classes=4,
        device=torch.device("cpu"),
    )
    y = classifier.labels(x)
    y[0] = (y[0] + 1) % 4
    require_inside(create(name, norm=norm, **QUICK.get(name, {})), classifier, x, y, size)


TARGETED = {"linf": 0.5, "l2": 3.0, "l1": 12.0}


@pytest.mark.parametrize(("name", "norm"), TABLE)
def test_targets_are_reached(name, norm, digits):
    x, y = digits.x[:40], digits.y[:40]
    target = (y + 1 + torch.arange(40) % 9) % 10
    found = create(name, norm=norm)(digits.classifier, x, y, size=TARGETED[norm], target=target)
    share = float((digits.classifier.labels(found) == target).float().mean())
    assert share > {"fgsm": 0.15, "square": 0.7, "deepfool": 0.85}.get(name, 0.94)


@pytest.mark.parametrize(("name", "norm"), TABLE)
def test_wrong_images_stay_as_they_are_and_right_ones_never_get_better(name, norm, digits):
    x, y = digits.x[:30], digits.y[:30].clone()
    y[::3] = (y[::3] + 1) % 10  # now these are wrong
    wrong = digits.classifier.labels(x) != y
    before = margin(digits.classifier, x, y)
    found = create(name, norm=norm, **QUICK.get(name, {}))(digits.classifier, x, y, size=0.05)
    assert torch.equal(found[wrong], x[wrong])
    assert (margin(digits.classifier, found, y) <= before + 1e-5).all()


@pytest.mark.parametrize("name", ["pgd", "apgd-ce", "apgd-dlr"])
def test_more_restarts_fool_all_that_fewer_do(name, digits):
    x, y = digits.x[:100], digits.y[:100]
    once, thrice = (
        digits.classifier.labels(attack(digits.classifier, x, y, size=0.1)) != y
        for attack in (create(name, steps=5, restarts=n) for n in (1, 3))
    )
    assert (thrice | ~once).all()


def wavy(make_classifier):
    """A margin with many hills that never falls below zero, and all margins that were seen."""
    seen = []

    def scores(x):
        lead = 1.5 + torch.sin(25 * x.flatten(1)).mean(1)
        seen.append(lead.detach())
        return torch.stack([lead, torch.zeros_like(lead)], 1)

    return make_classifier(scores, (1, 3, 3), 2), seen


def require_best(attack, make_classifier):
    """What is returned is as good as the best input that was ever scored."""
    classifier, seen = wavy(make_classifier)
    x = torch.rand(20, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    found = attack(classifier, x, torch.zeros(20).long(), size=0.3)
    best = torch.stack(seen).amin(0)
    torch.testing.assert_close(classifier.scores(found)[:, 0], best, atol=1e-5, rtol=0)


LOOKING = [row for row in TABLE if not ATTACKS[row[0]].minimal]


@pytest.mark.parametrize(  # apgd-dlr needs three classes
    ("name", "norm"), [row for row in LOOKING if row[0] != "apgd-dlr"]
)
def test_nothing_worse_is_returned_than_what_was_found(name, norm, make_classifier):
    require_best(create(name, norm=norm, **QUICK.get(name, {})), make_classifier)


def test_successes_retire(digits):
    """Each gradient is asked for only where it is needed."""
    rows = []

    def counting(scores):
        rows.append(len(scores))
        return scores

    x, y = digits.x[:100], digits.y[:100]
    create("pgd")(digits.through(counting), x, y, size=0.2)
    assert rows[0] == 100
    assert sorted(rows, reverse=True) == rows
    assert rows[-1] < 30


def test_sizes_of_zero_and_infinity(digits):
    x, y = digits.x[:20], digits.y[:20]
    assert torch.equal(create("pgd")(digits.classifier, x, y, size=0), x)
    for norm in ("linf", "l2", "l1"):
        found = create("pgd", norm=norm)(digits.classifier, x, y, size=float("inf"))
        assert (digits.classifier.labels(found) != y).all()
    assert len(create("pgd")(digits.classifier, x[:0], y[:0], size=0.1)) == 0


def test_random_starts_are_repeatable_and_seeded(make_linear):
    linear = make_linear(lift=30.0)

    def run(seed):
        return create("pgd", norm="l2", steps=2, seed=seed)(
            linear.classifier, linear.x, linear.y, size=0.2
        )

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


# Planted bugs: each must be caught by a check above.


def test_a_missing_clamp_is_caught(monkeypatch, make_linear):
    monkeypatch.setattr(iterated, "moved", lambda x, d: x + d)
    monkeypatch.setattr(iterated, "project", lambda d, x, size, norm: d.clamp(-size, size))
    linear = make_linear(spread=0.5, lift=30.0)
    with pytest.raises(AssertionError):
        require_inside(create("pgd"), linear.classifier, linear.x, linear.y, 0.3)


@pytest.mark.parametrize("wrong", ["linf", "l1"])
def test_a_projection_in_the_wrong_norm_is_caught(monkeypatch, make_linear, wrong):
    right = geometry.project
    monkeypatch.setattr(iterated, "project", lambda d, x, size, norm: right(d, x, size, wrong))
    linear = make_linear()
    size = float(linear.f(linear.x).abs().median() / linear.w.norm())
    attack = create("ifgsm", norm="l2", step=1.0)

    def require_both():
        require_inside(attack, linear.classifier, linear.x, linear.y, size)
        require_closed_form(attack, linear, size)

    with pytest.raises(AssertionError):
        require_both()


def test_a_wrong_sign_is_caught(monkeypatch, make_linear):
    right = geometry.steepest
    monkeypatch.setattr(iterated, "steepest", lambda g, norm: -right(g, norm))
    linear = make_linear()
    size = float(linear.f(linear.x).abs().median() / linear.w.abs().sum())
    with pytest.raises(AssertionError):
        require_closed_form(create("ifgsm"), linear, size)


def test_the_last_in_place_of_the_best_is_caught(monkeypatch, make_classifier):
    def offer(self, rows, x, scores):
        self.x[rows] = x
        return torch.ones(len(rows)).bool()

    monkeypatch.setattr(keeping.Best, "offer", offer)
    with pytest.raises(AssertionError):
        require_best(create("pgd", step=0.7, steps=5), make_classifier)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"norm": "l3"}, "unknown norm"),
        ({"eot": 0}, "bad eot of pgd: got 0"),
        ({"steps": 0}, "bad steps of pgd: got 0"),
        ({"steps": 2.5}, "bad steps of pgd"),
        ({"restarts": 0}, "bad restarts"),
        ({"step": 0.0}, "bad step of pgd"),
        ({"loss": "mse"}, "unknown loss: got mse, expected one of ce, margin, dlr"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        create("pgd", **settings)


def test_bad_calls_are_refused(digits):
    x, y, attack = digits.x[:4], digits.y[:4], create("fgsm")
    with pytest.raises(InputError, match="bad size"):
        attack(digits.classifier, x, y, size=-1)
    with pytest.raises(InputError, match="bad size"):
        attack(digits.classifier, x, y, size=float("nan"))
    with pytest.raises(InputError, match="a target that is the true class"):
        attack(digits.classifier, x, y, size=0.1, target=y)
    with pytest.raises(InputError, match=r"outside of \[0, 1\]"):
        attack(digits.classifier, x + 1, y, size=0.1)
    blind = digits.through(lambda s: s, differentiable=False)
    with pytest.raises(InputError, match="fgsm needs gradients"):
        attack(blind, x, y, size=0.1)
    assert len(create("square", queries=5)(blind, x, y, size=0.1)) == 4
