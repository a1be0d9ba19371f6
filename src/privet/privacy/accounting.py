"""From what happened to the data (events) to what may be said (epsilon).

Events are dp-accounting's `DpEvent`s: a Gaussian or Laplace release, the Poisson-sampled Gaussian
step, compositions of these, and the best of a random number of runs (Papernot and Steinke, 2022),
which only Renyi accounting covers. Everything here errs on the safe side.

Proof note: which pair of distributions dominates one step. Let a step add N(0, (zC)^2 I) to the
sum of contributions clipped to L2 norm C, on a Poisson sample of rate q, where q, z, C and the
normaliser do not depend on the data. Write P_g = (1-q) N(0) + q N(g), in units of zC.

- add/remove and zero-out: (P_g, N(0)) and its reverse with |g| = 1/z (a null unit contributes the
  zero vector, like an absent one). Zhu, Dong and Wang (2022), Theorem 11.
- replace-one: (P_g, P_h) with |g|, |h| <= 1/z. Advanced joint convexity (Balle et al., 2018) is an
  equality: H_a(P_g, P_h) = q H_b(N(g), (1-c) N(0) + c N(h)) with b = 1 + (a-1)/q, c = a/b. Seen
  from N(g), that is E F(sum_i p_i exp(X_i - Var X_i / 2)) for a convex F and Gaussian X with
  covariances <m_i, m_j> of the means m = (-g, h - g). By Kahane's inequality it grows with every
  covariance, so it is largest where both means are longest and parallel: g = -1/z, h = +1/z on a
  line. That is dp-accounting's `REPLACE_ONE` pair.
- without sampling, replace-one doubles the sensitivity.

A sample may also be drawn once, for all of a composition (`tradeoff.sampled_once`): a unit that is
admitted to a memory by a coin is there whenever the memory is read. For add/remove neighbours.

Mechanisms that are dominated step by step are dominated when composed, also adaptively, as long as
the pairs were fixed beforehand; `ledger` covers plans that were chosen on the way.

Cost: one privacy loss distribution of some 1e4..1e5 points, built in Python, and one FFT power;
tenths of a second at usual noise, more where noise is small and the loss spreads wide.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import dp_accounting as dp
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, RepeatAndSelectDpEvent, ZCDpEvent
from scipy.optimize import brentq
from scipy.special import logsumexp

from privet.errors import InputError
from privet.guarantee import Adjacency, check_target
from privet.privacy.tradeoff import (
    PLD_INTERVAL,
    Gaussian,
    Laplace,
    TradeOff,
    compose,
    poisson_subsampled,
    sampled_once,
    self_compose,
)

DpEvent: TypeAlias = dp.DpEvent
Selection = RepeatAndSelectDpEvent
ZeroConcentrated = ZCDpEvent
DiscreteLaplace = DiscreteLaplaceDpEvent

COARSE_INTERVAL: Final = 1e-3  # for searching and for running displays; safe, slightly looser
# dp-accounting's Renyi bound of a sampled Gaussian is exact at whole orders, loose between them.
WHOLE_ORDERS: Final = (*range(2, 257), 512, 1024)
# Whole, too, for selections: only there is the noise of their scores proved to be enough.
SELECTION_ORDERS: Final = (*range(2, 65), *range(72, 129, 8), 160, 192, 256, 512, 1024)
PURE: Final = "pure epsilons, added up"
LEAST_MULTIPLIER: Final = 0.3  # calibration goes no lower: such noise protects no one


def tradeoff_of(
    event: DpEvent,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    *,
    interval: float = PLD_INTERVAL,
) -> TradeOff:
    """The trade-off function of everything recorded in `event`, fixed beforehand.

    `interval` is the grid of the privacy loss; a coarser one is faster and gives a larger epsilon.
    Little noise spreads the loss wide, so the grid is widened with it, at no visible loss.
    """
    replace_one = Adjacency(adjacency) is Adjacency.REPLACE_ONE
    spread = min(4.0, max(1.0, _least_noise(event) ** -2))
    return _walk(event, replace_one=replace_one, interval=interval * spread)


def epsilon_of(
    event: DpEvent,
    delta: float,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    *,
    how: str = "pld",
    interval: float = PLD_INTERVAL,
) -> float:
    """Epsilon of `event` at `delta`. `how`: 'pld' (tight), or 'rdp' (looser)."""
    if how == "pld":
        return tradeoff_of(event, adjacency, interval=interval).epsilon(delta)
    if how == "rdp":
        return float(_renyi_accountant(event, adjacency).get_epsilon(delta))
    raise InputError("unknown accountant", got=how, expected="'pld' or 'rdp'")


def total_epsilon(
    events: Sequence[DpEvent], delta: float, adjacency: Adjacency = Adjacency.ADD_REMOVE
) -> float:
    """Epsilon of plans that were made one after the other, each after seeing the last.

    Basic composition, which stands adaptive choice: pure epsilons add up, and what is not pure
    (at most one plan, which gets all of delta) adds its own.
    """
    if not events:
        raise InputError("no events to account", expected="at least one")
    pure = [pure_epsilon(e, adjacency) for e in events if is_pure(e)]
    rest = [e for e in events if not is_pure(e)]
    if len(rest) > 1:
        raise InputError(
            "more than one plan that is not pure", got=len(rest), fix="compose them in one plan"
        )
    return sum(pure) + sum(epsilon_of(e, delta, adjacency, how=accountant_for(e)) for e in rest)


def total_accountant(events: Sequence[DpEvent]) -> str:
    """How `total_epsilon` counts these, in words for a card."""
    rest = [accountant_for(e) for e in events if not isinstance(e, dp.LaplaceDpEvent)]
    words = ["pure epsilons of learned facts"] if len(rest) < len(events) else []
    return ", plus ".join([*rest, *words])


def pure_epsilon(event: DpEvent, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> float:
    """The sum of the pure epsilons in `event`, which has no other parts.

    Randomised response has its place for every unit: an absent one answers by chance alone
    (`privacy.local`).
    """
    replace_one = Adjacency(adjacency) is Adjacency.REPLACE_ONE
    match event:
        case dp.LaplaceDpEvent(noise_multiplier=b) if b > 0:
            return (2.0 if replace_one else 1.0) / float(b)
        case DiscreteLaplace(noise_parameter=a, sensitivity=s) if a > 0 and s > 0:
            return (2.0 if replace_one else 1.0) * float(a) * int(s)
        case dp.RandomizedResponseDpEvent(noise_parameter=p, num_buckets=k) if 0 < p <= 1 < k:
            kept = k * (1.0 - p) + p
            return math.log(kept / p) if replace_one else max(math.log(kept), -math.log(p))
        case dp.ComposedDpEvent(events=parts):
            return sum(pure_epsilon(part, adjacency) for part in parts)
    raise InputError("event without a pure epsilon", got=event)


def accountant_for(event: DpEvent) -> str:
    """The tightest accountant that covers `event`: 'pld', or 'rdp' if only that is known.

    Of events with a pure epsilon that are more than one noise, no curve is known but their sum.
    """
    if is_pure(event) and not isinstance(event, dp.LaplaceDpEvent):
        return PURE
    return "rdp" if _holds(event, Selection, ZeroConcentrated) else "pld"


def _holds(event: DpEvent, *kinds: type[DpEvent]) -> bool:
    """Whether an event of these kinds is anywhere in `event`."""
    if isinstance(event, kinds):
        return True
    match event:
        case dp.SelfComposedDpEvent(event=part) | dp.PoissonSampledDpEvent(event=part):
            return _holds(part, *kinds)
        case dp.ComposedDpEvent(events=parts):
            return any(_holds(part, *kinds) for part in parts)
    return False


def is_pure(event: DpEvent) -> bool:
    """Whether every part of `event` has a pure epsilon."""
    match event:
        case dp.ComposedDpEvent(events=parts):
            return bool(parts) and all(is_pure(part) for part in parts)
    pure = dp.LaplaceDpEvent | DiscreteLaplace | dp.RandomizedResponseDpEvent
    return isinstance(event, pure)


def renyi(event: DpEvent, order: float) -> float:
    """The Renyi divergence bound of `event` at one order, add/remove neighbours."""
    if isinstance(event, DiscreteLaplace):
        return _renyi_of_pure(pure_epsilon(event), order)
    if _is_coin(event):
        return _renyi_behind_coin(event, order)
    # The bound of a selection at one order is the best over a second order: offer it many.
    others = SELECTION_ORDERS if _holds(event, Selection) else ()
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    if isinstance(event, dp.RandomizedResponseDpEvent):  # as in `pure_epsilon`
        relation = dp.NeighboringRelation.REPLACE_SPECIAL
    accountant = dp.rdp.RdpAccountant([order, *others], relation)
    _compose_or_refuse(accountant, event)
    return float(accountant.rdp[0])


def _renyi_of_pure(epsilon: float, order: float) -> float:
    """The largest divergence of anything epsilon-DP: of two answers with odds of e^epsilon.

    In any number of dimensions and on any grid (Bun and Steinke, 2016, Proposition 3.3).
    """
    kept, other = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    terms = [a + (order - 1.0) * (a - b) for a, b in ((kept, other), (other, kept))]
    return float(logsumexp(terms)) / (order - 1.0)


def _is_coin(event: DpEvent) -> bool:
    """Whether one coin decides on all of a composition; see `tradeoff.sampled_once`."""
    match event:
        case dp.PoissonSampledDpEvent(sampling_probability=q, event=part):
            return 0 < q < 1 and not isinstance(part, dp.GaussianDpEvent)
    return False


def _renyi_behind_coin(event: DpEvent, order: float) -> float:
    """Of P' = (1 - p) Q + p P, at a whole order a; D_l is the divergence of P and Q at order l.

        E_Q (P'/Q)^a  = sum over l of C(a, l) (1 - p)^(a-l) p^l e^((l-1) D_l)
        E_P' (Q/P')^a <= 1 - p + p e^((a-1) D_a)

    The first multiplies out; the second is the joint convexity of an f-divergence.
    """
    a, p = int(order), float(event.sampling_probability)
    if a != order or a < 2:
        raise InputError("no Renyi bound behind a coin at this order", got=order)
    inside = {k: renyi(event.event, k) for k in range(2, a + 1)}
    terms = [
        math.lgamma(a + 1) - math.lgamma(k + 1) - math.lgamma(a - k + 1)
        + (a - k) * math.log1p(-p) + k * math.log(p) + (k - 1) * inside.get(k, 0.0)
        for k in range(a + 1)
    ]  # fmt: skip
    mixed = [math.log1p(-p), math.log(p) + (a - 1) * inside[a]]
    return float(max(logsumexp(terms), logsumexp(mixed))) / (a - 1)


def covers(event: DpEvent, adjacency: Adjacency) -> bool:
    """Whether anything is proved of an event for these neighbours."""
    if Adjacency(adjacency) is not Adjacency.REPLACE_ONE:
        return True
    match event:
        case dp.SelfComposedDpEvent(event=part):
            return covers(part, adjacency)
        case dp.ComposedDpEvent(events=parts):
            return all(covers(part, adjacency) for part in parts)
    # Of the best of several runs, and behind a coin, nothing is known under replace-one.
    return accountant_for(event) != "rdp" and not _is_coin(event)


def sampled_gaussian(noise_multiplier: float, rate: float, steps: int) -> DpEvent:
    """The event of `steps` Poisson-sampled Gaussian steps."""
    step = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise_multiplier))
    return dp.SelfComposedDpEvent(step, steps)


def calibrate(
    epsilon: float,
    delta: float,
    event_of: Callable[[float], DpEvent],
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    *,
    what: str = "this mechanism",
) -> float:
    """The least noise multiplier (to 1e-4 relative) whose event keeps the target.

    `event_of` says what happens to the data at a noise multiplier; more noise must cost less.
    `what` names it in an error.

    Guarantee: the returned multiplier has been evaluated, and its epsilon is at most the target.
    """
    check_target(epsilon, delta)

    @lru_cache
    def excess(log_multiplier: float, interval: float) -> float:
        event = event_of(math.exp(log_multiplier))
        how = accountant_for(event)
        return epsilon_of(event, delta, adjacency, how=how, interval=interval) - epsilon

    # A coarse grid overstates epsilon: its root is safe, quickly found, and a good place to start.
    coarse = _root_near(lambda z: excess(z, COARSE_INTERVAL), start=0.0, stride=0.7)
    start = 0.0 if coarse is None else coarse
    fine = _root_near(lambda z: excess(z, PLD_INTERVAL), start=start, stride=0.005)
    if fine is None:
        raise InputError(
            "privacy target out of reach",
            got=f"epsilon={epsilon}, delta={delta} for {what}",
            fix="allow a larger epsilon, fewer steps, or a smaller batch",
        )
    return math.exp(fine)


def _root_near(excess: Callable[[float], float], *, start: float, stride: float) -> float | None:
    """A log multiplier with `excess` <= 0, within 5e-5 above the root of this falling function.

    Strides away from `start`, ever longer, until the root is between two points; never below the
    least multiplier, where it stops if even that is enough.
    """
    least, most = math.log(LEAST_MULTIPLIER), math.log(1e5)
    low = high = max(start, least)
    if excess(start) > 0:
        while excess(high) > 0:
            if high >= most:
                return None
            low, high, stride = high, min(most, high + stride), 4 * stride
    else:
        while excess(low) <= 0:
            if low <= least:
                return least
            low, high, stride = max(least, low - stride), low, 4 * stride
    root = float(brentq(excess, low, high, xtol=2e-5))
    while excess(root) > 0:  # brentq may stop on the wrong side, by its tolerance
        root += 2e-5
    return root


def _walk(event: DpEvent, *, replace_one: bool, interval: float) -> TradeOff:
    def inside(part: DpEvent) -> TradeOff:
        return _walk(part, replace_one=replace_one, interval=interval)

    match event:
        case dp.GaussianDpEvent(noise_multiplier=z) if z > 0:
            return Gaussian((2.0 if replace_one else 1.0) / z)
        case dp.LaplaceDpEvent(noise_multiplier=b) if b > 0:
            return Laplace((2.0 if replace_one else 1.0) / b)
        case dp.PoissonSampledDpEvent(sampling_probability=1.0, event=part):
            return inside(part)
        case dp.PoissonSampledDpEvent(
            sampling_probability=q, event=dp.GaussianDpEvent(noise_multiplier=z)
        ) if 0 < q < 1 and z > 0:
            return poisson_subsampled(z, q, replace_one=replace_one, interval=interval)
        case dp.PoissonSampledDpEvent(sampling_probability=q, event=part) if (
            0 < q < 1 and not replace_one
        ):
            return sampled_once(inside(part), q, interval)
        case dp.SelfComposedDpEvent(event=part, count=count):
            return self_compose(inside(part), count, interval)
        case dp.ComposedDpEvent(events=parts):
            return compose([inside(part) for part in parts], interval)
        case _:
            raise InputError(
                "event without a proved trade-off function",
                got=event,
                expected="Gaussian, Laplace, compositions, and Poisson samples of these: of"
                " compositions for add/remove neighbours alone",
            )


def _least_noise(event: DpEvent) -> float:
    match event:
        case dp.GaussianDpEvent(noise_multiplier=z) if z > 0:
            return float(z)
        case dp.SelfComposedDpEvent(event=part) | dp.PoissonSampledDpEvent(event=part):
            return _least_noise(part)
        case dp.ComposedDpEvent(events=parts):
            return min((_least_noise(part) for part in parts), default=1.0)
    return 1.0


def _renyi_accountant(event: DpEvent, adjacency: Adjacency) -> Any:
    relation = {
        Adjacency.ADD_REMOVE: dp.NeighboringRelation.ADD_OR_REMOVE_ONE,
        Adjacency.ZERO_OUT: dp.NeighboringRelation.REPLACE_SPECIAL,
    }.get(Adjacency(adjacency))
    if relation is None:
        raise InputError(
            "no Renyi accounting for this adjacency",
            got=adjacency.value,
            expected="add-remove or zero-out",
            fix="use the 'pld' accountant",
        )
    orders = SELECTION_ORDERS if _holds(event, Selection) else None
    return _compose_or_refuse(dp.rdp.RdpAccountant(orders, relation), event)


def _compose_or_refuse(accountant: Any, event: DpEvent) -> Any:
    if not accountant.supports(event):
        raise InputError("event that dp-accounting cannot compose", got=event)
    accountant.compose(event)
    return accountant
