"""Krum (Blanchard et al., 2017): the update whose neighbours are nearest; multi-Krum: several.

Of k updates, f of which may be anybody's, the score of one is the sum of its squared distances to
its k - f - 2 nearest. The `chosen` with the lowest scores are averaged. k < 2f + 3 proves nothing;
such a round is left without a step.
"""

from functools import partial

import torch
from torch import Tensor

from privet.errors import InputError
from privet.federation.gathering import Kept
from privet.federation.pacing import Deadline
from privet.federation.rule import Rule
from privet.federation.stepping import Move


def krum(
    *,
    attackers: int = 1,
    chosen: int = 1,
    seconds: float = 360.0,
    quorum: int = 1,
    server_rate: float = 1.0,
) -> Rule:
    """At each deadline with at least 2f + 3 updates, the mean of the `chosen` most central ones."""
    least = max(quorum, 2 * attackers + 3)
    if attackers < 0 or not 1 <= chosen <= attackers + 3:
        raise InputError(
            "bad settings of Krum",
            got=f"attackers={attackers}, chosen={chosen}",
            expected="attackers >= 0 and 1 <= chosen <= attackers + 3",
        )
    return Rule(
        name="krum",
        pacing=Deadline(seconds=seconds, least=least),
        gathering=lambda _: Kept(partial(central, attackers=attackers, chosen=chosen)),
        step=lambda _: Move(server_rate),
    )


def central(changes: Tensor, *, attackers: int, chosen: int) -> Tensor:
    """The mean of the `chosen` rows with the lowest scores. Cost: k^2 d."""
    rows = changes.double()
    norms = rows.square().sum(1)
    squared = (norms[:, None] + norms[None] - 2 * rows @ rows.T).clamp_min(0)
    squared.fill_diagonal_(float("inf"))  # nobody is a neighbour of its own
    nearest = squared.sort(dim=1).values[:, : len(rows) - attackers - 2]
    best = nearest.sum(1).argsort(stable=True)[:chosen]
    return torch.index_select(rows, 0, best).mean(0)
