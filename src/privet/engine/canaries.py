"""Canaries: made-up units with a chosen gradient, by which a run of training is audited.

A Dirac canary adds the clip norm at one coordinate of the sum in every step that samples it; no
other canary has that coordinate. Each takes part in the run, or not, by a fair coin. Whoever sees
the noisy sums and guesses the coins better than epsilon allows has refuted it.

| symbol | here                                                                        |
|--------|-----------------------------------------------------------------------------|
| m      | `len(coordinates)`                                                          |
| S_i    | `included[i]`, the coin                                                     |
| e_j(i) | the unit vector of `coordinates[i]`; a canary's gradient is C times it      |
| q      | `plan.sampling_rate`                                                        |
| sigma  | `plan.noise_multiplier`, noise in clip norms                                |
| x_t    | what step t shows at a canary's coordinate, in clip norms                   |

Guarantee: what the plan states of a unit, it states of each canary.

Proof. Canaries stand behind the real units and are drawn with them, by the same sampler. None adds
more than C. So adding or removing one moves the sums as the plan accounts, whatever the others do;
in particular *given* all real records, and which of them each step takes. An auditor may therefore
know the real units' part of every sum, and looks at a noisy sum at the coordinates of the canaries
less that part: canaries and noise alone.

What it sees is as secret as the noise. By itself it tells nothing about a record; beside the noisy
sums, which a release stands for, it gives the real part away. So scores of a run on real records
stay in `internal/`. Those of a run on made-up records may be shown to anybody.

A canary that takes part is sampled with probability q in each step, so x_t is N(1, sigma^2) with
probability q and else N(0, sigma^2); of one that does not, it is always N(0, sigma^2). Its score is
the log likelihood ratio, the best there is (Neyman and Pearson):

    sum over t of log(1 - q + q exp((2 x_t - 1) / (2 sigma^2)))

Deviations: under samplers with turns, or with correlated noise, the steps of a canary hang
together; the score is then the plain sum of the x_t. Any score gives a valid bound; a worse one
gives a lower one.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final, Self, final

import torch
from torch import Tensor

from privet.engine.plan import Plan
from privet.errors import InputError

LEAST: Final = 2  # canaries that an audit can say anything with
INDEPENDENT: Final = "poisson"  # the sampler under which steps are


@final
@dataclass(kw_only=True)
class DiracCanaries:
    """Those of one run, and what it has shown of them so far.

    Attributes:
        plan: of the run; public.
        coordinates: of each canary in the flat sum; all different.
        included: which of them take part.
        scores: of each; the higher, the likelier it took part.
    """

    plan: Plan
    coordinates: Tensor
    included: Tensor
    scores: Tensor
    _others: Tensor | None = field(default=None, init=False)

    @classmethod
    def drawn(cls, plan: Plan, m: int, size: int, generator: torch.Generator) -> Self:
        """`m` canaries at random coordinates of a sum of `size` numbers, with fair coins."""
        if not LEAST <= m <= size:
            raise InputError(
                "bad number of canaries",
                got=m,
                expected=f"from {LEAST} to {size}: each has a parameter of its own",
            )
        return cls(
            plan=plan,
            coordinates=torch.randperm(size, generator=generator)[:m],
            included=torch.rand(m, generator=generator) < 0.5,
            scores=torch.zeros(m, dtype=torch.float64),
        )

    @property
    def present(self) -> int:
        """How many take part: units behind the real ones."""
        return int(self.included.sum())

    def added_to(self, total: Tensor, drawn: Tensor) -> Tensor:
        """A sum of real units, and the canaries that its step samples, by their numbers."""
        self._others = total[self.coordinates.to(total.device)].double()
        taking_part = self.coordinates[self.included]
        own = torch.zeros_like(total, dtype=torch.float64)  # exact beside large sums
        own[taking_part[drawn].to(total.device)] = self.plan.clip_norm
        return total + own

    def observe(self, noisy: Tensor) -> Tensor:
        """Note what a noisy sum shows of the canaries, the part of the real units taken out."""
        assert self._others is not None
        seen = noisy[self.coordinates.to(noisy.device)].double() - self._others
        shown = (seen / self.plan.clip_norm).cpu()
        self.scores += log_likelihood_ratio(shown, self.plan)
        return shown

    def state(self) -> dict[str, Any]:
        """For a private file."""
        return {name: getattr(self, name) for name in ("coordinates", "included", "scores")}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        for name, value in state.items():
            setattr(self, name, value.cpu())


def log_likelihood_ratio(shown: Tensor, plan: Plan) -> Tensor:
    """What one step says for taking part; the plain figure where steps hang together."""
    if plan.sampler_name != INDEPENDENT or plan.bands:
        return shown
    q, variance = plan.sampling_rate, plan.noise_multiplier**2
    moved = math.log(q) + (2 * shown - 1) / (2 * variance)
    stayed = math.log1p(-q) if q < 1 else -math.inf
    return torch.logaddexp(moved, torch.full_like(moved, stayed))
