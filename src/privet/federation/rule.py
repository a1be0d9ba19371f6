"""A rule of aggregation: when there is a step, what updates become, how the model moves."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from privet.errors import InputError
from privet.federation.gathering import Gathering
from privet.federation.pacing import Pacing
from privet.federation.stepping import ServerStep


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """One way of making the next model from updates; `rules` has one a file.

    Attributes:
        name: as it is asked for.
        pacing: when there is a step.
        gathering: for a model of so many weights, what collects the updates of a step.
        step: for a model of so many weights, how the server moves.
        stale: by how many versions an update may be behind; 0: none.
        proximal: mu of the term mu/2 |theta - theta_t|^2 that clients add to their loss.
    """

    name: str
    pacing: Pacing
    gathering: Callable[[int], Gathering]
    step: Callable[[int], ServerStep]
    stale: int = 0
    proximal: float = 0.0

    def __post_init__(self) -> None:
        if self.stale < 0:
            raise InputError("bad staleness", got=self.stale, expected="at least 0 versions")
        if not 0 <= self.proximal < math.inf:
            raise InputError("bad proximal term", got=self.proximal, expected="mu >= 0")

    def weight(self, staleness: int) -> float:
        """1 / sqrt(1 + s): what is left of an update that is s versions behind; never above 1."""
        return 1.0 / math.sqrt(1.0 + staleness)
