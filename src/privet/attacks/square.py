"""Square: random search by scores alone (Andriushchenko et al., ECCV 2020).

| here | paper |
|---|---|
| delta | x_hat - x |
| side | h, side of the window that is changed |
| p | share of the pixels that is changed; p_init = `share` |
| bump | eta, the pattern of the l2 attack |

A change of a random window is kept if it lowers the margin. linf: the window gets +size or -size in
each channel; begins with vertical stripes. l2: mass moves from a second window, and what the ball
leaves unused, into the first, added to a pattern of two opposite bumps; begins with tiles of bumps.

Deviations: inputs that are no images (channels, height, width) are a strip of height one, whose
windows are intervals; all images of a batch change windows of the same side, at places of their
own; images that are fooled leave.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from privet.attacks.attack import WithinBall
from privet.attacks.geometry import Norm, moved, norms, project
from privet.attacks.keeping import Best
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.errors import InputError

HALVED_AT: Final = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 queries
TILES: Final = 5


@final
@dataclass(frozen=True, kw_only=True)
class Square(WithinBall):
    """Needs no gradients: for classifiers without any, and to unmask those that hide them.

    Attributes:
        queries: scores that are asked for, for each image.
        share: of the pixels in the first window.
    """

    queries: int = 1000
    share: float = 0.8

    name: ClassVar[str] = "square"
    summary: ClassVar[str] = "random search by scores alone"
    norms: ClassVar[tuple[Norm, ...]] = ("linf", "l2")
    needs_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("queries")
        if not 0 < self.share <= 1:
            raise InputError("bad share of square", got=self.share, expected="above 0, at most 1")

    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        rows, generator = best.open(), self._generator(x)
        shape = x.shape[1:] if x.dim() == 4 else (1, 1, x[0].numel())
        images = x.view(len(x), *shape)
        begin, change = (_stripes, _flipped) if self.norm == "linf" else (_tiles, _transported)
        delta, margin = begin(images[rows], size, generator), x.new_full((len(rows),), torch.inf)
        tried = delta
        for query in range(self.queries):
            inputs = moved(images[rows], tried).view(-1, *x.shape[1:])
            scores = victim.scores(inputs)
            best.offer(rows, inputs, scores)
            now = goal.at(rows).margin(scores)
            delta = torch.where((now < margin).view(-1, 1, 1, 1), tried, delta)
            margin = torch.minimum(now, margin)
            keep = best.among(rows)
            rows, delta, margin = rows[keep], delta[keep], margin[keep]
            if not len(rows):
                return
            p = self.share / 2 ** sum(query / self.queries * 10_000 > mark for mark in HALVED_AT)
            tried = change(delta, images[rows], size, p, generator)


def _whole(high: int, count: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(high, (count,), generator=generator, device=like.device)


def _signs(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(2, shape, generator=generator, device=like.device)
    return (2 * drawn - 1).to(like.dtype)


def _sides(p: float, like: Tensor, least: int) -> tuple[int, int]:
    """Of the window with a share p of the pixels; an interval in a strip."""
    height, width = like.shape[2:]
    if height == 1:
        return 1, min(max(round(p * width), least), width)
    side = max(round(math.sqrt(p * height * width)), least)
    return min(side, height), min(side, width)


def _window(d: Tensor, sides: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Indices of one window in each image, for all channels, at a random place."""
    n, channels, height, width = d.shape
    top = _whole(height - sides[0] + 1, n, d, generator)
    left = _whole(width - sides[1] + 1, n, d, generator)
    lines, columns = (torch.arange(side, device=d.device) for side in sides)
    return (
        torch.arange(n, device=d.device)[:, None, None, None],
        torch.arange(channels, device=d.device)[None, :, None, None],
        (top[:, None] + lines)[:, None, :, None],
        (left[:, None] + columns)[:, None, None, :],
    )


def _stripes(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    n, channels, _, width = x.shape
    stripes = _signs((n, channels, 1, width), x, generator)
    return project((size * stripes).expand_as(x), x, size, "linf")


def _flipped(delta: Tensor, x: Tensor, size: float, p: float, generator: torch.Generator) -> Tensor:
    """A window of +size or -size in each channel."""
    sides, changed = _sides(p, delta, least=1), delta.clone()
    n, channels = delta.shape[:2]
    signs = _signs((n, channels, 1, 1), x, generator)
    changed[_window(delta, sides, generator)] = (size * signs).expand(-1, -1, *sides)
    return project(changed, x, size, "linf")


def _bump(height: int, width: int, like: Tensor) -> Tensor:
    """Falls from the centre: the sum over k from the distance (in rings) on of 1 / (k + 1)^2."""
    lines, columns = (torch.arange(side, device=like.device) for side in (height, width))
    rings = torch.maximum((lines - height // 2).abs()[:, None], (columns - width // 2).abs())
    terms = 1 / torch.arange(1, int(rings.max()) + 2, device=like.device, dtype=like.dtype) ** 2
    return terms.flip(0).cumsum(0).flip(0)[rings]


def _pattern(height: int, width: int, like: Tensor) -> Tensor:
    """Two opposite bumps side by side, of norm one."""
    half = width // 2
    parts = [_bump(height, half, like)] if half else []
    pattern = torch.cat([*parts, -_bump(height, width - half, like)], 1)
    return pattern / (pattern**2).sum().sqrt()


def _tiles(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    n, channels, height, width = x.shape
    high, wide = (max(side // TILES, 1) for side in (height, width))
    shape = (n, channels, -(-height // high), -(-width // wide))
    signs = _signs(shape, x, generator)
    tiled = torch.einsum("ncij,hw->ncihjw", signs, _bump(high, wide, x))
    tiled = tiled.reshape(n, channels, shape[2] * high, shape[3] * wide)[..., :height, :width]
    return project(size * tiled / norms(tiled, "l2").view(-1, 1, 1, 1), x, size, "l2")


def _transported(
    delta: Tensor, x: Tensor, size: float, p: float, generator: torch.Generator
) -> Tensor:
    """The mass of a second window, and what is unused, moved into the first along a pattern."""
    sides = _sides(p, delta, least=3)
    n, channels = delta.shape[:2]
    into, out_of = (_window(delta, sides, generator) for _ in range(2))
    both = torch.zeros_like(delta, dtype=torch.bool)
    both[into], both[out_of] = True, True
    pattern = _pattern(*sides, x)
    turned = _pattern(sides[1], sides[0], x).T if sides[0] > 1 else -pattern
    upright = (_whole(2, n, x, generator) == 1).view(-1, 1, 1, 1)
    eta = torch.where(upright, pattern, turned) * _signs((n, channels, 1, 1), x, generator)
    there = delta[into]
    lengths = there.flatten(2).norm(dim=2).clamp_min(1e-12)[:, :, None, None]
    wanted = eta + there / lengths
    wanted = wanted / wanted.flatten(2).norm(dim=2).clamp_min(1e-12)[:, :, None, None]
    unused = (size**2 - (delta**2).flatten(1).sum(1)).clamp_min(0) / channels
    mass = (torch.where(both, delta, 0.0) ** 2).flatten(2).sum(2)
    changed = delta.clone()
    changed[out_of] = 0.0
    changed[into] = wanted * (mass + unused[:, None]).sqrt()[:, :, None, None]
    return project(changed, x, size, "l2")
