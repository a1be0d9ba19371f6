"""Answers of a smoothed classifier: exact tests, errors at most alpha, and abstentions."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.special import gammaln, ndtr
from scipy.stats import binom, binomtest
from torch import nn

from privet.certification import (
    ABSTAIN,
    Gaussian,
    GridGaussian,
    HiddenGaussian,
    Laplace,
    Uniform,
    certify,
    predict,
)
from privet.certification.prediction import answers, rank_p_value
from privet.classifiers import Classifier, open_classifier
from privet.errors import InputError
from privet.models import create


@pytest.fixture
def line():
    """Class 1 where x0 + x1 > 1; the difference of scores is the signed l2 distance."""
    model = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]) / 2**0.5 / 2)
        model[0].bias.copy_(torch.tensor([1.0, -1.0]) / 2**0.5 / 2)
    return model


# The test itself ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"), [(1, 0), (5, 5), (60, 40), (90, 10), (100, 0), (505, 495), (70_000, 30)]
)
def test_p_values_are_those_of_the_two_sided_binomial_test(first, second):
    oracle = binomtest(first, first + second, 0.5).pvalue
    assert float(rank_p_value(first, second)) == pytest.approx(oracle, rel=1e-9)
    assert float(rank_p_value(first, second)) >= oracle or oracle == 0.0


def test_answers_by_hand():
    """59 to 41 settles it at 0.1 (p = 0.0886), not at 0.05; 61 to 39 does (0.0352)."""
    settled = [[59, 41, 0, 0], [39, 0, 61, 0], [50, 50, 0, 0]]
    votes = np.array([*settled, [2, 3, 0, 95], [0, 30, 0, 70]])  # the last column is no class
    assert answers(votes, 0.1)[0].tolist() == [0, 2, ABSTAIN, ABSTAIN, ABSTAIN]
    assert answers(votes, 0.05)[0].tolist() == [ABSTAIN, 2, ABSTAIN, ABSTAIN, ABSTAIN]
    assert answers(votes, 0.05)[1][:2] == pytest.approx([0.08863, 0.03520], abs=1e-5)


def test_votes_for_no_class_are_a_rival():
    """60 to 40 is settled against a class, whether or not the 40 are NaNs; so is 60 to 55 not."""
    votes = np.array([[60, 5, 35], [60, 5, 55]])
    assert answers(votes, 0.05)[0].tolist() == [0, ABSTAIN]


# At most alpha, exactly ---------------------------------------------------------------------------


def tables(n, columns):
    """All ways to share out n votes."""
    if columns == 1:
        return [[n]]
    return [[k, *rest] for k in range(n + 1) for rest in tables(n - k, columns - 1)]


def wrong_at(p, votes, given):
    """Exact probability that a column is answered which is not the one most probable."""
    p = np.asarray(p)
    log_p = np.log(np.maximum(p, 1e-300))
    chance = np.exp(gammaln(votes.sum(1) + 1) - gammaln(votes + 1).sum(1) + (votes * log_p).sum(1))
    best = np.flatnonzero(p >= p.max() - 1e-12)
    right = set(best.tolist()) if len(best) == 1 else set()
    counted = np.array([g != ABSTAIN and g not in right for g in given])
    return float(chance[counted].sum())


LAWS = [
    (0.5, 0.5, 0.0),
    (0.49, 0.51, 0.0),
    (1 / 3, 1 / 3, 1 / 3),
    (0.33, 0.33, 0.34),
    (0.4, 0.4, 0.2),
    (0.45, 0.45, 0.1),
    (0.2, 0.3, 0.5),
    (0.02, 0.02, 0.96),
]


@pytest.mark.parametrize("n", [14, 15, 31])
@pytest.mark.parametrize("alpha", [0.3, 0.1, 0.02])
def test_a_wrong_answer_has_probability_alpha_at_most_whatever_the_law(n, alpha):
    """By adding up the whole multinomial law of three classes; the fourth column stays empty."""
    votes = np.array([[*row, 0] for row in tables(n, 3)])
    given = answers(votes, alpha)[0]
    found = [wrong_at(p, votes[:, :3], given) for p in LAWS]
    assert max(found) <= alpha
    assert max(found) > alpha / 5  # the test has power: it is not silent


def test_half_of_the_test_would_be_wrong_too_often():
    """A planted mistake: one side of the test alone fails where two classes are alike."""
    votes = np.array([[*row, 0] for row in tables(31, 3)])
    one_sided = answers(votes, 2 * 0.1)[0]
    assert wrong_at((0.5, 0.5, 0.0), votes[:, :3], one_sided) > 0.1


# End to end ---------------------------------------------------------------------------------------


def test_near_the_boundary_at_most_a_twentieth_is_wrong(line):
    """3,000 inputs 0.01 scales inside class 1, alpha 0.05.

    A sound method has more wrong ones than allowed with probability 1e-6; the seed is fixed.
    """
    allowed = int(binom.isf(1e-6, 3000, 0.05))
    x = torch.full((3000, 2), 0.5 + 0.01 * 0.25 / 2**0.5)
    found = predict(line, x, noise=Gaussian(0.25), alpha=0.05, n=101, seed=3, batch=5000)
    assert 0 < (found.prediction == 0).sum() <= allowed
    assert found.abstained.mean() > 0.85
    majority = found.votes[:, :2].argmax(1)
    assert (majority == 0).sum() > 5 * allowed  # what it would be without abstentions


def test_answers_and_abstentions_are_as_frequent_as_the_binomial_law_says(line):
    """At 0.2 scales with 100 votes: exact power, within five standard errors of 2,000 inputs."""
    x = torch.full((2000, 2), 0.5 + 0.2 * 0.25 / 2**0.5)
    found = predict(line, x, noise=Gaussian(0.25), alpha=0.05, n=100, seed=4, batch=5000)
    least = next(k for k in range(50, 101) if binomtest(k, 100, 0.5).pvalue <= 0.05)
    power = float(binom.sf(least - 1, 100, ndtr(0.2)))
    share = float((found.prediction == 1).mean())
    assert abs(share - power) < 5 * math.sqrt(power * (1 - power) / 2000)
    assert found.votes.sum(1).tolist() == [100] * 2000


NOISES = [
    Gaussian(0.25),
    Laplace(0.15),
    Uniform(0.6),
    GridGaussian(0.25, 255),
    HiddenGaussian(0.2),
    HiddenGaussian(0.2, input_scale=0.1),
]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_every_noise_answers_inside_and_not_on_the_boundary(line, noise):
    """What is certified is answered, there and everywhere in its ball."""
    points = torch.tensor([[0.9, 0.9], [0.1, 0.2], [0.5, 0.5]])
    labels = torch.tensor([1, 0, 1])
    found = predict(line, points, noise=noise, seed=1)
    assert found.prediction.tolist() == [1, 0, ABSTAIN]
    radii = certify(line, points, labels, noise=noise, n=2000, seed=2).radius
    for step in ([-1.0, 0.0], [-0.5, -0.5]):
        size = np.linalg.norm(step, 1 if noise.norm == "l1" else 2)
        towards = torch.tensor(step) * torch.tensor([[1.0], [-1.0]])
        moved = points[:2] + 0.9 * torch.from_numpy(radii[:2, None]).float() * towards / float(size)
        again = predict(line, moved.clamp(0, 1), noise=noise, n=4000, seed=3)
        assert again.prediction[0] in (1, ABSTAIN)
        assert again.prediction[1] in (0, ABSTAIN)


def test_noise_is_fresh_for_every_vote_and_input():
    shown = []

    def scores(x):
        if len(x) == 40:  # what is tried before has fewer rows
            shown.append(x.clone())
        return torch.stack([x[:, 0], -x[:, 0]], dim=1)

    seen = Classifier(name="t", scores=scores, shape=(2,), classes=2, device=torch.device("cpu"))
    predict(seen, torch.full((3, 2), 0.5), noise=Gaussian(0.25), n=40, batch=40, seed=0)
    rows = torch.cat(shown)
    assert len(rows) == 120
    assert len(torch.unique(rows, dim=0)) == 120


def test_many_requests_give_every_input_its_votes(line, monkeypatch):
    """Seven inputs, two in a request."""
    monkeypatch.setattr("privet.certification.prediction._AT_ONCE", 100)
    x = torch.tensor([[0.9, 0.9], [0.1, 0.1]] * 3 + [[0.9, 0.9]])
    found = predict(line, x, noise=Gaussian(0.1), n=50, seed=0, batch=64)
    assert found.prediction.tolist() == [1, 0, 1, 0, 1, 0, 1]
    assert found.votes.sum(1).tolist() == [50] * 7
    assert predict(line, x[:0], noise=Gaussian(0.1), seed=0).prediction.shape == (0,)


def test_scores_of_nan_are_no_answer():
    def scores(x):
        return torch.where(x[:, :1] > 0.5, torch.nan, torch.cat([x + 1, x], dim=1))

    broken = Classifier(name="t", scores=scores, shape=(1,), classes=2, device=torch.device("cpu"))
    found = predict(broken, torch.tensor([[0.2], [0.9]]), noise=Gaussian(0.01), seed=0)
    assert found.prediction.tolist() == [0, ABSTAIN]
    assert found.votes[1].tolist() == [0, 0, 1000]


def test_a_denoiser_stands_before_the_classifier(line):
    class Turned(nn.Module):
        def forward(self, x):
            return 1.0 - x

    x = torch.tensor([[0.9, 0.9], [0.1, 0.1]])
    found = predict(line, x, noise=Gaussian(0.1), denoiser=Turned(), seed=0)
    assert found.prediction.tolist() == [0, 1]
    assert "Turned" in found.terms["denoised"]


def test_a_release_is_asked_as_it_was_certified():
    """The votes of the same seed are those that a module gets when opened by hand."""
    torch.manual_seed(0)
    model = create("mlp", (1, 4, 4), 3)
    x = torch.rand(4, 1, 4, 4)
    asked = {"noise": Gaussian(0.5), "n": 200, "seed": 5}
    one, other = (predict(m, x, **asked) for m in (model, open_classifier(model, shape=(1, 4, 4))))
    assert one.votes.tolist() == other.votes.tolist()
    assert one.terms == {"alpha": 0.001, "n": 200, "precision": "float32"}


def test_votes_that_depend_on_each_other_are_refused():
    """Rows centred by the batch; one draw of the model's own noise for a whole call."""
    mixing, shared = nn.Linear(2, 2), nn.Linear(2, 2)
    mixing.forward = lambda x: (x - x.mean(0)) @ torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    shared.forward = lambda x: x + torch.randn(1, 2)
    x, y = torch.rand(3, 2), torch.zeros(3, dtype=torch.int64)
    for model, said in ((mixing, "mixes the rows"), (shared, "one draw")):
        with pytest.raises(InputError, match=said):
            predict(model, x, noise=Gaussian(0.25))
        with pytest.raises(InputError, match=said):
            certify(model, x, y, noise=Gaussian(0.25), n=100)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alpha": 0.5}, "alpha"),
        ({"n": 10}, "at least 11 at alpha 0.001"),
        ({"noise": 0.25}, "no noise"),
        ({"precision": "fp8"}, "unknown precision"),
        ({"x": torch.rand(2, 3)}, "such inputs"),
        ({"x": torch.rand(2, 2) + 1}, "outside of"),
    ],
)
def test_nonsense_is_refused(line, changes, said):
    asked = {"x": torch.rand(2, 2), "noise": Gaussian(0.25)} | changes
    with pytest.raises(InputError, match=said):
        predict(line, asked.pop("x"), **asked)


def test_the_least_number_of_votes_is_enough(line):
    """Eleven of one mind: 2^-10 < 0.001 < 2^-9."""
    found = predict(line, torch.ones(1, 2), noise=Gaussian(0.01), n=11, seed=0)
    assert found.prediction.tolist() == [1]
    assert found.p_value[0] == pytest.approx(2.0**-10)


def test_p_values_fall_with_the_winner_and_rise_with_the_rival():
    falling = [float(rank_p_value(a, 40)) for a in range(41, 90)]
    rising = [float(rank_p_value(90, b)) for b in range(90)]
    assert all(a > b for a, b in pairwise(falling))
    assert all(a < b for a, b in pairwise(rising))
