"""Draws until it is decided: error rates, and what they cost."""

import pytest
import torch

import privet
from privet.attacks import judging, sweep
from privet.attacks.judging import ABOVE, ALPHA, BELOW, MOST, OPEN, decided
from privet.privacy.confidence import exceeds


def coins(p, count, seed=0):
    """Verdicts on `count` coins of chance p, and how many draws each took."""
    generator, asked = torch.Generator().manual_seed(seed), torch.zeros(count)

    def draw(rows):
        asked[rows] += 1
        return torch.rand(len(rows), generator=generator) < p

    return decided(draw, count), asked


@pytest.mark.parametrize(("p", "wrong"), [(0.5, ABOVE), (0.5, BELOW), (0.45, ABOVE), (0.55, BELOW)])
def test_a_wrong_decision_is_as_rare_as_promised(p, wrong):
    """Of 4000 coins at most 4 are expected; more than 13 has probability below 1e-4 (Poisson)."""
    verdicts, _ = coins(p, 4000)
    assert int((verdicts == wrong).sum()) <= 13
    assert ALPHA == 1e-3


def test_enough_is_what_the_e_process_says():
    for asked in (1, 9, 10, 37, 400, MOST):
        least = judging._enough()[asked]
        found = exceeds(range(asked + 1), asked, 0.5, ALPHA)
        assert found.tolist() == [hits >= least for hits in range(asked + 1)]


def test_a_fair_coin_stays_open_and_costs_the_most():
    verdicts, asked = coins(0.5, 500)
    assert int((verdicts == OPEN).sum()) > 490
    assert (asked[verdicts == OPEN] == MOST).all()


@pytest.mark.parametrize(("p", "expected"), [(1.0, ABOVE), (0.0, BELOW)])
def test_what_is_certain_is_decided_soon(p, expected):
    verdicts, asked = coins(p, 50)
    assert (verdicts == expected).all()
    assert (asked < 15).all()
    assert (asked >= 10).all()  # ten equal draws of a fair coin have chance 1 / 1024


def test_a_clear_lead_is_decided_for_everybody():
    for p, expected in ((0.65, ABOVE), (0.35, BELOW)):
        verdicts, asked = coins(p, 500)
        assert float((verdicts == expected).float().mean()) > 0.99
        assert float(asked.mean()) < MOST / 2


def chancy(make_classifier, p):
    """Right with chance p, whatever the input."""
    generator = torch.Generator().manual_seed(3)

    def scores(x):
        wins = (torch.rand(len(x), generator=generator) < p).float() + 0 * x.sum(1)
        return torch.stack([wins, 1 - wins], 1)

    return make_classifier(scores, (3,), 2, random=True)


def swept(make_classifier, p, **facts):
    x, y = torch.full((60, 3), 0.5), torch.zeros(60).long()
    classifier = chancy(make_classifier, p)
    return privet.attack("fgsm", classifier, x, y, sizes=0.1, check=False, **facts)


@pytest.mark.parametrize("p", [0.47, 0.5])
def test_chance_does_not_flatter(p, make_classifier):
    """Nobody is right more often than not. A mean of 32 draws says so of 30 % and 43 %. Here each
    of 60 has a chance of 1/1000: two at once in 0.2 % of all seeds."""
    assert swept(make_classifier, p).clean_accuracy < 2 / 60
    assert swept(make_classifier, p).robust_accuracy[0.1] == 0


def test_who_is_right_more_often_than_not_holds(make_classifier):
    assert swept(make_classifier, 0.7).robust_accuracy[0.1] == 1


def test_an_undecided_target_counts_as_reached(make_classifier, monkeypatch):
    """Right, and the target in three of ten draws: it holds; in half of them: it has fallen."""
    assert swept(make_classifier, 0.7, target=1).robust_accuracy[0.1] == 1
    verdicts = iter([ABOVE, OPEN])  # of the images themselves, of what was found
    monkeypatch.setattr(sweep, "decided", lambda draw, n: torch.full((n,), next(verdicts)))
    result = swept(make_classifier, 0.7, target=1)
    assert result.clean_accuracy == 1
    assert result.robust_accuracy[0.1] == 0
