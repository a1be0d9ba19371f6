"""TransDenoiser as published: its loop by hand, its noise, its claim and the gaps of it."""

import contextlib
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import privet
from privet.data.dataset import Split
from privet.engine.generators import drawing_at
from privet.errors import InputError
from privet.guarantee import REFUTED, Basis
from privet.ledger import Ledger
from privet.models.denoised import Denoised
from privet.models.denoisers import slices
from privet.privacy import moments
from privet.training.own_noise import own_noise
from privet.training.published.securesgd import MOMENTS
from privet.training.published.transdenoiser import (
    GAPS,
    GAPS_WITHOUT,
    PUBLISHED,
    SEEN,
    resume,
    run,
)
from privet.training.published.transdenoiser_settings import PublishedTransDenoiser
from privet.training.published.transformation import (
    Transformation,
    least_singular_value,
    remainders,
    squared_errors,
)
from privet.training.unprotected import NO_PRIVACY, ONLY_CLAIMED
from privet.verification import verify

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_up_images import image_data

QUICK = {
    "epsilon": 2.0, "denoiser": "unet-4", "epochs": 1, "batch": 16, "noise_seed": 3,
    "checkpoint_every": 2, "public_classifier": "trained on made-up images",
}  # fmt: skip
STEPS = 5  # of 80 records


def images(name="squares", n=80, seed=0, **changes):
    """Bright squares on dark 8x8 images, left or right."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 2).astype(np.int64)
    x = rng.uniform(0, 0.2, size=(n, 1, 8, 8)).astype(np.float32)
    x[y == 0, :, 2:6, :4] += 0.7
    x[y == 1, :, 2:6, 4:] += 0.7
    return image_data(name, x, y, ("left", "right"), **changes)


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The folder of a release on other images."""
    folder = tmp_path_factory.mktemp("public")
    with contextlib.closing(Ledger(folder / "ledger.db")) as book:
        privet.train(
            "plain", images("public squares", seed=7), model="linear", epochs=2,
            out=folder / "h", ledger=book,
        )  # fmt: skip
    return str(folder / "h")


@pytest.fixture
def settings(classifier):
    def make(**changes):
        return PublishedTransDenoiser(**QUICK | {"classifier": classifier} | changes)

    return make


@pytest.fixture
def built(settings):
    def make(data=None, **changes):
        data = images() if data is None else data
        return PUBLISHED.build(data, settings(**changes).filled_for(data))

    return make


@pytest.fixture
def planned(settings):
    """The noise of a step, by the settings alone."""

    def make(**changes):
        data = images()
        filled = settings(**changes).filled_for(data)
        return filled.noise_for(data, filled.course_for(data))

    return make


def flat(parameters):
    return torch.cat([p.detach().flatten() for p in parameters])


def weights(model):
    return flat(model.parameters())


# --- the loop ----------------------------------------------------------------------------------


def drawn_images(trainer, step):
    """x and z of a step, as the trainer draws them."""
    stream = trainer._randomness.sampling
    units = trainer.plan.sampler.draw(len(trainer._examples), step=step, stream=stream)
    with drawing_at(stream, torch.device("cpu"), step=step) as generator:
        x = trainer._examples.rows(torch.from_numpy(units), generator).x
        z = x + trainer._sigma * torch.randn(x.shape, generator=generator)
    return x, z


def gradients_by_hand(denoiser, x, z):
    """One row for each image, by a loop."""
    rows = []
    for one, noisy in zip(x, z, strict=True):
        loss = squared_errors(denoiser(noisy[None]), one[None]).sum()
        rows.append(flat(torch.autograd.grad(loss, list(denoiser.parameters()))))
    return torch.stack(rows)


def test_a_step_without_noise_by_hand(built):
    """Line 4 of Algorithm 3: theta - eta / B * sum of the clipped gradients."""
    trainer = built(
        ablation="nodp", epsilon=None, optimizer="sgd", learning_rate=0.5, clip_norm=0.3
    )
    x, z = drawn_images(trainer, 0)
    assert len(x) != 16, "B is the expected number, not that of this sample"
    rows = gradients_by_hand(trainer.model, x, z)
    clipped = rows / (rows.norm(dim=1, keepdim=True) / 0.3).clamp_min(1.0)
    expected = weights(trainer.model) - 0.5 / 16 * clipped.sum(0)
    trainer.step()
    assert torch.allclose(weights(trainer.model), expected, atol=1e-6)


def test_the_explicit_noise_of_a_step_by_hand(built):
    """S_min of M over the first non-negative images with their clip factors, and the rule."""
    trainer = built(credited_examples=3, credited_steps=10**5, xi_low=0.0)
    x, z = drawn_images(trainer, 0)
    denoiser = trainer.model
    non = (remainders(denoiser, x, z) >= 0).nonzero().flatten()[:3]
    norms = gradients_by_hand(denoiser, x[non], z[non]).norm(dim=1)
    a = 1 / norms.clamp_min(1.0)
    part = Transformation.of(denoiser, slices(denoiser)["last"])
    each = part.derivatives(x[non]).double()
    m = sum(f**2 * one @ one.T for f, one in zip(a.double(), each, strict=True))
    credit = math.sqrt(1e5 * least_singular_value(m / 16**2)) * 0.25
    xi_up = trainer.noise.xi_up
    assert 0.1 * xi_up < credit < xi_up, "else the rule is not tried"
    trainer.step()
    assert trainer.explicit["last"] == pytest.approx(math.sqrt(xi_up**2 - credit**2), rel=1e-3)
    assert trainer.explicit["first"] == pytest.approx(xi_up, rel=1e-6), "GroupNorm follows"


def noise_seen(trainer, quiet, monkeypatch, negative=None):
    """What a step adds to the gradient of the same step without noise, by slice, over C."""
    if negative is not None:
        for each in (trainer, quiet):
            monkeypatch.setattr(
                each, "_negative", lambda x, z: torch.arange(len(x)) < round(negative * len(x))
            )
    for each in (trainer, quiet):
        each.step()
    return {
        name: flat([p.grad for p in part]) * 16 - flat([p.grad for p in other]) * 16
        for (name, part), other in zip(
            slices(trainer.model).items(), slices(quiet.model).values(), strict=True
        )
    }


@pytest.mark.parametrize("negative", [0.0, 0.5, 1.0])
def test_each_slice_has_its_own_noise(built, monkeypatch, negative):
    """The middle in full; the last by the rule, and in full for what is negative.

    Estimates of deviations from n normal draws are within 5 / sqrt(2 n) of the truth.
    """
    trainer = built(xi_up=8.0, denoiser="unet-16")
    quiet = built(ablation="nodp", epsilon=None, denoiser="unet-16")
    monkeypatch.setattr(trainer, "_explicit", lambda x, z: {"first": 3.0, "last": 0.0})
    seen = noise_seen(trainer, quiet, monkeypatch, negative)
    expected = {
        "first": math.hypot(3.0, 8.0 if negative else 0.0),
        "middle": 8.0,
        "last": 8.0 if negative else 0.0,
    }
    for name, deviation in expected.items():
        error = 5 * deviation / math.sqrt(2 * len(seen[name]))
        assert float(seen[name].std()) == pytest.approx(deviation, abs=error + 1e-4)
    assert abs(float(seen["middle"][:160] @ seen["first"])) < 5 * 8 * 8.6 * math.sqrt(160)


def test_noise_is_in_units_of_the_clip_norm(built, monkeypatch):
    seen = noise_seen(
        built(ablation="sepdp", xi_up=8.0, clip_norm=0.01),
        built(ablation="nodp", epsilon=None, clip_norm=0.01),
        monkeypatch,
    )
    middle = seen["middle"]
    assert float(middle.std()) == pytest.approx(0.08, abs=5 * 0.08 / math.sqrt(2 * len(middle)))


def test_no_two_draws_are_alike(built):
    """An empty sample: zeros everywhere, so only the address tells draws apart."""
    trainer = built(ablation="none", xi_up=8.0)
    none = torch.zeros(len(weights(trainer.model)))
    trainer.explicit = {"first": 8.0, "last": 8.0}
    noisy = trainer._noised(none, none, some_negative=False)
    first, last = (noisy[trainer._places[name]] for name in ("first", "last"))
    n = min(len(first), len(last))
    assert not torch.equal(first[:n], last[:n])
    both = trainer._noised(none, none, some_negative=True)[trainer._places["first"]]
    assert not torch.equal(both - first, first)


def test_gradients_are_clipped_record_by_record(built):
    """One image of another kind moves the sum by at most 2 C."""
    data = images(n=20)
    x = data.train.x.copy()
    x[3] = 1.0
    sums = []
    for changed in (data, images(n=20, train=Split(x=x, y=data.train.y))):
        trainer = built(changed, ablation="nodp", epsilon=None, clip_norm=1e-3, batch=20)
        trainer.step()
        sums.append(flat([p.grad for p in trainer.model.parameters()]) * 20)
    assert 1e-4 < float((sums[0] - sums[1]).norm()) <= 2e-3 * (1 + 1e-4)


def test_one_record_decides_the_noise_of_a_step(built):
    """The gap: another image, and the explicit noise is another."""
    data = images(n=20)
    x = data.train.x.copy()
    x[0] = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 8, 8)
    found = []
    for changed in (data, images(n=20, train=Split(x=x, y=data.train.y))):
        trainer = built(changed, batch=20, credited_steps=10**6, credited_examples=1)
        trainer.step()
        found.append(trainer.explicit["last"])
    assert abs(found[0] - found[1]) > 0.01


def test_memory_does_not_decide_the_step(built, monkeypatch):
    """Pieces of three images, or all at once: the same update."""
    ends = []
    for at_once in (3, 1000):
        monkeypatch.setattr(
            "privet.training.published.transdenoiser_trainer.units_at_once",
            lambda clipper, views, k=at_once: k,
        )
        trainer = built(ablation="nodp", epsilon=None)
        trainer.step()
        ends.append(weights(trainer.model))
    assert torch.allclose(*ends, atol=1e-6)


# --- settings ----------------------------------------------------------------------------------


def test_xi_up_is_the_least_of_the_moments_accountant(planned):
    usual = planned()
    terms = {"rate": 0.2, "steps": STEPS, "delta": 1e-5, "moments": MOMENTS}
    xi_up = usual.xi_up
    assert moments.epsilon(noise_multiplier=xi_up, **terms) <= 2.0
    assert moments.epsilon(noise_multiplier=0.999 * xi_up, **terms) > 2.0
    assert planned(xi_up=9.0).xi_up == 9.0
    with pytest.raises(InputError, match="too little noise for the claim"):
        planned(xi_up=0.99 * xi_up)


def test_defaults_of_the_rule(planned):
    rule = planned().rule
    assert (rule.sigma, rule.steps, rule.clip_norm) == (0.25, STEPS, 1.0)
    assert rule.xi_low == pytest.approx(rule.xi_up / 20)
    assert planned(credited_steps=200_000, xi_low=1.0).rule.steps == 200_000
    assert [planned(batch=b).images for b in (16, 40, 64)] == [1, 1, 2]


def test_the_ablations(planned, settings):
    assert planned(ablation="sepdp").rule is None
    assert planned(ablation="sepdp").xi_up == planned().xi_up
    assert planned(ablation="nodp", epsilon=None).xi_up == 0.0
    assert planned(ablation="inp_0.1").rule.sigma == 0.1
    assert settings(ablation="inp_0.1").filled_for(images()).sigma == 0.1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": None}, "no privacy target"),
        ({"ablation": "nodp"}, "takes no target"),
        ({"ablation": "nodp", "epsilon": None, "xi_up": 2.0}, "leaves out"),
        ({"ablation": "sepdp", "credited_steps": 9}, "leaves out"),
        ({"ablation": "inp_0.1", "sigma": 0.5}, "two deviations"),
        ({"ablation": "all"}, "unknown ablation"),
        ({"ema": 0.9}, "does not know"),
        ({"credited_examples": 0}, "bad credited_examples"),
        ({"public_classifier": None}, "must be said"),
    ],
)
def test_what_does_not_fit_is_refused(settings, changes, said):
    with pytest.raises(InputError, match=said):
        settings(**changes)


def test_more_is_refused_once_the_data_are_known(built, planned):
    with pytest.raises(InputError, match="bad xi_low"):
        planned(xi_low=50.0)
    data = images()
    grouped = replace(data.train, units=np.arange(80) // 2)
    with pytest.raises(InputError, match="single records"):
        built(replace(data, train=grouped, unit="user", nominal_size=40))


def test_the_papers_network_is_the_default_where_it_fits(settings):
    data = images()
    assert settings(denoiser=None)._first_name(data) == "unet-16"
    large = Split(x=np.zeros((80, 1, 28, 28)), y=data.train.y)
    digits = replace(data, train=large, test=large)
    assert settings(denoiser=None)._first_name(digits) == "conv"


# --- the release -------------------------------------------------------------------------------


def test_the_card_claims_and_lists_the_gaps(settings, ledger, tmp_path):
    release = run(images(), settings(noise_seed=None), ledger=ledger, out=tmp_path / "run")
    (claim,) = release.guarantees
    assert (claim.epsilon, claim.basis, claim.accountant) == (2.0, Basis.CLAIMED, "moments")
    assert claim.gaps == GAPS
    assert claim.gaps[0].startswith(REFUTED)
    assert any("is public" in a for a in claim.assumptions)
    assert release.privacy is None
    assert release.trust["withheld"] == [ONLY_CLAIMED]
    mechanism = release.trust["mechanism"]
    assert (mechanism["steps"], mechanism["credited_steps"]) == (STEPS, STEPS)
    assert mechanism["sampler"] == "poisson"
    assert isinstance(release.model, Denoised)
    assert release.config["model"] == "denoised:unet-4:linear"
    assert own_noise(release).scale == 0.25
    assert verify(tmp_path / "run", ledger=ledger).ok


def test_what_the_noise_was_is_not_on_the_card(settings, ledger):
    """It is computed from the records, uncharged."""
    seen = []
    release = run(
        images(), settings(credited_steps=10**5), ledger=ledger,
        watch=lambda trainer: seen.append(trainer.explicit["last"]),
    )  # fmt: skip
    assert len(set(seen)) == STEPS, "another one in each step"
    card = str(release.trust)
    assert not any(repr(value)[:8] in card for value in seen)


def test_other_claims_have_other_gaps(settings, ledger, tmp_path):
    seen = {"public_classifier": None, "private_classifier": True}
    (claim,) = run(images(), settings(**seen), ledger=ledger).guarantees
    assert SEEN in claim.gaps
    assert not claim.assumptions
    assert len(claim.gaps) == len(GAPS) + 2, "known noise is one more"
    apart = run(
        images(), settings(ablation="sepdp", noise_seed=None), ledger=ledger, out=tmp_path / "s"
    )
    (claim,) = apart.guarantees
    assert claim.gaps == GAPS_WITHOUT
    assert verify(tmp_path / "s", ledger=ledger).ok


def test_without_noise_nothing_is_claimed(settings, ledger, tmp_path):
    none = settings(ablation="nodp", epsilon=None)
    release = run(images(), none, ledger=ledger, out=tmp_path / "run")
    assert verify(tmp_path / "run", ledger=ledger).ok
    assert release.guarantees == ()
    assert release.trust["withheld"] == [NO_PRIVACY]
    assert "noise_multiplier" not in release.trust["mechanism"]


def test_a_classifier_of_these_records_is_not_public(settings, ledger, tmp_path):
    privet.train("plain", images(), model="linear", epochs=1, out=tmp_path / "own", ledger=ledger)
    with pytest.raises(InputError, match="not public"):
        run(images(), settings(classifier=str(tmp_path / "own")), ledger=ledger)


@pytest.mark.parametrize("cut_at", [1, 3])
def test_a_resumed_run_ends_as_if_nothing_had_happened(settings, ledger, tmp_path, cut_at):
    data, own = images(), settings(credited_steps=10**5)

    def stop(trainer):
        if trainer.next_step == cut_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(data, own, ledger=ledger, out=tmp_path / "cut", watch=stop)
    cut = resume(tmp_path / "cut", data, ledger=ledger)
    whole = run(data, own, ledger=ledger)
    assert torch.equal(weights(cut.model), weights(whole.model))
    assert verify(tmp_path / "cut", ledger=ledger).ok


def test_without_noise_it_learns_to_take_noise_away(settings, ledger):
    """Less error on fresh noise than a denoiser that does nothing has: 64 sigma^2 = 4."""
    own = settings(ablation="nodp", epsilon=None, epochs=12, denoiser="unet-8", learning_rate=1e-2)
    data = images()
    denoiser = run(data, own, ledger=ledger).model.denoiser.eval()
    x = torch.from_numpy(data.test.x).repeat(10, 1, 1, 1)
    z = x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert float(squared_errors(denoiser(z), x).mean()) < 2.0
