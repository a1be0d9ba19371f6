"""A cap that holds however the runs under it were chosen: a Renyi privacy filter.

PLD composition needs the plans fixed beforehand. Runs on one data set are not: the second is
chosen after looking at the first. Feldman and Zrnic (2021, Theorem 4.3): if mechanisms are chosen
adaptively and one stops before the sum of their Renyi divergences *at one order fixed beforehand*
would exceed B, then all of it together is (order, B)-Renyi private. Canonne, Kamath and Steinke
(2020, Proposition 12) turn that into (epsilon, delta):

    epsilon = B + log((a - 1)/a) - (log delta + log a)/(a - 1),      a = order.

The order is chosen when the cap is set and never again; picking the best order afterwards, on the
path that was taken, is not covered by the theorem.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import dp_accounting as dp

from privet.errors import InputError
from privet.guarantee import check_target
from privet.privacy.accounting import WHOLE_ORDERS, DpEvent, renyi


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """Whether one more mechanism fits under (epsilon, delta); add/remove neighbours."""

    epsilon: float
    delta: float
    order: float

    @classmethod
    def for_cap(cls, epsilon: float, delta: float) -> Self:
        """The filter whose order admits the most Gaussian-like spending (divergence ~ order)."""
        check_target(epsilon, delta)
        candidates = [
            cls(epsilon=epsilon, delta=delta, order=float(order)) for order in WHOLE_ORDERS
        ]
        best = max(candidates, key=lambda f: f.budget / f.order)
        if best.budget <= 0:
            raise InputError(
                "cap too small for any Renyi order",
                got=f"epsilon={epsilon}, delta={delta}",
                fix="raise epsilon or delta",
            )
        return best

    @property
    def budget(self) -> float:
        """The divergence at `order` that may be spent in all."""
        a = self.order
        return self.epsilon - math.log1p(-1 / a) + (math.log(self.delta) + math.log(a)) / (a - 1)

    def cost(self, event: DpEvent) -> float:
        """The divergence of `event` at `order`; infinite for a non-private one."""
        return _cost(event, self.order)

    def epsilon_spent(self, divergence: float) -> float:
        """The (epsilon, delta) reading of an amount spent; 0 for nothing."""
        if divergence <= 0:
            return 0.0
        return max(0.0, self.epsilon - self.budget + divergence)


def _cost(event: DpEvent, order: float) -> float:
    if isinstance(event, dp.SelfComposedDpEvent):
        return float(event.count * _cost(event.event, order))
    if isinstance(event, dp.ComposedDpEvent):
        return sum(_cost(part, order) for part in event.events)
    if isinstance(event, dp.PoissonSampledDpEvent) and not _is_sampled_step(event):
        return renyi(event, order)  # a list of parts inside it cannot be a key
    return _cost_of_one(event, order)


def _is_sampled_step(event: dp.PoissonSampledDpEvent) -> bool:
    return isinstance(event.event, dp.GaussianDpEvent)


@lru_cache(maxsize=4096)
def _cost_of_one(event: DpEvent, order: float) -> float:
    return renyi(event, order)
