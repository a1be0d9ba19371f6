"""StoBatch with a proof: partners stay in their balls, apart, and inside one clipped gradient."""

import contextlib
import math
from dataclasses import asdict
from functools import partial

import pytest
import torch
from torch import nn

import privet
from privet.attacks.geometry import norms
from privet.engine.adversary import require_adversary
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import create
from privet.models.hidden_noise import after_first_map, first_map
from privet.training.own_noise import own_noise
from privet.training.registry import find_method
from privet.training.stobatch import Ensemble, StoBatchSettings
from privet.verification import verify

QUICK = {"epsilon": 8.0, "model": "mlp", "epochs": 2, "batch": 20, "adversarial_steps": 2}


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture
def model():
    return create("cnn-tiny", (1, 8, 8), 3, init_seed=1).eval()


@pytest.fixture
def examples():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(600, 1, 8, 8, generator=generator), torch.arange(600) % 3


def made(adversary, model, x, y, seed=0):
    rows = adversary(model, x, y, torch.Generator().manual_seed(seed)).detach()
    return rows.unflatten(0, (len(x), 2)).unbind(1)


def test_a_partner_is_in_the_box_and_within_a_size_that_is_drawn_for_it(model, examples):
    x, y = examples
    clean, partner = made(Ensemble(size=0.2, steps=4), model, x, y)
    assert torch.equal(clean, x)
    assert partner.min() >= 0
    assert partner.max() <= 1
    reached = norms(partner - x, "linf")
    assert reached.max() <= 0.2 + 1e-6
    # Uniform sizes, nearly always reached by some pixel: mean 0.1; the error of 600 is 0.0024.
    assert abs(float(reached.mean()) - 0.1) < 0.012
    assert reached.min() < 0.02


def test_partners_raise_the_loss(model, examples):
    x, y = examples
    _, partner = made(Ensemble(size=0.2, steps=4), model, x, y)
    loss = partial(nn.functional.cross_entropy, reduction="none")
    with torch.no_grad():
        raised = loss(model(partner), y) > loss(model(x), y)
    assert raised.float().mean() > 0.95


def test_the_three_attacks_are_those_of_their_papers(model):
    """By hand, on one image: sign steps, signs of a memory, and a start away from the image."""
    x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(3)) * 0.4 + 0.3
    y, steps, seen = torch.tensor([1]), 3, set()
    for seed in range(30):
        _, partner = made(Ensemble(size=0.2, steps=steps), model, x, y, seed)
        draws = torch.Generator().manual_seed(seed)
        size = 0.2 * (1 - torch.rand(1, 1, 1, 1, generator=draws))
        kind = int(3 * torch.rand(1, 1, 1, 1, generator=draws))
        d = (2 * torch.rand(x.shape, generator=draws) - 1) * size if kind == 2 else 0 * x
        memory = 0 * x
        for _ in range(steps):
            z = (x + d).requires_grad_()
            (g,) = torch.autograd.grad(nn.functional.cross_entropy(model(z), y), z)
            memory = memory + g / g.abs().sum()
            d = (d + size / steps * (memory if kind == 1 else g).sign()).clamp(-size, size)
        assert torch.allclose(partner, x + d, atol=1e-6)
        seen.add(kind)
    assert seen == {0, 1, 2}


def test_noise_is_fresh_on_both_and_not_cut_off(model, examples):
    x, y = examples
    without = made(Ensemble(size=0.1, steps=2), model, x, y)
    noise = [a - b for a, b in zip(made(Ensemble(size=0.1, steps=2, noise=0.3), model, x, y),
                                   without, strict=True)]  # fmt: skip
    for part in noise:
        assert abs(float(part.std()) - 0.3) < 0.01
    joined = torch.stack([noise[0].flatten(), noise[1].flatten()])
    assert abs(float(torch.corrcoef(joined)[0, 1])) < 0.02
    assert noise[0][0].sub(noise[0][1]).abs().max() > 0.1, "records draw for themselves"


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_rows_are_made_apart(model, noise):
    probe = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])
    require_adversary(Ensemble(size=0.1, steps=2, noise=noise), model, probe)


def test_a_size_drawn_for_all_rows_at_once_would_be_refused(model):
    """The planted bug: the papers draw one size for a batch."""

    class Shared:
        shares = (0.5, 0.5)

        def __call__(self, scores, x, y, generator):
            size = torch.rand((), generator=generator)
            return torch.stack([x, (x + size).clamp(0, 1)], 1).flatten(0, 1)

    probe = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])
    with pytest.raises(InputError, match="share"):
        require_adversary(Shared(), model, probe)


def test_shares_follow_the_weight():
    assert Ensemble(weight=1.5).shares == pytest.approx((0.4, 0.6))
    assert sum(Ensemble(weight=1.5).shares) == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["stobatch", "dpal"])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(make_data, ledger, tmp_path, method):
    data, options = make_data(), QUICK | {"ledger": ledger, "noise_seed": 5, "input_noise": 0.1}
    options |= {"hidden_noise": 0.1}

    def stop(trainer):
        if trainer.next_step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privet.train(method, data, out=tmp_path / "cut", watch=stop, checkpoint_every=2, **options)
    cut = find_method(method).under(None).resume(tmp_path / "cut", data, ledger=ledger)
    whole = privet.train(method, data, **options)
    for a, b in zip(cut.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert cut.trust["method"] == method
    assert verify(tmp_path / "cut", ledger=ledger).ok


def test_partners_cost_no_epsilon(make_data, ledger, tmp_path):
    data = make_data()
    with_, without = (
        privet.train("stobatch", data, ledger=ledger, **QUICK | more)
        for more in ({}, {"adversarial": "none", "adversarial_steps": None})
    )
    assert with_.trust["events"] == without.trust["events"]
    assert with_.privacy.epsilon == without.privacy.epsilon


def test_noise_at_both_places_certifies_as_one(make_data, ledger):
    """s^2 = s_x^2 + s_h^2 / K^2, K the true norm of the first map, which training kept at 1."""
    data = make_data()
    options = QUICK | {"epochs": 20, "epsilon": 50.0, "learning_rate": 2.0, "noise_seed": 1}
    noise = {"input_noise": 0.1, "hidden_noise": 0.2}
    release = privet.train("stobatch", data, ledger=ledger, **options | noise)
    path = first_map(release.model)
    reached = 2.0 * torch.linalg.matrix_norm(path[-1].weight.detach().double(), 2)  # centring: 2
    assert 0.9 < reached <= 1.0
    bare = privet.train("stobatch", data, ledger=ledger, **options)
    free = 2.0 * torch.linalg.matrix_norm(first_map(bare.model)[-1].weight.detach().double(), 2)
    assert free > 1.0, "or the bound is not tried"
    x, y = data.bounds.clamp_and_scale(data.test.x), data.test.y
    found = privet.certify(release, x, y, noise=own_noise(release), n=500, seed=0)
    assert found.noise.scale == pytest.approx(math.hypot(0.1, 0.2 / reached), rel=0.02)
    assert ((found.radius > 0.05) & (found.prediction == y)).mean() > 0.8


def test_the_first_map_is_within_norm_one_before_the_first_step(make_data):
    """Centring doubles the norm of the first weights; without hidden noise nothing bounds it."""
    data, found = make_data(), []
    for scale in (0.0, 0.2):
        network = StoBatchSettings(epsilon=1.0, model="mlp", hidden_noise=scale).network(data)
        weight = first_map(network)[-1].weight.detach().double()
        found.append(2.0 * float(torch.linalg.matrix_norm(weight, 2)))
    free, bounded = found
    assert free > 1.0, "or the bound is not tried"
    assert 0.9 < bounded <= 1.0


def test_hidden_noise_has_the_deviation_that_is_certified(make_data):
    """In training, right behind the first map; more than 10,000 draws: 0.7 % standard error."""
    settings = StoBatchSettings(epsilon=1.0, model="mlp", hidden_noise=0.3)
    network = settings.network(make_data()).train()
    h = first_map(network)(torch.full((1000, 4), 0.25)).detach()
    torch.manual_seed(0)
    drawn = after_first_map(network)[0](h) - h
    assert drawn.numel() > 10_000
    assert float(drawn.std()) == pytest.approx(0.3, rel=0.04)


def test_hidden_noise_is_drawn_in_training(make_data, ledger):
    """Under the same known noise of DP-SGD and the same first weights, only it can differ."""
    data, options = make_data(), QUICK | {"noise_seed": 1, "ledger": ledger}
    small, large = (
        privet.train("stobatch", data, **options, hidden_noise=scale) for scale in (1e-6, 5.0)
    )
    assert not torch.allclose(
        first_map(small.model)[-1].weight, first_map(large.model)[-1].weight, atol=1e-3
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hidden_noise": -0.1}, "hidden_noise"),
        ({"hidden_noise": float("nan")}, "hidden_noise"),
        ({"adversarial_norm": "l2"}, "ensemble attacks in linf"),
        ({"views": 2, "input_noise": 0.1}, "several views"),
        ({"xi": 0.0}, "xi"),
        ({"adversarial": "madry", "input_noise": 0.1}, "noisy inputs"),
        ({"adversarial": "best"}, "unknown adversarial"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        StoBatchSettings(epsilon=1.0, **options)


def test_what_is_filled_in_is_said():
    settings = asdict(StoBatchSettings(epsilon=1.0))
    assert settings["xi"] == 1.0
    assert StoBatchSettings(epsilon=1.0).adversary == Ensemble(size=0.1, steps=7)


def test_the_ensemble_is_that_of_the_settings():
    """One number each, none a default: a setting that is dropped would weaken what a card says."""
    options = {"adversarial_size": 0.3, "adversarial_steps": 5, "xi": 1.5, "input_noise": 0.4}
    found = StoBatchSettings(epsilon=1.0, **options).adversary
    assert found == Ensemble(size=0.3, steps=5, weight=1.5, noise=0.4)


def test_the_noise_of_the_settings_is_on_both_rows(model, examples):
    """Of 38,400 pixels each: 0.4 % standard error; the attack, of at most 1e-6, is not seen."""
    x, y = examples
    options = {"adversarial_size": 1e-6, "adversarial_steps": 1, "input_noise": 0.4}
    adversary = StoBatchSettings(epsilon=1.0, **options).adversary
    for rows in made(adversary, model, x, y):
        assert float((rows - x).std()) == pytest.approx(0.4, rel=0.03)
