from dataclasses import replace
from types import SimpleNamespace

import numpy as np
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


@pytest.fixture
def hilly():
    """Two classes whose lead has many hills and stays above zero: nobody is fooled, so every input
    that an attack asks about is seen, in double precision. `loss` and `gradient` are closed forms
    of the cross entropy, in NumPy, for one image."""
    seen = []

    def scores(x):
        seen.append(x.detach().numpy().copy())
        lead = 1.5 + torch.sin(12 * x.flatten(1)).mean(1)
        return torch.stack([lead, torch.zeros_like(lead)], 1)

    def loss(x):
        return np.log1p(np.exp(-1.5 - np.sin(12 * x).mean()))

    def gradient(x):
        lead = 1.5 + np.sin(12 * x).mean()
        return -12 * np.cos(12 * x) / x.size / (1 + np.exp(lead))

    generator = torch.Generator().manual_seed(0)
    x = 0.3 + 0.4 * torch.rand(8, 5, generator=generator, dtype=torch.float64)
    return SimpleNamespace(
        classifier=classifier_of(scores, (5,), 2),
        seen=seen, loss=loss, gradient=gradient, x=x, y=torch.zeros(8).long(),
    )  # fmt: skip


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
