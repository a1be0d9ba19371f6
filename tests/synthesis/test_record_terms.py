"""What a stay adds to the objective: its terms, their gradients one by one, one patient's reach."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from privet.engine.examples import made_up_batch
from privet.errors import InputError
from privet.models.record_coders import Said
from privet.models.record_losses import likelihood
from privet.models.record_rows import Rows
from privet.privacy.clipping import FastClipper, make_clipper
from privet.privacy.geometry import part_of, trainable
from privet.privacy.separation import require_separate_examples
from privet.synthesis.record_terms import CODERS, CRITICS, left_over, summed

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import loop_rows
from family_cases import BOTH, DATA, MEMBERS, batch, made

C = 0.7


def clipper_of(settings, model, clip_norm=C):
    geometry = settings.extras().geometry
    return FastClipper(model, summed, clip_norm, geometry=geometry)


@pytest.mark.parametrize(("name", "phase"), BOTH)
def test_gradients_of_stays_are_those_of_autograd_one_by_one(name, phase):
    settings, model, _ = made(name, phase)
    model.eval()
    x, y = batch(slice(9))
    found = clipper_of(settings, model).per_example_gradients(x, y).double()
    expected = loop_rows(model, summed, x, y).double()
    assert expected.norm(dim=1).min() > 0
    assert (found - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.parametrize(("name", "phase"), BOTH)
def test_the_engine_takes_the_fast_way(name, phase):
    """Drawn latents and all: agreed with autograd on made-up inputs, under several seeds."""
    settings, model, _ = made(name, phase)
    clipper = make_clipper(
        model,
        summed,
        1.0,
        probe=made_up_batch(DATA, torch.device("cpu")),
        geometry=settings.extras().geometry,
    )
    assert clipper.note == ""


@pytest.mark.parametrize(("name", "phase"), BOTH)
@pytest.mark.parametrize("clip_norm", [1e-3, C, 1e3])
def test_one_patient_moves_the_sum_by_the_clip_norm_at_most(name, phase, clip_norm):
    """With and without each of several, one of which has every cell at its highest."""
    settings, model, _ = made(name, phase)
    model.eval()
    clipper = clipper_of(settings, model, clip_norm)
    x, y = batch(slice(8))
    x[3] = 1.0
    whole = clipper.clipped_sum(x, y).double()
    for i in range(8):
        rest = torch.arange(8) != i
        moved = (whole - clipper.clipped_sum(x[rest], y[rest]).double()).norm()
        assert moved <= clip_norm * (1 + 1e-4)


@pytest.mark.parametrize(("name", "phase"), BOTH)
def test_only_the_parts_of_the_phase_have_gradients(name, phase):
    settings, model, _ = made(name, phase)
    rows = clipper_of(settings, model).per_example_gradients(*batch(slice(4)))
    parameters = trainable(model)
    sizes = [p.numel() for p in parameters.values()]
    parts = zip(parameters, torch.split(rows, sizes, 1), strict=True)
    learning = {n.removeprefix("networks.").split(".")[0] for n, part in parts if part.norm() > 0}
    critics = {n for n, part in model.networks.named_children() if "critic" in n}
    if phase == CRITICS:
        assert learning == critics | ({"start"} if name == "gan" else {"spread"})
    else:
        means = {"anchor", "counts"} if name == "igamt" else set()
        assert learning == {"encoder", "decoder", "last", "start", "spread"} | means


@pytest.mark.parametrize("name", MEMBERS)
def test_radii_of_what_learns_together_add_up_to_one(name):
    settings, model, _ = made(name)
    radii = settings.radii()
    owners = {part_of(parameter, radii) for parameter in trainable(model)}
    assert owners == set(radii)
    critics = {part for part in radii if "critic" in part}
    in_first = set(radii) - critics
    in_second = critics | {"networks.start" if name == "gan" else "networks.spread"}
    for together, there in ((in_first, name != "gan"), (in_second, name != "vae")):
        if there:
            assert sum(radii[part] ** 2 for part in together) == pytest.approx(1.0)


def test_the_phase_follows_from_the_step():
    _, model, _ = made("igamt", coder_share=0.25)
    phases = [model.phase_at(step, 8) for step in range(8)]
    assert phases == [CODERS] * 2 + [CRITICS] * 6
    assert made("vae")[1].phases == (CODERS,)
    assert made("gan")[1].phases == (CRITICS,)


@pytest.mark.parametrize(("share", "steps"), [(0.95, 8), (0.01, 8), (0.6, 2)])
def test_no_phase_is_left_out(share, steps):
    """Coders that never learned, or an imitator that never began, would be released as they are."""
    _, model, _ = made("igamt", coder_share=share)
    assert {model.phase_at(step, steps) for step in range(steps)} == {CODERS, CRITICS}


def test_two_phases_need_two_steps():
    with pytest.raises(InputError, match="too few steps for coders and critics"):
        made("igamt")[1].phase_at(0, 1)
    assert made("vae")[1].phase_at(0, 1) == CODERS


def test_the_gradient_of_the_anchor_is_the_stay():
    _, model, _ = made("igamt")
    x, y = batch(slice(5))
    losses = summed(model(x), y)
    rows = model.networks.reader.read(x)
    for i, loss in enumerate(losses):
        (slope,) = torch.autograd.grad(loss, model.anchor.weight, retain_graph=True)
        u, m = 2 * rows.x[i] - 1, rows.m[i]
        stay = torch.cat([m, u * m, u**2 * m], 1).flatten()
        assert torch.allclose(slope[0], -model.weights.anchor * stay, atol=1e-7)


def test_profiles_of_simulated_stays_are_not_shortened():
    """Or means would be those of shortened stays."""
    settings, model, _ = made("igamt")
    x, _ = batch()
    rows = model.networks.reader.read(x)
    scaled = model.weights.anchor * model.profile(rows.x, rows.m)
    assert scaled.norm(dim=1).max() < settings.radii()["anchor"] * settings.clip_norm


def by_hand(x, m, x_hat, m_hat, weight):
    """-log p of a stay of one row, cell by cell."""
    total = 0.0
    for f in range(len(x)):
        total += -torch.log(m_hat[f] if m[f] else 1 - m_hat[f])
        if m[f]:
            cross = -(x[f] * torch.log(x_hat[f]) + (1 - x[f]) * torch.log(1 - x_hat[f]))
            total += weight * cross
    return total


def test_likelihood_of_a_short_stay_by_hand():
    """One row with an empty cell, then the end: of the second row only its absence counts."""
    x = torch.tensor([[[0.3, 0.0, 0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    m = torch.tensor([[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    torch.manual_seed(0)
    said = Said(x_logits=torch.randn(1, 3, 3), m_logits=torch.randn(1, 3, 3))
    rows = Rows(x=x, m=m, start=torch.zeros(1, 0).long(), time=torch.zeros(1, 3).long())
    expected = by_hand(x[0, 0], m[0, 0], said.x[0, 0], said.m[0, 0], 7.0)
    expected = expected - torch.log(1 - said.m[0, 1, -1])
    assert torch.isclose(likelihood(said, rows, 7.0)[0], expected, rtol=1e-5)


def test_what_is_left_over_by_hand():
    """0.3 in the first row and 0.7, 0.9 in others against 0.5; a column that is never measured."""
    x = torch.tensor([[[0.3, 0.5], [0.7, 0.5], [0.9, 0.5]]])
    m = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]])
    said = Said(x_logits=torch.zeros(1, 3, 2), m_logits=torch.zeros(1, 3, 2))
    rows = Rows(x=x, m=m, start=torch.zeros(1, 0).long(), time=torch.zeros(1, 3).long())
    errors, there = left_over(said, rows)[0]
    assert torch.allclose(errors, torch.tensor([[0.04, 0.0], [0.1, 0.0]]))
    assert torch.equal(there, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))


def test_the_best_spread_is_the_deviation():
    """Mean squared errors of 0.04: the likelihood has no slope at 0.2."""
    _, model, _ = made("igamt")
    spread = model.networks.spread
    with torch.no_grad():
        spread.weight.fill_(torch.log(torch.tensor(0.2)) / spread.gain)
    errors = torch.ones(2, *spread.weight.shape) * torch.tensor([0.03, 0.05])[:, None, None]
    said = spread(torch.stack([errors, torch.ones_like(errors)], 1)).sum()
    (slope,) = torch.autograd.grad(said, spread.weight)
    assert slope.abs().max() < 1e-5
    assert torch.allclose(spread.deviations(), torch.tensor(0.2))


def test_latents_are_drawn_anew_for_every_stay_and_not_in_evaluation():
    _, model, _ = made("igamt", CRITICS)
    x = batch(slice(1))[0].expand(4, -1, -1)
    torch.manual_seed(0)
    drawn = model(x)
    assert len(drawn.unique(dim=0)) == 4
    model.eval()
    assert torch.allclose(model(x), model(x)[:1].expand(4, -1))


def alone_as_among_longer_ones(model):
    """Stays of a batch are cut together: what they say must not hang on the longest."""
    model.eval()
    x, _ = batch()
    lengths = (x[:, 1:, 0] > 0).sum(1)
    assert lengths.max() > lengths.min() + 5
    together = model(x)
    alone = torch.cat([model(x[i : i + 1]) for i in range(len(x))])
    return torch.allclose(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "phase"), BOTH)
def test_a_stay_says_the_same_alone_and_among_longer_ones(name, phase):
    assert alone_as_among_longer_ones(made(name, phase)[1])


def test_rows_after_the_end_that_have_a_say_are_seen():
    """Planted: an encoder that looks at padding."""
    _, model, _ = made("igamt")
    model.networks.encoder.aligned = False
    assert not alone_as_among_longer_ones(model)


class TestPlantedFaults:
    """What the papers' programs do, and what a careless change would: the engine refuses it."""

    def refused(self, model, match):
        with pytest.raises(InputError, match=match):
            require_separate_examples(model, made_up_batch(DATA, torch.device("cpu"))[0])

    def test_a_critic_that_is_told_the_batch_mean(self):
        _, model, _ = made("daae", CRITICS)
        inner = model._told

        def told(rows):
            z, said = inner(rows)
            return z - z.mean(0), said

        model._told = told
        self.refused(model, "mixes the examples")

    def test_batch_statistics_in_the_encoder(self):
        _, model, _ = made("aae")
        model.networks.encoder.tell = nn.Sequential(
            model.networks.encoder.tell, nn.BatchNorm1d(model.networks.form.latent)
        )
        self.refused(model, "mixes the examples")

    def test_draws_that_stays_share(self):
        _, model, _ = made("vae")
        model._drawn = lambda mean, log_variance: mean + torch.randn(())
        self.refused(model, "draws random numbers that the examples of a pass share")

    def test_stays_that_are_remembered(self):
        _, model, _ = made("igamt")
        inner = model._of_coders

        def remembering(rows):
            with torch.no_grad():
                model.averaged.last.x.bias.add_(rows.xm.sum())
            return inner(rows)

        model._of_coders = remembering
        self.refused(model, "remembers what it saw")
