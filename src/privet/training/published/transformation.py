"""From noise on images to noise on gradients: the mathematics of TransDenoiser, as published.

| paper                  | here             | meaning                                        |
|------------------------|------------------|------------------------------------------------|
| x, z = x + b           | `x`, `z`         | image, and with noise of deviation sigma       |
| l(z, theta)            | `squared_errors` | squared norm of g(z) - x; the target is fixed  |
| o(b)                   | `remainders`     | l(z) - l(x) - b' grad_x l(x); its sign splits  |
| A = J_theta grad_x l   | `derivatives`    | w_k parameters x v pixels, at z = x            |
| a                      | `factors`        | 1 / max(1, norm of grad_theta l(z) / C)        |
| M = 1/B^2 sum a^2 A A' | `covariance`     | of the transformed noise p = A b, over sigma^2 |
| S_min(M)               | `s_min`          | least singular value                           |
| T, xi_low, xi_up, C    | `NoiseRule`      | what decides the explicit noise                |
| sigma-bar              | `explicit_noise` | in units of C                                  |

    sqrt(T S_min) sigma / C  <  xi_low            sigma-bar = xi_up
                             <  xi_up             sigma-bar = sqrt(xi_up^2 - T S_min sigma^2 / C^2)
                             otherwise            sigma-bar = 0

Guarantee: none; `transdenoiser.py` beside this file lists what is wrong with crediting this.

A is the derivative of grad_z l(z, theta) at z = x with the target held fixed: what a noise b on the
input adds to the gradient is A b to first order. (Differentiating the target as well, as the public
program does, adds -2 d g / d theta, which no noise produces.)

Cost. A takes one pass for each of the w_k parameters or of the v pixels, whichever are fewer.
Parameters go forwards, for all images at once: a tangent of the weights through the network, and of
its backward pass; what lies before the slice has none. Pixels go backwards, image by image. Both
are batched; memory is that of `ROWS` images, however large the batch.

Two short cuts leave sigma-bar as it is. Terms of M are positive semidefinite, so S_min of the first
images' terms is at most S_min(M): once it is enough for sigma-bar = 0, the others need not be
looked at. And u' M u is at least S_min(M) for every unit vector u: where it is too little for
xi_low, sigma-bar = xi_up. We try u along the slice's own weights. Behind a layer that is followed
by a normalisation the network does not see their length, so u' M u is zero but for the constant
that the normalisation adds, and with it S_min.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vjp, vmap

from privet.errors import InputError
from privet.privacy.noise import check_scale

ROWS: Final = {"cpu": 256, "cuda": 4096}  # images in one pass: directions times images

Part = dict[str, Tensor]
"""Parameters by name."""


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss l of each image."""
    return (outputs - targets).flatten(1).square().sum(1)


@torch.no_grad()
def remainders(denoiser: nn.Module, x: Tensor, z: Tensor) -> Tensor:
    """o_i = l(z) - l(x) - b' grad_x l(x), one a row; the target is x throughout."""

    def total(inputs: Tensor) -> tuple[Tensor, Tensor]:
        errors = squared_errors(denoiser(inputs), x)
        return errors.sum(), errors.detach()

    slopes, clean = grad(total, has_aux=True)(x)
    noisy = squared_errors(denoiser(z), x)
    found: Tensor = noisy - clean - ((z - x) * slopes).flatten(1).sum(1)
    return found


@final
@dataclass(frozen=True, kw_only=True)
class NoiseRule:
    """How much explicit noise is added beside the transformed one.

    Attributes:
        sigma: deviation of the noise on images.
        steps: T, that the credit is multiplied with.
        clip_norm: C.
        xi_low: credit below it does not count.
        xi_up: what transformed and explicit noise shall come to, in units of C.
    """

    sigma: float
    steps: int
    clip_norm: float
    xi_low: float
    xi_up: float

    def __post_init__(self) -> None:
        check_scale("sigma", self.sigma)
        check_scale("clip norm", self.clip_norm)
        check_scale("xi_up", self.xi_up)
        if self.steps < 1:
            raise InputError("bad number of steps", got=self.steps, expected="at least 1")
        if not 0 <= self.xi_low < self.xi_up:
            raise InputError(
                "bad xi_low", got=f"{self.xi_low:g}", expected=f"0 <= xi_low < xi_up {self.xi_up:g}"
            )

    def credit(self, s_min: float) -> float:
        """sqrt(T S_min) sigma, in units of C."""
        return math.sqrt(self.steps * s_min) * self.sigma / self.clip_norm

    def explicit_noise(self, s_min: float) -> float:
        """sigma-bar."""
        credit = self.credit(s_min)
        if credit < self.xi_low:
            return self.xi_up
        if credit < self.xi_up:
            return math.sqrt(self.xi_up**2 - credit**2)
        return 0.0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Transformation:
    """The derivatives of one slice of a denoiser, which is looked at in the mode that it is in.

    Attributes:
        denoiser: g; it must treat images apart.
        names: of the slice's parameters.
    """

    denoiser: nn.Module
    names: tuple[str, ...]

    @classmethod
    def of(cls, denoiser: nn.Module, parameters: tuple[nn.Parameter, ...]) -> "Transformation":
        """Of these parameters."""
        wanted = {id(parameter) for parameter in parameters}
        named = denoiser.named_parameters()
        return cls(denoiser=denoiser, names=tuple(n for n, p in named if id(p) in wanted))

    @property
    def size(self) -> int:
        """w_k."""
        return sum(value.numel() for value in self._part.values())

    def s_min(self, x: Tensor, factors: Tensor, *, batch: int, rule: NoiseRule) -> float:
        """S_min(M) over these images, or a bound of it for which the rule says the same."""
        if not len(x):
            return 0.0
        quotient = self.quotient(x, factors, batch=batch)
        if rule.credit(quotient) < rule.xi_low:
            return quotient
        total = torch.zeros(self.size, self.size, dtype=torch.float64, device=x.device)
        least = 0.0
        for term in self._terms(x, factors):
            total += term / batch**2
            least = least_singular_value(total)
            if rule.credit(least) >= rule.xi_up:
                break
        return least

    def covariance(self, x: Tensor, factors: Tensor, *, batch: int) -> Tensor:
        """M = 1/B^2 sum over these images of a^2 A A', in double precision."""
        total = torch.zeros(self.size, self.size, dtype=torch.float64, device=x.device)
        for term in self._terms(x, factors):
            total += term
        return total / batch**2

    @torch.no_grad()
    def quotient(self, x: Tensor, factors: Tensor, *, batch: int) -> float:
        """The number u' M u for u along the slice's own weights; infinite if that is none."""
        part = self._part
        length = torch.sqrt(sum((v.square().sum() for v in part.values()), x.new_zeros(())))
        along = {name: value / length for name, value in part.items()}
        total = 0.0
        for images, weights in zip(
            torch.split(x, self._rows), torch.split(factors, self._rows), strict=True
        ):
            moved = self._moved(along, images)
            squares = moved.flatten(1).double().square().sum(1)
            total += float((weights.double().square() * squares).sum())
        return total / batch**2 if math.isfinite(total) else math.inf

    @torch.no_grad()
    def derivatives(self, x: Tensor) -> Tensor:
        """A of each image: (n, w_k, v)."""
        pixels = x[0].numel()
        return self._by_parameters(x) if self.size <= pixels else self._by_pixels(x)

    def _terms(self, x: Tensor, factors: Tensor) -> Iterator[Tensor]:
        """Sums of a^2 A A', each over a few images at a time."""
        images = max(1, self._rows // min(self.size, x[0].numel()))
        for some, weights in zip(torch.split(x, images), torch.split(factors, images), strict=True):
            weighted = weights[:, None, None] * self.derivatives(some)
            rows = weighted.transpose(0, 1).flatten(1).double()
            yield rows @ rows.T

    def _by_parameters(self, x: Tensor) -> Tensor:
        """Forward over reverse, a tangent for each parameter; all images share it."""
        part = self._part

        def moved(direction: Tensor) -> Tensor:
            return self._moved(_like(direction, part), x).flatten(1)

        at_once = max(1, self._rows // len(x))
        found = [vmap(moved)(some) for some in _unit_vectors(self.size, at_once, x)]
        return torch.cat(found).transpose(0, 1)

    def _by_pixels(self, x: Tensor) -> Tensor:
        """Reverse over reverse, a row for each pixel of each image."""
        part = self._part

        def of_one(image: Tensor, some: Tensor) -> Tensor:
            pulled = vjp(lambda p: self._slopes(p, image[None]).flatten(), part)[1]
            rows: Part = vmap(lambda row: pulled(row)[0])(some)
            return torch.cat([rows[name].flatten(1) for name in part], dim=1)

        at_once = max(1, self._rows // len(x))
        chunks = _unit_vectors(x[0].numel(), at_once, x)
        found = [vmap(of_one, in_dims=(0, None))(x, some) for some in chunks]
        return torch.cat(found, dim=1).transpose(1, 2)

    def _moved(self, tangent: Part, x: Tensor) -> Tensor:
        """How the slopes move along a tangent of the slice's parameters."""
        with warnings.catch_warnings():  # on first use, PyTorch builds tables by what it deprecates
            warnings.filterwarnings("ignore", message=".*torch.jit.script", module="torch")
            moved: Tensor = jvp(lambda part: self._slopes(part, x), (self._part,), (tangent,))[1]
        return moved

    def _slopes(self, part: Part, x: Tensor) -> Tensor:
        """grad_z l(z) at z = x, of each image; `part` stands in the slice's place."""

        def total(z: Tensor) -> Tensor:
            return squared_errors(functional_call(self.denoiser, part, (z,)), x).sum()

        slopes: Tensor = grad(total)(x)
        return slopes

    @property
    def _part(self) -> Part:
        parameters: Mapping[str, Tensor] = dict(self.denoiser.named_parameters())
        return {name: parameters[name].detach() for name in self.names}

    @property
    def _rows(self) -> int:
        kind = next(iter(self._part.values())).device.type
        return ROWS.get(kind, ROWS["cpu"])


def least_singular_value(matrix: Tensor) -> float:
    """Of a positive semidefinite matrix, in double precision, rounded down; 0 if not finite."""
    if not torch.isfinite(matrix).all():
        return 0.0
    spectrum = torch.linalg.eigvalsh(matrix)
    error = len(matrix) * torch.finfo(matrix.dtype).eps * float(spectrum[-1])
    return max(0.0, float(spectrum[0]) - error)


def _unit_vectors(size: int, at_once: int, like: Tensor) -> Iterator[Tensor]:
    """All of them, so many at a time."""
    for places in torch.split(torch.arange(size, device=like.device), at_once):
        rows = like.new_zeros(len(places), size)
        yield rows.scatter_(1, places[:, None], 1.0)


def _like(flat: Tensor, part: Part) -> Part:
    """A flat vector in the shapes of the parameters."""
    pieces = torch.split(flat, [value.numel() for value in part.values()])
    return {
        name: piece.view(value.shape)
        for (name, value), piece in zip(part.items(), pieces, strict=True)
    }
