"""Encoders and decoders: what depends on what, and the two ways to run a decoder."""

from dataclasses import replace

import pytest
import torch

from privet.data.records.coding import encode
from privet.data.records.simulator import simulate
from privet.models.record_coders import (
    GRU,
    TRANSFORMER,
    DecoderBody,
    Encoder,
    LastLayer,
    Made,
    Shape,
    teacher_forced,
    unrolled,
)
from privet.models.record_rows import RecordRows, Rows, RowSizes

RECORDS = simulate(6, seed=5)
CODES = torch.from_numpy(encode(RECORDS))


def networks(coder=TRANSFORMER, *, aligned=False, with_masks=True, layers=2, variational=False):
    torch.manual_seed(0)
    sizes = RowSizes.of(RECORDS.schema, with_masks=with_masks)
    shape = Shape(sizes=sizes, coder=coder, width=32, layers=layers, latent=5, aligned=aligned)
    embedding = shape.embedding()
    encoder = Encoder(shape, embedding, variational=variational)
    return RecordRows(sizes), encoder, DecoderBody(shape, embedding), LastLayer(32, sizes.features)


def latents(coder, n, seed=3):
    torch.manual_seed(seed)
    steps = (RECORDS.schema.max_steps,) if coder == TRANSFORMER else ()
    return torch.randn(n, *steps, 5)


def rows_of(made: Made, start, reader) -> Rows:
    """What was made, as if it had been read."""
    gaps = reader.gap_time(made.x[..., -1]) * made.m[..., -1]
    return Rows(
        x=made.x.detach(),
        m=made.m.detach(),
        start=start,
        time=reader.time_index(gaps.detach().cumsum(1)),
    )


@pytest.mark.parametrize("coder", [TRANSFORMER, GRU])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("drawn", [False, True])
def test_unrolled_is_teacher_forcing_fed_with_its_own_rows(coder, aligned, drawn):
    reader, _, body, last = networks(coder, aligned=aligned)
    start, z = reader.read(CODES / 255).start, latents(coder, 6)
    generator = torch.Generator().manual_seed(1) if drawn else None
    made = unrolled(body, last, reader, start, z, generator=generator)
    said = teacher_forced(body, last, reader, rows_of(made, start, reader), z)
    there = torch.ones_like(made.m) if not drawn else rows_of(made, start, reader).asked[..., None]
    assert torch.allclose(made.chance * there, said.m * there, atol=1e-5)
    if drawn:
        assert set(made.m.unique().tolist()) == {0.0, 1.0}
    shown = made.m if drawn else there
    values = reader.binned(said.x) if drawn else said.x
    moved = (made.x * shown - values * shown).abs() > 1e-5
    assert moved.float().mean() < 1e-3  # but for values at the edge of a bin


@pytest.mark.parametrize("coder", [TRANSFORMER, GRU])
@pytest.mark.parametrize("drawn", [False, True])
def test_gradients_reach_every_weight_through_rows_that_were_made(coder, drawn):
    """The papers' program stores detached copies of rows: then nothing could be learned."""
    reader, _, body, last = networks(coder)
    start = reader.read(CODES / 255).start
    z = latents(coder, 6).requires_grad_()
    generator = torch.Generator().manual_seed(1) if drawn else None
    made = unrolled(body, last, reader, start, z, generator=generator)
    # The last row alone: all that it hangs on lies behind rows that were made.
    loss = made.xm[:, 5].sum() + made.m[:, 5].sum() if not drawn else made.chance[:, 1].sum()
    loss.backward()
    assert z.grad is not None
    assert z.grad.abs().sum() > 0
    for name, parameter in [*body.named_parameters(), *last.named_parameters()]:
        if name == "x.bias" and drawn:
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_gradient_of_rows_that_were_made_is_the_slope():
    """Against differences, of a row that hangs on three others; doubles."""
    reader, _, body, last = (part.double() for part in networks(layers=1))
    start, z = reader.read(CODES[:2] / 255).start, latents(TRANSFORMER, 2).double()

    def loss():
        made = unrolled(body, last, reader, start, z)
        return made.xm[:, 3].sum()

    weight = body.embedding.read.weight
    (slope,) = torch.autograd.grad(loss(), weight)
    step = torch.zeros_like(weight)
    step[3, 2] = 1e-6
    with torch.no_grad():
        weight += step
        above = loss()
        weight -= 2 * step
        below = loss()
    assert torch.isclose((above - below) / 2e-6, slope[3, 2], rtol=1e-4, atol=1e-9)


def changed_from(rows: Rows, step: int) -> Rows:
    x = rows.x.clone()
    x[:, step:] = 1 - x[:, step:]
    return replace(rows, x=x)


@pytest.mark.parametrize("coder", [TRANSFORMER, GRU])
def test_a_decoder_sees_rows_before_alone(coder):
    reader, _, body, last = networks(coder)
    rows, z = reader.read(torch.full_like(CODES, 3) / 255), latents(coder, 6)
    whole = teacher_forced(body, last, reader, rows, z).x
    other = teacher_forced(body, last, reader, changed_from(rows, 4), z).x
    assert torch.allclose(whole[:, :5], other[:, :5], atol=1e-6)
    assert not torch.allclose(whole[:, 5], other[:, 5], atol=1e-4)


def test_aligned_rows_see_latents_up_to_their_own():
    reader, _, body, last = networks(aligned=True)
    rows, z = reader.read(CODES / 255), latents(TRANSFORMER, 6)
    later = z.clone()
    later[:, 4:] += 1.0
    whole, other = (teacher_forced(body, last, reader, rows, each).x for each in (z, later))
    assert torch.allclose(whole[:, :4], other[:, :4], atol=1e-6)
    assert not torch.allclose(whole[:, 4], other[:, 4], atol=1e-4)


@pytest.mark.parametrize("coder", [TRANSFORMER, GRU])
def test_aligned_padding_has_no_say(coder):
    """How many empty rows follow a stay must not matter: stays of a batch are cut together."""
    reader, encoder, body, last = networks(coder, aligned=True)
    whole, cut = (reader.read(CODES / 255, cut=cut) for cut in (False, True))
    steps = cut.x.shape[1]
    assert steps < whole.x.shape[1]
    there = cut.asked[..., None]
    z, z_cut = encoder(reader, whole)[0], encoder(reader, cut)[0]
    if coder == TRANSFORMER:
        assert torch.allclose(z[:, :steps], z_cut, atol=1e-6)
    else:
        assert torch.allclose(z, z_cut, atol=1e-6)
    said = teacher_forced(body, last, reader, whole, z).x[:, :steps]
    said_cut = teacher_forced(body, last, reader, cut, z_cut).x
    assert torch.allclose(said * there, said_cut * there, atol=1e-6)


def test_a_law_has_as_many_numbers_twice():
    reader, encoder, _, _ = networks(variational=True)
    mean, log_variance = encoder(reader, reader.read(CODES / 255))
    assert mean.shape == log_variance.shape == (6, 50, 5)
    assert mean.abs().max() <= 1


def test_values_are_spread_as_told():
    """Around what is said, as far as bins let it be seen; in the first row as for the first."""
    reader, _, body, last = networks()
    with torch.no_grad():  # every cell is measured, and what is said does not hang on what was
        last.m.bias.fill_(20.0)
        last.x.weight.zero_()
    start = reader.read(CODES[:1].expand(3000, -1, -1) / 255).start
    z = latents(TRANSFORMER, 1).expand(3000, -1, -1)
    spread = torch.full((2, reader.sizes.features), 0.05)
    spread[1] = 0.1
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        made = unrolled(body, last, reader, start, z, generator=generator, spread=spread)
    bins = 1 / torch.tensor(reader.sizes.levels)
    fine = bins < 0.04
    assert fine.sum() >= 4
    for row, wanted in ((0, spread[0]), (1, spread[1]), (4, spread[1])):
        expected = (wanted.square() + bins.square() / 12).sqrt()
        assert torch.allclose(made.x[:, row].std(0)[fine], expected[fine], rtol=0.15)


def test_what_is_fed_back_is_what_a_reader_of_the_codes_sees():
    """Values in the middle of their bins: made stays, coded and read, are the same."""
    reader, _, body, last = networks()
    start, z = reader.read(CODES / 255).start, latents(TRANSFORMER, 6)
    made = unrolled(body, last, reader, start, z, generator=torch.Generator().manual_seed(1))
    read = reader.read(reader.codes(made.x, made.m, start) / 255)
    assert torch.equal(read.m, made.m)
    assert torch.allclose(read.xm, made.xm, atol=1e-6)


def test_masks_are_drawn_by_their_chances():
    reader, _, body, last = networks()
    start = reader.read(CODES[:1].expand(4000, -1, -1) / 255).start
    z = latents(TRANSFORMER, 1).expand(4000, -1, -1)
    with torch.no_grad():
        last.m.bias.copy_(torch.linspace(-2, 2, reader.sizes.features))
    made = unrolled(body, last, reader, start, z, generator=torch.Generator().manual_seed(0))
    found, chance = made.m[:, 0].mean(0), made.chance[0, 0]
    assert torch.allclose(found[:-1], chance[:-1], atol=0.04)
    assert found[-1] == 1  # every stay has a row
    going = made.m[:, 1, -1].mean()
    assert torch.isclose(going, made.chance[:, 1, -1].mean(), atol=0.04)
    # Rows after the first without a gap are empty.
    assert (made.m.sum(2) * (1 - made.m[..., -1].cumprod(1))).sum() == 0
