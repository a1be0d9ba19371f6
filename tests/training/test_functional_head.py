"""One release of the coefficients of an objective: known answers; an oracle is `functional`."""

import contextlib
import math

import numpy as np
import pytest
import torch

import privet
from privet.data.dataset import Split
from privet.engine.plan import Plan
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import Fronted, create
from privet.privacy.functional import Logistic
from privet.privacy.noise import GaussianNoise
from privet.training.functional_head import (
    _BY_DEFAULT,
    SENSITIVITY,
    Features,
    FunctionalSettings,
    Moments,
    coefficients,
    minimised,
)
from privet.verification import verify


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def digits():
    return privet.data.load("digits")


@pytest.fixture
def images(make_data):
    """Made-up images of three classes."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = np.clip(rng.uniform(0, 0.6, (300, 1, 8, 8)) + 0.2 * y[:, None, None, None], 0, 1)
    split = Split(x=x.astype(np.float32), y=y.astype(np.int64))
    return make_data(n=300, train=split, test=split, classes=("a", "b", "c"))


def features_of(data, number=40):
    front = create("scatter-linear", data.shape, len(data.classes)).front
    return Features(front, 81 * 4, number)


@pytest.mark.parametrize("image", ["digits", "noise", "black", "white"])
def test_no_record_is_longer_than_one(digits, image):
    x = {
        "digits": torch.as_tensor(digits.bounds.clamp_and_scale(digits.train.x[:200])),
        "noise": torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
        "black": torch.zeros(1, 1, 8, 8),
        "white": torch.ones(1, 1, 8, 8),
    }[image]
    for number in (2, 40, 10_000):
        h = features_of(digits, number)(x)
        assert h.shape[1] == min(number, 325)
        assert torch.linalg.vector_norm(h, dim=1).max() <= 1 + 1e-5


def test_the_gradient_of_a_record_is_its_coefficients():
    head = Moments(5, 3)
    with torch.no_grad():  # whatever the parameters are
        for p in head.parameters():
            p.normal_(generator=torch.Generator().manual_seed(1))
    h, y = torch.randn(1, 5, generator=torch.Generator().manual_seed(2)), torch.tensor([2])
    s, b = torch.autograd.grad(coefficients(head(h), y).sum(), list(head.parameters()))
    assert torch.allclose(s, h.T @ h, atol=1e-6)
    expected = torch.zeros(3, 5)
    expected[2] = h[0]
    assert torch.allclose(b, expected, atol=1e-6)


def test_the_released_square_is_the_mean_with_its_transpose():
    """Else the noise off the diagonal is not halved, and half of what was paid for is not used."""
    head = Moments(2, 2)
    with torch.no_grad():
        head.quadratic.weight.copy_(torch.tensor([[1.0, 4.0], [2.0, 3.0]]))
    s, _ = head.released()
    assert s.tolist() == [[-1.0, -3.0], [-3.0, -3.0]]


def test_the_projection_follows_from_a_public_seed(digits):
    """Whatever else was drawn before: a resumed run and a reader have the same features."""
    x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        made.append(features_of(digits)(x))
    assert torch.equal(*made)
    projection = features_of(digits).get_buffer("projection").double()
    gram = projection @ projection.T
    assert torch.allclose(gram / gram[0, 0], torch.eye(39, dtype=torch.float64), atol=1e-5)


def test_without_noise_it_is_the_functional_mechanisms_own_answer(images):
    """Against `privacy.functional`, which packs a triangle: other code, the same objective."""
    data = images
    settings = FunctionalSettings(epsilon=1e6, delta=1e-5, features=30).filled_for(data)
    network = settings.network(data)
    x = torch.as_tensor(data.bounds.clamp_and_scale(data.train.x))
    y = torch.as_tensor(data.train.y)
    h = network.front(x)
    with torch.no_grad():
        s, b = h.T @ h, torch.nn.functional.one_hot(y, len(data.classes)).float().T @ h
        network.head.quadratic.weight.copy_(-s)
        network.head.linear.weight.copy_(-b)
    objective = Logistic(features=30, classes=len(data.classes))
    sums = objective.coefficients(h.detach(), y)
    exact = torch.linalg.solve(
        objective.curvature * sums[0] + 0.01 * torch.eye(30, dtype=torch.float64),
        -0.5 * objective.slope(sums[1]),
    )
    ours = minimised(*network.head.released(), ridge=0.01 / objective.curvature)
    assert torch.allclose(ours, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_the_released_head_gives_the_scores_of_the_minimum(images, ridge):
    data = images
    settings = FunctionalSettings(epsilon=5.0, features=30, ridge=ridge).filled_for(data)
    trained, plan = settings.network(data), settings.plan_for(data)
    with torch.no_grad():
        for p in trained.head.parameters():
            p.normal_(generator=torch.Generator().manual_seed(4))
    classifier = settings.made_of(trained, data, plan)
    assert isinstance(classifier, Fronted)
    x = torch.rand(7, *data.shape, generator=torch.Generator().manual_seed(0))
    s, b = trained.head.released()
    deviation = plan.noise_multiplier * SENSITIVITY / plan.normaliser
    weights = minimised(s, b, ridge=ridge * deviation * math.sqrt(60))
    scores = trained.front(x).double() @ weights
    assert torch.allclose(classifier(x).double(), scores, atol=1e-4)


def test_the_plan_is_one_gaussian_release(images):
    data = images
    plan = FunctionalSettings(epsilon=1.0, delta=1e-5).plan_for(data)
    assert (plan.steps, plan.sampling_rate, plan.clip_norm) == (1, 1.0, SENSITIVITY)
    # The analytic Gaussian mechanism at (1, 1e-5): 3.7304.
    assert plan.noise_multiplier == pytest.approx(3.73, rel=5e-3)


@pytest.fixture
def seen(monkeypatch):
    """What a run hands to `made_of`: its network, as trained, and its plan."""
    kept, made_of = {}, FunctionalSettings.made_of

    def keep(self, trained, data, plan: Plan):
        kept.update(plan=plan, front=trained.front, moments=trained.head)
        return made_of(self, trained, data, plan)

    monkeypatch.setattr(FunctionalSettings, "made_of", keep)
    return kept


def test_the_noise_is_that_of_the_plan(images, ledger, seen):
    """Entries of S that no record touches: their spread is sigma sqrt(2) / n."""
    privet.train("stobatch-fm", images, epsilon=0.5, features=100, ledger=ledger)
    plan, weight = seen["plan"], seen["moments"].quadratic.weight.detach()
    antisymmetric = (weight - weight.T)[tuple(np.triu_indices(100, 1))] / math.sqrt(2)
    expected = plan.noise_multiplier * SENSITIVITY / plan.normaliser
    # 4,950 draws: the spread is known to 1 %; five times that.
    assert float(antisymmetric.std()) == pytest.approx(expected, rel=0.05)


def square_of(x, front):
    """S over n, of inputs as they are."""
    with torch.no_grad():
        h = front(x).double()
    return h.T @ h / len(h)


@pytest.mark.parametrize("views", [1, 16])
def test_the_square_is_of_noisy_inputs_in_so_many_views(images, ledger, seen, monkeypatch, views):
    """Without the mechanism's own noise: off the mean of 30 draws of S by no more than it should.

    That is the spread of the draws, for a mean over so many views; without input noise it would be
    2.8 times that spread.
    """
    monkeypatch.setattr(GaussianNoise, "add_to", lambda self, total, **_: total.double())
    asked = {"epsilon": 3.0, "features": 30, "input_noise": 0.5, "noise_seed": 1}
    privet.train("stobatch-fm", images, views=views, ledger=ledger, **asked)
    x, front = torch.as_tensor(images.bounds.clamp_and_scale(images.train.x)), seen["front"]
    generator = torch.Generator().manual_seed(0)
    noisy = (x + 0.5 * torch.randn(x.shape, generator=generator) for _ in range(30))
    draws, (s, _) = (
        torch.stack([square_of(one, front) for one in noisy]),
        seen["moments"].released(),
    )
    off, spread = float((s - draws.mean(0)).norm()), float(draws.var(0).sum().sqrt())
    assert off == pytest.approx(spread * math.sqrt(1 / views + 1 / len(draws)), rel=0.5)


def test_it_learns_and_verifies(digits, ledger, tmp_path):
    release = privet.train("stobatch-fm", digits, epsilon=3.0, ledger=ledger, out=tmp_path / "r")
    assert release.trust["utility"]["test_accuracy"] > 0.8
    assert release.privacy.epsilon == pytest.approx(3.0, rel=1e-3)
    assert verify(tmp_path / "r", ledger=ledger).ok


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 7}, "looks at all records once"),
        ({"features": 1}, "bad features"),
        ({"ridge": 0.0}, "bad ridge"),
        ({"model": "cnn-tiny"}, "linear head"),
    ],
)
def test_what_makes_no_sense_is_refused(digits, ledger, options, said):
    with pytest.raises(InputError, match=said):
        privet.train("stobatch-fm", digits, epsilon=3.0, ledger=ledger, **options)


OTHERWISE = {  # than the one look; each must be refused, whatever else is as it should be
    "adversarial": "madry",
    "augment": "shift",
    "optimizer": "adam",
    "sampler": "shuffled",
    "clipping": "per-layer",
    "ema": 0.9,
    "bands": 2,
    "epochs": 2.0,
    "clip_norm": 1.0,
    "learning_rate": 0.25,
    "schedule": "linear",
    "momentum": 0.9,
    "warmup": 0.1,
}


@pytest.mark.parametrize("name", sorted({*_BY_DEFAULT, *OTHERWISE}))
def test_what_is_fixed_cannot_be_chosen(name):
    with pytest.raises(InputError, match=f"looks at all records once: got {name} ") as refused:
        FunctionalSettings(epsilon=3.0, **{name: OTHERWISE[name]})
    assert f"leave --{name.replace('_', '-')} out" in str(refused.value)
