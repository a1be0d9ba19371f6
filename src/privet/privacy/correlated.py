"""Noise that later steps partly take back: banded matrix factorisation.

Choquette-Choo et al. (2023), "(Amplified) banded matrix factorization", with a Toeplitz matrix as
in McKenna (2024).

| paper             | here                                                              |
|-------------------|-------------------------------------------------------------------|
| n, x_t            | number of steps T; `total`, the clipped sum of step t             |
| C                 | strategy matrix, lower triangular: C[t, t-j] = `coefficients[j]`  |
| b                 | `bands`, the number of coefficients                               |
| z_t, z-hat        | fresh standard normal draw; solution of C z-hat = z               |
| sigma, zeta       | `multiplier`, `sensitivity` (the clip norm)                       |

Step t releases x_t + s z-hat_t with s = multiplier * sensitivity and

    z-hat_t = (z_t - c_1 z-hat_(t-1) - ... - c_(b-1) z-hat_(t-b+1)) / c_0.

Weights are sums of updates, and in such sums much of this noise cancels. `factorisation` finds the
coefficients for which most does.

Proof note. Suppose one unit (its clipped vector v_t, |v_t| <= zeta) joins at most one of any
`cycle` consecutive steps, in steps that were fixed for it beforehand, with probability q in each of
these, its own draws independent of everything else; and cycle >= b. Then all T releases together
cost ceil(T / cycle) Poisson-sampled Gaussians of rate q and this multiplier (plain ones where q =
1).

1. Multiplying by C is a bijection, so releasing x + s C^-1 z is releasing y = C x + s z, row by
   row: y_t = c_0 x_t + ... + c_(b-1) x_(t-b+1) + s z_t, where the z_t are independent.
2. Let D' be D with one unit more. Reveal the draws of all others to the observer: they are the same
   under D and D'. Let t be a step of the unit. Its vector enters the rows t .. t+b-1 and no other
   (C is *banded* and *lower triangular*), as c_j v_t in row t+j if it joined. Its next step is t +
   cycle >= t + b at the earliest, so no row holds two of its vectors.
3. Adaptivity. v_t is a function of the rows before t, which the observer has. Within the window t
   .. t+cycle-1 the sums x_(t+1), ... of the others depend on what was released in the window, but
   each only on rows before its own: the observer subtracts them, row after row. What is left is
   (z-noise) + B (c_0 v_t, ..., c_(b-1) v_t) with B the unit's coin: a Gaussian whose mean moves by
   |c| |v_t| <= zeta, since the columns of C have norm |c| <= 1. That is one Poisson-sampled
   Gaussian, and the window is post-processing of it. (A C that is not lower triangular would need
   sums that do not exist yet; this is where the general matrix mechanism loses adaptivity.)
4. Windows follow one another, each dominated given all before: their dominating pairs compose.

Replace-one: both units must have their turn in the same steps; then the same argument gives the
pair of means c v, c w, and `accounting`'s replace-one pair dominates.

Why not plain Poisson sampling: a unit may join steps t and t+1. Its two vectors then share rows,
the coins of both steps act on one output, and ceil(T / cycle) sampled Gaussians no longer dominate:
for c = (1, 1)/sqrt(2) the row t+1 moves by sqrt(2) zeta instead of zeta. Why not a fresh shuffle in
each epoch: the last step of one epoch and the first of the next are neighbours.

Going on after a crash. z_t is bound to the sum that it hides, so the last b - 1 draws cannot be
drawn again from the key alone, and a checkpoint must hold them (`History`). They are as secret as
the key: who has them subtracts the noise. Draws that depend on the step alone could be redrawn, but
one that met two different sums would reveal their difference, and the recurrence would have to be
run again from step 0. With key and history, redone steps repeat exactly. *Fresh keys need an empty
history*: rows from then on hold no sum from before, so the new steps are a run of their own,
accounted beside what was seen of the old one. (Fresh draws on top of an old history would show the
sums before the crash once more, for units whose coins are long thrown.) `add_to` refuses the
mixture.
"""

import hashlib
import math
import struct
from dataclasses import dataclass, field, replace
from typing import Final, Self, final

import numpy as np
import torch
from torch import Tensor

from privet.errors import InputError
from privet.privacy.noise import (
    brought_to_its_noise,
    check_scale,
    fingerprint,
    name_of,
    normal_beside,
)
from privet.privacy.randomness import SecretStream

SEPARATING: Final = ("cyclic-poisson", "fixed-batches")
"""Samplers under which a unit joins at most one step of every cycle."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """The last draws, newest first: secret state that a run needs to go on.

    Attributes:
        next_step: the step whose noise may be drawn with it.
        draws: at most `bands` - 1 rows, in units of the noise's standard deviation.
        owner: a name of the key that the draws were made with.
    """

    next_step: int
    draws: Tensor = field(repr=False)
    owner: bytes = field(repr=False)

    @classmethod
    def empty(cls, *, step: int = 0) -> Self:
        """Where a run begins, or goes on under fresh keys."""
        return cls(next_step=step, draws=torch.zeros(0, 0, dtype=torch.float64), owner=b"")


@final
@dataclass(frozen=True, kw_only=True)
class BandedNoise:
    """Gaussian noise that is correlated over `bands` consecutive steps.

    Guarantee: with a sampler that `require_valid_with` admits, all steps together cost one Gaussian
    of noise `multiplier`, sampled as the sampler samples, for every turn of a unit; see the module.

    Attributes:
        multiplier: noise in units of the sensitivity, for one turn of a unit.
        sensitivity: bound on the L2 norm of one unit's contribution to a step.
        coefficients: c_0 .. c_(b-1), with c_0 > 0 and L2 norm at most 1.
    """

    multiplier: float
    sensitivity: float
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        check_scale("noise multiplier", self.multiplier)
        check_scale("sensitivity", self.sensitivity)
        c = self.coefficients
        if not c or not all(math.isfinite(x) for x in c) or not c[0] > 0:
            raise InputError("bad bands", got=c, expected="finite numbers, the first one positive")
        if math.hypot(*c) > 1.0:
            raise InputError(
                "bands that raise the sensitivity",
                got=f"L2 norm {math.hypot(*c):.12g}",
                expected="at most 1",
                fix="divide them by their norm, or use factorisation.optimal_coefficients",
            )

    @property
    def bands(self) -> int:
        """b: over how many steps one draw is felt."""
        return len(self.coefficients)

    def require_valid_with(self, sampler: str, cycle: int) -> None:
        """Refuse a sampler that the proof does not cover.

        `cycle`: a unit joins at most one of any so many consecutive steps.
        """
        if sampler not in SEPARATING:
            raise InputError(
                "correlated noise with a sampler that does not keep a unit's turns apart",
                got=sampler,
                expected=" or ".join(SEPARATING),
                fix="use cyclic-poisson, or independent noise",
            )
        if cycle < self.bands:
            raise InputError(
                "correlated noise that outlasts the cycle of the sampler",
                got=f"{self.bands} bands, a cycle of {cycle} steps",
                expected=f"at most {cycle} bands",
                fix="use fewer bands, or a longer cycle",
            )

    def add_to(
        self, total: Tensor, *, step: int, stream: SecretStream, history: History
    ) -> tuple[Tensor, History]:
        """`total` (one flat vector) plus noise in double precision, where its noise was drawn.

        And the history to go on with.

        The draw is bound to `total`, the scale, the coefficients and what is taken back of earlier
        draws: the same call repeats the same output, and any other meets unrelated noise.
        """
        exact = brought_to_its_noise(total)
        owner = hashlib.blake2b(b"history", key=stream.key, digest_size=16).digest()
        # After a resume the draws lie where the weights do, which need not be where noise is made.
        history = replace(history, draws=history.draws.to(exact.device))
        taken_back = self._taken_back(history, exact.numel(), step=step, owner=owner)
        scale = self.multiplier * self.sensitivity
        context = b"".join(
            (
                name_of(exact, stream),
                fingerprint(np.array(self.coefficients)),
                name_of(taken_back, stream),
                struct.pack("<d", scale),
            )
        )
        z = normal_beside(exact, stream, purpose="banded", step=step, context=context)
        draw = (z - taken_back) / self.coefficients[0]
        draws = torch.cat([draw.unsqueeze(0), history.draws.reshape(-1, exact.numel())])
        kept = History(next_step=step + 1, draws=draws[: self.bands - 1], owner=owner)
        return exact.double() + scale * draw, kept

    def mean_deviation(self, steps: int) -> float:
        """The deviation of the average of the noise of the first so many steps.

        Their sum is that of z_t, each times a sum of the first entries of C^-1's first column.
        """
        impulse = [0.0] * (self.bands - 1) + [1.0 / self.coefficients[0]]
        for _ in range(steps - 1):
            back = zip(self.coefficients[1:], reversed(impulse), strict=False)
            impulse.append(-sum(c * u for c, u in back) / self.coefficients[0])
        sums = np.cumsum(impulse[self.bands - 1 :])
        return self.multiplier * self.sensitivity * float(np.linalg.norm(sums)) / steps

    def _taken_back(self, history: History, size: int, *, step: int, owner: bytes) -> Tensor:
        """c_1 z-hat_(t-1) + ... + c_(b-1) z-hat_(t-b+1)."""
        count = len(history.draws)
        if history.next_step != step:
            raise InputError(
                "noise history of another step", got=history.next_step, expected=str(step)
            )
        mine = count < self.bands and history.draws.shape[1] == size and history.owner == owner
        if count and not mine:
            raise InputError(
                "noise history of another run",
                expected="the one that this key made for this vector",
                fix="under fresh keys, begin with History.empty(step=...)",
            )
        if not count:
            return torch.zeros(size, dtype=torch.float64, device=history.draws.device)
        rest = torch.tensor(self.coefficients[1 : count + 1], dtype=torch.float64)
        return rest.to(history.draws.device) @ history.draws.double()
