"""Square: random search by scores alone (Andriushchenko et al., ECCV 2020).

| here | paper |
|---|---|
| here | x_hat, the best input so far |
| side | h, side of the window that is changed; odd in l2 |
| p | share of the pixels that is changed; p_init = `share` |
| eta | eta, the pattern of the l2 attack: two opposite bumps |

A change of a random window is kept if it lowers the margin. linf: the window gets +size or -size in
each channel; begins with vertical stripes. l2: mass moves from a second window, and what the ball
leaves unused, into the first, added to a pattern; begins with tiles of patterns.

Deviations: inputs that are no images (channels, height, width) are a strip of height one, whose
windows are intervals; all images of a batch change windows of the same side, at places of their
own; a window that would stay as it is gets the opposite signs, since no query is to be wasted (the
authors' code draws again); in l2 what the box cuts off is made up for by the rest of the image;
images that are fooled leave.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from privet.attacks.attack import WithinBall
from privet.attacks.geometry import Norm, moved, norms
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
        clean = x[rows].view(-1, *shape)
        begin, change = (_stripes, _flipped) if self.norm == "linf" else (_tiles, _transported)
        here = tried = begin(clean, size, generator)
        least = x.new_full((len(rows),), torch.inf)
        for query in range(self.queries):
            inputs = tried.view(-1, *x.shape[1:])
            margin = best.offer(rows, inputs, victim.scores(inputs))
            lower = margin < least
            here[lower], least[lower] = tried[lower], margin[lower]
            keep = best.among(rows)
            if not bool(keep.all()):
                rows, clean, here, least = rows[keep], clean[keep], here[keep], least[keep]
            if not len(rows):
                return
            p = self.share / 2 ** sum(query / self.queries * 10_000 > mark for mark in HALVED_AT)
            tried = change(here, clean, size, p, generator)


def _whole(high: int, count: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(high, (count,), generator=generator, device=like.device)


def _signs(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(2, shape, generator=generator, device=like.device)
    return (2 * drawn - 1).to(like.dtype)


def _sides(p: float, like: Tensor, *, odd: bool) -> tuple[int, int]:
    """Of the window with a share p of the pixels, 3 or more where odd; an interval in a strip."""
    height, width = like.shape[2:]
    side = round(p * width if height == 1 else math.sqrt(p * height * width))
    side = max(side + 1 - side % 2, 3) if odd else max(side, 1)
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
    return moved(x, size * _signs((n, channels, 1, width), x, generator))


def _flipped(here: Tensor, x: Tensor, size: float, p: float, generator: torch.Generator) -> Tensor:
    """A window of +size or -size in each channel, which changes something."""
    window = _window(here, _sides(p, here, odd=False), generator)
    steps, clean = size * _signs((*here.shape[:2], 1, 1), x, generator), x[window]
    wanted, other = moved(clean, steps), moved(clean, -steps)
    same = (wanted == here[window]).flatten(1).all(1).view(-1, 1, 1, 1)
    changed = here.clone()
    changed[window] = torch.where(same, other, wanted)
    return changed


def _bump(height: int, width: int) -> Tensor:
    """Falls from the centre: the sum over k from the distance (in rings) on of 1 / (k + 1)^2."""
    lines, columns = (torch.arange(side) for side in (height, width))
    rings = torch.maximum((lines - height // 2).abs()[:, None], (columns - width // 2).abs())
    terms = 1 / torch.arange(1, int(rings.max()) + 2) ** 2
    return terms.flip(0).cumsum(0).flip(0)[rings]


@cache
def _pattern(height: int, width: int) -> Tensor:
    """Two opposite bumps side by side, of norm one."""
    half = width // 2
    parts = [_bump(height, half)] if half else []
    pattern = torch.cat([*parts, -_bump(height, width - half)], 1)
    return pattern / (pattern**2).sum().sqrt()


def _etas(
    sides: tuple[int, int], shape: tuple[int, ...], like: Tensor, generator: torch.Generator
) -> Tensor:
    """Patterns for all places of (n, channels, ...), of any sign; channels lie the same way."""
    pattern = _pattern(*sides).to(like)
    turned = _pattern(sides[1], sides[0]).to(like).T if sides[0] > 1 else -pattern
    lies = torch.randint(2, (shape[0], 1, *shape[2:]), generator=generator, device=like.device)
    eta = torch.where(lies[..., None, None] == 1, turned, pattern)
    return eta * _signs(shape, like, generator)[..., None, None]


def _tiles(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """As many as fit, in the middle."""
    n, channels, height, width = x.shape
    high, wide = (max(side // TILES, 1) for side in (height, width))
    lines, columns = height // high, width // wide
    tiles = _etas((high, wide), (n, channels, lines, columns), x, generator).transpose(3, 4)
    tiled = tiles.reshape(n, channels, lines * high, columns * wide)
    top, left = (height - lines * high) // 2, (width - columns * wide) // 2
    delta = torch.zeros_like(x)
    delta[..., top : top + lines * high, left : left + columns * wide] = tiled
    return _filling(delta, x, size)


def _transported(
    here: Tensor, x: Tensor, size: float, p: float, generator: torch.Generator
) -> Tensor:
    """The mass of a second window, and what is unused, moved into the first along a pattern."""
    delta, sides = here - x, _sides(p, x, odd=True)
    into, out_of = (_window(x, sides, generator) for _ in range(2))
    there, before = delta[into], _mass(delta)
    wanted = _etas(sides, here.shape[:2], x, generator) + there / _length(there)
    delta[into], delta[out_of] = 0.0, 0.0
    unused = (size**2 - before.sum(1, keepdim=True)).clamp_min(0) / here.shape[1]
    moving = (before - _mass(delta)).clamp_min(0) + unused
    delta[into] = wanted / _length(wanted) * moving.sqrt()
    return _filling(delta, x, size)


def _mass(d: Tensor) -> Tensor:
    """Sum of squares in each channel."""
    return (d**2).sum((2, 3), keepdim=True)


def _length(d: Tensor) -> Tensor:
    return _mass(d).sqrt().clamp_min(1e-12)


def _filling(delta: Tensor, x: Tensor, size: float) -> Tensor:
    """The input, scaled to the ball; once more after the box has cut something off."""
    for _ in range(2):
        delta = delta * (size / norms(delta, "l2").clamp_min(1e-12)).view(-1, 1, 1, 1)
        delta = delta.clamp(-x, 1 - x)
    return moved(x, delta)
