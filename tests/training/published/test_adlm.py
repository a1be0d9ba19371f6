"""AdLM as published: the paper's figures, its loss, its noise, and what a card says of it."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from privet.data.dataset import Bounds, Dataset, Split
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis
from privet.ledger import Ledger
from privet.models import create
from privet.training.published import adlm
from privet.training.published.adlm_budgets import Budgets, affine_sensitivity
from privet.training.published.adlm_settings import AdlmPaperSettings
from privet.training.published.adlm_trainer import AdlmTrainer, shares
from privet.training.published.costs import quadratic_losses
from privet.verification import verify

QUICK = {"epsilon": 4.0, "epochs": 6.0, "batch": 60, "pretraining_epochs": 2.0, "noise_seed": 3}


def images(shape, size=60_000):
    """Data of a public shape and size; two records are there."""
    part = Split(x=np.zeros((2, *shape), dtype=np.uint8), y=np.array([0, 1]))
    return Dataset(
        name="images", train=part, test=part, bounds=Bounds(low=(0.0,), high=(255.0,)),
        classes=tuple("0123456789"), nominal_size=size, licence="none", source="made up",
    )  # fmt: skip


@pytest.fixture
def small():
    """Images of 8x8, whose class is the brighter half."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    x = rng.uniform(0, 0.4, (240, 1, 8, 8)).astype(np.float32)
    x[y == 0, :, :4] += 0.5
    x[y == 1, :, 4:] += 0.5
    train, test = Split(x=x[:180], y=y[:180]), Split(x=x[180:], y=y[180:])
    return Dataset(
        name="halves", train=train, test=test, bounds=Bounds(low=(0.0,), high=(1.0,)),
        classes=("top", "bottom"), nominal_size=180, licence="none", source="made up",
        test_is_public=True,
    )  # fmt: skip


def budgets_of(shape, size, epsilon):
    settings = AdlmPaperSettings(epsilon=epsilon).filled_for(images(shape, size))
    return Budgets.of(create("adlm", shape, 10), shape, settings, records=size)


def test_the_figures_for_mnist():
    found = budgets_of((1, 28, 28), 60_000, 0.3)
    assert (found.epsilon1, found.epsilon2, found.epsilon3) == pytest.approx((0.075, 0.075, 0.15))
    assert (found.affine, found.loss, found.batch) == (9800.0, 1812.5, 1800)
    assert found.relevance_scale == pytest.approx(0.348, abs=5e-4)
    assert found.input_scale == pytest.approx(72.6, abs=0.05)
    assert found.loss_scale == pytest.approx(6.71, abs=5e-3)
    assert found.for_each_record == pytest.approx(10.8)  # where 0.075 is claimed


def test_the_figures_for_cifar():
    found = budgets_of((3, 32, 32), 50_000, 2.5)
    assert (found.epsilon1, found.epsilon2, found.epsilon3) == pytest.approx((0.25, 1.5, 0.75))
    assert (found.affine, found.loss, found.batch) == (5400.0, 2550.0, 7200)
    assert found.input_scale == pytest.approx(0.5)
    assert found.loss_scale == pytest.approx(0.472, abs=5e-4)


def test_a_fully_connected_first_layer_counts_all_its_weights():
    assert affine_sensitivity(create("adlm", (5,), 3), (5,)) == 2 * 5 * 16


def test_without_relevance_the_other_two_share_its_budget():
    filled = AdlmPaperSettings(epsilon=0.3, adaptive=False).filled_for(images((1, 28, 28)))
    assert filled.shares == pytest.approx((0.0, 1 / 3, 2 / 3))


@pytest.mark.parametrize("seed", range(5))
def test_shares_add_up_to_the_number_of_inputs(seed):
    noisy = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(seed))
    noisy[0, 0, 0] = 0.0
    beta = shares(noisy)
    assert float(beta.sum()) == pytest.approx(64.0, rel=1e-5)
    assert float(beta.min()) > 0
    assert torch.allclose(beta[0, 1] / beta[0, 1, 1], noisy[0, 1].abs() / noisy[0, 1, 1].abs())


def test_shares_that_were_floored_are_brought_back_to_their_sum():
    """By hand: one input has it all, 64; the others are floored to 1e-5: 64.00063 in all."""
    noisy = torch.zeros(64, dtype=torch.float64)
    noisy[5] = -3.0
    beta = shares(noisy)
    assert float(beta.sum()) == pytest.approx(64.0, rel=1e-9)
    assert float(beta[5]) == pytest.approx(64.0 * 64.0 / 64.00063, rel=1e-9)
    assert float(beta[0]) == pytest.approx(64.0 * 1e-5 / 64.00063, rel=1e-9)


def trainer_of(data, **options):
    settings = AdlmPaperSettings(**(QUICK | options)).filled_for(data)
    return adlm.build(data, settings)


def test_the_loss_is_the_taylor_polynomial_of_the_cross_entropy(small):
    """Value and derivatives at z = 0, and the noise term; against autograd of the exact loss."""
    trainer = trainer_of(small)
    z = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 1])
    target = torch.nn.functional.one_hot(y, 2).double()

    def exact(scores):
        return torch.nn.functional.binary_cross_entropy_with_logits(
            scores, target, reduction="none"
        ).sum(1)

    assert torch.allclose(quadratic_losses(z, y), exact(z))
    for f in (exact, lambda scores: quadratic_losses(scores, y)):
        (first,) = torch.autograd.grad(f(z).sum(), z, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), z)
        assert torch.allclose(first, 0.5 - target)
        assert torch.allclose(second, torch.full_like(second, 0.25))
    x, labels = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    trainer.model.eval()
    without = quadratic_losses(trainer.model(x), labels).mean()
    noise = (trainer.loss_noise * trainer.model[-1].weight).sum()
    assert torch.allclose(trainer.loss(x, labels), without - noise)


def gradients(trainer, x, y):
    trainer.model.eval()
    parameters = list(trainer.model.parameters())
    return torch.autograd.grad(trainer.loss(x, y), parameters)


def test_no_lower_layer_feels_the_noise_of_the_loss(small):
    """Gap A2: two draws of N3, the same gradients but for the last weights."""
    x, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    one, other = (gradients(trainer_of(small, noise_seed=seed), x, y) for seed in (1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one[:-1], other[:-1], strict=True))
    assert not torch.allclose(one[-1], other[-1])


def noise_in_the_loss(trainer, x, y):
    """N3 as training feels it: what the gradient of the last weights has beside the polynomial."""
    last = list(trainer.model.parameters())[-1]
    with_noise = gradients(trainer, x, y)[-1]
    (without,) = torch.autograd.grad(quadratic_losses(trainer.model(x), y).mean(), last)
    trainer.model.train()
    return without - with_noise


def test_the_noise_of_the_loss_is_drawn_once(small):
    """Line 4 of the loop stands before the steps."""
    x, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    trainer = trainer_of(small, adaptive=False)
    first = noise_in_the_loss(trainer, x, y)
    assert float(first.abs().mean()) > 1.0
    for _ in range(3):
        trainer.step()
        assert torch.allclose(noise_in_the_loss(trainer, x, y), first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_normalisation_over_a_batch_takes_shared_noise_off(scale):
    """Gap A1: 50 records, 20 -> 8."""
    rng = np.random.default_rng(0)
    x, w, nu = rng.uniform(0, 1, (50, 20)), rng.normal(size=(20, 8)), rng.laplace(0, scale, 20)

    def normalised(h):
        return (h - h.min(0)) / (h.max(0) - h.min(0))

    assert np.abs(normalised((x + nu) @ w) - normalised(x @ w)).max() < 1e-11


def noise_of(trainer, units):
    trainer.beta = torch.ones(1, 8, 8)
    return trainer.input_noise(torch.tensor(units))


def test_who_shares_the_noise_of_the_inputs(small):
    per_step, fixed, own = (
        trainer_of(small, noise_sharing=how)
        for how in ("shared_per_step", "shared_fixed", "per_example")
    )
    for trainer in (per_step, fixed):
        assert noise_of(trainer, [0, 1]).shape == (1, 8, 8)
    first = {"step": noise_of(per_step, [0]), "fixed": noise_of(fixed, [0])}
    per_step.next_step = fixed.next_step = 1
    assert not torch.equal(noise_of(per_step, [0]), first["step"])
    assert torch.equal(noise_of(fixed, [0]), first["fixed"])
    drawn = noise_of(own, [5, 7])
    assert drawn.shape == (2, 1, 8, 8)
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(noise_of(own, [7])[0], drawn[1])


def test_noise_has_the_scale_that_is_stated(small):
    """The mean absolute value of Laplace noise is its scale; 11,520 draws: 1 % standard error."""
    trainer = trainer_of(small, noise_sharing="per_example")
    drawn = noise_of(trainer, list(range(180)))
    assert float(drawn.abs().mean()) == pytest.approx(trainer.budgets.input_scale, rel=0.05)
    assert float(drawn.median()) == pytest.approx(0.0, abs=0.05 * trainer.budgets.input_scale)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_noise_of_the_relevance_has_the_scale_of_its_share(small, share, monkeypatch):
    """Of a relevance of 1 everywhere, shares differ by the noise alone: 2d / (n epsilon_1).

    1,280 draws: 3 % standard error.
    """
    monkeypatch.setattr(AdlmTrainer, "relevance", lambda self: torch.ones(1, 8, 8))
    away = []
    for seed in range(20):
        trainer = trainer_of(small, epsilon=400.0, relevance_share=share, noise_seed=seed)
        trainer.step()
        away.append(float((trainer.beta - 1.0).abs().mean()))
    assert np.mean(away) == pytest.approx(2 * 64 / (180 * share * 400.0), rel=0.15)


def test_noised_inputs_are_cut_off_at_ten(small):
    """Noise of scale 288 / (60 0.1) = 48: of 3,840 pixels exp(-10 / 48), +- 0.6 %, are cut."""
    trainer = trainer_of(small, epsilon=0.3, adaptive=False, noise_sharing="per_example")
    seen = []
    trainer.model.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    trainer.step()
    (noised,) = seen
    assert (float(noised.min()), float(noised.max())) == (-10.0, 10.0)
    cut = float((noised.abs() == 10.0).float().mean())
    assert cut == pytest.approx(math.exp(-10 / 48), abs=0.03)


def test_relevance_finds_the_inputs_that_matter(small):
    """Only the first column tells the class: a network trained on it rests on it."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 1, (240, 1, 8, 8)).astype(np.float32)
    y = (x[:, 0, :, 0].mean(1) > 0.5).astype(np.int64)
    data = replace(small, train=Split(x=x[:180], y=y[:180]), test=Split(x=x[180:], y=y[180:]))
    found = trainer_of(data, pretraining_epochs=60.0).relevance()
    assert found.shape == (1, 8, 8)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    spread = (found - found.mean()).abs().mean(1)[0]
    assert int(spread.argmax()) in (0, 1)


def test_a_run_states_a_claim_and_proves_nothing(small, tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    release = adlm.run(small, AdlmPaperSettings(**QUICK), out=tmp_path / "run", ledger=book)
    assert verify(tmp_path / "run", ledger=book).ok
    assert release.privacy is None
    (claim,) = release.guarantees
    assert (claim.epsilon, claim.delta, claim.basis) == (4.0, 0.0, Basis.CLAIMED)
    assert claim.adjacency is Adjacency.REPLACE_ONE
    assert claim.gaps[0].startswith("refuted: `privet audit mechanism adlm`")
    assert [gap[:2] for gap in claim.gaps[1:9]] == [f"A{i}" for i in range(1, 9)]
    mechanism = release.trust["mechanism"]
    total = sum(mechanism[f"epsilon{i}"] for i in (1, 2, 3))
    assert total == pytest.approx(claim.epsilon)
    book.close()


@pytest.mark.parametrize("options", [{}, {"adaptive": False}, {"noise_sharing": "per_example"}])
def test_a_resumed_run_ends_where_it_would_have_ended(small, tmp_path, options):
    book = Ledger(tmp_path / "ledger.db")
    settings = AdlmPaperSettings(**QUICK, **options, checkpoint_every=5)

    def stop(trainer):
        if trainer.next_step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adlm.run(small, settings, out=tmp_path / "run", ledger=book, watch=stop)
    resumed = adlm.resume(tmp_path / "run", small, ledger=book)
    whole = adlm.run(small, settings, ledger=book)
    one, other = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    book.close()


@pytest.mark.parametrize("sharing", ["shared_fixed", "per_example"])
def test_what_was_drawn_under_another_key_is_forgotten(small, sharing):
    """Restored after steps of its own, a trainer goes on as the one that was never interrupted."""
    options = {"noise_sharing": sharing, "adaptive": False}
    whole, other = trainer_of(small, **options), trainer_of(small, **options | {"noise_seed": 4})
    for trainer in (whole, other):
        for _ in range(2):
            trainer.step()
    units = torch.arange(5)
    assert not torch.equal(whole.loss_noise, other.loss_noise)
    assert not torch.equal(whole.input_noise(units), other.input_noise(units))
    other.restore(copy.deepcopy(whole.state()))
    assert torch.equal(whole.loss_noise, other.loss_noise)
    assert torch.equal(whole.input_noise(units), other.input_noise(units))
    x, y = (torch.from_numpy(part[:5]) for part in (small.train.x, small.train.y))
    assert torch.equal(whole.loss(x, y), other.loss(x, y))


def test_with_little_noise_it_learns_and_with_much_of_its_own_it_does_not(small):
    """On 60 test records of two classes; of its own, at epsilon 0.3, a record has noise of 16."""
    little = adlm.run(small, AdlmPaperSettings(**QUICK | {"epsilon": 400.0, "epochs": 60.0}))
    much = AdlmPaperSettings(**QUICK | {"epsilon": 0.3, "noise_sharing": "per_example"})
    assert little.trust["utility"]["test_accuracy"] > 0.9
    assert adlm.run(small, much).trust["utility"]["test_accuracy"] < 0.8


def normaliser_of(trainer):
    (place,) = (i for i, m in enumerate(trainer.model) if isinstance(m, torch.nn.BatchNorm1d))
    return trainer.model[:place], trainer.model[place]


def test_the_released_statistics_are_those_of_records_without_noise(small):
    """At the last weights; while it trains they are those of noised records."""
    trainer = trainer_of(small, epsilon=0.5, adaptive=False, batch=180, epochs=4.0)
    below, normaliser = normaliser_of(trainer)
    clean, away = torch.from_numpy(small.train.x), []
    for _ in range(4):
        trainer.step()
        with torch.no_grad():
            away.append(float((below(clean).mean(0) - normaliser.running_mean).abs().max()))
    assert min(away[:3]) > 0.1
    assert away[3] < 1e-5


@pytest.mark.parametrize("steps", [6, 4])
def test_the_released_statistics_are_of_every_record_once(small, steps):
    """Of the three batches of an epoch, wherever in one the steps end: others are 1e-3 off."""
    trainer = trainer_of(small, epsilon=0.5, adaptive=False, batch=60, epochs=steps / 3)
    assert trainer.plan.steps == steps
    for _ in range(steps):
        trainer.step()
    below, normaliser = normaliser_of(trainer)
    with torch.no_grad():
        means = below(torch.from_numpy(small.train.x)).mean(0)
    assert torch.allclose(normaliser.running_mean, means, rtol=0.0, atol=1e-5)


def test_shared_noise_is_no_hindrance_to_prediction_without_it(small):
    """Gap A1 once more: noise of scale 48 on pixels in [0, 1], and it learns; chance is a half."""
    settings = QUICK | {"epsilon": 0.3, "affine_share": 0.33, "epochs": 60.0, "adaptive": False}
    release = adlm.run(small, AdlmPaperSettings(**settings))
    assert release.trust["mechanism"]["input_scale"] > 10
    assert release.trust["utility"]["test_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delta": 1e-5}, "there is no delta"),
        ({"augment": "shift"}, "no such setting"),
        ({"noise_sharing": "none"}, "unknown noise_sharing"),
        ({"relevance_share": 0.6, "affine_share": 0.6}, "no budget is left for the loss"),
    ],
)
def test_what_makes_no_sense_is_refused(small, options, said):
    with pytest.raises(InputError, match=said):
        AdlmPaperSettings(**{"epsilon": 1.0} | options).filled_for(small)


def test_units_of_several_records_are_refused(small):
    units = np.arange(180) // 2
    data = replace(small, train=replace(small.train, units=units), unit="user", nominal_size=90)
    with pytest.raises(InputError, match="protects single records"):
        trainer_of(data, batch=30)


def test_the_remainder_of_the_loss_at_one():
    """Gap A7: 0.0049 for each score at |z| = 1."""
    z = 1.0
    assert abs(math.log(1 + math.exp(-z)) - (math.log(2) - z / 2 + z**2 / 8)) == pytest.approx(
        0.0049, abs=5e-5
    )
