"""What the tests of audits share: Gaussian worlds and subjects, and the counter of false alarms."""

import itertools
import math

import numpy as np
from scipy.optimize import linprog

from privet.audits.mechanism import Subject
from privet.privacy.tradeoff import Stated
from privet.studies.audit_power import ideal

worlds, canaries = ideal.worlds, ideal.canaries  # of the exact Gaussian mechanism

DELTA = 1e-5
TRIALS = 200
# A bound at 95 % fails in at most 5 % of trials; more than 21 of 200 have probability 0.0005 then.
MOST = 21


def mu_for(epsilon):
    """mu-GDP has exactly this epsilon at DELTA."""
    return ideal.mu_for(epsilon, DELTA)


def gaussian_subject(shift, spread=None, **changes):
    """N(0, 1) in each coordinate; with the record N(shift, spread^2)."""
    shift = np.asarray(shift, dtype=float)
    spread = np.ones_like(shift) if spread is None else np.asarray(spread, dtype=float)

    def sample(included, runs, seed):
        z = np.random.default_rng(seed).standard_normal((runs, len(shift)))
        return shift + spread * z if included else z

    facts = {"name": "made-up", "claim": Stated(1.0, 1e-5), "pair": "made up", "sample": sample}
    return Subject(**(facts | changes))


def false_alarms(estimate, truth, trials=TRIALS):
    """How many of the seeded trials gave a bound above the truth."""
    return sum(estimate(seed) > truth for seed in range(trials))


def most_correct(m, r, v, lines):
    """The largest P[W >= v] of any mechanism that is (eps, delta)-DP for every line; exact.

    A linear programme over P(guesses | coins) for all guesses of r of m coins. A mechanism with
    other outputs is followed by its guesses, so none does better.
    """
    coins = list(itertools.product((-1, 1), repeat=m))
    outputs = [t for t in itertools.product((-1, 0, 1), repeat=m) if sum(map(abs, t)) == r]
    place = {(s, t): i for i, (s, t) in enumerate(itertools.product(coins, outputs))}
    pairs = [
        (s, tuple(-x if j == i else x for j, x in enumerate(s))) for s in coins for i in range(m)
    ]
    size, extra = len(place), len(pairs) * len(outputs)
    gain = np.zeros(size + extra * len(lines))
    for (s, t), i in place.items():
        right = sum(x == y for x, y in zip(s, t, strict=True))
        gain[i] = -(right >= v) / len(coins)
    rows, limits = [], []
    for which, (epsilon, delta) in enumerate(lines):
        for number, (s, other) in enumerate(pairs):
            start = size + which * extra + number * len(outputs)
            budget = np.zeros(len(gain))
            budget[start : start + len(outputs)] = 1.0
            rows.append(budget)
            limits.append(delta)
            for k, t in enumerate(outputs):
                row = np.zeros(len(gain))
                row[place[s, t]], row[place[other, t]] = 1.0, -math.exp(epsilon)
                row[start + k] = -1.0
                rows.append(row)
                limits.append(0.0)
    whole = np.zeros((len(coins), len(gain)))
    for (s, _), i in place.items():
        whole[coins.index(s), i] = 1.0
    found = linprog(gain, np.array(rows), limits, whole, np.ones(len(coins)), method="highs")
    return -found.fun
