"""Perturbers: the layout, layer by layer; what label, noise and attention do; the bound."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from privet.errors import InputError
from privet.models import perturbers
from privet.models.perturbers import (
    Ain,
    CodeNoise,
    LabelChannel,
    Layout,
    SelfAttention,
    bounded,
    build_perturber,
    create_perturber,
    default_perturber,
    describe_perturbers,
    discriminator,
    perturber_names,
)
from privet.privacy.clipping import ReferenceClipper, describe, make_clipper
from privet.privacy.separation import require_separate_examples

DIGITS, MNIST, CIFAR, TINY = (1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64)
ODD = (3, 9, 13)
DROPPING = Layout(
    channels=(4, 6, 8, 10), dropouts=(0.0, 0.8, 0.2, 0.0), blocks=2, block_dropout=0.4
)
CLASSES = 5


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def images(n, shape, seed=0):
    return torch.rand(n, *shape, generator=seeded(seed)), torch.arange(n) % CLASSES


def parameters(network):
    return sum(p.numel() for p in network.parameters())


def awake(network):
    """With attention at work, which at first gives nothing."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, perturbers.Gain):
                module.gamma.fill_(0.7)
    return network


def made(name, shape=DIGITS):
    return awake(create_perturber(name, shape, CLASSES))


# The layout.


def convolutions(network, shape):
    """(channels, side, kernel, stride) behind each convolution that is not 1x1."""
    seen = []

    def record(layer, _, out):
        if layer.kernel_size != (1, 1):
            seen.append((out.shape[1], out.shape[2], layer.kernel_size[0], layer.stride[0]))

    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.register_forward_hook(record)
    x, labels = images(1, shape)
    with torch.no_grad():
        network.eval()(x, labels)
    return seen


@pytest.mark.parametrize(
    ("shape", "down", "up", "code"),
    [
        (
            MNIST,
            [(32, 14, 4, 2), (128, 14, 3, 1), (256, 7, 4, 2), (1024, 7, 3, 1)],
            [(256, 7, 3, 1), (128, 14, 4, 2), (32, 14, 3, 1), (1, 28, 4, 2)],
            7 * 7 * 1024,
        ),
        (
            TINY,
            [(64, 32, 4, 2), (128, 32, 3, 1), (256, 16, 4, 2), (512, 16, 3, 1), (1024, 8, 4, 2)],
            [(512, 16, 4, 2), (256, 16, 3, 1), (128, 32, 4, 2), (64, 32, 3, 1), (3, 64, 4, 2)],
            8 * 8 * 1024,
        ),
    ],
)
def test_the_authors_network_goes_down_and_up_as_published(shape, down, up, code):
    network = create_perturber("ain-published", shape, CLASSES)
    assert convolutions(network, shape) == [*down, *up]
    assert network.noise.state.weight.shape == (CLASSES, code)


def test_the_authors_dropouts_and_residual_blocks_are_the_published_ones():
    network = build_perturber("ain-published", MNIST, CLASSES)
    rates = [m.p for m in network.modules() if isinstance(m, nn.Dropout)]
    down = [*4 * [0.4], 0.8, *4 * [0.4], 0.2, *4 * [0.4], *4 * [0.4]]
    assert rates == down + down[::-1]  # a rate of 0 is no layer
    blocks = [m for m in network.modules() if isinstance(m, perturbers.Residual)]
    assert [b.layers[0].kernel_size for b in blocks] == [(1, 1)] * 32
    widths = [block.layers[0].in_channels for block in blocks[::4]]
    assert widths == [32, 128, 256, 1024, 1024, 256, 128, 32]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (DIGITS, [(4, 4), (8, 4), (16, 2), (32, 2), (16, 2), (8, 4), (4, 4), (1, 8)]),
        (MNIST, [(4, 14), (8, 14), (16, 7), (32, 7), (16, 7), (8, 14), (4, 14), (1, 28)]),
        (CIFAR, [(4, 16), (8, 16), (16, 8), (32, 8), (16, 8), (8, 16), (4, 16), (3, 32)]),
        (TINY, [(4, 32), (8, 32), (16, 16), (32, 16), (64, 8), (32, 16), (16, 16), (8, 32), (4, 32),
                (3, 64)]),
    ],
)  # fmt: skip
def test_channels_double_and_sides_halve_and_come_back(shape, expected):
    seen = convolutions(create_perturber("ain-4", shape, CLASSES), shape)
    assert [(channels, side) for channels, side, _, _ in seen] == expected


@pytest.mark.parametrize("shape", [DIGITS, MNIST, CIFAR, TINY, ODD, (2, 31, 10)])
@pytest.mark.parametrize("name", ["ain-4", "ain-4-without-attention-label", "atn-4", "advgan"])
def test_outputs_are_as_large_as_images_and_hang_on_them(name, shape):
    network = create_perturber(name, shape, CLASSES)
    x, labels = images(2, shape)
    first, second = (network(z, labels, seeded(0)) for z in (x, 1 - x))
    assert first.shape == x.shape
    assert (first - second).abs().amax((1, 2, 3)).min() > 1e-3


def test_a_step_down_from_odd_sides_and_the_step_up_are_adjoint():
    """<down(x), y> = <x, up(y)> where both have the same weights: 9x13 and 5x7."""
    network = create_perturber("atn-4", ODD, CLASSES).double()
    down, up = network.encoder[0][:2], network.decoder[-1][-2:]
    with torch.no_grad():
        up[0].weight.copy_(down[1].weight)
        for layer in (down[1], up[0]):
            layer.bias.zero_()
    x = torch.randn(1, *ODD, generator=seeded(0), dtype=torch.float64)
    y = torch.randn(1, 4, 5, 7, generator=seeded(1), dtype=torch.float64)
    assert torch.allclose((down(x) * y).sum(), (x * up(y)).sum())


def test_a_unit_normalises_whole_images_and_adds_its_block():
    """By hand: convolution, mean and deviation of one image's map, LeakyReLU; the same in 1x1."""
    unit = create_perturber("ain-4-without-label", DIGITS, CLASSES).double().encoder[0]
    convolution, block = unit[0], unit[3].layers[0]

    def activated(map_):
        mean, variance = map_.mean((1, 2, 3), keepdim=True), map_.var((1, 2, 3), False, True)
        normalised = (map_ - mean) / (variance + 1e-5).sqrt()
        return torch.where(normalised > 0, normalised, 0.2 * normalised)

    x = torch.rand(3, *DIGITS, generator=seeded(0), dtype=torch.float64)
    h = activated(convolution(x))
    mixed = torch.einsum("dc,ncij->ndij", block.weight[:, :, 0, 0], h) + block.bias[:, None, None]
    assert torch.allclose(unit(x), h + activated(mixed))


def multiply_adds(network, shape):
    """In convolutions and in the products of attention, for one image."""
    counts = {"convolutions": 0, "attention": 0}

    def count(module, inputs, out):
        if isinstance(module, nn.Conv2d):
            counts["convolutions"] += out[0].numel() * module.weight[0].numel()
        elif isinstance(module, nn.ConvTranspose2d):
            counts["convolutions"] += inputs[0][0].numel() * module.weight[0].numel()
        elif isinstance(module, SelfAttention):
            positions = out.shape[2] * out.shape[3]
            counts["attention"] += 2 * positions**2 * out.shape[1]

    for module in network.modules():
        module.register_forward_hook(count)
    x, labels = images(1, shape)
    with torch.no_grad():
        network.eval()(x, labels)
    return sum(counts.values()), counts["attention"]


@pytest.mark.parametrize("width", ["8", "12", "16", "32", "authors"])
def test_the_table_of_costs_is_true(width):
    name = "ain-published" if width == "authors" else f"ain-{width}"
    network = create_perturber(name, MNIST, 10)
    rows = [line.split("|")[1:-1] for line in perturbers.__doc__.splitlines() if "million" in line]
    table = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    costs = [f"{cost / 1e6:.1f} million" for cost in multiply_adds(network, MNIST)]
    assert table[width] == [f"{parameters(network):,}", *costs]


def test_the_default_costs_ten_to_fifteen_million_multiply_adds():
    network = create_perturber(default_perturber(MNIST), MNIST, 10)
    assert 10e6 < multiply_adds(network, MNIST)[0] < 15e6


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("attention", SelfAttention),
        ("residual", perturbers.Residual),
        ("label", LabelChannel),
        ("noise", CodeNoise),
    ],
)
def test_a_part_is_there_unless_left_out_alone_or_with_others(part, kind):
    def has(name):
        network = build_perturber(name, DIGITS, CLASSES)
        return any(isinstance(module, kind) for module in network.modules())

    assert has("ain-4")
    assert not has(f"ain-4-without-{part}")
    assert not has("atn-4")
    for other in {"attention", "residual", "label", "noise"} - {part}:
        assert has(f"ain-4-without-{other}")


def test_atn_is_ain_without_all_five_parts_and_gives_the_image_itself():
    x, labels = images(3, MNIST)
    every = create_perturber("ain-4-without-attention-residual-label-noise-smooth", MNIST, CLASSES)
    atn = create_perturber("atn-4", MNIST, CLASSES)
    image = torch.sigmoid(every(x, labels))
    assert torch.allclose(atn.perturbed(x, labels, 1.0), image, atol=1e-6)
    moved = (atn.perturbed(x, labels, 0.1) - x).detach().abs()
    assert 0.09 < float(moved.max()) <= 0.1 + 1e-6


# Attention.


def test_attention_agrees_with_a_loop_over_positions():
    attention, generator = awake(SelfAttention(3)).double(), seeded(0)
    with torch.no_grad():
        for p in (attention.f.weight, attention.g.weight, attention.h.weight, attention.o.weight):
            p.copy_(torch.randn(p.shape, generator=generator))
    u = torch.randn(2, 3, 2, 4, generator=generator, dtype=torch.float64)
    f, g, h, o = (getattr(attention, name).weight[:, :, 0, 0].detach() for name in "fgho")
    expected = u.clone()
    positions = list(itertools.product(range(2), range(4)))
    for n, (i, j) in itertools.product(range(2), positions):
        scores = [float((g @ u[n, :, i, j]) @ (f @ u[n, :, k, m])) for k, m in positions]
        total = sum(math.exp(score) for score in scores)
        seen = torch.zeros(3, dtype=torch.float64)
        for score, (k, m) in zip(scores, positions, strict=True):
            seen += math.exp(score) / total * (h @ u[n, :, k, m])
        expected[n, :, i, j] += 0.7 * (o @ seen)
    assert torch.allclose(attention(u), expected)


def test_attention_is_the_identity_at_first_and_its_gain_gets_a_gradient():
    attention = SelfAttention(4)
    u = torch.randn(2, 4, 5, 3, generator=seeded(0))
    assert torch.equal(attention(u), u)
    attention(u).square().sum().backward()
    assert attention.gain.gamma.grad.abs() > 1e-3


def test_attention_stands_before_the_second_unit_and_after_the_second_to_last():
    network = create_perturber("ain-4", MNIST, CLASSES)
    for stages, place in ((network.encoder, 1), (network.decoder, 3)):
        kinds = [isinstance(stage, SelfAttention) for stage in stages]
        assert kinds == [i == place for i in range(5)]


# Labels.


@pytest.mark.parametrize("name", ["ain-4", "ain-4-without-noise", "ain-4-without-attention"])
def test_another_label_gives_another_output(name):
    network, (x, labels) = made(name), images(4, DIGITS)
    moved = network(x, (labels + 1) % CLASSES, seeded(0)) - network(x, labels, seeded(0))
    assert moved.abs().amax((1, 2, 3)).min() > 1e-4


@pytest.mark.parametrize("name", ["ain-4-without-label", "atn-4", "advgan"])
def test_without_the_label_every_label_gives_the_same(name):
    network, (x, labels) = made(name), images(4, DIGITS)
    other = network(x, (labels + 1) % CLASSES, seeded(0))
    assert torch.equal(other, network(x, labels, seeded(0)))


def test_the_label_also_scales_the_noise():
    """Where the channel of the label is the same for all classes, what is left is the noise."""
    network, (x, labels) = made("ain-4"), images(4, DIGITS)
    with torch.no_grad():
        network.label.state.weight.zero_()
    assert not torch.equal(network(x, labels, seeded(0)), network(x, 0 * labels, seeded(0)))


def test_a_label_is_one_channel_of_mean_zero_and_deviation_one():
    state = LabelChannel(CLASSES, (4, 6))
    h = state(torch.tensor([3, 0]))
    assert h.shape == (2, 1, 4, 6)
    for found, row in zip(h.flatten(1), state.state.weight[[3, 0]], strict=True):
        squashed = 1 / (1 + torch.exp(-row))
        expected = (squashed - squashed.mean()) / squashed.std(correction=0)
        assert torch.allclose(found, expected, atol=1e-3)


# Noise.


def test_noise_is_the_draw_of_the_generator_times_the_state_of_the_label():
    noise = CodeNoise((2, 3, 3), CLASSES)
    labels = torch.tensor([4, 1, 4])
    found = noise(torch.zeros(3, 2, 3, 3), labels, seeded(7))
    draws = torch.randn(3, 2, 3, 3, generator=seeded(7))
    states = 1 / (1 + torch.exp(-noise.state.weight[labels]))
    assert torch.allclose(found, 0.01 * states.view(3, 2, 3, 3) * draws)


def test_noise_without_labels_has_deviation_a_hundredth():
    found = CodeNoise((2, 8, 8), None)(torch.zeros(100, 2, 8, 8), torch.zeros(100), seeded(0))
    assert abs(float(found.std()) / 0.01 - 1) < 4 / math.sqrt(2 * found.numel())
    assert abs(float(found.mean())) < 4 * 0.01 / math.sqrt(found.numel())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["ain-4", "ain-4-without-label"])
def test_passes_differ_and_the_same_seed_repeats_them_in_both_modes(name, training):
    network, (x, labels) = made(name).train(training), images(3, DIGITS)
    generator = seeded(0)
    first, second = (network(x, labels, generator) for _ in range(2))
    assert (first - second).abs().amax((1, 2, 3)).min() > 1e-5
    assert torch.equal(network(x, labels, seeded(0)), first)
    torch.manual_seed(3)
    own = network(x, labels)
    torch.manual_seed(3)
    assert torch.equal(network(x, labels), own)
    assert not torch.equal(network(x, labels), own)


def test_a_generator_of_the_caller_leaves_torchs_own_alone():
    network, (x, labels) = made("ain-4"), images(3, DIGITS)
    before = torch.get_rng_state()
    network(x, labels, seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_equal_images_of_a_batch_get_draws_of_their_own():
    network, (x, labels) = made("ain-4"), images(1, DIGITS)
    out = network(x.expand(4, *DIGITS), labels.expand(4), seeded(0))
    for i, j in itertools.combinations(range(4), 2):
        assert (out[i] - out[j]).abs().max() > 1e-5


@pytest.mark.parametrize("name", ["ain-4-without-noise", "atn-4", "advgan"])
def test_without_noise_passes_are_equal_and_nothing_is_drawn(name):
    network, (x, labels) = made(name), images(3, DIGITS)
    generator = seeded(0)
    assert torch.equal(network(x, labels, generator), network(x, labels, generator))
    assert torch.equal(generator.get_state(), seeded(0).get_state())


@pytest.mark.parametrize("name", ["ain-4", "ain-4-without-noise"])
def test_the_decoder_sees_a_code_of_mean_zero_and_deviation_one(name):
    (x, labels), network, codes = images(3, MNIST), made(name, MNIST), []
    network.decoder.register_forward_pre_hook(lambda _, inputs: codes.append(inputs[0]))
    network(x, labels)
    flat = codes[0].flatten(1)
    assert torch.allclose(flat.mean(1), torch.zeros(3), atol=1e-5)
    assert torch.allclose(flat.std(1), torch.ones(3), atol=1e-2)


# The bound.

pixels = st.floats(0, 1, width=32)
outputs = st.floats(allow_nan=False, width=32)
ROUNDING = 2.0**-25


@settings(max_examples=300, deadline=None)
@given(
    pairs=st.lists(st.tuples(pixels, outputs), min_size=1, max_size=20),
    bound=st.floats(0, 1),
)
@example(pairs=[(0.3, math.inf), (0.7, -math.inf)], bound=0.1)
@example(pairs=[(1e-45, -1.0), (1 - 2.0**-24, 1e-10)], bound=1e-30)
def test_the_bound_and_the_box_hold_for_any_output_up_to_one_rounding(pairs, bound):
    x, out = (torch.tensor(values, dtype=torch.float32) for values in zip(*pairs, strict=True))
    perturbed = bounded(out, x, bound)
    assert perturbed.dtype == torch.float32
    assert bool(((perturbed >= 0) & (perturbed <= 1)).all())
    size = float(torch.tensor(bound, dtype=torch.float32))
    assert float((perturbed.double() - x.double()).abs().max()) <= size + ROUNDING


@settings(max_examples=100, deadline=None)
@given(x=pixels, out=st.floats(-0.25, 0.25, width=32))
def test_what_is_inside_the_bound_and_the_box_is_the_sum(x, out):
    total = torch.tensor([x]) + torch.tensor([out])
    found = bounded(torch.tensor([out]), torch.tensor([x]), 0.25)
    assert torch.equal(found, total) or not 0 <= float(total) <= 1


def test_known_answers_of_the_bound():
    x = torch.tensor([0.5, 0.5, 0.9, 0.1, 0.5])
    out = torch.tensor([5.0, -5.0, 5.0, -5.0, 0.125])
    expected = torch.tensor([0.7, 0.3, 1.0, 0.0, 0.625])
    assert torch.allclose(bounded(out, x, 0.2), expected, atol=1e-7)
    assert torch.equal(bounded(out, x, 0.0), x)


def test_an_output_that_is_no_number_moves_nothing_and_has_no_slope():
    out = torch.tensor([math.nan, 0.125, math.nan], requires_grad=True)
    made = bounded(out, torch.tensor([0.25, 0.5, 1.0]), 0.2)
    assert made.tolist() == [0.25, 0.625, 1.0]
    made.sum().backward()
    assert out.grad.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("coarse", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of_images", [False, True])
@pytest.mark.parametrize("bound", [0.3, 0.1, 8 / 255])
def test_outputs_in_half_precision_do_not_widen_the_bound(coarse, of_images, bound):
    x = torch.linspace(0, 1, 33).to(coarse if of_images else torch.float32)
    for out in (torch.full((33,), 5.0), torch.full((33,), -5.0), torch.full((33,), bound)):
        perturbed = bounded(out.to(coarse), x, bound)
        assert perturbed.dtype == torch.float32
        size = float(torch.tensor(bound, dtype=torch.float32))
        assert float((perturbed.double() - x.double()).abs().max()) <= size + ROUNDING


def test_gradients_pass_inside_the_bound_alone_and_the_end_of_the_box():
    out = torch.tensor([0.1, 0.3, -0.3, -0.1, 0.15, -0.1], requires_grad=True)
    made = bounded(out, torch.tensor([0.5, 0.5, 0.5, 0.5, 0.9, 0.0]), 0.2)
    assert made.tolist()[-2:] == [1.0, 0.0], "the last two leave the box and are cut off"
    made.sum().backward()
    assert out.grad.tolist() == [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("bound", [-0.1, math.nan, math.inf])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(InputError, match="bad bound"):
        bounded(torch.zeros(1), torch.zeros(1), bound)


# Each image by itself.


class Packed(nn.Module):
    """A perturber of one input, as checkers want it: the label is in the first channel."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, packed):
        labels = (CLASSES * packed[:, 0, 0, 0]).long().clamp(0, CLASSES - 1)
        return self.network(packed[:, 1:], labels)


def require_apart(network, shape=DIGITS):
    probe = torch.rand(3, shape[0] + 1, *shape[1:], generator=seeded(0))
    require_separate_examples(Packed(network), probe)


def dropping():
    return awake(Ain(DIGITS, CLASSES, DROPPING))


@pytest.mark.parametrize("name", ["ain-4", "atn-4", "advgan"])
def test_the_checker_finds_that_images_are_treated_apart(name):
    require_apart(made(name))


def test_the_checker_finds_that_dropout_treats_images_apart():
    require_apart(dropping())


@pytest.mark.parametrize("training", [True, False])
def test_another_image_or_label_in_the_batch_moves_no_other_output(training):
    x, labels = images(4, DIGITS)
    x_other, labels_other = x.clone(), labels.clone()
    x_other[2], labels_other[2] = 1 - x[2], 0
    names = ("ain-4", "ain-4-without-label", "atn-4", "advgan")
    for network in (*map(made, names), dropping()):
        network.train(training)
        torch.manual_seed(0)
        before = network(x, labels, seeded(1))
        torch.manual_seed(0)
        now = network(x_other, labels_other, seeded(1))
        moved = (now - before).abs().amax((1, 2, 3))
        assert moved[2] > 1e-3
        assert moved[[0, 1, 3]].max() < 1e-6


class NormOverTheBatch(nn.Module):
    def forward(self, code):
        return (code - code.mean(0)) / (code.std(0) + 1e-5)


class NoiseOfTheBatch(nn.Module):
    def forward(self, code, labels, generator):
        return 0.01 * torch.randn(code.shape[1:], generator=generator)


def test_the_checker_catches_statistics_of_the_batch():
    network = made("ain-4")
    network.after_noise = NormOverTheBatch()
    with pytest.raises(InputError, match="mixes the examples of a batch"):
        require_apart(network)


def test_the_checker_catches_noise_that_images_share():
    network = made("ain-4")
    network.noise = NoiseOfTheBatch()
    with pytest.raises(InputError, match="random numbers that the examples of a pass share"):
        require_apart(network)


# Clipping.


def squared_error(output, target):
    return (output - target).square().flatten(1).sum(1)


@pytest.mark.parametrize("name", ["ain-4-without-noise", "ain-4", "advgan"])
def test_clipping_has_a_rule_for_every_layer_but_the_gains(name):
    treatments = {layer.kind: layer.treatment for layer in describe(made(name))}
    assert {kind for kind, how in treatments.items() if how != "rule"} <= {"Gain"}


@pytest.mark.parametrize("name", ["ain-4-without-noise", "advgan"])
def test_clipping_one_by_one_agrees_with_the_reference(name):
    network = Packed(made(name)).eval()
    packed = torch.rand(3, 2, 8, 8, generator=seeded(1))
    target = torch.rand(3, *DIGITS, generator=seeded(2))
    fast = make_clipper(network, squared_error, 1.0, probe=(packed, target))
    assert fast.note == ""
    expected = ReferenceClipper(network, squared_error, 1.0).clipped_sum(packed, target)
    assert torch.allclose(fast.clipped_sum(packed, target), expected, atol=1e-5)


# Learning.


def error_after_training(name):
    """Of a perturbation that is +1 for one label and -1 for the other, whatever the image."""
    network, generator = create_perturber(name, DIGITS, 2), seeded(0)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(40):
        x = torch.rand(16, *DIGITS, generator=generator)
        labels = torch.arange(16) % 2
        wanted = (2.0 * labels - 1).view(-1, 1, 1, 1).expand_as(x)
        error = squared_error(network(x, labels, generator), wanted).mean() / 64
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return error.item()


def test_with_the_label_it_learns_what_no_network_can_without():
    """The best that hangs on the image alone is 0, and its mean squared error is 1."""
    assert error_after_training("ain-4") < 0.1
    assert error_after_training("ain-4-without-label") > 0.5


def test_outputs_begin_inside_the_initial_bound():
    x, labels = images(16, MNIST)
    for name in ("ain-12", "ain-published", "atn-12"):
        out = create_perturber(name, MNIST, CLASSES).eval()(x, labels)
        assert 0 < out.abs().mean() < 0.4


# AdvGAN.


def test_advgan_has_the_published_layers():
    network = create_perturber("advgan", MNIST, CLASSES)
    down, up = [(8, 28, 3, 1), (16, 14, 3, 2), (32, 7, 3, 2)], [(16, 14, 3, 2), (8, 28, 3, 2)]
    assert convolutions(network, MNIST) == [*down, *8 * [(32, 7, 3, 1)], *up, (1, 28, 3, 1)]
    weights = 9 * (1 * 8 + 8 * 16 + 16 * 32 + 8 * 32 * 32 + 32 * 16 + 16 * 8 + 8 * 1)
    assert parameters(network) == weights + 1


def test_the_outputs_of_advgan_lie_within_one_however_large_its_weights():
    network, (x, labels) = create_perturber("advgan", CIFAR, CLASSES), images(2, CIFAR)
    with torch.no_grad():
        network.body[-2].weight.mul_(100)
    out = network(x, labels)
    assert 0.99 < out.abs().max() <= 1


@pytest.mark.parametrize("shape", [DIGITS, MNIST, CIFAR, TINY, ODD])
def test_the_discriminator_gives_one_score_an_image_by_itself(shape):
    judge, (x, _) = discriminator(shape), images(3, shape)
    scores = judge(x)
    assert scores.shape == (3,)
    assert torch.allclose(torch.cat([judge(one[None]) for one in x]), scores, atol=1e-5)
    require_separate_examples(judge, x)


def test_the_discriminator_learns_to_tell_images_apart():
    generator, judge = seeded(0), discriminator(DIGITS)
    optimizer = torch.optim.Adam(judge.parameters(), lr=3e-3)
    truth = (torch.arange(32) % 2).float()
    for _ in range(40):
        x = torch.rand(32, *DIGITS, generator=generator)
        x[truth == 1, :, :, 3] = 1.0  # clean images have a line
        scores = judge(x)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert ((scores > 0) == (truth == 1)).float().mean() > 0.95


# Names.


@pytest.mark.parametrize("name", ["ain-4", "ain-4-without-noise", "atn-4", "advgan"])
def test_first_weights_depend_on_the_init_seed_alone(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = create_perturber(name, DIGITS, CLASSES, init_seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    same, other = (create_perturber(name, DIGITS, CLASSES, init_seed=seed) for seed in (5, 6))
    weights = [nn.utils.parameters_to_vector(net.parameters()) for net in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_first_weights_of_the_discriminator_depend_on_the_init_seed_alone():
    before = torch.get_rng_state()
    same = [discriminator(DIGITS, init_seed=5) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    weights = [nn.utils.parameters_to_vector(net.parameters()) for net in same]
    other = nn.utils.parameters_to_vector(discriminator(DIGITS).parameters())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], other)


def test_weights_of_one_network_are_read_by_another_of_its_name():
    x, labels = images(2, ODD)
    one = create_perturber("ain-4", ODD, CLASSES, init_seed=1)
    other = build_perturber("ain-4", ODD, CLASSES)
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(x, labels, seeded(0)), one(x, labels, seeded(0)))


def test_names_are_described_in_one_line():
    listed = dict(describe_perturbers())
    families = ["ain-W", "ain-W-without-PARTS", "atn-W"]
    assert perturber_names() == ["advgan", "ain-12", "ain-published"]
    assert list(listed) == sorted([*perturber_names(), *families])
    assert all(10 < len(line) < 100 and line.endswith(".") for line in listed.values())
    assert default_perturber(DIGITS) == default_perturber(TINY) == "ain-12"


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("ain-published", CIFAR, r"not made for such images.*\(1, 28, 28\) or \(3, 64, 64\)"),
        ("ain-16", (12,), "a perturber needs images"),
        ("advgan", (1, 7, 28), "at least 8 pixels"),
        ("atn-2", MNIST, "no perturber of such a width: got 2, expected from 4 to 128"),
        ("ain-129", MNIST, "no perturber of such a width: got 129"),
        ("ain-8-without-labels", MNIST, "no such parts to leave out: got 'labels'"),
        ("ain-8-without-label-attention", MNIST, "got 'label-attention'.*in this order"),
        ("ain-8-without-label-label", MNIST, "got 'label-label'"),
        ("ain-8-without-", MNIST, "unknown perturber"),
        ("ain-8-attention", MNIST, "unknown perturber"),
        ("advgna", MNIST, r"unknown perturber: got 'advgna'.*atn-W.*did you mean 'advgan'"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(name, shape, said):
    with pytest.raises(InputError, match=said) as refusal:
        create_perturber(name, shape, CLASSES)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("build", [default_perturber, discriminator])
def test_there_is_nothing_for_tables(build):
    with pytest.raises(InputError, match="a perturber needs images"):
        build((12,))
