"""The losses of the texts, against numbers by hand: signs, the factor three, masks."""

import math

import pytest
import torch

from privet.models.record_coders import Said
from privet.models.record_losses import reconstruction
from privet.models.record_rows import Rows
from privet.synthesis.published.losses import (
    critic_loss,
    decoder_loss,
    encoder_loss,
    generator_loss,
    imitator_loss,
    square_error,
)


def of(*values):
    return torch.tensor(values)


def test_a_critic_counts_real_records_once_for_each_kind_of_fake():
    """Two records; three fakes of each: (1 + 10 + 100) - 3 * 7, and twice that."""
    fakes = [of(1.0, 2.0), of(10.0, 20.0), of(100.0, 200.0)]
    assert critic_loss(of(7.0, 14.0), fakes) == pytest.approx((111 - 21 + 222 - 42) / 2)
    assert critic_loss(of(7.0, 14.0), fakes[:2]) == pytest.approx((11 - 14 + 22 - 28) / 2)


def test_a_critic_of_latents_is_low_on_what_g_makes():
    """The thesis' sign: D_z(z-tilde) - D_z(z); G then raises what D_z lowers."""
    fake, real = of(5.0).requires_grad_(), of(2.0)
    loss = critic_loss(real, [fake])
    assert loss.item() == 3.0
    (by_critic,) = torch.autograd.grad(loss, fake)
    (by_generator,) = torch.autograd.grad(generator_loss([fake]), fake)
    assert by_critic.item() == 1.0
    assert by_generator.item() == -1.0


def test_the_decoder_wants_to_be_judged_high():
    assert decoder_loss(of(4.0, 8.0), [of(1.0, 3.0), of(5.0, 5.0)]) == 6 - 2 - 5
    assert decoder_loss(None, [of(1.0, 3.0)]) == -2


def test_the_encoder_wants_its_latents_taken_for_made_ones():
    assert encoder_loss(of(4.0), of(3.0), None) == 7
    assert encoder_loss(of(4.0), None, of(0.5)) == 4.5


def test_the_imitator_is_like_all_three_and_judged_high():
    """One record of one cell: x-bar m-bar = 0.5, m-bar = 0.8."""

    def cell(value):
        return torch.tensor([[[value]]])

    made = (cell(0.5), cell(0.8))
    models = [(cell(0.4), cell(0.9)), (cell(0.7), cell(0.8)), (cell(1.0), cell(1.0))]
    values, masks = 0.1**2 + 0.2**2 + 0.5**2, 0.1**2 + 0.0 + 0.2**2
    judged = [of(2.0), of(0.25)]
    assert imitator_loss(made, models, judged).item() == pytest.approx(values + masks - 2.25)


def test_squares_are_summed_over_cells_and_averaged_over_records():
    a, b = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    assert square_error(a, b) == 12


def test_reconstruction_is_of_masked_values_and_of_masks():
    """x m = 0.3 once and 0 where missing, although the value there is 0.9; x-hat m-hat = 0.25."""
    said = Said(x_logits=torch.zeros(1, 1, 2), m_logits=torch.zeros(1, 1, 2))
    m = torch.tensor([[[1.0, 0.0]]])
    rows = Rows(
        x=torch.tensor([[[0.3, 0.9]]]), m=m, start=torch.zeros(1, 0), time=torch.zeros(1, 1)
    )

    def entropy(a, b):
        return -(a * math.log(b) + (1 - a) * math.log(1 - b))

    expected = entropy(0.3, 0.25) + entropy(0.0, 0.25) + entropy(1.0, 0.5) + entropy(0.0, 0.5)
    assert reconstruction(said, rows).item() == pytest.approx(expected, rel=1e-5)
