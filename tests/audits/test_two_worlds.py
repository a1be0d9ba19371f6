"""Bounds from two worlds: known answers, false alarms, power, and mistakes that are caught."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.audits import two_worlds, violates
from privet.audits.two_worlds import (
    Counts,
    chosen,
    epsilon_of,
    lone_firings,
    ranked,
    rectangle,
    region,
)
from privet.errors import InputError
from privet.privacy.confidence import upper_bound
from privet.privacy.tradeoff import Gaussian, Laplace

sys.path.insert(0, str(Path(__file__).parent))
from estimating import DELTA, MOST, TRIALS, false_alarms, mu_for, worlds

FIXED = settings(derandomize=True, deadline=None, max_examples=40)
STRATEGIES = ("split", "bonferroni")
HALF = 3  # the division of the level into halves


def counts(accused, runs_without, missed, runs_with):
    return Counts(
        np.asarray(float(accused)), runs_without, np.asarray(float(missed)), runs_with,
        np.asarray(0.0), np.asarray(0.0),
    )  # fmt: skip


class TestOneTest:
    def test_no_error_in_n_runs(self):
        """Clopper-Pearson without hits: 1 - (level/2)^(1/n), by hand."""
        alpha, beta = rectangle(counts(0, 100, 0, 100), 0.05)
        rate = 1 - 0.025 ** (1 / 100)
        assert alpha[HALF] == pytest.approx(rate, rel=1e-9)
        assert beta[HALF] == pytest.approx(rate, rel=1e-9)
        epsilon = epsilon_of(alpha[HALF], beta[HALF], 1e-3)
        assert epsilon == pytest.approx(math.log((1 - 1e-3 - rate) / rate), rel=1e-9)

    @pytest.mark.parametrize(
        ("threshold", "epsilon"),
        [(990.0, 2.728698216362422), (900.0, 1.1194682098315738)],
    )
    def test_equals_jax_privacy(self, threshold, epsilon):
        """jax-privacy 2.0.0, epsilon_clopper_pearson(0.05, 1e-3, False) at that threshold."""
        without, with_ = np.arange(1000.0), np.arange(1000.0) + 300.5
        tested = counts(np.sum(without >= threshold), 1000, np.sum(with_ < threshold), 1000)
        alpha, beta = rectangle(tested, 0.05)
        assert epsilon_of(alpha[HALF], beta[HALF], 1e-3) == pytest.approx(epsilon, rel=1e-9)

    @pytest.mark.parametrize(("p", "rare"), list(itertools.product((0.3, 0.8), (0.05, 0.25))))
    def test_lone_firings_cover_by_enumeration(self, p, rare):
        """All outcomes of 7 pairs, exactly: the bound exceeds ln((p - delta)/rare) in <= 20 %."""
        n, delta, level = 7, 0.02, 0.2
        wrong = 0.0
        for both, one, other in itertools.product(range(n + 1), repeat=3):
            neither = n - both - one - other
            if neither < 0:
                continue
            found = lone_firings(
                np.asarray(float(one)), np.asarray(float(other)), np.asarray(float(both + one)),
                n, level, delta,
            )  # fmt: skip
            if found > math.log((p - delta) / rare):
                chances = [p * rare, p * (1 - rare), (1 - p) * rare, (1 - p) * (1 - rare)]
                wrong += stats.multinomial.pmf([both, one, other, neither], n, chances)
        assert wrong <= level

    def test_lone_firings_divide_the_level(self):
        """Eight tenths for the odds, one for each bound of the rate: all of it, and no more."""
        frequent, rare, fired, runs, level, delta = 30.0, 4.0, 60.0, 400, 0.05, 0.01
        share = stats.beta(frequent, rare + 1).ppf(0.8 * level)
        low = stats.beta(fired, runs - fired + 1).ppf(0.1 * level)
        high = stats.beta(fired + 1, runs - fired).isf(0.1 * level)
        by_hand = math.log(share / (1 - share) * (1 - high) * (1 - delta / low))
        found = lone_firings(
            np.asarray(frequent), np.asarray(rare), np.asarray(fired), runs, level, delta
        )
        assert found == pytest.approx(by_hand, rel=1e-6)

    def test_lone_firings_approach_the_truth(self):
        """Rates 0.02 and 0.001 in ten million runs: ln(0.01/0.001) at delta 0.01, up to u."""
        n, p, rare = 10**7, 0.02, 0.001
        found = lone_firings(
            np.asarray(n * p * (1 - rare)), np.asarray(n * rare * (1 - p)), np.asarray(n * p),
            n, 0.05, 0.01,
        )  # fmt: skip
        assert math.log(10.0) - 0.05 < found < math.log(10.0)

    @given(
        st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.floats(0.001, 0.3),
    )  # fmt: skip
    @FIXED
    def test_more_errors_never_show_more(self, accused, missed, more, level):
        few = epsilon_of(*rectangle(counts(accused, 120, missed, 120), level), DELTA)
        many = epsilon_of(*rectangle(counts(accused + more, 120, missed, 120), level), DELTA)
        assert np.all(many <= few + 1e-12)


class TestRanks:
    def test_bounds_of_one_rank_hold(self):
        """The k-th largest of n uniform scores is exceeded at rate Beta(k, n - k + 1)."""
        n, k, level = 50, 4, 0.05
        bound = float(upper_bound(k - 1, n, level))
        assert stats.beta(k, n - k + 1).sf(bound) == pytest.approx(level, rel=1e-9)

    def test_the_level_is_divided_among_all_tests(self):
        """Two tails, two rates, K ranks from 4 to n: each bound fails with level / 4K exactly."""
        n, level = 1000, 0.05
        alphas, _ = ranked(worlds(0, n, 1.0), level)
        each = level / (4 * len(alphas) / 2)
        assert stats.beta(4, n - 3).sf(alphas[0]) == pytest.approx(each, rel=1e-6)
        assert stats.beta(n, 1).sf(alphas[len(alphas) // 2 - 1]) == pytest.approx(each, rel=1e-4)

    def test_the_region_holds_all_at_once(self):
        """Simultaneous at 80 %: in 200 trials more than 60 misses have probability 0.0004."""
        assert stats.binom.sf(60, TRIALS, 0.2) < 5e-4
        curve, misses = Gaussian(1.0), 0
        for seed in range(TRIALS):
            alphas, betas = region(*worlds(seed, 400, 1.0), confidence=0.8)
            misses += any(b < curve.beta(float(a)) for a, b in zip(alphas, betas, strict=True))
        assert misses <= 60

    def test_the_region_is_sorted_and_near_the_curve(self):
        alphas, betas = region(*worlds(0, 100_000, 1.0))
        assert np.all(np.diff(alphas) >= 0)
        middle = int(np.argmin(abs(alphas - 0.3)))
        assert 0 < betas[middle] - Gaussian(1.0).beta(float(alphas[middle])) < 0.02

    @given(st.integers(0, 30), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
    @FIXED
    def test_more_separation_never_lowers_the_bound(self, seed, mu, more):
        without, with_ = worlds(seed, 60, mu)
        near = two_worlds(without, with_, delta=DELTA, strategy="bonferroni")
        far = two_worlds(without, with_ + more, delta=DELTA, strategy="bonferroni")
        assert far.epsilon >= near.epsilon

    def test_ties_are_safe(self):
        """Scores of 0 and 1 only: the rates of "1" are what is bounded, not less."""
        without, with_ = np.repeat([0.0, 1.0], [90, 10]), np.repeat([0.0, 1.0], [40, 60])
        alphas, betas = ranked((without, with_), 0.05)
        said = (betas < 1) & (alphas < 1)
        assert said.any()
        assert np.all(alphas[said] >= 0.1)
        assert np.all(betas[said] >= 0.4)


@pytest.mark.parametrize("strategy", STRATEGIES)
class TestTwoWorlds:
    @given(st.integers(0, 20), st.floats(0.5, 3.0))
    @FIXED
    def test_swapping_the_worlds_changes_nothing(self, strategy, seed, mu):
        without, with_ = worlds(seed, 5000, mu)  # in small worlds many tests are equally good
        one = two_worlds(without, with_, delta=DELTA, strategy=strategy)
        two = two_worlds(-with_, -without, delta=DELTA, strategy=strategy)
        assert one.epsilon == pytest.approx(two.epsilon, rel=1e-9, abs=1e-12)

    @pytest.mark.parametrize("epsilon", [1, 4])
    def test_false_alarms(self, strategy, epsilon):
        mu = mu_for(epsilon)

        def estimate(seed):
            return two_worlds(*worlds(seed, 2000, mu), delta=DELTA, strategy=strategy).epsilon

        assert false_alarms(estimate, epsilon) <= MOST

    def test_false_alarms_where_bounds_are_tight(self, strategy):
        """Randomised response: one threshold, so nothing but the confidence stands between."""
        truth = math.log(3.0)

        def estimate(seed):
            rng = np.random.default_rng(seed)
            without, with_ = rng.random(500) < 0.25, rng.random(500) < 0.75
            return two_worlds(without, with_, delta=0.0, strategy=strategy).epsilon

        assert false_alarms(estimate, truth) <= MOST

    def test_nothing_is_found_where_nothing_is(self, strategy):
        assert two_worlds(*worlds(3, 5000, 0.0), delta=DELTA, strategy=strategy).epsilon == 0.0

    def test_perfect_separation(self, strategy):
        """Without 0, with 1, always: limited by the number of runs alone."""
        bound = two_worlds(np.zeros(4000), np.ones(4000), delta=DELTA, strategy=strategy)
        assert 5.5 < bound.epsilon < math.log(4000)

    @pytest.mark.parametrize(("epsilon", "share"), [(1, 0.70), (4, 0.70), (8, 0.60)])
    def test_power_of_a_million_runs(self, strategy, epsilon, share):
        """The exact Gaussian mechanism, mean of three seeds; the bounds stay below the truth."""
        mu = mu_for(epsilon)
        found = [
            two_worlds(*worlds(seed, 1_000_000, mu), delta=DELTA, strategy=strategy).epsilon
            for seed in range(3)
        ]
        assert share * epsilon <= np.mean(found)
        assert max(found) < epsilon


class TestViolations:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("curve", [Gaussian(1.0), Laplace(1.0)], ids=["gaussian", "laplace"])
    def test_a_true_curve_is_spared(self, strategy, curve):
        """At 95 %, so that the test can fail; the ideal attack on exactly this curve."""

        def found(seed):
            rng = np.random.default_rng(seed)
            noise = rng.standard_normal if isinstance(curve, Gaussian) else rng.laplace
            without, with_ = noise(size=1500), noise(size=1500) + 1.0
            return violates(curve, without, with_, confidence=0.95, strategy=strategy)

        assert sum(found(seed) is not None for seed in range(100)) <= 13
        assert stats.binom.sf(13, 100, 0.05) < 5e-4

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("way", [1.0, -1.0], ids=["forth", "back"])
    def test_a_curve_too_good_is_refuted(self, strategy, way):
        """mu = 1 against a claim of 0.8, in 20,000 runs, whichever world is called "with"."""
        without, with_ = worlds(0, 20_000, 1.0)
        pair = (without, with_) if way > 0 else (-with_, -without)
        found = violates(Gaussian(0.8), *pair, strategy=strategy)
        assert found is not None
        assert found.confidence == 0.999
        assert found.beta < found.least == Gaussian(0.8).beta(found.alpha)
        assert Gaussian(1.0).beta(found.alpha) < found.beta

    def test_a_tail_is_enough(self):
        """A leak in one of 100 runs: invisible in the middle, plain in the tail."""
        rng = np.random.default_rng(0)
        without, with_ = rng.standard_normal(50_000), rng.standard_normal(50_000) + 0.5
        with_[rng.random(50_000) < 0.01] = 10.0
        assert violates(Gaussian(0.55), without, with_) is not None
        with_[with_ == 10.0] = 0.0
        assert violates(Gaussian(0.55), without, with_) is None


@pytest.mark.parametrize("sizes", [(2000, 300), (300, 2000)], ids=["fewer with", "fewer without"])
class TestUnequalWorlds:
    """Runs are counted in the world that they belong to."""

    def test_the_chosen_test_is_counted_where_it_ran(self, sizes):
        """Scores that are exact in number: a fifth of the runs without score 1, half of those with.

        The measure leaves no doubt: it likes the test that accuses a fifth.
        """
        without, with_ = (
            np.repeat([0.0, 1.0], [n - n // part, n // part])
            for n, part in zip(sizes, (5, 2), strict=True)
        )
        forecasts = []

        def measure(seen, level):
            forecasts.append(seen)
            return np.atleast_1d(-np.abs(seen.accused / seen.runs_without - 0.2))[..., None]

        choice = chosen((without, with_), measure, 0.05, 0)
        rest = [n - round(0.15 * n) for n in sizes]
        assert [choice.counts.runs_without, choice.counts.runs_with] == rest
        assert choice.counts.accused / rest[0] == pytest.approx(0.2, abs=0.02)
        assert choice.counts.missed / rest[1] == pytest.approx(0.5, abs=0.1)
        pairs = min(rest)
        assert choice.counts.lone_with / pairs == pytest.approx(0.5 * 0.8, abs=0.1)
        assert choice.counts.lone_without / pairs == pytest.approx(0.2 * 0.5, abs=0.06)
        assert forecasts[0].accused[-1] == forecasts[0].runs_without  # every rank is a candidate
        for seen in forecasts:
            assert [seen.runs_without, seen.runs_with] == [round(0.15 * n) for n in sizes]
            alpha, beta = seen.accused / seen.runs_without, seen.missed / seen.runs_with
            few = min(seen.runs_without, seen.runs_with)
            np.testing.assert_allclose(seen.lone_with, few * (1 - alpha) * (1 - beta))
            np.testing.assert_allclose(seen.lone_without, few * alpha * beta)

    def test_a_rectangle_divides_by_its_own_runs(self, sizes):
        """A tenth of the runs err in either world; the bounds by scipy's beta distribution."""
        errors = [n // 10 for n in sizes]
        alpha, beta = rectangle(counts(errors[0], sizes[0], errors[1], sizes[1]), 0.05)
        for side, k, n in zip((alpha, beta), errors, sizes, strict=True):
            assert side[HALF] == pytest.approx(stats.beta(k + 1, n - k).isf(0.025), rel=1e-6)

    def test_ranks_know_their_world(self, sizes):
        """The points of the region, recomputed one by one from the sorted scores."""
        n0, n1 = sizes
        rng = np.random.default_rng(0)
        without, with_ = rng.standard_normal(n0), rng.standard_normal(n1) + 1.0
        alphas, betas = region(without, with_, confidence=0.95)
        expected = []
        for own, other, swap in ((without, with_, False), (-with_, -without, True)):
            n = len(own)
            ranks = np.unique(np.rint(np.geomspace(4, n, 24)).astype(int))
            each = 0.05 / (4 * len(ranks))
            for k in ranks:
                missed = int(np.sum(other <= np.sort(own)[::-1][k - 1]))
                rate = stats.beta(k, n - k + 1).isf(each)
                miss = 1.0 if missed == len(other) else (
                    stats.beta(missed + 1, len(other) - missed).isf(each)
                )  # fmt: skip
                expected.append((miss, rate) if swap else (rate, miss))
        expected = np.array(sorted(expected))
        order = np.lexsort((betas, alphas))
        np.testing.assert_allclose(alphas[order], expected[:, 0], rtol=1e-6)
        np.testing.assert_allclose(betas[order], expected[:, 1], rtol=1e-6)

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_false_alarms(self, sizes, strategy):
        """Randomised response, where nothing but the confidence stands between."""

        def estimate(seed):
            rng = np.random.default_rng(seed)
            without, with_ = rng.random(sizes[0]) < 0.25, rng.random(sizes[1]) < 0.75
            return two_worlds(without, with_, delta=0.0, strategy=strategy).epsilon

        assert false_alarms(estimate, math.log(3.0)) <= MOST

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_power(self, sizes, strategy):
        """Randomised response with epsilon ln 9: the bound is near, whichever world is larger."""

        def estimate(seed):
            rng = np.random.default_rng(seed)
            without, with_ = rng.random(sizes[0]) < 0.1, rng.random(sizes[1]) < 0.9
            return two_worlds(without, with_, delta=0.0, strategy=strategy).epsilon

        assert np.mean([estimate(seed) for seed in range(20)]) > 0.8 * math.log(9.0)

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_a_curve_is_spared_or_refuted(self, sizes, strategy):
        def found(curve, seed):
            rng = np.random.default_rng(seed)
            pair = rng.standard_normal(sizes[0]), rng.standard_normal(sizes[1]) + 1.0
            return violates(curve, *pair, confidence=0.95, strategy=strategy)

        assert sum(found(Gaussian(1.0), seed) is not None for seed in range(100)) <= 13
        assert all(found(Gaussian(0.4), seed) is not None for seed in range(20))


class TestMistakesAreCaught:
    """Estimators with the usual mistakes, counted by the same counter."""

    def test_the_same_runs_choose_and_test(self):
        """No leak at all, and the best of all thresholds finds one."""

        def estimate(seed):
            without, with_ = worlds(seed, 400, 0.0)
            thresholds = np.concatenate([without, with_])[:, None]
            accused, seen = without >= thresholds, with_ >= thresholds
            frequent, rare = (seen & ~accused).sum(axis=1), (accused & ~seen).sum(axis=1)
            fired = np.stack([seen.sum(axis=1), 400 - accused.sum(axis=1)])  # both tails
            return np.max(lone_firings(frequent, rare, fired, 400, 0.05, 0.0))

        assert false_alarms(estimate, 0.0) > MOST

    def test_rates_instead_of_bounds(self):
        def estimate(seed):
            without, with_ = worlds(seed, 2000, mu_for(1))
            choose, test = np.sort(with_[:1000])[::-1], without[1000:]
            alpha = max(np.mean(test >= choose[2]), 1 / 1000)
            return float(epsilon_of(alpha, np.mean(with_[1000:] < choose[2]), DELTA))

        assert false_alarms(estimate, 1.0) > MOST

    def test_half_a_tie(self):
        """Counting "above" where the test says "at least" forgets the ties."""

        def estimate(seed):
            rng = np.random.default_rng(seed)
            without, with_ = rng.random(500) < 0.25, rng.random(500) < 0.75
            accused, missed = int(np.sum(without > 1)), int(np.sum(~with_))
            alpha, beta = upper_bound(accused, 500, 0.025), upper_bound(missed, 500, 0.025)
            return float(epsilon_of(alpha, beta, 0.0))

        assert false_alarms(estimate, math.log(3.0)) > MOST


@pytest.mark.parametrize(
    ("without", "with_", "options"),
    [
        ([0.0], [1.0, 2.0], {}),
        ([0.0, math.nan], [1.0, 2.0], {}),
        ([[0.0, 1.0]], [1.0, 2.0], {}),
        ([0.0, 1.0], [1.0, 2.0], {"strategy": "best"}),
        ([0.0, 1.0], [1.0, 2.0], {"confidence": 1.0}),
        ([0.0, 1.0], [1.0, 2.0], {"delta": 1.0}),
    ],
)
def test_nonsense_is_refused(without, with_, options):
    with pytest.raises(InputError):
        two_worlds(without, with_, **{"delta": DELTA, **options})
