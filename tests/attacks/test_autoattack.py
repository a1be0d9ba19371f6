"""AutoAttack: the package runs, our code judges."""

import importlib.util
import os
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import privet
from privet.attacks import create
from privet.attacks.geometry import norms
from privet.errors import FaultyEnvironment, InputError


@pytest.fixture
def package():
    """Present, or the test says why it could not run; in CI that is a failure."""
    if importlib.util.find_spec("pyautoattack") is None:
        message = "pyautoattack is not installed"
        if os.environ.get("PRIVET_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture
def stub(monkeypatch):
    """In place of the package: returns what it is told to, and remembers how it was made."""
    told = SimpleNamespace(answer=lambda x: x, made=[])

    class AutoAttack:
        def __init__(self, model, **settings):
            parts = ("apgd", "apgd_targeted", "fab", "square")
            for part in parts:
                setattr(self, part, SimpleNamespace())
            rand = settings["version"] == "rand"
            self.attacks_to_run = (
                ["apgd-ce", "apgd-dlr"] if rand else ["apgd-ce", "apgd-t", "fab-t", "square"]
            )
            self.settings, self.model = settings, model
            told.made.append(self)

        def run_standard_evaluation(self, x, y, *, batch_size):
            torch.manual_seed(99)  # as the package does
            self.model(x)
            return told.answer(x), y

    module = ModuleType("pyautoattack")
    module.AutoAttack = AutoAttack
    monkeypatch.setitem(sys.modules, "pyautoattack", module)
    return told


def test_without_the_package_the_fix_is_named(monkeypatch, make_linear):
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    linear = make_linear()
    with pytest.raises(FaultyEnvironment, match=r"pip install privet\[autoattack\]") as missing:
        create("autoattack")(linear.classifier, linear.x, linear.y, size=0.1)
    assert missing.value.exit_code == 3


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("answer", [lambda x: x + 1, lambda x: x * float("nan"), lambda x: x - 9])
def test_what_it_returns_is_brought_into_ball_and_box(norm, answer, stub, make_linear):
    """Its word is not taken for it: inputs outside are projected, then scored by us."""
    linear = make_linear(spread=0.5)
    stub.answer = answer
    found = create("autoattack", norm=norm)(linear.classifier, linear.x, linear.y, size=0.2)
    assert (norms(found - linear.x, norm) <= 0.2 + 1e-6).all()
    assert ((found >= 0) & (found <= 1)).all()


def test_a_claim_of_success_is_not_believed(stub, make_linear):
    linear = make_linear(lift=30.0)  # nobody can be fooled
    stub.answer = lambda x: torch.zeros_like(x)
    result = privet.attack("autoattack", linear.classifier, linear.x, linear.y, sizes=0.1)
    assert result.robust_accuracy == {0.1: 1.0}


def test_attacks_fit_the_number_of_classes_and_of_pixels(stub, make_classifier):
    def run(classes, shape=(1, 5, 5), **facts):
        x = torch.rand(6, *shape)
        w = torch.randn(x[0].numel(), classes, generator=torch.Generator().manual_seed(0))
        victim = make_classifier(lambda z: z.flatten(1) @ w, shape, classes, **facts)
        create("autoattack", eot=3, queries=7)(victim, x, victim.labels(x), size=0.1)
        return stub.made[-1]

    ten = run(10)
    assert ten.attacks_to_run == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert (ten.apgd_targeted.n_target_classes, ten.fab.n_target_classes) == (9, 9)
    assert ten.square.n_queries == 7
    five = run(5)
    assert (five.apgd_targeted.n_target_classes, five.fab.n_target_classes) == (4, 4)
    assert run(3).attacks_to_run == ["apgd-ce", "fab-t", "square"]
    for too_small in ((9,), (1, 4, 9)):  # Square's tiles do not fit
        assert run(10, too_small).attacks_to_run == ["apgd-ce", "apgd-t", "fab-t"]
    drawn = run(10, random=True)
    assert drawn.settings["version"] == "rand"
    assert drawn.apgd.eot_iter == 3
    assert run(2, random=True).attacks_to_run == ["apgd-ce"]


def test_the_generator_of_the_caller_is_left_alone(stub, make_linear):
    linear = make_linear()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    create("autoattack")(linear.classifier, linear.x, linear.y, size=0.1)
    assert torch.equal(torch.rand(1), expected)


def test_targets_are_refused(stub, make_linear):
    linear = make_linear()
    with pytest.raises(InputError, match="autoattack takes no targets"):
        create("autoattack")(linear.classifier, linear.x, linear.y, size=0.1, target=1 - linear.y)


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
def test_the_package_fools_exactly_whom_it_can(norm, dual, package, make_linear):
    """Linear, two classes: fooled if and only if |f| < size |w|_q."""
    linear = make_linear()
    reach = np.linalg.norm(linear.w.flatten(), dual)
    size = float(linear.f(linear.x).abs().median() / reach)
    found = create("autoattack", norm=norm, queries=20)(
        linear.classifier, linear.x, linear.y, size=size
    )
    gap = linear.f(linear.x).abs() / reach / size
    fooled = linear.classifier.labels(found) != linear.y
    assert fooled[gap < 0.999].all()
    assert not fooled[gap > 1.001].any()
    assert 10 < int(fooled.sum()) < 30


@pytest.mark.parametrize(("norm", "size"), [("linf", 0.1), ("l1", 2.0)])
def test_the_package_is_at_least_as_strong_as_pgd(norm, size, package, digits):
    """By one image of thirty; and what it finds is allowed."""
    x, y = digits.x[:30], digits.y[:30]
    found = create("autoattack", norm=norm, queries=50)(digits.classifier, x, y, size=size)
    weaker = create("pgd", norm=norm, steps=20)(digits.classifier, x, y, size=size)
    held, held_by_pgd = ((digits.classifier.labels(z) == y).sum() for z in (found, weaker))
    assert (norms(found - x, norm) <= size + 1e-5).all()
    assert ((found >= 0) & (found <= 1)).all()
    assert 1 < int(held) <= int(held_by_pgd) + 1
    assert int(held) < 25
