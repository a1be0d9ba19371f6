"""Expectation over the noise of a random classifier."""

import pytest
import torch

from privet.attacks import create
from privet.attacks.losses import Goal, negative_margin
from privet.attacks.victim import Victim
from privet.errors import InputError

W = torch.linspace(0.5, 1.5, 16)


@pytest.fixture
def noisy(make_classifier):
    """Scores with the gradient W plus noise three times as large, drawn for each image anew."""
    generator = torch.Generator().manual_seed(5)

    def scores(x):
        noise = 3 * torch.randn(x.shape, generator=generator)
        lead = 4 + ((W + noise) * (x - 0.5)).sum(1)
        return torch.stack([lead, torch.zeros_like(lead)], 1)

    return make_classifier(scores, (16,), 2, random=True)


@pytest.mark.parametrize("name", ["fgsm", "ifgsm", "pgd"])
def test_averaging_over_the_noise_makes_a_stronger_attack(name, noisy):
    """Share of the largest fall of the mean lead. A single draw has the right sign in 63 % of
    the coordinates (a share of 0.26 for one step), the mean of 32 in 97 % (0.94)."""
    x, y = torch.full((200, 16), 0.5), torch.zeros(200).long()
    shares = {}
    for eot in (1, 32):
        settings = {} if name == "fgsm" else {"steps": 3}
        found = create(name, eot=eot, **settings)(noisy, x, y, size=0.1)
        shares[eot] = float(-(W * (found - x)).sum(1).mean() / (0.1 * W.sum()))
    assert shares[32] > 0.75
    assert shares[1] < 0.6
    assert shares[32] > shares[1] + 0.25


def test_gradients_and_scores_are_means_over_the_draws(noisy):
    x = torch.full((1, 16), 0.75)
    gradient, loss, scores = Victim(noisy, 4000).gradient(
        x, Goal(labels=torch.tensor([0]), targeted=False), negative_margin
    )
    # 5 standard errors of a mean of 4000 draws, 16 coordinates: below one in 10^5
    torch.testing.assert_close(gradient[0], -W, atol=5 * 3 / 4000**0.5, rtol=0)
    sd = 3 * 0.25 * 4 / 4000**0.5
    assert abs(float(scores[0, 0]) - (4 + 0.25 * float(W.sum()))) < 5 * sd
    torch.testing.assert_close(loss, scores[:, 1] - scores[:, 0], atol=1e-3, rtol=0)


def test_a_classifier_without_noise_is_asked_once(digits):
    calls = []
    counted = digits.through(lambda s: calls.append(1) or s)
    create("fgsm", eot=50)(counted, digits.x[:5], digits.y[:5], size=0.01)
    assert len(calls) == 2  # the image with its gradient, the step


def test_success_at_a_random_classifier_does_not_end_the_search(make_classifier):
    rows = []

    def scores(x):
        rows.append(len(x))
        return torch.stack([x.sum(1) * 0, x.sum(1) * 0 + torch.rand(len(x)) - 0.5], 1)

    luck = make_classifier(scores, (3,), 2, random=True)
    create("pgd", steps=6)(luck, torch.rand(50, 3), torch.zeros(50).long(), size=0.1)
    assert rows == [50] * 8


def test_a_gradient_of_nan_points_nowhere(make_classifier):
    def scores(x):
        return torch.cat([x.sum(1, keepdim=True), (x * 0).sqrt().sum(1, keepdim=True)], 1)

    broken = make_classifier(scores, (3,), 2)
    goal = Goal(labels=torch.tensor([0]), targeted=False)
    gradient, _, _ = Victim(broken, 1).gradient(torch.rand(1, 3), goal, negative_margin)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "scores",
    [lambda x: x.detach()[:, :2], lambda x: torch.ones(len(x), 2, requires_grad=True) * 2],
    ids=["cut off", "unused"],
)
def test_a_classifier_without_gradients_is_named(scores, make_classifier):
    classifier = make_classifier(scores, (3,), 2)
    x = torch.tensor([[0.9, 0.1, 0.5]])
    y = classifier.labels(x)
    with pytest.raises(InputError, match="no gradient goes through the classifier: got made up"):
        create("fgsm")(classifier, x, y, size=0.1)
