"""The published loop: who learns by what, what is noised, when; and that a run repeats itself."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import privet
from privet.models.record_coders import teacher_forced, unrolled
from privet.models.record_losses import cross_entropy_of
from privet.privacy.randomness import Randomness
from privet.synthesis.family import FAMILY, LADDER
from privet.synthesis.fitting import METHODS
from privet.synthesis.published import igamt as published
from privet.synthesis.published import trainer as home
from privet.synthesis.published.trainer import CRITICS, Rates, parts_of
from privet.verification.release import verify

sys.path.insert(0, str(Path(__file__).parent))
from few_records import few_records, settings_of, weights

RUNS = [(name, analysis) for name in FAMILY for analysis in ("paper", "none")]


@pytest.fixture
def ledger(tmp_path):
    opened = privet.Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


def trainer_of(name, analysis="none", **options):
    data = few_records()
    return published.trainer_of(data, settings_of(name, analysis, **options).filled_for(data))


def run(name, analysis, *, data=None, **options):
    kept = {key: options.pop(key) for key in ("ledger", "out", "watch") if key in options}
    own = settings_of(name, analysis, **options)
    return METHODS[name].analyses[analysis].run(data or few_records(), own, **kept)


def moved(trainer):
    """By how much each part moves in the next step."""
    before = {
        name: [p.detach().clone() for p in part.parameters] for name, part in trainer.parts.items()
    }
    trainer.step()
    return {
        name: max(
            float((p.detach() - q).abs().max())
            for p, q in zip(part.parameters, before[name], strict=True)
        )
        for name, part in trainer.parts.items()
    }


# --- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_every_parameter_is_in_exactly_one_part(name):
    model = trainer_of(name).model
    listed = [id(p) for part in parts_of(model).values() for p in part]
    assert len(listed) == len(set(listed))
    assert set(listed) == {id(p) for p in model.parameters()}


@pytest.mark.parametrize(
    ("name", "options", "noised"),
    [
        ("igamt", {}, {"critic_x", "critic_m", "critic_z", "last"}),
        ("igamt", {"version": "aaai"}, {"critic_x", "critic_z", "last"}),
        ("igamt", {"without": "imitator"}, {"decoder", "generator"}),
        ("aae", {}, {"decoder", "generator"}),
        ("daae", {}, {"decoder", "generator"}),
        ("vae", {}, {"decoder"}),
        ("vaegan", {}, {"decoder"}),
        ("gan", {}, {"critic_x"}),
    ],
)
def test_noise_is_where_the_papers_have_it_with_plain_gradient_steps(name, options, noised):
    trainer = trainer_of(name, "paper", **options)
    assert trainer.noising.parts == noised
    for part in trainer.parts.values():
        kind = torch.optim.SGD if part.name in noised else torch.optim.Adam
        assert type(part.optimizer) is kind
    others = trainer_of(name, "none", **options)
    assert others.noising is None
    assert {type(part.optimizer) for part in others.parts.values()} == {torch.optim.Adam}


@pytest.mark.parametrize("rung", LADDER)
def test_the_ladder_has_the_parts_of_its_names(rung):
    trainer = trainer_of("igamt", without=",".join(LADDER[rung]))
    embedding = trainer.model.decoder.embedding
    assert (embedding.time is not None) == (rung != "DGAT")
    assert (embedding.categories is not None) == (rung not in ("DGAT", "DGATT"))
    assert ("critic_m" in trainer.parts) == (rung in ("EDGAMT", "IGAMT"))
    assert ("imitator" in trainer.parts) == (rung == "IGAMT")


# --- losses --------------------------------------------------------------------------------------


class Sum(nn.Module):
    """A critic that adds up what it sees, times a weight of its own."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, u):
        return self.weight * u.flatten(1).sum(1)


def seen_by_hand(trainer, *, seed=0):
    """Rows, and what the networks make of them, written out."""
    model, generator = trainer.model, torch.Generator().manual_seed(seed)
    codes = trainer._examples.rows(torch.arange(8), generator).x
    return model.reader.read(codes), trainer._passes(model.reader.read(codes), generator)


@pytest.mark.parametrize("version", ["thesis", "aaai"])
def test_igamts_parts_learn_by_the_losses_of_the_text(version):
    trainer = trainer_of("igamt", version=version)
    model = trainer.model
    model.critic_x, model.critic_z = Sum(1.0), Sum(0.5)
    if version == "thesis":
        model.critic_m = Sum(2.0)
    rows, seen = seen_by_hand(trainer)
    hat, tilde, bar = seen.said, seen.made, seen.imitated
    masks = 2.0 if version == "thesis" else 0.0

    def d(kind):
        return (kind.x * kind.m).sum((1, 2)).mean() + masks * kind.m.sum((1, 2)).mean()

    recon = cross_entropy_of(rows.x * rows.m, hat.x * hat.m) + cross_entropy_of(rows.m, hat.m)
    recon = recon.sum((1, 2)).mean()
    found = trainer._losses(seen)
    assert torch.allclose(found["decoder"], recon - d(hat) - d(tilde), rtol=1e-5)
    assert torch.allclose(found["encoder"], recon + 0.5 * seen.z.flatten(1).sum(1).mean())
    assert torch.allclose(found["generator"], -0.5 * seen.faked.flatten(1).sum(1).mean())
    like = sum(
        ((kind.x * kind.m - bar.x * bar.m) ** 2 + (kind.m - bar.m) ** 2).sum((1, 2)).mean()
        for kind in (hat, tilde, rows)
    )
    assert torch.allclose(found["imitator"], like - d(bar), rtol=1e-5)
    assert found["last"] is found["decoder" if version == "thesis" else "imitator"]


def test_what_is_passed_is_dec_on_z_dec_on_g_and_the_imitator_on_g():
    trainer = trainer_of("igamt")
    model = trainer.model
    rows, seen = seen_by_hand(trainer)
    z, _ = model.encoder(model.reader, rows)
    assert torch.allclose(
        seen.said.x, teacher_forced(model.decoder, model.last, model.reader, rows, z).x
    )
    start = torch.ones(8, 3, dtype=torch.long)
    for body, made in ((model.decoder, seen.made), (model.imitator, seen.imitated)):
        again = unrolled(body, model.last, model.reader, start, seen.faked)
        assert again.x.shape == made.x.shape
    fakes = seen.fakes
    assert torch.equal(fakes["critic_x"][2], seen.imitated.x * seen.imitated.m)
    assert torch.equal(fakes["critic_m"][0], seen.said.m)
    assert torch.equal(fakes["critic_z"][0], seen.faked)


def test_critics_are_trained_on_three_kinds_of_fakes_with_a_penalty_each():
    """D_x(u) = w sum(u): its slope is w sqrt(cells), the penalty (w sqrt(cells) - 1)^2 each."""
    trainer = trainer_of("igamt")
    trainer.model.critic_x = Sum(0.5)
    rows, seen = seen_by_hand(trainer)
    loss = trainer._critic_loss("critic_x", seen, torch.Generator().manual_seed(0))
    fakes = sum(kind.flatten(1).sum(1).mean() for kind in seen.fakes["critic_x"])
    real = rows.xm.flatten(1).sum(1).mean()
    cells = rows.x[0].numel()
    penalty = 3 * home.PENALTY * (0.5 * cells**0.5 - 1) ** 2
    assert torch.allclose(loss, 0.5 * (fakes - 3 * real) + penalty, rtol=1e-5)
    # Nobody but the critic learns from it.
    kept = torch.autograd.grad(
        loss, list(trainer.model.imitator.parameters()), allow_unused=True, retain_graph=True
    )
    assert all(gradient is None for gradient in kept)


def test_without_an_imitator_real_records_count_twice():
    trainer = trainer_of("daae")
    trainer.model.critic_x = Sum(0.5)
    rows, seen = seen_by_hand(trainer)
    loss = trainer._critic_loss("critic_x", seen, torch.Generator().manual_seed(0))
    fakes = sum(kind.flatten(1).sum(1).mean() for kind in seen.fakes["critic_x"])
    real = rows.xm.flatten(1).sum(1).mean()
    penalty = 2 * home.PENALTY * (0.5 * rows.x[0].numel() ** 0.5 - 1) ** 2
    assert torch.allclose(loss, 0.5 * (fakes - 2 * real) + penalty, rtol=1e-5)


def test_a_gan_learns_from_its_critic_alone():
    trainer = trainer_of("gan")
    _, seen = seen_by_hand(trainer)
    found = trainer._losses(seen)
    assert set(found) == {"decoder", "generator"}
    judged = trainer.model.eval().critic_x(seen.made.xm).mean()
    found = trainer._losses(seen)
    assert torch.allclose(found["decoder"], -judged)
    assert torch.allclose(found["generator"], -judged)


def test_a_variational_encoder_pays_for_its_law():
    trainer = trainer_of("vae")
    _, seen = seen_by_hand(trainer)
    mean, log_variance = seen.law
    apart = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum(1).mean()
    found = trainer._losses(seen)
    assert torch.allclose(found["encoder"] - found["decoder"], apart, rtol=1e-3)
    assert not torch.equal(seen.z, mean), "z is drawn"


# --- steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "analysis"), RUNS)
def test_all_parts_learn_in_the_first_step(name, analysis):
    assert all(size > 0 for size in moved(trainer_of(name, analysis)).values())


def test_critics_learn_in_one_of_five_iterations():
    trainer = trainer_of("igamt", epochs=5.0)
    turns = []
    for _ in range(11):
        sizes = moved(trainer)
        turns.append([sizes[name] > 0 for name in CRITICS])
        assert all(sizes[name] > 0 for name in set(sizes) - set(CRITICS))
    assert [all(turn) for turn in turns] == [t % 5 < 1 for t in range(11)]
    assert [any(turn) for turn in turns] == [t % 5 < 1 for t in range(11)]


def test_rates_fall_with_every_epoch():
    trainer = trainer_of("igamt", decay=0.5, epochs=3.0, learning_rate=0.25, critic_rate=0.125)
    seen = []
    for _ in range(9):  # three batches of 8 are an epoch
        trainer.step()
        rates = {n: p.optimizer.param_groups[0]["lr"] for n, p in trainer.parts.items()}
        seen.append((rates["imitator"], rates["critic_x"]))
    assert seen == [(0.25, 0.125)] * 3 + [(0.125, 0.0625)] * 3 + [(0.0625, 0.03125)] * 3


def test_noise_is_on_the_clipped_mean_and_does_not_know_c():
    trainer = trainer_of("igamt", "paper", sigma=3.0, clip_norm=0.25)
    part = trainer.parts["critic_z"]
    long = [torch.full_like(p, 7.0) for p in part.parameters]
    found = torch.cat([g.flatten() for g in trainer._noised(part, long)])
    quiet = home.Noising(sigma=1e-9, clip_norm=0.25, parts=trainer.noising.parts)
    trainer.noising = quiet
    clipped = torch.cat([g.flatten() for g in trainer._noised(part, long)])
    assert float(clipped.norm()) == pytest.approx(0.25, rel=1e-4)
    assert float((found - clipped).std()) == pytest.approx(3.0, rel=0.15)
    short = [torch.full_like(p, 1e-4) for p in part.parameters]
    kept = torch.cat([g.flatten() for g in trainer._noised(part, short)])
    assert torch.allclose(kept, torch.full_like(kept, 1e-4), atol=1e-7)


def test_the_imitator_moves_without_noise():
    """Other noise, another last layer, the same body: what the claim overlooks."""
    moves = []
    for seed in (1, 2):
        trainer = trainer_of("igamt", "paper", sigma=5.0, noise_seed=9)
        trainer._randomness = replace(
            trainer._randomness, noise=Randomness.seeded(seed, init_seed=0).noise
        )
        trainer.rates = Rates(turns=0)  # critics as they are
        trainer.step()
        moves.append((weights(trainer.model.imitator), weights(trainer.model.last)))
    assert torch.equal(moves[0][0], moves[1][0])
    assert not torch.equal(moves[0][1], moves[1][1])


def test_a_batch_of_one_and_of_nobody_is_taken():
    data = few_records(n=3)
    own = settings_of("daae", "none", batch=1).filled_for(data)
    trainer = published.trainer_of(data, own)
    trainer.step()
    trainer._examples = type(trainer._examples).of(
        data.train.part(torch.zeros(3).bool().numpy()), data.bounds, torch.device("cpu")
    )
    before = weights(trainer.model)
    trainer.step()
    assert torch.equal(before, weights(trainer.model))
    assert trainer.next_step == 2


# --- runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "analysis"), RUNS)
def test_a_resumed_run_ends_as_if_nothing_had_happened(name, analysis, ledger, tmp_path):
    data = few_records()

    def stop(trainer):
        if trainer.next_step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(name, analysis, ledger=ledger, out=tmp_path / "cut", watch=stop, checkpoint_every=3)
    cut = METHODS[name].analyses[analysis].resume(tmp_path / "cut", data, ledger=ledger)
    whole = run(name, analysis, ledger=ledger)
    assert torch.equal(weights(cut.model), weights(whole.model))
    checked = verify(tmp_path / "cut", ledger=ledger)
    assert checked.ok, [f for f in checked.findings if not f.ok]


def test_a_run_with_secret_noise_goes_on_with_its_keys(ledger, tmp_path):
    """Killed after six steps, the sixth not kept: it is repeated with the noise that it had."""
    seen = []

    def stop(trainer):
        seen.append(weights(trainer.model))
        if trainer.next_step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("vae", "paper", ledger=ledger, out=tmp_path / "r", watch=stop, checkpoint_every=4,
            noise_seed=None)  # fmt: skip
    again = []
    METHODS["vae"].analyses["paper"].resume(
        tmp_path / "r", few_records(), ledger=ledger, watch=lambda t: again.append(weights(t.model))
    )
    assert torch.equal(seen[-1], again[0])


def test_other_seeds_give_other_runs(ledger):
    first, again, noise, start = (
        weights(run("igamt", "paper", ledger=ledger, **options).model)
        for options in ({}, {}, {"noise_seed": 4}, {"init_seed": 5})
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, noise)
    assert not torch.equal(first, start)


def test_what_is_released_has_no_encoder_critic_or_decoder(ledger):
    release = run("igamt", "none", ledger=ledger)
    assert {name.partition(".")[0] for name in release.model.state_dict()} == {
        "body", "last", "generator",
    }  # fmt: skip
