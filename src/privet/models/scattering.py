"""Wavelet scattering of images: features that are fixed before any data are seen.

Bruna and Mallat, "Invariant scattering convolution networks" (2013), with the Morlet wavelets of
Oyallon and Mallat, "Deep roto-translation scattering" (2015). Nothing is learned, so nothing is
spent: Tramer and Boneh (2021) train on top of it under differential privacy.

| symbol       | here            | meaning                                                   |
|--------------|-----------------|-----------------------------------------------------------|
| J            | `J`             | the coarsest scale is 2^J pixels; outputs stand 2^J apart |
| L            | `L`             | angles, evenly over half a turn                           |
| phi_J        | `_averaging`    | Gaussian low-pass, deviation 0.8 * 2^(J-1) pixels         |
| psi_(j,th)   | `_morlets`      | Morlet wavelet, frequency 3/4 pi / 2^j at angle th        |
| S_0          | `_scatter`      | x * phi_J                                                 |
| S_1          |                 | |x * psi_(j1)| * phi_J                                    |
| S_2          |                 | ||x * psi_(j1)| * psi_(j2)| * phi_J for j1 < j2           |

Each image gives K = 1 + J L + L^2 J (J - 1) / 2 maps a channel (81 for J = 2, L = 8). A filtered
image is kept on the coarsest grid that its wavelet allows. Filters are written down in the Fourier
domain, where a Morlet wavelet is real. The low-pass is a product of one along rows and one along
columns, so it is two matrix products that compute only the points that are kept.

Deviations: images are reflected by about 2^J pixels at the border and then taken as periodic, and
on coarse grids the low-pass is cut at the grid's highest frequency, both as in the `kymatio`
package, so that published results on top of it carry over.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InputError

CHUNK: Final = {"cpu": 32, "cuda": 2048}  # single-channel images at a time: fits cache and memory
COMPILED: Final = 1024  # the same where it is compiled: every call has this size
SHIFTS: Final = 7  # whole turns over which a transform is summed; the next term is below 1e-30


class Scattering2d(nn.Module):
    """Scattering of images of a given size: (n, C, H, W) -> (n, C * K, H // 2^J, W // 2^J).

    Without parameters. Each channel of each image is treated by itself. Maps are ordered as
    S_0, then S_1 by (j1, angle), then S_2 by (j1, angle, j2, angle), for one channel after another.
    """

    def __init__(self, height: int, width: int, J: int = 2, L: int = 8) -> None:
        super().__init__()
        if min(height, width) < 2 ** (J + 1):
            raise InputError(
                "images too small to be scattered",
                got=f"{height}x{width} pixels at J={J}",
                expected=f"at least {2 ** (J + 1)} pixels each way",
                fix="use --model cnn-tiny",
            )
        self.J, self.L = J, L
        self._by_compiler: Callable[[Tensor], Tensor] | None = None
        self.height, self.width = height, width
        padded = [(size // 2**J + 2) * 2**J for size in (height, width)]
        self.padding = [part for i in (1, 0) for part in _split(padded[i] - (height, width)[i])]
        # Constants of the image size, so they need not be in a release.
        for j in range(J):
            wavelets = _morlets(padded[0], padded[1], j, L)
            for r in range(max(j, 1)):
                carried = _on_grid(_on_grid(wavelets, r, -1), r, -2)
                # Over all points of grid r: folding is a mean, and so is the way back into space.
                factors = carried / math.prod(carried.shape[-2:])
                # Twice, for real and imaginary parts.
                self._constant(f"psi_{j}_{r}", torch.stack([factors, factors], -1))
            for side, size in zip("hw", padded, strict=True):
                self._constant(f"phi_{j}_{side}", _averaging(size, j, J))

    @property
    def maps(self) -> int:
        """K: output maps for each input channel."""
        return 1 + self.J * self.L + self.L**2 * self.J * (self.J - 1) // 2

    def forward(self, x: Tensor) -> Tensor:
        """The scattering coefficients of each image."""
        n, channels = x.shape[:2]
        if n == 0:  # which no transform takes
            return x.new_zeros(0, channels * self.maps, self.height >> self.J, self.width >> self.J)
        images = x.flatten(0, 1)
        if self._by_compiler is not None:
            maps = self._in_full_parts(images, self._by_compiler)
        else:
            parts = torch.split(images, CHUNK.get(x.device.type, CHUNK["cpu"]))
            maps = torch.cat([self._scatter(part) for part in parts])
        return maps.reshape(n, channels * self.maps, *maps.shape[2:])

    def compile_it(self, compiler: Callable[..., Any] | None = None) -> None:
        """From now on by `torch.compile`: fused, it moves less than half as much memory on a GPU.

        It takes a minute and rounds in other places: for attacks of thousands of passes.
        """
        made = partial(torch.compile, dynamic=False) if compiler is None else compiler
        self._by_compiler = made(self._scatter)

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which is not compiled: the program computes with the filters of this one."""
        return {**self.__dict__, "_by_compiler": None}

    def _in_full_parts(self, images: Tensor, scatter: Callable[[Tensor], Tensor]) -> Tensor:
        """Filled up with black images, so that no number of images is compiled for again."""
        short = -len(images) % COMPILED
        filled = F.pad(images, [0, 0, 0, 0, 0, short])
        # One of two programs: with gradients, or without.
        with torch.set_grad_enabled(torch.is_grad_enabled() and images.requires_grad):
            maps = torch.cat([scatter(part) for part in torch.split(filled, COMPILED)])
        return maps[: len(images)]

    def _scatter(self, x: Tensor) -> Tensor:
        x = F.pad(x.unsqueeze(1), self.padding, mode="reflect").squeeze(1)
        spectrum = torch.fft.fft2(x)
        orders = [[self._averaged(x, 0).unsqueeze(1)], [], []]
        for j1 in range(self.J):
            u1 = self._moduli(spectrum, j1, 0)
            orders[1].append(self._averaged(u1, j1))
            if j1 + 1 < self.J:
                orders[2].append(self._second_order(u1, j1))
        return torch.cat([maps for order in orders for maps in order], 1)

    def _second_order(self, u1: Tensor, j1: int) -> Tensor:
        spectrum = torch.fft.fft2(u1)
        scales = range(j1 + 1, self.J)
        maps = [self._averaged(self._moduli(spectrum, j2, j1), j2) for j2 in scales]
        return torch.cat(maps, 2).flatten(1, 2)

    def _moduli(self, spectrum: Tensor, j: int, r: int) -> Tensor:
        """|u * psi_j| for each angle, from u on grid r (2^r pixels apart) onto grid j.

        Keeping every k-th point in space is folding the spectrum k times onto itself.
        """
        psi = self.get_buffer(f"psi_{j}_{r}")
        k = 2 ** (j - r)
        rows, columns = (size // k for size in spectrum.shape[-2:])
        blocks = [
            (..., slice(a * rows, (a + 1) * rows), slice(b * columns, (b + 1) * columns), slice(2))
            for a in range(k)
            for b in range(k)
        ]
        # Psi is real. In real numbers a compiler makes one pass over memory of all this.
        parts = torch.view_as_real(spectrum).unsqueeze(-4)
        folded = parts[blocks[0]] * psi[blocks[0]]
        for block in blocks[1:]:
            folded = torch.addcmul(folded, parts[block], psi[block])
        return _modulus(torch.fft.ifft2(torch.view_as_complex(folded), norm="forward"))

    def _averaged(self, u: Tensor, r: int) -> Tensor:
        """The average u * phi_J at the points that are kept, from grid r."""
        rows, columns = self.get_buffer(f"phi_{r}_h"), self.get_buffer(f"phi_{r}_w")
        return rows @ u @ columns.T

    def _constant(self, name: str, values: Tensor) -> None:
        self.register_buffer(name, values.float(), persistent=False)


def _modulus(z: Tensor) -> Tensor:
    """|z|, several times faster than `abs`; the small term keeps the slope finite at zero."""
    real, imaginary = torch.view_as_real(z).unbind(-1)
    return torch.addcmul(real.square(), imaginary, imaginary).add(1e-20).sqrt()


def _split(padding: int) -> tuple[int, int]:
    return padding // 2, padding - padding // 2


def _morlets(rows: int, columns: int, j: int, L: int) -> Tensor:
    """The Fourier transforms of psi_j at all angles: (L, rows, columns), real.

    In space psi(u) = g(u) (exp(i xi.u) - beta), g a Gaussian of mass one, elongated across xi, and
    beta such that psi has mean zero. On the grid of whole pixels its transform is that of the
    plane, summed over shifts by whole turns.
    """
    sigma, slant, frequency = 0.8 * 2**j, 4.0 / L, 0.75 * math.pi / 2**j
    angles = math.pi / L * (L // 2 - 1 - torch.arange(L, dtype=torch.float64))
    omega = torch.cartesian_prod(_frequencies(rows), _frequencies(columns))
    along = torch.stack([angles.cos(), angles.sin()])  # unit vectors, one a column
    across = torch.stack([-angles.sin(), angles.cos()])
    v = (omega @ across * sigma / slant).pow(2)
    carried, envelope = (
        torch.exp(-0.5 * ((omega @ along - xi) * sigma).pow(2) - 0.5 * v)
        .reshape(SHIFTS, rows, SHIFTS, columns, L)
        .sum((0, 2))
        for xi in (frequency, 0.0)
    )
    psi = carried - envelope * (carried[0, 0] / envelope[0, 0])
    return psi.movedim(2, 0).contiguous()


def _averaging(size: int, r: int, J: int) -> Tensor:
    """The matrix that takes a line on grid r to its average with phi_J at the points kept.

    These stand 2^J pixels apart; the first and the last lie in the padding and are dropped.
    """
    sigma = 0.8 * 2.0 ** (J - 1)
    spectrum = torch.exp(-0.5 * (_frequencies(size) * sigma).pow(2)).reshape(SHIFTS, size).sum(0)
    phi: Tensor = torch.fft.ifft(_on_grid(spectrum, r, -1)).real
    points = torch.arange(1, (size >> J) - 1) << (J - r)
    places = torch.arange(len(phi))
    return phi[(points[:, None] - places[None, :]) % len(phi)]


def _frequencies(size: int) -> Tensor:
    """Radians a pixel of a transform of this size, in each of `SHIFTS` turns one after another."""
    steps = torch.arange(SHIFTS * size, dtype=torch.float64)
    return 2.0 * math.pi * (steps / size - SHIFTS // 2)


def _on_grid(spectrum: Tensor, r: int, axis: int) -> Tensor:
    """The part of a transform that a grid of every 2^r-th pixel can carry."""
    half = spectrum.shape[axis] >> (r + 1)
    ends = spectrum.narrow(axis, 0, half), spectrum.narrow(axis, -half, half)
    return torch.cat(ends, axis)
