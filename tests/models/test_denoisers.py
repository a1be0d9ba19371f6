"""Denoisers: the published sizes, layer by layer; what they begin as; what they can learn."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.models.denoisers import (
    create_denoiser,
    default_denoiser,
    denoiser_names,
    describe_denoisers,
    slices,
)
from privet.privacy.clipping import ReferenceClipper, make_clipper
from privet.privacy.separation import require_separate_examples

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
CASES = [("conv", MNIST), ("conv", CIFAR), ("unet-16", MNIST), ("unet-8", CIFAR)]


def sizes(denoiser):
    return {name: sum(p.numel() for p in part) for name, part in slices(denoiser).items()}


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        (MNIST, {"first": 544, "middle": 1_198_816, "last": 513}),
        (CIFAR, {"first": 784, "middle": 3_217_200, "last": 771}),
    ],
)
def test_the_slices_of_the_papers_network_have_the_published_sizes(shape, published):
    assert sizes(create_denoiser("conv", shape)) == published


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_slices_are_all_parameters_once_and_their_ends_are_convolutions(name, shape):
    denoiser = create_denoiser(name, shape)
    parts = slices(denoiser)
    assert list(parts) == ["first", "middle", "last"]
    listed = [id(p) for part in parts.values() for p in part]
    assert sorted(listed) == sorted(id(p) for p in denoiser.parameters())
    assert parts["first"] == (denoiser.first.weight, denoiser.first.bias)
    assert parts["last"] == (denoiser.last.weight, denoiser.last.bias)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (MNIST, [(32, 14), (32, 14), (128, 7), (128, 4), (128, 2), (128, 4), (128, 7), (32, 14),
                 (32, 14)]),
        (CIFAR, [(16, 16), (16, 16), (128, 8), (128, 4), (128, 2), (512, 1), (128, 2), (128, 4),
                 (128, 8), (16, 16), (16, 16)]),
    ],
)  # fmt: skip
def test_the_papers_network_goes_down_and_up_as_described(shape, expected):
    denoiser = create_denoiser("conv", shape).eval()
    seen = []
    for module in denoiser.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape[1:3])))
    denoiser(torch.rand(2, *shape))
    assert seen == expected


def test_links_of_the_papers_network_are_where_they_should_be():
    """With all of the middle silenced, the last layer sees layer 2 once, and layer 1 by it."""
    denoiser = create_denoiser("conv", MNIST).eval()
    with torch.no_grad():
        for part in (denoiser.second, denoiser.up, denoiser.second_to_last):
            for p in part.parameters():
                p.zero_()
    z = torch.rand(3, *MNIST)
    h = F.leaky_relu(denoiser.first(z), 0.2)
    h = F.layer_norm(h, h.shape[1:])
    assert torch.allclose(denoiser(z), torch.sigmoid(denoiser.last(h)), atol=1e-6)
    with torch.no_grad():
        denoiser.second[0].bias.copy_(torch.linspace(-1, 1, 32))
    second = F.leaky_relu(denoiser.second[0].bias, 0.2)[:, None, None].expand(32, 14, 14)
    expected = h + F.layer_norm(second, second.shape)
    assert torch.allclose(denoiser(z), torch.sigmoid(denoiser.last(expected)), atol=1e-6)


def test_a_step_down_from_an_odd_side_and_the_step_up_are_adjoint():
    """<down(x), y> = <x, up(y)> where both have the same weights: sides 7 and 4."""
    denoiser = create_denoiser("conv", MNIST)
    down, up = denoiser.down[1][:2].double(), denoiser.up[1][:2].double()
    with torch.no_grad():
        up[0].weight.copy_(down[1].weight)
        for layer in (down[1], up[0]):
            layer.bias.zero_()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 128, 7, 7, generator=generator, dtype=torch.float64)
    y = torch.randn(1, 128, 4, 4, generator=generator, dtype=torch.float64)
    assert torch.allclose((down(x) * y).sum(), (x * up(y)).sum())


@pytest.mark.parametrize("shape", [(1, 8, 8), MNIST, CIFAR, (3, 33, 31), (2, 9, 64)])
def test_a_unet_takes_any_image_and_begins_almost_as_the_identity(shape):
    denoiser, z = create_denoiser("unet-16", shape), torch.randn(4, *shape)
    change = denoiser(z) - z
    assert change.shape == z.shape
    assert 0 < change.square().mean().sqrt() < 0.1


def test_a_unet_is_small_and_grows_with_its_width():
    counts = [sum(sizes(create_denoiser(f"unet-{w}", CIFAR)).values()) for w in (8, 16, 32)]
    assert 1e4 < counts[0] < counts[1] < 1e5 < counts[2]


def test_the_links_of_a_unet_carry_details_past_the_bottom():
    """Where nothing comes up from below, what a pixel does to its neighbour went by a link."""
    denoiser = create_denoiser("unet-8", MNIST).double()
    with torch.no_grad():
        for up in denoiser.up:
            up.weight.zero_()
    z = torch.rand(1, *MNIST, dtype=torch.float64)
    other = z.clone()
    other[0, 0, 3, 3] += 1e-3
    moved = (denoiser(other) - denoiser(z)).abs()[0, 0]
    assert moved[3, 4] > 1e-7


@pytest.mark.parametrize(("name", "shape"), [("conv", MNIST), ("unet-8", (3, 9, 10))])
def test_examples_are_treated_apart(name, shape):
    probe = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    require_separate_examples(create_denoiser(name, shape), probe)


def squared_error(output, target):
    return (output - target).square().flatten(1).sum(1)


@pytest.mark.parametrize(("name", "shape"), [("conv", MNIST), ("unet-8", (3, 9, 10))])
def test_clipping_has_a_rule_for_every_layer_and_agrees_with_the_reference(name, shape):
    denoiser = create_denoiser(name, shape).eval()
    clean = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    noisy = clean + 0.25 * torch.randn(3, *shape, generator=torch.Generator().manual_seed(2))
    fast = make_clipper(denoiser, squared_error, 1.0, probe=(noisy, clean))
    assert fast.note == ""
    expected = ReferenceClipper(denoiser, squared_error, 1.0).clipped_sum(noisy, clean)
    assert torch.allclose(fast.clipped_sum(noisy, clean), expected, atol=1e-5)


def test_the_papers_network_stays_within_the_unit_cube_and_a_unet_need_not():
    z = 5.0 * torch.randn(2, *MNIST, generator=torch.Generator().manual_seed(0))
    inside = create_denoiser("conv", MNIST)(z)
    assert ((inside >= 0) & (inside <= 1)).all()
    assert create_denoiser("unet-16", MNIST)(z).abs().max() > 1


@pytest.mark.parametrize("name", denoiser_names())
def test_it_learns_to_take_noise_away(name):
    """Images of one bright square: in 60 steps far below the noise, in mean squares."""
    generator = torch.Generator().manual_seed(0)
    denoiser = create_denoiser(name, MNIST)
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=3e-3)

    def drawn(n):
        clean = torch.zeros(n, *MNIST)
        for image in clean:
            row, column = torch.randint(0, 18, (2,), generator=generator).tolist()
            image[0, row : row + 10, column : column + 10] = 1.0
        return clean, clean + 0.25 * torch.randn(clean.shape, generator=generator)

    torch.manual_seed(0)
    for _ in range(60):
        clean, noisy = drawn(16)
        optimizer.zero_grad()
        squared_error(denoiser(noisy), clean).mean().backward()
        optimizer.step()
    clean, noisy = drawn(32)
    assert F.mse_loss(denoiser.eval()(noisy), clean) < 0.5 * 0.25**2


@pytest.mark.parametrize("name", ["conv", "unet-16", "unet-4"])
def test_first_weights_depend_on_the_init_seed_alone(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = create_denoiser(name, MNIST, init_seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    same, other = (create_denoiser(name, MNIST, init_seed=seed) for seed in (5, 6))
    weights = [nn.utils.parameters_to_vector(d.parameters()) for d in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_names_are_described_in_one_line():
    listed = dict(describe_denoisers())
    assert list(listed) == ["conv", "unet-16", "unet-W"]
    assert denoiser_names() == ["conv", "unet-16"]
    assert all(10 < len(line) < 100 and line.endswith(".") for line in listed.values())
    assert default_denoiser((1, 8, 8)) == default_denoiser(CIFAR) == "unet-16"


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("conv", (3, 28, 28), r"not made for such images.*\(1, 28, 28\) or \(3, 32, 32\)"),
        ("unet-16", (12,), "a denoiser needs images"),
        ("unet-16", (1, 7, 28), "at least 8 pixels"),
        ("unet-6", MNIST, "no such U-Net: got unet-6"),
        ("cnov", MNIST, r"unknown denoiser: got 'cnov'.*unet-W.*did you mean 'conv'"),
    ],
)
def test_what_cannot_be_built_is_refused(name, shape, said):
    with pytest.raises(InputError, match=said):
        create_denoiser(name, shape)


def test_there_is_no_default_for_tables():
    with pytest.raises(InputError, match="a denoiser needs images"):
        default_denoiser((12,))
