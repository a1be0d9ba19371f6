"""Compiled classifiers: tried first, left as they are where that fails, with the reason."""

import torch
from torch import nn

from privet.certification import Gaussian, HiddenGaussian, certify
from privet.classifiers import Classifier, open_classifier
from privet.classifiers.compiled import compiled
from privet.privacy.precision import FULL

CPU = torch.device("cpu")


def fake_compiler(calls):
    """Stands for torch.compile: the same function, and a list of the shapes that it was given."""

    def compile_(function, *, dynamic):
        assert dynamic is False

        def run(x):
            calls.append(tuple(x.shape))
            return function(x)

        return run

    return compile_


def test_it_is_tried_on_the_batch_that_it_will_get(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", fake_compiler(calls))
    model = open_classifier(nn.Linear(3, 2), shape=(3,))
    made, why = compiled(model, 16, FULL)
    assert why == ""
    assert calls == [(16, 3)]
    x = torch.rand(16, 3)
    assert torch.equal(made.scores(x), model.scores(x))
    assert len(calls) == 2


def test_votes_go_through_the_compiled_classifier_in_one_size(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", fake_compiler(calls))
    x, y = torch.rand(3, 3), torch.zeros(3, dtype=torch.int64)
    asked = {"noise": Gaussian(0.1), "n": 50, "n0": 10, "seed": 0, "batch": 32}
    found = certify(nn.Linear(3, 2), x, y, **asked, compile=True)
    assert found.terms["compiled"] == "yes"
    assert set(calls) == {(32, 3)}
    assert len(calls) > 3
    assert "compiled" not in certify(nn.Linear(3, 2), x, y, **asked).terms


def test_a_failure_is_a_note(monkeypatch):
    def broken(function, *, dynamic):
        raise_ = RuntimeError("\nno compiler here\nmore words")

        def run(x):
            raise raise_

        return run

    monkeypatch.setattr(torch, "compile", broken)
    model = open_classifier(nn.Linear(3, 2), shape=(3,))
    made, why = compiled(model, 4, FULL)
    assert made is model
    assert why == "RuntimeError: no compiler here"
    x, y = torch.rand(1, 3), torch.zeros(1, dtype=torch.int64)
    found = certify(model, x, y, noise=Gaussian(0.1), n=50, seed=0, compile=True)
    assert found.terms["compiled"] == "no: RuntimeError: no compiler here"


def test_what_is_not_pytorch_or_runs_in_parts_is_left(monkeypatch):
    monkeypatch.setattr(torch, "compile", None)  # never called
    box = Classifier(
        name="t", scores=lambda x: x, shape=(2,), classes=2, device=CPU, differentiable=False
    )
    assert compiled(box, 4, FULL) == (box, "it is not computed by PyTorch")
    x, y = torch.rand(1, 3), torch.zeros(1, dtype=torch.int64)
    noise = HiddenGaussian(0.1)
    found = certify(nn.Linear(3, 2), x, y, noise=noise, n=50, seed=0, compile=True)
    assert found.terms["compiled"].startswith("no: its layers")
