"""A proved upper bound of the largest singular value of a linear layer.

| symbol | here                   | meaning                                                       |
|--------|------------------------|---------------------------------------------------------------|
| A      | `_Form.matrix`         | the layer as a matrix, on inputs of a given shape, no bias    |
| s      | `OperatorNorm.bound`   | at least the largest singular value of A                      |

Power iteration is no bound: every vector that it visits gives a *lower* one. Nor is the norm of a
kernel reshaped into a matrix: windows overlap, so an input is read several times. Three bounds are
valid (proofs in `singular_values.py`), and the smallest counts:

*Factor.* The matrix written out, where it is small enough; tight to about 1e-9. A Sequential is
bounded by the product of its parts' bounds, and written out as one matrix.

*Fourier.* A convolution of stride s is one of stride 1 on the s x s phases of its input, exactly.
With zero padding that one is a part of the circular convolution on a grid as long as the input and
the kernel together, since the ends never meet around it. A part of a matrix has no larger norm than
the whole, and the whole is diagonal in frequency. Loose by what the border loses.

*Row and column sums.* Schur's test: exact for windows that do not overlap.

The bound is of the exact map with the stored weights. That PyTorch rounds when it applies the layer
is not in it.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, final

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from privet.certification.singular_values import (
    TINY,
    UNIT,
    Matrix,
    gamma,
    matrix_bound,
    sums_bound,
    symbol_bound,
    up,
)
from privet.errors import CheckFailed, InputError
from privet.models.fronted import Fronted
from privet.models.registry import Centre
from privet.models.standardised import ChannelAffine

LARGEST_SIDE: Final = 3200  # of a Gram matrix to factorise: seconds on one core
MOST_ENTRIES: Final = 20_000_000  # of a matrix written out
CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
POOLS: Final = {nn.AvgPool1d: 1, nn.AvgPool2d: 2, nn.AvgPool3d: 3}  # axes of a window


@final
@dataclass(frozen=True, kw_only=True)
class OperatorNorm:
    """An upper bound of the largest singular value, and how much it may be too large.

    Attributes:
        bound: proved; rounded up.
        method: which bound was the smallest.
        lower: what power iteration saw; an estimate from below.
    """

    bound: float
    method: str
    lower: float

    @property
    def gap(self) -> float:
        """How far the bound is above the estimate, relative to it."""
        return self.bound / self.lower - 1.0 if self.lower > 0 else math.inf


def operator_norm(layer: nn.Module, shape: tuple[int, ...], *, steps: int = 100) -> OperatorNorm:
    """Bound the largest singular value of a linear layer on inputs of `shape` (without batch).

    Guarantee: |layer(x) - layer(x')| <= bound * |x - x'| in the l2 norm, for all real x and x'; see
    the proof at the top of this file.

    Args:
        layer: Linear, Conv, AvgPool, Flatten, a fixed scaling, or a Sequential of them.
        shape: of one input.
        steps: of power iteration, for the gap only.
    """
    forms = read_linear(layer, shape)
    bound, method = min(_bounds(forms))
    if not math.isfinite(bound):
        raise InputError("weights that are not finite or too large", got=f"norm {bound}")
    lower = power_estimate(layer, shape, steps=steps)
    if lower > bound * (1.0 + 1e-6):
        # A vector shows more than our bound: the module does something that we did not read.
        raise CheckFailed("the bound of an operator norm is contradicted", got=f"{bound} < {lower}")
    return OperatorNorm(bound=bound, method=method, lower=lower)


def l1_norm(layer: nn.Module, shape: tuple[int, ...]) -> float:
    """Bound of the norm from l1 to l1: |layer(x) - layer(x')|_1 <= bound * |x - x'|_1.

    The largest column sum of absolute values, which is exact for one layer but for the border of a
    convolution and for rounding up; for several, the product of theirs.
    """
    sums = [form.column_sum() for form in read_linear(layer, shape)]
    bound = up(math.prod(sums) * (1.0 + UNIT) ** (2 * len(sums)))
    if not math.isfinite(bound):
        raise InputError("weights that are not finite or too large", got=f"norm {bound}")
    return bound


def power_estimate(layer: nn.Module, shape: tuple[int, ...], *, steps: int = 100) -> float:
    """The stretch of one vector after `steps` of power iteration: at most the norm, never a bound.

    It applies the module itself in double precision and so knows nothing of how we read it.
    """
    twin = copy.deepcopy(layer).to(device="cpu", dtype=torch.float64).eval().requires_grad_(False)
    with torch.no_grad():
        offset = twin(torch.zeros(1, *shape, dtype=torch.float64))
    v = torch.randn(
        1, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    stretch = 0.0
    for _ in range(max(steps, 1)):
        with torch.no_grad():
            v /= v.norm().clamp_min(TINY)
        image = twin(v) - offset
        stretch = float(image.detach().norm())
        (pulled,) = torch.autograd.grad(image, v, image.detach())
        v = pulled.detach().requires_grad_()
    return stretch


# What a layer is, read once.


@dataclass(frozen=True, kw_only=True, eq=False)
class _Form(ABC):
    """One linear map."""

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""

    @property
    @abstractmethod
    def entries(self) -> int:
        """How many entries of the matrix are not zero, at most."""

    @abstractmethod
    def matrix(self) -> Any:
        """The matrix itself, sparse or dense."""

    @abstractmethod
    def bounds(self) -> Iterator[tuple[float, str]]:
        """Bounds that need no matrix."""

    @abstractmethod
    def column_sum(self) -> float:
        """At least the largest sum of absolute values in a column: the norm from l1 to l1."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Scaling(_Form):
    """Each entry times its own constant."""

    gains: Matrix

    @property
    def size(self) -> tuple[int, int]:
        return self.gains.size, self.gains.size

    @property
    def entries(self) -> int:
        return self.gains.size

    def matrix(self) -> Any:
        return sparse.diags_array(self.gains).tocsr()

    def bounds(self) -> Iterator[tuple[float, str]]:
        yield self.column_sum(), "largest gain"

    def column_sum(self) -> float:
        return float(np.abs(self.gains).max())


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Dense(_Form):
    """The same matrix on each of `copies` vectors."""

    weight: Matrix
    copies: int

    @property
    def size(self) -> tuple[int, int]:
        rows, columns = self.weight.shape
        return rows * self.copies, columns * self.copies

    @property
    def entries(self) -> int:
        return self.weight.size * self.copies

    def matrix(self) -> Any:
        if self.copies == 1:
            return self.weight
        return sparse.kron(sparse.eye_array(self.copies), self.weight, format="csr")

    def bounds(self) -> Iterator[tuple[float, str]]:
        yield sums_bound(self.weight), "row and column sums"
        if min(self.weight.shape) <= LARGEST_SIDE:
            yield matrix_bound(self.weight), "factor"

    def column_sum(self) -> float:
        columns = np.abs(self.weight).sum(0)
        return up(float(columns.max()) * (1.0 + gamma(len(self.weight))))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Convolution(_Form):
    """y[o] = sum over t of kernel[t] x[stride o - before + t], where x is zero outside of its grid.

    Attributes:
        kernel: (groups, out, in, *extent); dilation is written out with zeros.
        stride, before: of each axis; `before` is the padding in front.
        grid, out: positions of the input and of the output.
    """

    kernel: Matrix
    stride: tuple[int, ...]
    before: tuple[int, ...]
    grid: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def size(self) -> tuple[int, int]:
        groups, o, i = self.kernel.shape[:3]
        return groups * o * math.prod(self.out), groups * i * math.prod(self.grid)

    @property
    def entries(self) -> int:
        return int(np.count_nonzero(self.kernel)) * math.prod(self.out)

    def matrix(self) -> Any:
        # Sum over taps of (channels) x (positions). No two taps share an entry, so it is exact.
        taps = np.moveaxis(self.kernel.reshape(*self.kernel.shape[:3], -1), -1, 0)
        parts = (
            sparse.kron(sparse.block_diag(list(channels)), self._shift(at), format="csr")
            for channels, at in zip(taps, np.ndindex(self.kernel.shape[3:]), strict=True)
            if channels.any()
        )
        return reduce(lambda a, b: a + b, parts, sparse.csr_array(self.size))

    def _shift(self, tap: tuple[int, ...]) -> Any:
        shift = sparse.csr_array(np.ones((1, 1)))
        axes = zip(self.stride, self.before, self.grid, self.out, tap, strict=True)
        for stride, before, grid, out, t in axes:
            rows = np.arange(out)
            columns = stride * rows - before + t
            kept = (columns >= 0) & (columns < grid)
            ones = (np.ones(int(kept.sum())), (rows[kept], columns[kept]))
            shift = sparse.kron(shift, sparse.csr_array(ones, shape=(out, grid)))
        return shift

    def bounds(self) -> Iterator[tuple[float, str]]:
        phases = self._phases()
        if len(phases) > 1:  # groups that are alike have one norm
            phases = np.unique(phases, axis=0)
        flat = np.abs(phases).reshape(*phases.shape[:3], -1)
        rows, columns = (float(flat.sum(axes).max()) for axes in ((2, 3), (1, 3)))
        slack = 1.0 + gamma(flat[0].size)
        yield up(math.sqrt(rows) * math.sqrt(columns) * slack), "row and column sums"
        if 2 * min(phases.shape[1:3]) <= LARGEST_SIDE:
            yield max(symbol_bound(group, self._circle()) for group in phases), "Fourier"

    def column_sum(self) -> float:
        """An input far from the border is read by every tap of its phase; others by fewer."""
        flat = np.abs(self._phases())
        columns = flat.reshape(*flat.shape[:3], -1).sum((1, 3))
        return up(float(columns.max()) * (1.0 + gamma(flat[0].size)))

    def _phases(self) -> Matrix:
        """The kernel for stride 1 on the phases of the input: t = stride q + r, r is a channel."""
        groups, o, i, *extent = self.kernel.shape
        lengths = [-(-e // s) for e, s in zip(extent, self.stride, strict=True)]
        room = [(0, q * s - e) for q, s, e in zip(lengths, self.stride, extent, strict=True)]
        split = [n for q, s in zip(lengths, self.stride, strict=True) for n in (q, s)]
        tall = np.pad(self.kernel, [(0, 0)] * 3 + room).reshape(groups, o, i, *split)
        axes = len(extent)
        order = [0, 1, 2, *range(4, 4 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
        return tall.transpose(order).reshape(groups, o, i * math.prod(self.stride), *lengths)

    def _circle(self) -> tuple[int, ...]:
        """A grid so long that the ends of phases and kernel never meet around it."""
        axes = zip(self.stride, self.before, self.grid, self.kernel.shape[3:], strict=True)
        return tuple((b + g - 1) // s - b // s + -(-e // s) for s, b, g, e in axes)


def read_linear(layer: nn.Module, shape: tuple[int, ...]) -> list[_Form]:
    """The linear maps that a module applies one after another; anything else is refused by name."""
    forms: list[_Form] = []
    kind = _kind_of(layer)
    for name, part in parts_of(layer):
        forms += _read(name, part, shape)
        with torch.no_grad():
            shape = tuple(part(torch.zeros(1, *shape, **kind)).shape[1:])
    return forms


def parts_of(layer: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules that a Sequential, or a front with its head, applies in order; else itself."""
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        raise _refusal(name, layer, "a hook changes what it computes")
    if type(layer) not in (nn.Sequential, Fronted):
        yield name, layer
        return
    for key, child in layer._modules.items():  # named_children would pass over a repeated one
        if child is not None:
            yield from parts_of(child, f"{name}.{key}" if name else key)


def _kind_of(layer: nn.Module) -> dict[str, Any]:
    tensor = next(iter([*layer.parameters(), *layer.buffers()]), torch.zeros(()))
    return {"dtype": tensor.dtype, "device": tensor.device}


def _read(name: str, part: Any, shape: tuple[int, ...]) -> list[_Form]:
    kind = type(part)  # exact types: a subclass may do something else with the same weights
    if kind is nn.Identity or (kind is nn.Flatten and part.start_dim == 1):
        return []
    if kind is Centre:
        return [_Scaling(gains=np.full(math.prod(shape), 2.0))]
    if kind is ChannelAffine:
        return [_Scaling(gains=np.repeat(_exact(part.weight), math.prod(shape[1:])))]
    if kind is nn.Linear:
        return [_Dense(weight=_exact(part.weight), copies=math.prod(shape[:-1]))]
    if kind in CONVOLUTIONS:
        return [_read_convolution(name, part, shape)]
    if kind in POOLS:
        return _read_pool(name, part, shape)
    raise _refusal(name, part, "it is not known to be linear")


def _read_convolution(name: str, part: Any, shape: tuple[int, ...]) -> _Form:
    if part.padding_mode != "zeros":
        raise _refusal(name, part, "only zero padding is covered")
    weight, groups = _exact(part.weight), part.groups
    extent = [d * (k - 1) + 1 for d, k in zip(part.dilation, part.kernel_size, strict=True)]
    kernel = np.zeros((groups, len(weight) // groups, weight.shape[1], *extent))
    taps: Any = (..., *(slice(None, None, d) for d in part.dilation))
    kernel[taps] = weight.reshape(*kernel.shape[:3], *part.kernel_size)
    pads = part._reversed_padding_repeated_twice  # of PyTorch: last axis first, before and after
    pairs = [(pads[a], pads[a + 1]) for a in range(len(pads) - 2, -1, -2)]
    return _convolution(kernel, part.stride, pairs, shape)


def _read_pool(name: str, part: Any, shape: tuple[int, ...]) -> list[_Form]:
    """Sums over windows, exactly; then one constant, rounded up, which can only raise the norm."""
    axes = POOLS[type(part)]
    if len(shape) != axes + 1:  # PyTorch would take the batch for channels
        raise _refusal(name, part, f"inputs of shape {shape} have no channels of {axes} axes")
    extent, stride, pad = (
        tuple(value) if isinstance(value, tuple | list) else (value,) * axes
        for value in (part.kernel_size, part.stride, part.padding)
    )
    if part.ceil_mode or (any(pad) and not part.count_include_pad):
        raise _refusal(name, part, "windows at the border are divided by other numbers")
    kernel = np.ones((shape[0], 1, 1, *extent))
    window = _convolution(kernel, stride, [(p, p) for p in pad], shape)
    divisor = getattr(part, "divisor_override", None) or math.prod(extent)
    gain = math.nextafter(1.0 / abs(divisor), math.inf)
    return [window, _Scaling(gains=np.full(window.size[0], gain))]


def _convolution(
    kernel: Matrix, stride: tuple[int, ...], pads: list[tuple[int, int]], shape: tuple[int, ...]
) -> _Convolution:
    grid = shape[1:]
    sides = zip(grid, pads, kernel.shape[3:], stride, strict=True)
    out = tuple((g + b + a - e) // s + 1 for g, (b, a), e, s in sides)
    before = tuple(b for b, _ in pads)
    return _Convolution(kernel=kernel, stride=tuple(stride), before=before, grid=grid, out=out)


def _exact(weight: Tensor) -> Matrix:
    """Double precision holds every weight as it is."""
    return weight.detach().to(device="cpu", dtype=torch.float64).numpy()


def _refusal(name: str, part: nn.Module, why: str) -> InputError:
    return InputError(
        "not a linear layer whose norm can be proved",
        got=f"{type(part).__name__}{f' at {name!r}' if name else ''} ({why})",
        expected="Linear, Conv, AvgPool, Flatten, Centre, ChannelAffine, or a Sequential of them",
        fix="noise at the input needs no layers: --scale S, without --hidden-scale",
    )


def _bounds(forms: list[_Form]) -> Iterator[tuple[float, str]]:
    if not forms:
        yield 1.0, "identity"
        return
    best = [min([*form.bounds(), *_written_out([form])]) for form in forms]
    if len(forms) == 1:
        yield best[0]
        return
    slack = (1.0 + UNIT) ** (2 * len(best))
    yield up(math.prod(bound for bound, _ in best) * slack), "product"
    yield from _written_out(forms)


def _written_out(forms: list[_Form]) -> Iterator[tuple[float, str]]:
    """All layers as one matrix: |F P - fl(F P)| <= g(k) | |F| |P| |, and F carries P's error on."""
    side = min(forms[0].size[1], forms[-1].size[0])
    if side > LARGEST_SIDE or any(form.entries > MOST_ENTRIES for form in forms):
        return
    product, error = forms[0].matrix(), 0.0
    for form in forms[1:]:
        if form.entries * _count(product) / product.shape[0] > MOST_ENTRIES:
            return
        factor, terms = form.matrix(), form.size[1]
        size = sums_bound(factor)
        lost = gamma(terms) * sums_bound(product) + terms * product.shape[1] * TINY
        error = up(size * (error + lost))
        product = factor @ product
    yield up(matrix_bound(product) + error), "factor"


def _count(matrix: Any) -> int:
    return int(matrix.nnz) if sparse.issparse(matrix) else int(matrix.size)
