import math

import pytest
from scipy.stats import norm

from privet.verification.measured import check_measured

PUBLIC = {"data": {"name": "mnist", "test_is_public": True}}


def certified(**changes):
    row = {
        "run": 1, "data": "mnist", "noise": "gaussian", "scale": 0.25, "norm": "l2",
        "images": 200, "alpha": 0.001, "n0": 100, "n": 1000, "mode": "curve",
        "radius": 0.25, "certified_accuracy": 0.9,
    }  # fmt: skip
    return row | changes


def attacked(**changes):
    row = {
        "run": 1, "data": "mnist", "norm": "linf", "examples": 50, "clean_accuracy": 0.98,
        "attack": "pgd", "size": 0.1, "accuracy": 0.5,
    }  # fmt: skip
    return row | changes


def said(part, *rows, **card):
    return [f for f in check_measured(PUBLIC | card | {part: list(rows)}) if not f.ok]


def test_a_card_without_figures_is_not_judged():
    assert list(check_measured(PUBLIC)) == []


def test_possible_figures_pass():
    falling = [certified(radius=r, certified_accuracy=a) for r, a in [(0, 0.95), (0.5, 0.9)]]
    again = [certified(run=2, radius=0, certified_accuracy=0.94)]
    assert said("robustness", *falling, *again) == []
    rows = [attacked(size=s, accuracy=a) for s, a in [(0.1, 0.5), (0.2, 0.5), (0.3, 0.1)]]
    worst = attacked(attack="worst case", accuracy=0.46)
    assert said("attacks", *rows, worst) == []


def test_no_radius_beyond_what_unanimous_votes_prove():
    most = 0.25 * norm.ppf(0.001 ** (1 / 1000))
    assert said("robustness", certified(radius=most * (1 - 1e-6))) == []
    (finding,) = said("robustness", certified(radius=most * 1.001))
    assert "1000 votes prove at most" in finding.detail
    assert said("robustness", certified(radius=most * 1.001, certified_accuracy=0.0)) == []


@pytest.mark.parametrize(
    ("noise", "most"),
    [
        ("laplace", -0.25 * math.log(2 * (1 - 0.001**0.001))),
        ("uniform", 0.5 * (0.001**0.001 - 0.5)),
    ],
)
def test_other_noises_have_their_own_limit(noise, most):
    kind = {"noise": noise, "norm": "l1"}
    assert said("robustness", certified(**kind, radius=most * 0.999)) == []
    assert said("robustness", certified(**kind, radius=most * 1.001)) != []


@pytest.mark.parametrize("noise", ["grid gaussian", "hidden gaussian"])
@pytest.mark.parametrize("norm_", ["l2", "linf"])
def test_noise_elsewhere_proves_no_more(noise, norm_):
    kind = {"noise": noise, "norm": norm_}
    assert said("robustness", certified(**kind, radius=0.6)) == []
    assert said("robustness", certified(**kind, radius=0.63)) != []


@pytest.mark.parametrize(
    "changes",
    [
        {"certified_accuracy": 0.9012},
        {"certified_accuracy": 1.005},
        {"certified_accuracy": -0.005},
        {"images": 0},
        {"alpha": 1.0},
        {"alpha": 0.0},
        {"n": 0},
    ],
)
def test_certificates_that_cannot_be(changes):
    assert said("robustness", certified(**changes)) != []


def test_certified_accuracy_does_not_rise_within_a_run():
    rows = [certified(radius=r, certified_accuracy=a) for r, a in [(0.25, 0.95), (0.0, 0.9)]]
    (finding,) = said("robustness", *rows)
    assert "rises from radius 0 to 0.25" in finding.detail


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([attacked(accuracy=0.51)], "no share"),
        ([attacked(accuracy=1.0)], "more accurate under attack"),
        ([attacked(), attacked(size=0.2, accuracy=0.52)], "rises from size 0.1 to 0.2"),
        ([attacked(), attacked(attack="worst case", accuracy=0.52)], "worse than the worst case"),
    ],
)
def test_attacks_that_cannot_be(rows, why):
    (finding,) = said("attacks", *rows)
    assert why in finding.detail


@pytest.mark.parametrize(("part", "row"), [("robustness", certified()), ("attacks", attacked())])
def test_figures_on_private_records_are_a_leak(part, row):
    private = {"name": "mnist", "test_is_public": False}
    (finding,) = said(part, row, data=private)
    assert "private test records" in finding.detail
    assert said(part, row | {"data": "digits"}, data=private) == []  # somebody else's, public
