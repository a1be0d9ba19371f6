"""What the canaries of one private run say about its plan.

Three answers, from the same scores and coins:

| answer                              | assumes          | says                                    |
|-------------------------------------|------------------|-----------------------------------------|
| `one_run`                           | the coins        | epsilon at delta is at least this       |
| `one_run_gaussian`                  | the coins, GDP   | the same, with more power               |
| `refuted`, at confidence 0.999      | the coins        | the plan's trade-off curve is not kept  |

Only the last one makes `verify` fail: it assumes nothing, and errs once in a thousand audits.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.audits.evidence import Evidence
from privet.audits.one_run import one_run
from privet.audits.one_run_fdp import one_run_gaussian, refuted
from privet.engine.canaries import DiracCanaries
from privet.engine.plan import Plan
from privet.guarantee import BEYOND_DOUBT
from privet.privacy.accounting import tradeoff_of
from privet.privacy.tradeoff import TradeOff

ATTACK: Final = "Dirac canaries in the gradient, seen in every noisy sum (white box)"
ITSELF: Final = "the released run itself"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RunAudit:
    """Of one run.

    Attributes:
        evidence: lower bounds; the one without assumptions about the mechanism first.
        refuted: whether the plan's curve is, at confidence 0.999.
        curve: what the plan proves for each canary.
        scores, included: of the canaries, from which all of this follows.
    """

    evidence: tuple[Evidence, ...]
    refuted: bool
    curve: TradeOff
    scores: NDArray[np.float64]
    included: NDArray[np.bool_]

    @classmethod
    def of(cls, canaries: DiracCanaries, *, subject: str, confidence: float = 0.95) -> Self:
        """Judge the canaries of a run that has ended."""
        plan = canaries.plan
        adjacency = plan.sampler.adjacencies[0]
        curve = _curve_of(plan)
        scores, coins = canaries.scores.numpy(), canaries.included.numpy()
        bounds = [
            estimate(scores, coins, delta=plan.delta, confidence=confidence)
            for estimate in (one_run, one_run_gaussian)
        ]
        return cls(
            evidence=tuple(
                bound.evidence(
                    adjacency=adjacency,
                    unit=plan.unit,
                    attack=ATTACK,
                    canaries=len(scores),
                    runs=1,
                    subject=subject,
                )
                for bound in bounds
            ),
            refuted=refuted(curve, scores, coins, confidence=BEYOND_DOUBT) is not None,
            curve=curve,
            scores=scores,
            included=coins,
        )

    def rows(self) -> list[dict[str, Any]]:
        """For the card: each bound, and whether the curve is refuted."""
        said = {"refutes": self.refuted, "refuting_confidence": BEYOND_DOUBT}
        return [bound.to_json() | said for bound in self.evidence]


@lru_cache(maxsize=4)  # seconds of work each, and a run is rarely audited alone
def _curve_of(plan: Plan) -> TradeOff:
    return tradeoff_of(plan.event(), plan.sampler.adjacencies[0])
