"""Generator, critics, start model, losses, and what is released."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from privet.data.records.coding import decode, encode
from privet.data.records.schema_file import schema_to_json
from privet.data.records.simulator import simulate
from privet.errors import InputError
from privet.models.generators import create_generator
from privet.models.latent_generator import LatentGenerator
from privet.models.record_coders import Made, Said
from privet.models.record_critics import (
    RowCritic,
    VectorCritic,
    gradient_penalty,
    limit_slopes,
    windows_of,
)
from privet.models.record_losses import divergence, imitation, reconstruction
from privet.models.record_maker import Form, RecordMaker
from privet.models.record_networks import PARTS, RecordNetworks
from privet.models.record_rows import Rows
from privet.models.start_model import StartModel, uniform_start

RECORDS = simulate(8, seed=5)
SOUND = "transformer-32-1-5+aligned+generator+masks+mixed+near+spread+start+time"
PUBLISHED = "gru-32-1-32+batchnorm+generator"


def drawing(seed=0):
    return torch.Generator().manual_seed(seed)


class TestGenerator:
    def test_begins_as_its_noise(self):
        own = LatentGenerator(5, steps=7, near_noise=True)
        noise = own.draw(3, drawing())
        assert noise.shape == (3, 7, 5)
        assert torch.equal(own(noise), noise)

    def test_as_published_it_is_bounded(self):
        own = LatentGenerator(5, steps=None, by_batch=True)
        noise = own.draw(64, drawing())
        assert noise.shape == (64, 128)
        assert own(100 * noise).abs().max() <= 1

    def test_rows_do_not_see_each_other(self):
        own = LatentGenerator(5, steps=7)
        noise = own.draw(3, drawing())
        other = noise.clone()
        other[0, 0] += 1
        moved = (own(noise) - own(other)).abs().sum(-1)
        assert moved[0, 0] > 0
        assert moved.sum() == moved[0, 0]


class TestCritics:
    def test_windows_are_a_convolution(self):
        critic, rows = RowCritic(6), torch.randn(4, 9, 6, generator=drawing())
        expected = []
        for window, layer in zip(critic.windows, critic.filters, strict=True):
            kernel = layer.weight.reshape(-1, 1, window, 6)
            found = nn.functional.conv2d(rows[:, None], kernel, layer.bias, padding=(1, 0))
            expected.append(nn.functional.leaky_relu(found, 0.2).amax(2)[..., 0])
        judged = critic.judge(torch.cat(expected, 1))[:, 0]
        assert torch.allclose(critic(rows), judged, atol=1e-5)

    @pytest.mark.parametrize("critic", [RowCritic(6), VectorCritic(6)])
    def test_several_inputs_side_by_side(self, critic):
        rows = torch.randn(4, 3, 9, 6, generator=drawing())
        if isinstance(critic, VectorCritic):
            rows = rows[..., 0, :]
        together = critic(rows)
        assert together.shape == (4, 3)
        assert torch.allclose(together[:, 1], critic(rows[:, 1]), atol=1e-5)

    def test_slopes_are_limited(self):
        """By the constant that is stated, at points that a gradient leads to."""
        critic = RowCritic(6)
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.mul_(20)
        limit_slopes(critic)
        rows = torch.randn(256, 9, 6, generator=drawing(), requires_grad=True)
        (slope,) = torch.autograd.grad(critic(rows).sum(), rows)
        steepest = slope.flatten(1).norm(dim=1).max()
        assert 0.1 < steepest <= math.sqrt(5)
        before = [p.clone() for p in critic.parameters()]
        limit_slopes(critic)
        assert all(torch.allclose(a, b) for a, b in zip(before, critic.parameters(), strict=True))

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_critic_that_diverged_is_said_in_one_line(self, value):
        critic = RowCritic(6, filters=4)
        critic.judge.weight.data[0, 0] = value
        with pytest.raises(InputError, match="training diverged"):
            limit_slopes(critic)

    def test_penalty_of_a_known_slope(self):
        """D(u) = 3 u_1 has slope 3 everywhere: (3 - 1)^2."""
        real, fake = torch.rand(5, 2, 2), torch.rand(5, 2, 2)
        found = gradient_penalty(lambda u: 3 * u[:, 0, 0], real, fake, drawing())
        assert torch.isclose(found, torch.tensor(4.0), atol=1e-4)

    def test_windows(self):
        rows = torch.arange(6.0).reshape(1, 3, 2)
        assert windows_of(rows, 2).tolist() == [[[0, 1, 2, 3], [2, 3, 4, 5]]]


class TestStart:
    def test_chances_add_up_to_one(self):
        """Over all codes of three columns."""
        own = StartModel((2, 1, 3))
        for parameter in own.parameters():
            nn.init.normal_(parameter, std=0.05)
        options = torch.cartesian_prod(torch.arange(3), torch.arange(2), torch.arange(4))
        assert torch.isclose(torch.exp(-own(options)).sum(), torch.tensor(1.0), atol=1e-5)

    def test_draws_follow_the_chances(self):
        own = StartModel((2, 1, 3))
        torch.manual_seed(2)
        for parameter in own.parameters():
            nn.init.normal_(parameter, std=0.05)
        drawn = own.draw(torch.zeros(40000, 0).long(), 3, drawing())
        options = torch.cartesian_prod(torch.arange(3), torch.arange(2), torch.arange(4))
        found = (drawn[:, None] == options).all(2).float().mean(0)
        assert torch.allclose(found, torch.exp(-own(options)), atol=0.01)

    def test_what_is_given_is_kept(self):
        own = StartModel((2, 1, 3))
        given = torch.tensor([[2, 0], [1, 1]])
        assert torch.equal(own.draw(given, 3, drawing())[:, :2], given)

    def test_no_columns(self):
        own = StartModel(())
        assert own.draw(torch.zeros(4, 0).long(), 0, drawing()).shape == (4, 0)
        assert own(torch.zeros(4, 0).long()).tolist() == [0] * 4

    def test_uniform_codes_are_never_missing(self):
        drawn = uniform_start((2, 5), 5000, drawing())
        assert drawn.min() == 1
        counts = torch.bincount(drawn[:, 1], minlength=6)[1:] / 5000
        assert torch.allclose(counts, torch.full((5,), 0.2), atol=0.03)


class TestLosses:
    def rows(self, x, m):
        return Rows(x=x, m=m, start=torch.zeros(1, 0).long(), time=torch.zeros(1, 1).long())

    def test_reconstruction_of_one_cell_by_hand(self):
        """x = 0.3, x-hat = 0.6, m-hat = 0.5, measured: CE(0.3, 0.3) + CE(1, 0.5)."""
        said = Said(
            x_logits=torch.full((1, 1, 1), math.log(0.6 / 0.4)), m_logits=torch.zeros(1, 1, 1)
        )
        found = reconstruction(said, self.rows(torch.full((1, 1, 1), 0.3), torch.ones(1, 1, 1)))
        expected = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7)) - math.log(0.5)
        assert torch.isclose(found, torch.tensor(expected), atol=1e-5)

    def test_reconstruction_of_a_missing_cell(self):
        said = Said(x_logits=torch.zeros(1, 1, 1), m_logits=torch.zeros(1, 1, 1))
        found = reconstruction(said, self.rows(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1)))
        assert torch.isclose(found, torch.tensor(-math.log(0.75) - math.log(0.5)), atol=1e-5)

    def test_the_best_answer_is_the_mean_and_the_rate(self):
        """Cells that are there with chance 0.25, of mean 0.4: the gradient is zero there."""
        x, m = torch.zeros(1, 8, 1), torch.zeros(1, 8, 1)
        m[0, :2], x[0, :2, 0] = 1.0, torch.tensor([0.3, 0.5])
        logits = [torch.logit(torch.tensor(v)).clone().requires_grad_() for v in (0.4, 0.25)]
        said = Said(x_logits=logits[0].expand(1, 8, 1), m_logits=logits[1].expand(1, 8, 1))
        slopes = torch.autograd.grad(reconstruction(said, self.rows(x, m)).sum(), logits)
        assert all(slope.abs() < 1e-5 for slope in slopes)

    @pytest.mark.parametrize("logit", [-200.0, 200.0])
    @pytest.mark.parametrize("there", [0.0, 1.0])
    def test_extreme_answers_are_finite(self, logit, there):
        extreme, cell = torch.full((1, 1, 1), logit), torch.full((1, 1, 1), there)
        said = Said(x_logits=extreme, m_logits=extreme)
        assert torch.isfinite(reconstruction(said, self.rows(cell, cell))).all()

    def test_rows_that_are_not_asked_for_do_not_count(self):
        said = Said(x_logits=torch.zeros(1, 2, 1), m_logits=torch.zeros(1, 2, 1))
        rows = self.rows(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1))
        half = reconstruction(said, rows, torch.tensor([[1.0, 0.0]]))
        assert torch.isclose(2 * half, reconstruction(said, rows))

    def test_divergence_is_that_of_pytorch(self):
        mean, log_variance = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
        law = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
        expected = torch.distributions.kl_divergence(law, torch.distributions.Normal(0.0, 1.0))
        assert torch.allclose(divergence(mean, log_variance), expected.sum(-1), atol=1e-4)

    def test_imitation_by_hand(self):
        one = Made(x=torch.tensor([[[0.5]]]), m=torch.ones(1, 1, 1), chance=torch.tensor([[[0.9]]]))
        two = Made(x=torch.tensor([[[0.2]]]), m=torch.ones(1, 1, 1), chance=torch.tensor([[[0.5]]]))
        assert torch.isclose(imitation(one, two), torch.tensor(0.09 + 0.16))


class TestMaker:
    @pytest.mark.parametrize("name", [SOUND, PUBLISHED, "gru-16-2-4+start", "gru-16-1-4+levels"])
    def test_names(self, name):
        assert Form.read(name).name == name
        maker = create_generator(name, schema_to_json(RECORDS.schema))
        assert isinstance(maker, RecordMaker)

    @pytest.mark.parametrize(
        "name", ["gru-16-1", "gru-15-1-4", "lstm-16-1-4", "gru-16-0-4", "gru-16-1-4+wings"]
    )
    def test_what_is_no_name(self, name):
        with pytest.raises(InputError):
            create_generator(name, schema_to_json(RECORDS.schema))

    def test_first_weights_are_those_of_the_seed(self):
        json = schema_to_json(RECORDS.schema)
        one, two, three = (
            create_generator(SOUND, json, init_seed=s).state_dict() for s in (1, 1, 2)
        )
        assert all(torch.equal(one[k], two[k]) for k in one)
        assert not all(torch.equal(one[k], three[k]) for k in one)

    @pytest.mark.parametrize("name", [SOUND, PUBLISHED])
    def test_makes_records_with_the_static_columns_that_were_given(self, name):
        maker = create_generator(name, schema_to_json(RECORDS.schema)).eval()
        static = maker.draw_static(40, drawing())
        codes = maker.draw_codes(static, drawing())
        assert codes.shape == (40, *encode(RECORDS).shape[1:])
        assert torch.equal(torch.from_numpy(codes)[:, 0, : static.shape[1]].long(), static)
        records = decode(codes, RECORDS.schema, np.random.default_rng(0))
        assert (records.lengths >= 1).all()
        again = maker.draw_codes(static, drawing())
        assert (codes == again).all()
        assert not (codes == maker.draw_codes(static, drawing(1))).all()

    def test_what_is_released_is_the_imitator_where_there_is_one(self):
        form = Form.read(SOUND)
        own = RecordNetworks(form, RECORDS.schema, parts=PARTS, variational=True)
        maker = own.maker()
        assert torch.equal(maker.body.lift.weight, own.imitator.lift.weight)
        assert not torch.equal(maker.body.lift.weight, own.decoder.lift.weight)
        without = RecordNetworks(form, RECORDS.schema, parts=("encoder",))
        assert torch.equal(without.maker().body.lift.weight, without.decoder.lift.weight)
        assert torch.equal(without.maker().last.m.weight, without.last.m.weight)

    def test_no_encoder_and_no_critic_is_released(self):
        own = RecordNetworks(Form.read(SOUND), RECORDS.schema, parts=PARTS)
        names = {name.split(".")[0] for name in own.maker().state_dict()}
        assert names == {"body", "last", "generator", "start", "spread"}

    def test_a_copy_does_not_follow(self):
        own = RecordNetworks(Form.read(SOUND), RECORDS.schema, parts=PARTS)
        maker = own.maker()
        before = maker.last.m.weight.clone()
        with torch.no_grad():
            own.last.m.weight.add_(1)
        assert torch.equal(maker.last.m.weight, before)
