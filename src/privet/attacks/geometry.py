"""Balls and the box: where an attack may go.

A perturbation d of an input x is allowed if its norm is at most `size` and x + d lies in [0, 1].
Projections are onto the intersection of both, exactly: to project onto the ball and then to clip
would land on the wrong point and lose strength, most of all in l1.

| here | meaning |
|---|---|
| d | perturbation, (n, *shape); rows are handled one by one |
| room | how far each coordinate can go in the direction of d before it leaves the box |

Proof note. The constraints are convex and separable up to one multiplier, so by the KKT conditions
the projection of p is, with a = |p| in each coordinate and the sign of p,

    linf: min(a, size, room)        l2: min(s a, room)        l1: min(max(a - t, 0), room)

where s <= 1 or t >= 0 is the number that makes the norm equal to size, and s = 1, t = 0 if the
clipped p is inside already. The norm is monotone in s and in t, with kinks at known places: the
number is found exactly, t by sorting them (for l1 without the box: Duchi et al., 2008), s by
growing the set of coordinates that reach the box (`_stretched`).
"""

from typing import Final, Literal, get_args

import torch
from torch import Tensor

from privet.errors import InputError

Norm = Literal["linf", "l2", "l1"]
NORMS: Final[tuple[Norm, ...]] = get_args(Norm)


def require_norm(norm: object) -> None:
    """Refuse a norm that is not known."""
    if norm not in NORMS:
        raise InputError("unknown norm", got=norm, expected=f"one of {', '.join(NORMS)}")


def norms(d: Tensor, norm: Norm) -> Tensor:
    """The norm of each row."""
    order = {"linf": torch.inf, "l2": 2, "l1": 1}[norm]
    lengths: Tensor = torch.linalg.vector_norm(d.flatten(1), order, dim=1)
    return lengths


def moved(x: Tensor, d: Tensor) -> Tensor:
    """The input x + d, without the rounding error that would leave the box."""
    return (x + d).clamp(0, 1)


def boxed(d: Tensor, x: Tensor) -> Tensor:
    """The perturbation cut off where x + d would leave the box."""
    return torch.minimum(torch.maximum(d, -x), 1 - x)  # much faster than a clamp between tensors


def project(d: Tensor, x: Tensor, size: float, norm: Norm) -> Tensor:
    """The nearest allowed perturbation, in the Euclidean sense."""
    if norm == "linf":
        return boxed(d.clamp(-size, size), x)
    clipped = boxed(d, x)
    outside = norms(clipped, norm) > size
    if not bool(outside.any()):
        return clipped
    clipped[outside] = _shrunk(d[outside], x[outside], size, norm)
    return clipped


def furthest(gradient: Tensor, x: Tensor, size: float, norm: Norm) -> Tensor:
    """The allowed perturbation with the largest inner product with the gradient.

    In l2 the gradient is stretched until the ball is reached, whatever the box cuts off; in l1 the
    coordinates are used up to the box, the steepest first.
    """
    if norm == "linf":
        return boxed(size * gradient.sign(), x)
    if norm == "l2":
        total = torch.full_like(gradient.flatten(1)[:, :1], size**2, dtype=torch.float64)
        return _stretched(_scaled(gradient), x.double(), total).to(gradient)
    a, room = _magnitudes(gradient, x)
    return _signed(_filled(a, room, size), gradient)


def reaching(slope: Tensor, x: Tensor, gain: Tensor, norm: Norm) -> Tensor:
    """The shortest perturbation inside the box whose inner product with the slope is `gain`.

    For linf and l2, row by row. Where the whole room does not give as much, all of it is taken.

    Proof note. By the KKT conditions it is min(t, room) in linf and min(t |slope|, room) in l2, in
    each coordinate and with the slope's sign, with the t that gives the gain.
    """
    scaled = _scaled(slope)
    total = gain.double()[:, None] / norms(slope.double(), "linf")[:, None].clamp_min(1e-100)
    rate = scaled.sign() if norm == "linf" else scaled
    return _stretched(rate, x.double(), total, along=scaled).to(slope)


def steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """A direction of ascent of length one: the sign in linf, the Euclidean gradient otherwise.

    The Euclidean gradient is what the exact projection wants in l1, too: projected ascent on a
    linear function then ends in its maximum, which steps along few coordinates would miss.
    """
    if norm == "linf":
        return gradient.sign()
    # By the largest entry first: squares of tiny gradients would underflow.
    scaled = gradient / _per_row(norms(gradient, "linf"), gradient).clamp_min(1e-38)
    return scaled / _per_row(norms(scaled, "l2"), gradient).clamp_min(1e-12)


def random_point(x: Tensor, size: float, norm: Norm, generator: torch.Generator) -> Tensor:
    """A perturbation drawn uniformly from the ball, clipped to the box.

    l2: a Gaussian direction, radius u^(1/D). l1: Laplace variables divided by the sum of their
    magnitudes and of one more exponential variable.
    """
    flat = torch.empty_like(x.flatten(1))
    if norm == "linf":
        d = flat.uniform_(-size, size, generator=generator)
    elif norm == "l2":
        direction = flat.normal_(generator=generator)
        u = torch.empty_like(flat[:, :1]).uniform_(generator=generator)
        radius = size * u ** (1 / flat.shape[1])
        d = radius * direction / norms(direction, "l2")[:, None].clamp_min(1e-12)
    else:
        signs = torch.empty_like(flat).uniform_(-1, 1, generator=generator).sign()
        magnitudes = flat.exponential_(generator=generator)
        rest = torch.empty_like(flat[:, :1]).exponential_(generator=generator)
        d = size * signs * magnitudes / (magnitudes.sum(1, keepdim=True) + rest)
    return d.view_as(x).clamp(-x, 1 - x)


def _per_row(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 1))


def _magnitudes(d: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """|d| and the room of each coordinate; flat, in double precision."""
    flat, inputs = d.flatten(1).double(), x.flatten(1).double()
    room = torch.where(flat > 0, 1 - inputs, inputs)
    room = torch.where(flat == 0, 0.0, room)
    return flat.abs(), room


def _signed(amounts: Tensor, d: Tensor) -> Tensor:
    return (amounts.to(d.dtype) * d.flatten(1).sign()).view_as(d)


def _scaled(d: Tensor) -> Tensor:
    """Each row by its largest entry, in double precision: tiny squares would underflow."""
    d = d.double()
    return d / _per_row(norms(d, "linf"), d).clamp_min(1e-100)


def _shrunk(d: Tensor, x: Tensor, size: float, norm: Norm) -> Tensor:
    if norm == "l2":
        return _stretched(d, x, torch.full_like(d.flatten(1)[:, :1], size**2), most=1.0)
    a, room = _magnitudes(d, x)
    return _signed(_thresholded(a, room, size), d)


def _stretched(
    d: Tensor, x: Tensor, total: Tensor, *, along: Tensor | None = None, most: float = 1e100
) -> Tensor:
    """The s d, cut off by the box, whose inner product with `along` is `total`; without `along`,
    with itself. Where the whole room gives less, s is `most`.

    Given the coordinates that reach the box, s has a closed form. Begin with none: s is then at
    most the right one, since whatever the box cuts off, others must make up for; so those that
    reach the box at this s do so in the end. Their number only grows: it ends exactly.
    """
    shape, x, d = d.shape, x.flatten(1), d.flatten(1)
    other = None if along is None else along.flatten(1)
    products = d * (d if other is None else other)
    y, free, s = torch.zeros_like(d), torch.ones_like(d), torch.zeros_like(total)
    count, tiny = torch.full_like(total, torch.inf), torch.finfo(d.dtype).tiny
    while bool((free.sum(1, keepdim=True) < count).any()):
        count = free.sum(1, keepdim=True)
        used = (y * (y if other is None else other) * (1 - free)).sum(1, keepdim=True)
        gained = (products * free).sum(1, keepdim=True).clamp_min(tiny)
        level = (total - used).clamp_min(0) / gained
        s = torch.maximum(s, level.sqrt() if other is None else level).clamp_max(most)
        ahead = s * d
        y = boxed(ahead, x)
        free = (y == ahead).to(d.dtype)
    return y.view(shape)


def _thresholded(a: Tensor, room: Tensor, size: float) -> Tensor:
    """min(max(a - t, 0), room) of l1 norm `size`; the caller knows that t > 0 exists."""
    kinks, order = torch.cat([a, a - room], 1).sort(1, descending=True)
    slopes = torch.where(order < a.shape[1], 1.0, -1.0).to(a.dtype).cumsum(1)
    gaps = kinks[:, :-1] - kinks[:, 1:]
    grown = (slopes[:, :-1] * gaps).cumsum(1)
    totals = torch.cat([torch.zeros_like(grown[:, :1]), grown], 1)  # the norm at t = each kink
    last = ((totals < size).sum(1, keepdim=True) - 1).clamp(0, kinks.shape[1] - 1)
    missing = size - totals.gather(1, last)
    t = kinks.gather(1, last) - missing / slopes.gather(1, last).clamp_min(1.0)
    return torch.minimum((a - t).clamp_min(0), room)


def _filled(a: Tensor, room: Tensor, size: float) -> Tensor:
    """Room used up in the order of a, until `size` is spent."""
    order = a.argsort(1, descending=True)
    sorted_room = room.gather(1, order)
    spent = sorted_room.cumsum(1) - sorted_room
    taken = torch.minimum((size - spent).clamp_min(0), sorted_room)
    return torch.zeros_like(a).scatter(1, order, taken)
