"""Kurakin's and Madry's examples, by hand; and what training on them does."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import privet
from privet.attacks import create
from privet.attacks.geometry import norms
from privet.classifiers import open_classifier
from privet.engine.examples import Examples
from privet.engine.summing import BatchSum
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.clipping import FastClipper, cross_entropy
from privet.training import dpsgd, train
from privet.training.adversarial import Kurakin, Madry, find_adversary
from privet.verification import verify

SIZE = 0.15


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).double()


def records(n=9):
    return torch.rand(n, 6, generator=seeded(1)).double(), torch.arange(n) % 3


def by_hand(model, x, labels):
    """The fast gradient sign method, one input at a time."""
    found = []
    for row, label in zip(x, labels, strict=True):
        inputs = row[None].clone().requires_grad_()
        F.cross_entropy(model(inputs), label[None]).backward()
        found.append((row + SIZE * inputs.grad[0].sign()).clamp(0, 1))
    model.zero_grad()
    return torch.stack(found)


@pytest.mark.parametrize("own_label", [True, False])
def test_one_step_is_the_fast_gradient_sign_method(own_label):
    """From the predicted label unless the true one is asked for; some predictions are wrong."""
    model, (x, y) = network(), records()
    predicted = model(x).argmax(1)
    assert (predicted != y).any()
    made = Kurakin(size=SIZE, own_label=own_label)(model, x, y, seeded()).reshape(9, 2, 6)
    assert torch.equal(made[:, 0], x)
    expected = by_hand(model, x, y if own_label else predicted)
    assert torch.allclose(made[:, 1], expected, atol=1e-12)


class Doubled:
    """Two views: one as it is, one halved."""

    views = 2

    def __call__(self, x, generator):
        return torch.stack([x, x / 2], 1).flatten(0, 1)


@contextmanager
def draws():
    yield seeded()


@pytest.mark.parametrize("augmentation", [None, Doubled()])
def test_clean_and_adversarial_losses_are_weighed_as_in_the_paper(augmentation):
    """(L(x) + 0.3 L(x')) / 1.3, the mean over views, against plain autograd."""
    model, (x, y) = network(), records()
    summed = BatchSum(
        clipper=FastClipper(model, cross_entropy, 1e6),  # nothing is clipped
        examples=Examples(x, y, None, torch.device("cpu")),
        augmentation=augmentation,
        adversary=Kurakin(size=SIZE, own_label=True),
        expected=4.0,
    )
    found = summed.of(torch.arange(9), draws, lambda: None)
    views = [x] if augmentation is None else [x, x / 2]
    loss = 0.0
    for seen in views:
        partner = by_hand(model, seen, y)
        clean, adversarial = (
            F.cross_entropy(model(v), y, reduction="sum") for v in (seen, partner)
        )
        loss = loss + (clean + 0.3 * adversarial) / 1.3 / len(views)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    expected = torch.cat([g.flatten() for g in gradients])
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("kind", [Kurakin, Madry])
def test_partners_are_inside_the_ball_and_the_box(kind, norm):
    model, (x, y) = network(), records(60)
    x = x.round(decimals=1)  # some on the border of the box
    adversary = kind(size=SIZE, norm=norm)
    partner = adversary(model, x, y, seeded()).reshape(60, -1, 6)[:, -1]
    assert (norms(partner - x, norm) <= SIZE * (1 + 1e-9)).all()
    assert partner.min() >= 0
    assert partner.max() <= 1
    assert (partner != x).any(1).all()


@pytest.mark.parametrize(("norm", "size"), [("linf", 0.3), ("l2", 0.6)])
def test_many_steps_find_higher_losses_than_one(norm, size):
    model, (x, y) = network(), records(200)
    with torch.no_grad():
        model[0].weight.mul_(4.0)  # bent enough that one gradient does not tell all
        model[2].weight.mul_(4.0)

    def mean_loss(inputs):
        return F.cross_entropy(model(inputs), y).item()

    one = Kurakin(size=size, norm=norm, own_label=True)(model, x, y, seeded())
    many = Madry(size=size, norm=norm, steps=20)(model, x, y, seeded())
    one = one.reshape(200, 2, 6)[:, 1]
    assert mean_loss(many) > 1.02 * mean_loss(one) > 1.2 * mean_loss(x)


def test_madry_starts_at_random_and_takes_steps_of_his_length():
    """On a slope that is the same everywhere, each step adds 2.5 size / steps."""
    slope = nn.Linear(4, 2).double()
    with torch.no_grad():
        slope.weight.copy_(torch.tensor([[1.0] * 4, [-1.0] * 4]))
    x, y = torch.full((50, 4), 0.5).double(), torch.zeros(50, dtype=torch.int64)
    size = 0.2
    partner = Madry(size=size, steps=10)(slope, x, y, seeded())
    assert torch.allclose(partner, x - size), "ten steps of a quarter of the size cross the ball"
    short = Madry(size=size, steps=1)
    start = short(slope, x, y, seeded()) - x
    assert torch.equal(start, torch.full_like(start, -size)), "2.5 sizes reach the border"


def test_refusals():
    for wrong in ({"size": 0.0}, {"size": float("nan")}, {"steps": 0}, {"norm": "l3"}):
        with pytest.raises(InputError):
            Madry(**wrong)
    with pytest.raises(InputError, match="bad weight"):
        Kurakin(weight=0.0)
    assert find_adversary("none", size=0.1, norm="linf", steps=1) is None


# --- in a private run --------------------------------------------------------------------------


@pytest.fixture
def uncalibrated(monkeypatch):
    """Noise of one multiplier, where no epsilon is asked about."""
    monkeypatch.setattr("privet.engine.plan.calibrate", lambda *_, **__: 1.5)


@pytest.mark.usefixtures("uncalibrated")
@pytest.mark.parametrize("name", ["kurakin", "madry"])
def test_a_redone_step_repeats_exactly(make_data, tmp_path, name):
    """Interrupted between checkpoints: the journal would show a step that came out different."""
    options = {"epsilon": 3.0, "epochs": 4, "model": "mlp", "checkpoint_every": 10}
    options |= {"adversarial": name, "adversarial_size": SIZE, "noise_seed": 5}
    data, book = make_data(), Ledger(tmp_path / "ledger.db")

    def stop(trainer):
        if trainer.next_step == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("dpsgd", data, ledger=book, out=tmp_path / "cut", watch=stop, **options)
    cut = dpsgd.resume(tmp_path / "cut", data, ledger=book)
    whole = train("dpsgd", data, ledger=book, **options)
    assert cut.trust["mechanism"]["redone_steps"] == 0
    for one, other in zip(cut.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)
    book.close()


@pytest.fixture(scope="module")
def digits():
    return privet.data.load("digits")


def under_attack(release, data, size=0.1):
    classifier = open_classifier(release)
    x = torch.from_numpy(data.bounds.clamp_and_scale(data.test.x))
    y = torch.from_numpy(data.test.y)
    found = create("pgd", steps=20)(classifier, x, y, size=size)
    return float((classifier.labels(found) == y).double().mean())


@pytest.mark.parametrize("name", ["kurakin", "madry"])
def test_adversarial_training_makes_a_model_harder_to_fool(digits, name):
    """Accuracy under PGD, linf 0.1: it rises by 9 points or more on seeds 0 to 2; 5 are asked."""
    train = partial(privet.train, "plain", digits, model="mlp", epochs=12, learning_rate=0.1)
    usual, hardened = train(), train(adversarial=name)
    assert usual.trust["utility"]["test_accuracy"] > 0.9
    assert hardened.trust["utility"]["test_accuracy"] > 0.85
    assert under_attack(hardened, digits) > under_attack(usual, digits) + 0.05


@pytest.mark.usefixtures("uncalibrated")
def test_a_private_model_can_be_hardened(digits):
    """Noise of a known seed: it rises by 10 points or more on seeds 1 and 2; 5 are asked."""
    private = partial(privet.train, "dpsgd", digits, epsilon=8.0, model="mlp", epochs=40)
    usual = private(noise_seed=1)
    hardened = private(noise_seed=1, adversarial="madry", adversarial_steps=3)
    assert under_attack(hardened, digits) > under_attack(usual, digits) + 0.05


def test_the_card_of_a_private_run_says_what_it_was_trained_on(make_data, tmp_path):
    release = privet.train(
        "dpsgd", make_data(), epsilon=1.0, model="linear", epochs=1, batch=40,
        adversarial="madry", adversarial_steps=3, out=tmp_path / "run",
    )  # fmt: skip
    assert 0.99 < release.privacy.epsilon <= 1.0
    config = release.trust["provenance"]["config"]
    named = {name: value for name, value in config.items() if name.startswith("adversarial")}
    assert named == {
        "adversarial": "madry", "adversarial_norm": "linf", "adversarial_size": 0.1,
        "adversarial_steps": 3,
    }  # fmt: skip
    assert release.trust["mechanism"]["torch_draws"]
    assert any("PyTorch's generators" in text for text in release.privacy.assumptions)
    found = verify(tmp_path / "run")
    assert found.ok, [f for f in found.findings if not f.ok]


@pytest.mark.usefixtures("uncalibrated")
def test_a_front_is_attacked_through(digits):
    """The partner is an image, not a feature: the front is not computed beforehand."""
    release = privet.train(
        "dpsgd", digits, epsilon=3.0, model="scatter-linear", epochs=0.4, batch=100,
        adversarial="kurakin", noise_seed=1,
    )  # fmt: skip
    assert type(release.model).__name__ == "Fronted"
    assert np.isfinite(release.scores(digits.test.x[:3]).numpy()).all()
