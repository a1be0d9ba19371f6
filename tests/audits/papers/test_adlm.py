"""AdLM's releases do not keep their claims; the sound relevance does."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from privet.audits.mechanism import audit_mechanism, refutes, scores_of
from privet.audits.papers.adlm import (
    AFFINE,
    BATCH,
    EPSILON_2,
    NoisedRelevance,
    OneStep,
    affine,
    mean_relevance,
    relevances,
    weights,
)
from privet.guarantee import Adjacency
from privet.training.adlm import shares_of


@pytest.mark.parametrize("make", [weights, affine, relevances])
def test_the_claim_is_refuted_beyond_doubt(make):
    subject = make()
    evidence = audit_mechanism(subject, confidence=0.999)
    assert subject.adjacency is Adjacency.REPLACE_ONE
    assert refutes(evidence, subject)
    assert evidence.epsilon > 3 * subject.epsilon


def test_claims_are_those_of_the_program():
    assert [make().epsilon for make in (weights, affine, relevances)] == pytest.approx(
        [0.3, 0.075, 0.075]
    )


def test_the_label_is_read_exactly_whatever_the_noise_is():
    scores = scores_of(weights(), 2000, 1)
    assert (scores.without == 0.0).mean() > 0.999
    assert (scores.with_ == 1.0).mean() > 0.999


def test_one_step_is_what_autograd_makes_of_the_paper_s_loss():
    """The closed form of the counter-example, against torch."""
    step, rng = OneStep(), np.random.default_rng(5)
    h = rng.laplace(0.0, AFFINE / (BATCH * EPSILON_2), (1, step.patch)).mean(1)
    a = torch.tensor(step.slope, dtype=torch.float64, requires_grad=True)
    c = torch.tensor(step.offset, dtype=torch.float64, requires_grad=True)
    w = torch.tensor(step.output, requires_grad=True)
    n3 = torch.from_numpy(rng.laplace(0.0, 1812.5 / (BATCH * 0.15), (1, step.classes)))
    y = torch.nn.functional.one_hot(torch.zeros(BATCH, dtype=torch.long), step.classes)
    y[0] = torch.nn.functional.one_hot(torch.tensor(1), step.classes)
    z = w * (a * float(h[0]) + c).clamp(-1, 1)
    loss = ((0.5 - y.double()) * z + z**2 / 8).sum(1).mean() - (n3 * w).sum()
    da, dc, dw = torch.autograd.grad(loss, (a, c, w))
    expected = torch.cat([torch.stack([a - 0.1 * da, c - 0.1 * dc]), w - 0.1 * dw]).detach()
    assert step(True, 1, 5)[0].tolist() == pytest.approx(expected.tolist(), rel=1e-9)


def test_one_record_changes_all_relevances():
    mechanism = NoisedRelevance()
    moved = np.abs(mean_relevance(mechanism, True) - mean_relevance(mechanism, False)).sum()
    accounted = 2 * mechanism.inputs / mechanism.size
    assert moved > 20 * accounted


def test_with_a_network_that_is_fixed_the_sensitivity_holds():
    """The same records, relevances of a network from elsewhere: one record moves one row."""
    mechanism = NoisedRelevance()
    torch.manual_seed(0)
    network = torch.nn.Linear(mechanism.inputs, 2, bias=False).double()
    (x, _), (other, _) = mechanism.records(False), mechanism.records(True)
    moved = shares_of(network, x).sum(0) - shares_of(network, other).sum(0)
    assert float(moved.abs().sum()) <= 2.0  # replace-one: twice the 1 of add/remove


def linear_accuracy(noise, seed=0):
    """A linear least squares classifier of centred inputs, trained under noise, tested without."""
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    train, test = np.arange(len(y)) % 5 > 0, np.arange(len(y)) % 5 == 0
    seen = x[train] + noise(np.random.default_rng(seed), x[train].shape)
    centred = seen - seen.mean(0)
    targets = np.eye(10)[y[train]] - 0.1
    w = np.linalg.solve(centred.T @ centred + 1e-3 * len(centred) * np.eye(64), centred.T @ targets)
    found = ((x[test] - x[train].mean(0)) @ w).argmax(1)
    return float((found == y[test]).mean())


def test_shared_noise_hides_nothing_and_own_noise_of_that_scale_hides_all():
    scale = AFFINE / (BATCH * EPSILON_2)
    assert scale == pytest.approx(72.6, abs=0.05)
    none = linear_accuracy(lambda rng, shape: np.zeros(shape))
    shared = linear_accuracy(lambda rng, shape: rng.laplace(0, scale, (1, shape[1])))
    own = [linear_accuracy(lambda rng, shape: rng.laplace(0, scale, shape), s) for s in range(8)]
    assert none > 0.9
    assert shared == pytest.approx(none, abs=0.003)
    assert np.mean(own) < 0.2
