"""DPAL and StoBatch as published: their arithmetic, their steps, their claim with its gaps."""

import contextlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

import privet
from privet.data.dataset import Bounds, Dataset, Split
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis
from privet.ledger import Ledger
from privet.models import create
from privet.models.published_noised import NOISED
from privet.privacy.randomness import Randomness
from privet.training.published import stobatch
from privet.training.published.batches import ByTrainers, Dealt, InTurn
from privet.training.published.budgets import Budgets, Draws
from privet.training.published.costs import (
    classification_cost,
    quadratic_losses,
    reconstructed,
    reconstruction_cost,
)
from privet.training.published.crafting import ascended, crafted
from privet.training.published.pure_claim import KNOWN_NOISE
from privet.training.published.stobatch import GAPS, build
from privet.training.published.stobatch_settings import DpalSettings, StobatchSettings
from privet.training.registry import find_method
from privet.verification import verify

QUICK = {"epsilon": 4.0, "epochs": 2.0, "batch": 12, "adversarial_steps": 2, "noise_seed": 5}


def images(n=80, seed=0, size=6, channels=1, **changes):
    """Two classes: the light is above, or below."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.uniform(0.0, 0.4, (n, channels, size, size))
    x[y == 0, :, : size // 2] += 0.5
    x[y == 1, :, size // 2 :] += 0.5
    x = x.astype(np.float32)
    facts = {
        "name": "lights",
        "train": Split(x=x, y=y.astype(np.int64)),
        "test": Split(x=x[:20], y=y[:20].astype(np.int64)),
        "bounds": Bounds(low=(0.0,), high=(1.0,)),
        "classes": ("above", "below"),
        "nominal_size": n,
        "licence": "none",
        "source": "made up",
        "test_is_public": True,
    }
    return Dataset(**(facts | changes))


def made(kind=DpalSettings, data=None, **changes):
    """A trainer with known noise."""
    data = images() if data is None else data
    return build(data, kind(**(QUICK | changes)).filled_for(data))


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


# --- budgets: known answers of the papers -------------------------------------------------------


def budgets(name, epsilon, column_norm=1.0):
    sizes = {
        "mnist": {"batch": 2499, "patch": 25, "neurons": 14 * 14, "epsilon2": 0.1},
        "cifar10": {"batch": 1851, "patch": 3 * 16, "neurons": 14 * 14, "epsilon2": 1.0},
        "tiny": {"batch": 4500, "patch": 3 * 49, "neurons": 32 * 32, "epsilon2": 1.0},
    }[name]
    return Budgets(epsilon=epsilon, features=256, column_norm=column_norm, **sizes)


@pytest.mark.parametrize(
    ("name", "sensitivity"), [("mnist", 4_950), ("cifar10", 9_504), ("tiny", 150_822)]
)
def test_the_published_sensitivities(name, sensitivity):
    found = budgets(name, 5.0)
    assert found.reconstruction == sensitivity
    assert found.labels == 512
    assert found.gamma_x == pytest.approx(sensitivity / found.batch)
    assert found.gamma == pytest.approx(2 * sensitivity / found.batch)
    assert found.total == pytest.approx(5.0, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "scale", "shown"), [(0.2, 34.8, 45), (1.0, 3.87, 405), (2.0, 1.83, 856)]
)
def test_the_noise_of_mnist_and_what_a_record_would_really_lose(epsilon, scale, shown):
    """Fresh noise of this scale for each record of 784 pixels: 2 d / b_x."""
    found = budgets("mnist", epsilon)
    assert found.input_scale == pytest.approx(scale, abs=0.04)
    closed = (1 + found.gamma_x + found.column_norm / 2) / (epsilon - found.epsilon2)
    assert found.input_scale == pytest.approx(closed, rel=1e-12)
    assert found.hidden_scale == 2 * found.input_scale
    assert 2 * 784 / found.input_scale == pytest.approx(shown, abs=0.6)


@pytest.mark.parametrize(
    ("name", "entries", "epsilon", "shown"),
    [("cifar10", 2352, 2.0, 709), ("tiny", 12288, 5.0, 2807)],
)
def test_what_a_record_would_lose_elsewhere(name, entries, epsilon, shown):
    assert 2 * entries / budgets(name, epsilon).input_scale == pytest.approx(shown, abs=0.6)


@pytest.mark.parametrize(
    ("name", "shape", "seen"),
    [
        ("mnist", (1, 28, 28), 784),
        ("cifar10", (3, 32, 32), 3 * 28 * 28),
        ("tiny", (3, 64, 64), 3 * 64 * 64),
    ],
)
def test_the_budgets_of_a_network_are_those_of_its_first_layer(name, shape, seen):
    """So the sensitivities of what runs are the published ones, not typed in."""
    model, by_hand = create(NOISED, shape, 10), budgets(name, 5.0)
    found = Budgets.of(model, epsilon=5.0, epsilon2=by_hand.epsilon2, batch=by_hand.batch)
    filters = model.first.weight.detach().flatten(1).numpy()
    norm = max(np.abs(row).sum() for row in filters)
    assert found.column_norm == pytest.approx(norm, rel=1e-6)
    assert replace(found, column_norm=1.0) == by_hand
    assert model.input_noise.numel() == seen


def test_the_network_of_mnist_has_the_papers_size():
    model = create(NOISED, (1, 28, 28), 10)
    assert sum(p.numel() for p in model.parameters()) == 317_066 + 2 * (32 + 256), "with BatchNorm"
    assert model.input_noise.numel() + model.hidden_noise.numel() + 256 * 10 == 9_616


def test_only_the_middle_of_a_colour_image_is_seen():
    model = create(NOISED, (3, 32, 32), 10).eval()
    x = torch.rand(2, 3, 32, 32)
    framed = x.clone()
    framed[..., :2], framed[..., 30:], framed[..., :2, :], framed[..., 30:, :] = 0, 0, 0, 0
    assert torch.equal(model(x), model(framed))
    framed[..., 2, 2] += 0.5
    assert not torch.equal(model(x), model(framed))


def test_first_and_last_layer_have_no_biases():
    """The formulas know none: one at the output would learn labels past the noise."""
    trainer = made()
    for _ in range(3):
        trainer.step()
    assert not trainer.model.first.bias.any()
    assert not trainer.model.last.bias.any()


def test_no_budget_is_left():
    with pytest.raises(InputError, match="no budget is left"):
        replace(budgets("mnist", 1.0), epsilon2=1.0)


def test_the_noise_has_its_law_and_is_drawn_once():
    """Kolmogorov and Smirnov's test; fails on right code with probability below 1e-6 in all."""
    model = create(NOISED, (3, 32, 32), 10)
    found = Budgets.of(model, epsilon=2.0, epsilon2=1.0, batch=1851)
    stream = Randomness.seeded(3).noise
    drawn = Draws.drawn(found, model, "matrix", stream)
    scales = (found.input_scale, found.hidden_scale, 512.0)
    for part, scale in zip((drawn.inputs, drawn.hidden, drawn.labels), scales, strict=True):
        assert kstest(part.flatten().numpy(), "laplace", (0.0, scale)).pvalue > 3e-7
    vector = Draws.drawn(found, model, "vector", stream).labels
    assert vector.shape == (10, 256)
    assert torch.equal(vector, vector[:1].expand(10, -1))
    assert not torch.equal(drawn.labels[0], drawn.labels[1])
    trainer = made()
    before = trainer.model.input_noise.clone(), trainer.model.hidden_noise.clone()
    assert before[0].abs().min() > 0
    for _ in range(3):
        trainer.step()
    assert torch.equal(trainer.model.input_noise, before[0])
    assert torch.equal(trainer.model.hidden_noise, before[1])


# --- costs: the formulas as they are written ----------------------------------------------------


@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_the_polynomials_are_taylor_expansions(x):
    """The rest is of the next order: halving the argument divides it by 4, and by 16."""

    def entropy(v):
        return x * np.log1p(np.exp(-v)) + (1 - x) * np.log1p(np.exp(v))

    first = nn.Conv2d(1, 1, 1, bias=False).double()
    nn.init.ones_(first.weight)

    def linear(v):
        at = torch.full((1, 1, 1, 1), x, dtype=torch.float64)
        h = torch.full_like(at, v)
        return reconstruction_cost(first, at, h, torch.zeros(1), "linear").item()

    def quadratic(z):
        scores = torch.tensor([[z]], dtype=torch.float64)
        return float(quadratic_losses(scores, torch.tensor([0])))

    rest = [entropy(v) - linear(v) for v in (0.2, 0.1)]
    assert rest[0] / rest[1] == pytest.approx(4.0, rel=0.01)
    rest = [np.log1p(np.exp(z)) - z - quadratic(z) for z in (0.4, 0.2)]
    assert rest[0] / rest[1] == pytest.approx(16.0, rel=0.02)


def test_the_quadratic_loss_in_its_other_form():
    z, y = torch.randn(7, 4, dtype=torch.float64) * 3, torch.tensor([0, 1, 2, 3, 0, 1, 2])
    hot = torch.eye(4, dtype=torch.float64)[y]
    other = z.clamp_min(0) - z * hot + math.log(2) - z.abs() / 2 + z**2 / 8
    assert torch.allclose(quadratic_losses(z, y), other.sum(1))


def test_the_gradient_of_the_reconstruction_is_the_papers():
    """A kernel as large as the image: theta1 is a matrix. Row j: sum of h (1/2 - x_j)."""
    first = nn.Conv2d(1, 5, 4).double()
    x, noise = torch.randn(6, 1, 4, 4).double() * 0.1, torch.randn(5, 1, 1).double()
    hidden = first(x)
    r = reconstruction_cost(first, x, hidden, noise, "linear")
    (found,) = torch.autograd.grad(r, first.weight)
    h = (hidden.detach() + noise).view(6, 5)
    assert hidden.abs().max().item() < 1, "nothing is cut off"
    written = h.T @ (0.5 - x.view(6, 16)) / 6
    assert torch.allclose(found.view(5, 16), written)
    theta1 = first.weight.detach().view(5, 16).T
    tilde = h @ theta1.T
    value = (0.5 * tilde - x.view(6, 16) * tilde).sum() / 6 + 16 * math.log(2)
    assert r.item() == pytest.approx(value.item())


@pytest.mark.parametrize(
    ("stride", "padding", "size"), [(2, 2, 28), (2, 1, 32), (1, 1, 8), (2, 3, 64)]
)
def test_a_convolution_is_reconstructed_by_its_transpose(stride, padding, size):
    """<conv(x), h> = <x, reconstructed(h)>: the definition."""
    first = nn.Conv2d(2, 3, {3: 7, 2: 5}.get(padding, 3 if stride == 1 else 4), stride, padding)
    first = first.double()
    x = torch.randn(1, 2, size, size, dtype=torch.float64)
    out = first(x) - first.bias.view(1, 3, 1, 1)
    h = torch.randn_like(out)
    back = (x * reconstructed(first, h, x)).sum().item()
    assert (out * h).sum().item() == pytest.approx(back)


def test_the_first_layer_is_cut_off_and_terms_are_bounded():
    first = nn.Conv2d(1, 1, 1, bias=False).double()
    nn.init.ones_(first.weight)
    x = torch.full((1, 1, 1, 1), 9.0, dtype=torch.float64)
    nothing = torch.zeros(1, dtype=torch.float64)
    linear = reconstruction_cost(first, x, first(x), nothing, "linear")
    assert linear.item() == pytest.approx(math.log(2) - 8.5)
    bounded = reconstruction_cost(first, x, first(x), nothing, "bounded")
    assert bounded.item() == pytest.approx(8.5 - math.log(2))


def test_the_noise_on_labels_reaches_the_last_layer_alone():
    """Gap B5: with and without chi3, all gradients below the output are the same numbers."""
    quiet, loud = made(), made()
    loud._label_noise.mul_(100.0)
    quiet._label_noise.zero_()
    chi3 = loud._label_noise
    for trainer in (quiet, loud):
        trainer.step()
    for name, parameter in quiet.model.named_parameters():
        other = dict(loud.model.named_parameters())[name].grad
        if name == "last.weight":
            expected = parameter.grad - chi3 / 12
            assert torch.allclose(other, expected, atol=1e-4 * float(chi3.abs().max()))
        elif parameter.grad is not None:
            assert torch.equal(parameter.grad, other)


def test_the_step_is_the_gradient_of_the_written_loss():
    """All of L, by finite differences in single weights of both layers around h_pi."""
    trainer = made(adversarial_size=1e-9, xi=1.5)
    model, noise = trainer.model.double(), trainer._label_noise.double()
    (benign, source), *_ = trainer._pairing.pairs(trainer._batches, 0, trainer._stream)
    x = torch.from_numpy(images().train.x).double()
    y = torch.from_numpy(images().train.y)

    def loss():
        inputs = model.noised(torch.cat([x[benign], x[source]]))
        h, z = model.above(model.first(inputs) + model.hidden_noise)
        hot = torch.eye(2).double()[torch.cat([y[benign], y[source]])]
        each = (math.log(2) + z / 2 + z**2 / 8).sum(1) - (h @ model.last.weight.T * hot).sum(1)
        each = each - (model.last.bias * hot).sum(1)
        total = each[:12].sum() + 1.5 * each[12:].sum()
        return (total / (12 * 2.5) - (noise / 12 * model.last.weight).sum()).item()

    model.train()
    for parameter in (model.last.weight, model.hidden[4].weight):
        slope, step = torch.zeros(3).double(), 1e-6
        for i in range(3):
            with torch.no_grad():
                flat = parameter.view(-1)
                flat[i] += step
                above = loss()
                flat[i] -= 2 * step
                slope[i] = (above - loss()) / (2 * step)
                flat[i] += step
        fresh = made(adversarial_size=1e-9, xi=1.5)
        fresh.step()
        name = next(n for n, p in model.named_parameters() if p is parameter)
        found = dict(fresh.model.named_parameters())[name].grad.flatten()[:3].double()
        assert torch.allclose(found, slope, rtol=2e-3, atol=2e-4)


def test_weights_of_the_cost():
    losses, w = torch.tensor([1.0, 2.0, 10.0, 20.0]), torch.ones(2, 3)
    found = classification_cost(losses, 2, 0.5, w, torch.full((2, 3), 4.0), 8)
    assert float(found) == pytest.approx((3.0 + 0.5 * 30.0) / (2 * 1.5) - 24.0 / 8)


# --- gap B2: one draw for all -------------------------------------------------------------------


def test_differences_of_noised_records_are_those_of_the_records():
    trainer = made(epsilon=0.2)
    x = torch.from_numpy(images().train.x)
    noised = trainer.model.noised(x)
    assert float((noised - (2 * x - 1)).abs().max()) > 10
    differences = noised[1:] - noised[:1]
    assert torch.allclose(differences, 2 * (x[1:] - x[:1]), atol=1e-4)


# --- adversarial examples -----------------------------------------------------------------------


def linear_scores(slope):
    def scores(x):
        z = (x.flatten(1) * slope).sum(1)
        return torch.stack([z, -z], 1)

    return scores


@pytest.mark.parametrize("name", ["ifgsm", "mim", "madry"])
def test_an_attack_ends_in_the_corner_of_the_ball_away_from_its_guess(name):
    """On linear scores the best perturbation is known; inputs are in no box."""
    slope = torch.tensor([1.0, -2.0, 0.5, 3.0])
    x = torch.tensor([[[[5.0, 5.0], [5.0, 5.0]]], [[[-5.0, 5.0], [5.0, -5.0]]]])
    guess = torch.sign((x.flatten(1) * slope).sum(1))
    generator = torch.Generator().manual_seed(0)
    steps = 8 if name == "madry" else 4
    found = ascended(linear_scores(slope), x, name, size=0.3, steps=steps, generator=generator)
    d = (found - x).flatten(1)
    assert float(d.abs().max()) <= 0.3 + 1e-6
    towards = -guess[:, None] * slope.sign()
    if name == "madry":  # eight steps of size / 8 from a uniform point
        assert (d * towards > 0).all()
    else:
        assert torch.allclose(d, 0.3 * towards, atol=1e-6)


def test_only_ifgsm_guesses_anew():
    """Past the boundary its guess changes, and it turns back; the others go on."""
    slope = torch.tensor([1.0, 1.0, 1.0, 1.0])
    x = torch.full((1, 1, 2, 2), 0.05)
    args = {"size": 0.4, "steps": 4, "generator": torch.Generator()}
    at = {n: float(ascended(linear_scores(slope), x, n, **args).mean()) for n in ("ifgsm", "mim")}
    assert at["mim"] == pytest.approx(0.05 - 0.4)
    assert at["ifgsm"] == pytest.approx(0.05), "to and fro"


def test_mim_remembers():
    """Against a loop of its own, where the gradient turns: without memory it ends elsewhere."""

    def scores(x):
        a, b = x[:, 0, 0, 0], x[:, 0, 0, 1]
        z = torch.sin(3 * a) * b + a
        return torch.stack([z, -z], 1)

    x = torch.tensor([[[[0.6, 1.5]]]])

    def by_hand(kept):
        at, memory = x.clone(), torch.zeros_like(x)
        sign = 1.0 if float(scores(x)[0, 0]) > 0 else -1.0
        for _ in range(6):
            inputs = at.clone().requires_grad_()
            z = scores(inputs)
            (g,) = torch.autograd.grad(-sign * z[:, 0].sum(), inputs)  # same direction as its loss
            memory = kept * memory + g / g.abs().sum()
            at = x + (at + 0.2 * memory.sign() - x).clamp(-1.2, 1.2)
        return at

    found = ascended(scores, x, "mim", size=1.2, steps=6, generator=torch.Generator())
    assert torch.allclose(found, by_hand(kept=1.0), atol=1e-6)
    assert float((found - by_hand(kept=0.0)).abs().max()) > 0.5


def test_the_attacks_take_equal_parts_in_order():
    x = torch.randn(9, 1, 2, 2)
    slope = torch.tensor([1.0, -2.0, 0.5, 3.0])
    args = {"size": 0.3, "steps": 2}
    whole = crafted(linear_scores(slope), x, generator=torch.Generator().manual_seed(4), **args)
    for name, rows in (("ifgsm", slice(0, 3)), ("mim", slice(3, 6)), ("madry", slice(6, 9))):
        generator = torch.Generator().manual_seed(4)
        part = ascended(linear_scores(slope), x[rows], name, generator=generator, **args)
        assert torch.equal(whole[rows], part)
    assert len(crafted(linear_scores(slope), x[:2], generator=torch.Generator(), **args)) == 2


def test_random_sizes_reach_over_the_whole_range():
    """mu_t is uniform on (0, 1] times the largest size; on [-1, 1] that is twice the setting."""
    trainer = made(adversarial_size=0.25)
    source = torch.zeros(12, 1, 6, 6)
    sizes = []
    for step in range(200):
        trainer.next_step = step
        sizes.append(float(trainer._crafted(source, 0).abs().max()))
    assert kstest(np.array(sizes) / 0.5, "uniform").pvalue > 1e-4
    trainer.next_step = 7
    assert torch.equal(trainer._crafted(source, 0), trainer._crafted(source, 0))


# --- batches ------------------------------------------------------------------------------------


def test_batches_are_disjoint_of_one_size_and_fixed():
    dealt, stream = Dealt.of(80, 12), Randomness.seeded(1).sampling
    batches = dealt.batches(80, stream)
    assert batches.shape == (6, 12)
    assert len(np.unique(batches)) == 72
    assert np.array_equal(batches, dealt.batches(80, stream))
    assert np.array_equal(dealt.draw(80, step=8, stream=stream), np.sort(batches[2]))
    with pytest.raises(InputError, match="fewer records"):
        dealt.batches(71, stream)
    with pytest.raises(InputError, match="--batch at most 40"):
        Dealt.of(80, 41)


def test_in_turn_a_batch_has_both_roles():
    batches = np.arange(12).reshape(4, 3)
    roles = [InTurn(groups=4).pairs(batches, step, None)[0] for step in range(4)]
    assert [tuple(b) for b, _ in roles] == [tuple(row) for row in batches]
    assert [tuple(s) for _, s in roles] == [tuple(row) for row in np.roll(batches, -1, 0)]


def test_trainers_keep_the_roles_of_their_batches_and_are_picked_alike():
    stream, pairing = Randomness.seeded(0).sampling, ByTrainers(groups=8, trainers=2, shards=2)
    batches = np.arange(48).reshape(8, 6)
    benign, source, picked = set(), set(), np.zeros(4)
    for step in range(400):
        pairs = pairing.pairs(batches, step, stream)
        assert len(pairs) == 4
        assert all(len(b) == len(s) == 3 for b, s in pairs)
        for b, s in pairs:
            benign.update(b)
            source.update(s)
            picked[b[0] // 12] += 0.5
    assert not benign & source
    assert picked.sum() == 800
    assert (abs(picked - 200) < 5 * math.sqrt(100)).all(), "each with probability 1/2"
    with pytest.raises(InputError, match="1 to 4"):
        ByTrainers(groups=8, trainers=5)


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "channels", "batch", "xi", "psi", "steps", "rate", "epsilon2"),
    [
        (28, 1, 2499, 1.0, 2.0, 10, 1e-4, 0.1),
        (32, 3, 1851, 1.5, 10.0, 3, 5e-2, 1.0 + 3 / 3),
        (64, 3, 4500, 1.5, 10.0, 10, 1e-2, 1.0),
    ],
)
def test_defaults_are_the_papers(size, channels, batch, xi, psi, steps, rate, epsilon2):
    x = np.zeros((4, channels, size, size), dtype=np.float32)
    split = Split(x=x, y=np.arange(4) % 2)
    data = images(train=split, test=split, nominal_size=60_000)
    found = StobatchSettings(epsilon=5.0).filled_for(data)
    assert (found.batch, found.xi, found.psi) == (batch, xi, psi)
    assert (found.adversarial_steps, found.learning_rate) == (steps, rate)
    assert found.epsilon2 == pytest.approx(epsilon2)
    assert found.optimizer == ("sgd" if size == 32 else "adam")
    given = {"batch": 7, "xi": 0.0, "learning_rate": 0.3, "optimizer": "sgd", "epsilon2": 0.7}
    own = StobatchSettings(epsilon=5.0, **given).filled_for(data)
    assert {name: getattr(own, name) for name in given} == given
    assert own == own.filled_for(data)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"delta": 1e-5}, "no delta"),
        ({"augment": "shift"}, "--augment out"),
        ({"ema": 0.9}, "--ema out"),
        ({"model": "published"}, "unknown model"),
        ({"xi": -1.0}, "bad xi"),
        ({"epsilon2": 0.0}, "bad epsilon2"),
        ({"learning_rate": -1.0}, "bad learning_rate"),
        ({"label_noise": "none"}, "unknown label_noise"),
        ({"precision": "bf16"}, "unknown precision"),
        ({"trainers": -1}, "bad trainers"),
        ({"shards": 0}, "bad shards"),
    ],
)
def test_what_is_refused(changes, match):
    with pytest.raises(InputError, match=match):
        StobatchSettings(**({"epsilon": 1.0} | changes))


def test_records_of_one_person_are_refused():
    x, y = images().train.x, images().train.y
    data = images(train=Split(x=x, y=y, units=np.arange(80) // 2), unit="user", nominal_size=40)
    with pytest.raises(InputError, match="single records"):
        made(data=data)


# --- steps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DpalSettings, StobatchSettings])
def test_equal_seeds_give_equal_steps(kind):
    changes = {"trainers": 2, "shards": 2} if kind is StobatchSettings else {}
    one, other = made(kind, **changes), made(kind, **changes)
    for _ in range(3):
        one.step()
        other.step()
        assert torch.equal(one.losses, other.losses)
    assert same(weights(one.model), weights(other.model))
    for seeds in ({"noise_seed": 6}, {"init_seed": 1}):
        third = made(kind, **changes, **seeds)
        third.step()
        assert not torch.equal(third.model.last.weight, one.model.last.weight)
    fresh = [made(kind, noise_seed=None).model.input_noise for _ in range(2)]
    assert not torch.equal(*fresh), "without a seed the noise is new"


def test_both_costs_train_their_own_layers():
    trainer = made()
    before = weights(trainer.model)
    trainer.step()
    after = weights(trainer.model)
    assert not torch.equal(before["first.weight"], after["first.weight"])
    assert torch.equal(before["first.bias"], after["first.bias"]), "the papers have none"
    assert not torch.equal(before["last.weight"], after["last.weight"])
    frozen = made()
    frozen.optimizers[0].param_groups[0]["lr"] = 0.0
    frozen.step()
    assert torch.equal(before["first.weight"], frozen.model.first.weight)


def test_a_step_of_trainers_is_the_mean_of_theirs():
    """Gradients, costs and running statistics of two pairs, each worked on alone."""
    both = made(StobatchSettings, trainers=2)
    pairs = both._pairing.pairs(both._batches, 0, both._stream)
    found = []
    for number, pair in enumerate(pairs):
        alone = made(StobatchSettings, trainers=2)
        found.append(alone._found(pair, number))
    both.step()
    mean = torch.stack(found).mean(0)
    gradients = torch.cat([p.grad.flatten() for p in (*both._theta1, *both._theta2)])
    assert torch.allclose(gradients, mean[: len(gradients)], rtol=1e-6)
    assert torch.allclose(both.losses, mean[-2:])
    running = torch.cat([b for b in both.model.hidden.buffers() if b.is_floating_point()])
    assert torch.allclose(running, mean[len(gradients) : -2])
    counted = [int(b) for b in both.model.hidden.buffers() if not b.is_floating_point()]
    assert set(counted) == {1}


def test_it_learns(ledger):
    data = images(n=160)
    settings = DpalSettings(epsilon=20.0, epochs=20.0, batch=20, noise_seed=0)
    release = stobatch.run_dpal(data, settings, ledger=ledger)
    assert release.trust["utility"]["test_accuracy"] >= 0.9


def test_it_learns_around_noise_that_all_records_share(ledger):
    """Gap 2 again: noise of scale 61 on pixels in [-1, 1]; with running statistics it guesses."""
    settings = DpalSettings(epsilon=0.2, epsilon2=0.1, epochs=20.0, batch=20, noise_seed=0)
    release = stobatch.run_dpal(images(n=160), settings, ledger=ledger)
    assert release.trust["mechanism"]["input_scale"] > 40
    assert release.trust["utility"]["test_accuracy"] >= 0.9


def test_the_released_statistics_are_of_the_last_weights():
    """The first normalisation of one batch after another, benign ones alone."""
    trainer = made(epochs=2.0)
    while trainer.next_step < trainer.plan.steps:
        trainer.step()
    model, normaliser = trainer.model, trainer.model.hidden[1]
    with torch.no_grad():
        parts = [
            torch.relu(model.first(trainer._records(batch)[0]) + model.hidden_noise)
            for batch in trainer._batches
        ]
    expected = torch.stack([part.mean((0, 2, 3)) for part in parts]).mean(0)
    assert torch.allclose(normaliser.running_mean, expected, rtol=1e-4)


def test_attacks_are_made_against_the_statistics_of_their_batch():
    """Running statistics, however wrong, change no attack, and attacks change none of them."""
    one, other = made(), made()
    for kept in other.model.hidden.buffers():
        if kept.is_floating_point():
            kept.fill_(7.0)
    before = weights(one.model)
    source, _ = one._records(one._batches[0])
    assert torch.equal(one._crafted(source, 0), other._crafted(source, 0))
    assert same(before, one.model.state_dict())


# --- runs, cards, claims ------------------------------------------------------------------------

METHODS = ("dpal", "stobatch")


@pytest.mark.parametrize("name", METHODS)
def test_a_card_claims_and_says_what_the_proof_misses(name, ledger, tmp_path):
    options = {k: v for k, v in QUICK.items() if k not in ("epsilon", "noise_seed")}
    if name == "stobatch":
        options |= {"trainers": 2}
    out = tmp_path / "run"
    release = privet.train(
        name, images(), epsilon=4.0, analysis="paper", ledger=ledger, out=out, **options
    )
    (claim,) = release.guarantees
    assert (claim.epsilon, claim.delta) == (4.0, 0.0)
    assert (claim.basis, claim.adjacency) == (Basis.CLAIMED, Adjacency.REPLACE_ONE)
    assert claim.gaps[0].startswith("refuted: `privet audit mechanism stobatch`")
    assert claim.gaps[1:] == GAPS
    assert release.privacy is None
    found = verify(out, ledger=ledger)
    assert found.ok, [f for f in found.findings if not f.ok]
    mechanism = json.loads((out / "trust.json").read_text())["mechanism"]
    assert mechanism["noise"] == "Laplace, drawn once"
    total = mechanism["epsilon1"] * (1 + 1 / mechanism["gamma"] + 1 / mechanism["gamma_x"])
    assert total + mechanism["epsilon2"] == pytest.approx(4.0)
    again = privet.load(out)
    x = images().test.x
    assert np.array_equal(again.predict(x), release.predict(x))
    assert torch.equal(again.model.input_noise, release.model.input_noise), "gap B8"
    assert float(again.model.hidden_noise.abs().max()) > 0


def test_a_known_seed_is_a_gap_more(ledger):
    release = stobatch.run_dpal(images(), DpalSettings(**QUICK), ledger=ledger)
    assert release.guarantees[0].gaps[1:] == (*GAPS, KNOWN_NOISE)


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_ends_as_if_nothing_had_happened(name, ledger, tmp_path):
    """Fresh noise: what was drawn is in the checkpoint, and nowhere else."""
    variant = find_method(name).under("paper")
    options = QUICK | {"noise_seed": None, "checkpoint_every": 2}
    if name == "stobatch":
        options |= {"trainers": 2, "epochs": 4.0}
    seen, noise = [], []

    def stop(trainer):
        noise.append(trainer.state())
        seen.append(trainer.losses.tolist())
        if trainer.next_step == 5:
            raise KeyboardInterrupt

    settings = variant.settings(**options)
    with pytest.raises(KeyboardInterrupt):
        variant.run(images(), settings, ledger=ledger, out=tmp_path / "run", watch=stop)
    again = []
    release = variant.resume(
        tmp_path / "run", images(), ledger=ledger, watch=lambda t: again.append(t.losses.tolist())
    )
    assert again[0] == seen[4], "step 5, repeated from the checkpoint after step 4"
    whole = build(images(), settings.filled_for(images()))
    whole._label_noise.copy_(noise[0]["label_noise"])
    for which in ("input_noise", "hidden_noise"):
        getattr(whole.model, which).copy_(noise[0]["model"][which])
    while whole.next_step < whole.plan.steps:
        whole.step()
    assert same(weights(whole.model), weights(release.model))
    assert verify(tmp_path / "run", ledger=ledger).ok
