"""Scattering against its definition in space, published facts, and values of another program."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InputError
from privet.models.scattering import CHUNK, Scattering2d, _morlets


def random_images(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


# --- the oracle: wavelets sampled in space, convolutions summed point by point ---


def sampled(sigma, slant, angle, frequency, reach=40):
    """A Gaussian of mass one, elongated across `angle`, with a carrier wave; on whole pixels."""
    r, c = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(float)
    along = r * np.cos(angle) + c * np.sin(angle)
    across = -r * np.sin(angle) + c * np.cos(angle)
    envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
    return envelope * slant / (2 * np.pi * sigma**2) * np.exp(1j * frequency * along)


def wavelet(j, angle, L):
    sigma, slant = 0.8 * 2**j, 4 / L
    carried = sampled(sigma, slant, angle, 3 * np.pi / 4 / 2**j)
    envelope = sampled(sigma, slant, angle, 0.0)
    return carried - envelope * carried.sum() / envelope.sum()


def convolved(images, kernel):
    """Periodic convolution by its definition: a sum of shifted images."""
    reach = len(kernel) // 2
    total = np.zeros(images.shape, complex)
    folded = np.zeros(images.shape[-2:], complex)
    for r in range(len(kernel)):
        for c in range(len(kernel)):
            folded[(r - reach) % folded.shape[0], (c - reach) % folded.shape[1]] += kernel[r, c]
    for r in range(folded.shape[0]):
        for c in range(folded.shape[1]):
            total += folded[r, c] * np.roll(images, (r, c), (-2, -1))
    return total


def averaged(images, r, J):
    """With phi_J, cut to what grid r carries, at every 2^J-th pixel but the outermost."""
    images = images.astype(complex)
    for axis in (-2, -1):
        size = images.shape[axis] << r
        lags = np.arange(-20 * size, 20 * size + 1)
        sigma = 0.8 * 2 ** (J - 1)
        phi = np.exp(-(lags**2) / (2 * sigma**2)) / (math.sqrt(2 * np.pi) * sigma)
        omega = 2 * np.pi * np.arange(-(size >> r) // 2, (size >> r) // 2) / size
        spectrum = np.exp(-1j * np.outer(omega, lags)) @ phi
        places = np.arange(size >> r) << r
        kernel = (np.exp(1j * np.outer(places, omega)) @ spectrum) / (size >> r)
        matrix = np.array([np.roll(kernel[::-1], i + 1) for i in range(size >> r)])
        step = 2 ** (J - r)
        kept = matrix[::step][1:-1]
        images = np.moveaxis(np.moveaxis(images, axis, -1) @ kept.T, -1, axis)
    return images.real


def scattered_by_definition(image, J, L):
    height, width = image.shape
    padding = [(size // 2**J + 2) * 2**J - size for size in (height, width)]
    x = np.pad(image, [(p // 2, p - p // 2) for p in padding], mode="reflect")
    angles = [np.pi / L * (L // 2 - 1 - t) for t in range(L)]
    zeroth, first, second = [averaged(x, 0, J)], [], []
    for j1 in range(J):
        for angle1 in angles:
            u1 = np.abs(convolved(x, wavelet(j1, angle1, L)))[:: 2**j1, :: 2**j1]
            first.append(averaged(u1, j1, J))
            if j1 > 0:
                continue  # wavelets on coarse grids are cut as well: see kymatio's values
            for j2 in range(1, J):
                for angle2 in angles:
                    u2 = np.abs(convolved(u1, wavelet(j2, angle2, L)))[:: 2**j2, :: 2**j2]
                    second.append(averaged(u2, j2, J))
    return np.stack(zeroth + first + second)


def test_coefficients_are_those_of_the_definition_in_space():
    image = random_images(9, 12, seed=1)
    expected = scattered_by_definition(image.double().numpy(), J=2, L=4)
    ours = Scattering2d(9, 12, J=2, L=4)(image[None, None])[0].numpy()
    assert ours.shape == expected.shape == (1 + 2 * 4 + 16, 2, 3)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert expected[9:].max() > 1e-3  # the second order is not all zeros


def test_coefficients_are_those_of_kymatio():
    """Recorded from kymatio 0.3.0, ScatteringTorch2D(J=2, shape=(28, 28)), L = 8."""
    r, c = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    image = 0.5 + 0.5 * torch.sin(0.9 * r) * torch.cos(0.4 * c + 0.05 * r)
    recorded = {
        (0, 3, 3): 0.40727,
        (0, 0, 6): 0.27198,
        (1, 3, 2): 0.01886,
        (4, 1, 5): 0.03874,
        (8, 6, 0): 0.01600,
        (9, 3, 3): 0.00591,
        (13, 2, 4): 0.10961,
        (16, 0, 0): 0.02742,
        (17, 3, 3): 0.00009,
        (24, 5, 1): 0.00118,
        (49, 2, 6): 0.00630,
        (80, 4, 4): 0.00114,
    }
    ours = Scattering2d(28, 28)(image[None, None])[0]
    for place, value in recorded.items():
        assert ours[place].item() == pytest.approx(value, abs=2e-5)
    assert ours.norm().item() == pytest.approx(3.8290, abs=2e-4)


@pytest.mark.parametrize(
    ("size", "J", "L"),
    [
        ((28, 28), 2, 8),
        ((32, 32), 2, 8),
        ((33, 31), 2, 8),
        ((8, 8), 2, 8),
        ((28, 28), 1, 8),
        ((40, 24), 3, 6),
    ],
)
def test_all_coefficients_are_those_of_kymatio_where_it_is_installed(size, J, L):
    frontend = pytest.importorskip("kymatio.scattering2d.frontend.torch_frontend")
    images = random_images(2, 3, *size)
    theirs = frontend.ScatteringTorch2D(J, size, L=L)(images)
    ours = Scattering2d(*size, J=J, L=L)(images)
    torch.testing.assert_close(ours, theirs.flatten(1, 2), rtol=0, atol=1e-4)


# --- facts of the theory ---


@pytest.mark.parametrize(("rows", "columns"), [(36, 36), (40, 36)])
def test_the_wavelets_satisfy_the_littlewood_paley_condition(rows, columns):
    """Bruna and Mallat, eq. (5): |phi|^2 + 1/2 sum |psi|^2 (both signs) <= 1, everywhere."""
    psi = torch.cat([_morlets(rows, columns, j, 8) for j in range(2)])
    mirrored = psi.flip(1, 2).roll((1, 1), (1, 2))
    phi = [
        torch.stack(
            [
                torch.exp(-0.5 * (2 * math.pi * (torch.arange(n) / n + k) * 1.6) ** 2)
                for k in range(-3, 4)
            ]
        ).sum(0)
        for n in (rows, columns)
    ]
    covered = torch.outer(*phi) ** 2 + 0.5 * (psi**2 + mirrored**2).sum(0)
    assert covered.max() <= 1.0 + 1e-6
    assert covered.min() > 0.1  # no frequency is lost


def test_wavelets_have_mean_zero_and_point_where_they_should():
    psi = _morlets(64, 64, 0, 8)
    assert psi[:, 0, 0].abs().max() < 1e-12
    omega = torch.fft.fftfreq(64).double() * 2 * math.pi
    for t in range(8):
        r, c = divmod(int(psi[t].argmax()), 64)
        found = math.atan2(omega[c], omega[r])
        expected = math.pi / 8 * (3 - t)
        assert math.remainder(found - expected, 2 * math.pi) == pytest.approx(0.0, abs=0.06)
        assert math.hypot(omega[r], omega[c]) == pytest.approx(0.75 * math.pi, abs=0.1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 1.0]), st.integers(0, 4))
def test_scattering_does_not_expand(seed, size, smoothness):
    """|S(x) - S(y)| <= |x - y|, each output standing for the 4x4 pixels of its place.

    Up to 1 %: sampling every 4th pixel is a little too coarse for the Gaussian.
    """
    x, noise = random_images(2, 1, 1, 28, 28, seed=seed)
    for _ in range(smoothness):
        noise = torch.nn.functional.avg_pool2d(noise, 3, stride=1, padding=1)
    y = x + size * noise
    scattering = Scattering2d(28, 28)
    before = torch.nn.functional.pad(size * noise, [4] * 4, mode="reflect").norm()
    assert 4 * (scattering(x) - scattering(y)).norm() <= 1.01 * before


def test_a_constant_image_keeps_all_its_energy_in_the_mean():
    """The tight case of the bound: S_0 is the constant, all else vanishes."""
    out = Scattering2d(28, 28)(torch.full((1, 1, 28, 28), 0.7))[0]
    assert torch.allclose(out[0], torch.tensor(0.7), atol=1e-5)
    assert out[1:].abs().max() < 1e-5


def dot(r, c):
    """An image that is dark but for a small slanted stroke."""
    image = torch.zeros(1, 1, 32, 32)
    image[..., r : r + 3, c] = 1.0
    image[..., r + 1, c + 1] = 0.5
    return image


def test_moving_an_image_by_one_output_moves_the_output_by_one():
    scattering = Scattering2d(32, 32)
    here, there = scattering(dot(12, 12)), scattering(dot(16, 12))
    torch.testing.assert_close(there[..., 1:, :], here[..., :-1, :], rtol=0, atol=1e-5)


def test_moving_an_image_by_one_pixel_changes_little():
    """Why it is used: small shifts count less than in pixels."""
    scattering = Scattering2d(32, 32)
    a, b = dot(12, 12), dot(13, 13)
    change = (scattering(a) - scattering(b)).norm() / scattering(a).norm()
    assert change < 0.5 * (a - b).norm() / a.norm()


def test_turning_an_image_turns_the_angles():
    """A quarter turn takes angle th to th + pi / 2: four places of eight.

    Summed over all places of the stroke within 4x4 pixels, so that the grid does not matter.
    """
    scattering = Scattering2d(32, 32)
    upright = torch.cat([dot(13 + r, 13 + c) for r in range(4) for c in range(4)])
    totals = [
        scattering(images).sum((0, 2, 3))[1:17].reshape(2, 8)
        for images in (upright, upright.rot90(1, (2, 3)))
    ]
    torch.testing.assert_close(totals[1], totals[0].roll(4, 1), rtol=1e-3, atol=1e-3)
    assert (totals[1] - totals[0]).abs().max() > 0.1 * totals[0].max()


# --- what training needs ---


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 28, 28), (81, 7, 7)), ((3, 32, 32), (243, 8, 8)), ((1, 8, 9), (81, 2, 2))],
)
def test_shapes(shape, expected):
    assert Scattering2d(*shape[1:])(random_images(2, *shape)).shape == (2, *expected)


def test_every_channel_of_every_image_is_treated_apart():
    """Across the borders of the chunks, too."""
    scattering = Scattering2d(12, 12)
    images = random_images(CHUNK["cpu"] // 2 + 3, 3, 12, 12)
    together = scattering(images)
    assert together.shape[0] == len(images)
    for i in (0, 10, len(images) - 1):
        for channel in range(3):
            alone = scattering(images[i : i + 1, channel : channel + 1])[0]
            maps = together[i].reshape(3, scattering.maps, 3, 3)[channel]
            torch.testing.assert_close(maps, alone, rtol=0, atol=1e-6)


def test_an_empty_batch_stays_empty():
    assert Scattering2d(8, 8)(torch.zeros(0, 3, 8, 8)).shape == (0, 243, 2, 2)


def test_it_works_one_example_at_a_time_under_vmap():
    scattering = Scattering2d(12, 12)
    images = random_images(4, 2, 12, 12)
    each = torch.func.vmap(lambda x: scattering(x[None])[0])(images)
    torch.testing.assert_close(each, scattering(images), rtol=0, atol=1e-6)


def test_slopes_are_right_and_finite_even_for_a_black_image():
    scattering = Scattering2d(8, 8, L=4).double()
    image = random_images(1, 1, 8, 8).double().requires_grad_()
    assert torch.autograd.gradcheck(scattering, image, atol=1e-6)
    black = torch.zeros(1, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    scattering(black).sum().backward()
    assert torch.isfinite(black.grad).all()


def test_nothing_is_learned_and_nothing_stored():
    scattering = Scattering2d(28, 28)
    assert list(scattering.parameters()) == []
    assert scattering.state_dict() == {}


def test_images_too_small_are_refused():
    with pytest.raises(InputError, match=r"too small to be scattered: got 7x9 pixels at J=2"):
        Scattering2d(7, 9)


# --- by a compiler ------------------------------------------------------------------------------


def slopes_of(scattering, images, weights):
    inputs = images.clone().requires_grad_()
    maps = scattering(inputs)
    return maps.detach(), torch.autograd.grad((maps * weights).sum(), inputs)[0]


@pytest.mark.parametrize("n", [1, 3, 4, 6])
def test_parts_of_one_size_give_the_same_maps_and_slopes(monkeypatch, n):
    """Filled up, cut off, and nothing but whole parts is ever asked for."""
    monkeypatch.setattr("privet.models.scattering.COMPILED", 4)
    sizes, images = [], random_images(n, 2, 12, 9)
    plain, filled = Scattering2d(12, 9, L=4), Scattering2d(12, 9, L=4)

    def noting(scatter):
        return lambda part: sizes.append((len(part), torch.is_grad_enabled())) or scatter(part)

    filled.compile_it(noting)
    weights = random_images(*plain(images).shape, seed=1) - 0.5
    for ours, expected in zip(
        slopes_of(filled, images, weights), slopes_of(plain, images, weights), strict=True
    ):
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-5)
    assert sizes == [(4, True)] * math.ceil(n / 2)
    filled(images)
    assert sizes[-1] == (4, False), "no gradient is asked for: the other program"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_does_not_compute_with_the_filters_of_the_compiled_one(copied):
    """A fake compiler, which keeps the method of the module that it was given."""
    calls, first, images = [], Scattering2d(12, 12, L=4), random_images(2, 1, 12, 12)
    before = first(images)
    first.compile_it(lambda scatter: lambda part: calls.append(len(part)) or scatter(part))
    second = copied(first)
    for buffer in first.buffers():
        buffer.zero_()
    torch.testing.assert_close(second(images), before)
    assert not calls
    first(images)
    assert calls, "the compiled one stays compiled"


def test_a_compiled_scattering_gives_the_same_maps_and_slopes(monkeypatch):
    monkeypatch.setattr("privet.models.scattering.COMPILED", 4)
    images, plain, fused = random_images(6, 1, 12, 12), Scattering2d(12, 12), Scattering2d(12, 12)
    weights = random_images(*plain(images).shape, seed=1) - 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler, about complex numbers
        fused.compile_it()
        found = slopes_of(fused, images, weights)
    for ours, expected in zip(found, slopes_of(plain, images, weights), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-5)
