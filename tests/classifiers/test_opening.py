"""Anything that classifies, on inputs in [0, 1]."""

import pytest
import torch
from torch import nn

from privet.classifiers import Classifier, open_classifier
from privet.errors import InputError


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def test_a_module_gives_its_own_scores(linear):
    found = open_classifier(linear, shape=(1, 2, 2))
    x = torch.rand(5, 1, 2, 2)
    assert torch.equal(found.scores(x), linear(x))
    assert (found.classes, found.shape, found.random, found.differentiable) == (
        3,
        (1, 2, 2),
        False,
        True,
    )
    assert torch.equal(found.labels(x), linear(x).argmax(1))


def test_another_range_is_scaled_so_that_sizes_halve(linear):
    """A model on [-1, 1]: its step of 0.2 is 0.1 here."""
    found = open_classifier(linear, shape=(4,), low=-1.0, high=1.0)
    x = torch.rand(5, 4)
    assert torch.allclose(found.scores(x), linear(2 * x - 1))
    assert torch.allclose(found.scores(x + 0.1), linear(2 * x - 1 + 0.2), atol=1e-6)


def test_a_model_that_draws_is_called_random(linear):
    class Noisy(nn.Module):
        def forward(self, x):
            return linear(x + torch.randn_like(x))

    assert open_classifier(Noisy(), shape=(4,)).random


def test_dropout_is_off(linear):
    model = nn.Sequential(nn.Dropout(0.9), linear)
    assert not open_classifier(model, shape=(4,)).random


def test_a_classifier_stays_itself(linear):
    one = open_classifier(linear, shape=(4,))
    assert open_classifier(one) is one


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (nn.Linear(4, 3), {}, "say shape="),
        (nn.Linear(4, 3), {"shape": (4,), "low": 1.0, "high": 0.0}, "low < high"),
        (nn.Unflatten(1, (2, 2)), {"shape": (4,)}, "one row of scores"),
        (3, {}, "nothing that classifies"),
    ],
)
def test_what_cannot_be_opened_is_refused(source, options, said):
    with pytest.raises(InputError, match=said):
        open_classifier(source, **options)


def test_inputs_that_do_not_fit_are_refused(linear):
    found: Classifier = open_classifier(linear, shape=(4,))
    y = torch.zeros(2, dtype=torch.int64)
    good = torch.rand(2, 4)
    assert torch.equal(found.require(good, y)[0], good)
    for x, labels, said in (
        (torch.rand(2, 5), y, "cannot take"),
        (torch.rand(3, 4), y, "one label for each"),
        (good, y[:, None], "one label for each"),
        (good + 1, y, "outside of"),
        (torch.full((2, 4), torch.nan), y, "outside of"),
        (good, y + 3, "0 to 2"),
        (good, y.float(), "int64"),
    ):
        with pytest.raises(InputError, match=said):
            found.require(x, labels)
