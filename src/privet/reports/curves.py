"""The curves behind a guarantee, and the bound on attackers that follows from them."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Curves:
    """Three views of the strongest guarantee of a release; all empty when it has none.

    `epsilon_by_step` holds (step, epsilon at the release's delta), `profile` (epsilon, delta)
    and `tradeoff` (false positive rate alpha, lowest possible false negative rate beta) of the
    best membership attack.
    """

    epsilon_by_step: tuple[tuple[int, float], ...] = ()
    profile: tuple[tuple[float, float], ...] = ()
    tradeoff: tuple[tuple[float, float], ...] = ()

    def detection_bound(self, alpha: float) -> float:
        """The largest share of members any attack finds at false positive rate `alpha`.

        A trade-off curve never rises, so each point to the right of `alpha` bounds beta(alpha)
        from below. Interpolating would not be sound: the curve is convex, its chords lie above
        it. Between grid points the bound is therefore loose; put the rates you quote on the grid.
        """
        slack = alpha * 1e-9  # a grid may hold 0.01 as 0.010000000000000002, or just below
        betas = [beta for a, beta in self.tradeoff if a >= alpha - slack]
        return min(1.0, 1.0 - max(betas, default=0.0))


def detection_bound_from_epsilon(epsilon: float, delta: float, alpha: float) -> float:
    """The same bound from a single (epsilon, delta): both sides of the definition, applied.

    A guarantee says P(S) <= e^epsilon Q(S) + delta for the attack's set S and its complement,
    with the roles of P and Q in either order.
    """
    if epsilon > 700:  # e^epsilon overflows, and nothing is bounded any more
        return 1.0
    by_hits = math.exp(epsilon) * alpha + delta
    by_misses = 1.0 - math.exp(-epsilon) * (1.0 - delta - alpha)
    return min(1.0, by_hits, by_misses)
