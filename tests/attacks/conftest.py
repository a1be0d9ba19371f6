from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from privet.classifiers import Classifier, open_classifier

CPU = torch.device("cpu")


def classifier_of(scores, shape, classes, **facts):
    return Classifier(
        name="made up", scores=scores, shape=shape, classes=classes, device=CPU, **facts
    )


@pytest.fixture
def make_classifier():
    return classifier_of


@pytest.fixture
def make_linear():
    """Two classes, scores (f, -f) with f = <w, x> + b: everything is known in closed form."""

    def make(shape=(3, 2, 2), *, n=40, spread=0.05, lift=0.0, seed=0, w=None):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(shape, generator=generator) if w is None else w
        x = 0.5 + spread * (2 * torch.rand(n, *shape, generator=generator) - 1)
        b = lift - float((w * 0.5).sum())

        def f(x):
            return (x * w).flatten(1).sum(1) + b

        def scores(x):
            return torch.stack([f(x), -f(x)], 1)

        classifier = classifier_of(scores, tuple(shape), 2)
        return SimpleNamespace(classifier=classifier, w=w, f=f, x=x, y=(f(x) < 0).long())

    return make


@pytest.fixture(scope="session")
def digits():
    """A small network trained on scikit-learn's digits, and test images."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    y = torch.tensor(labels)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 9, 10),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), 2e-3)
        for _ in range(15):
            for batch in torch.randperm(1400).split(64):
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    classifier = open_classifier(model, shape=(1, 8, 8))

    def through(function, **facts):
        """The same network, with its scores passed through a function."""
        return replace(classifier, scores=lambda z: function(classifier.scores(z)), **facts)

    return SimpleNamespace(classifier=classifier, x=x[1400:], y=y[1400:], through=through)
