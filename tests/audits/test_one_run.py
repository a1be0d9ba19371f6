"""One run: the theorem against every small mechanism, known answers, false alarms, power."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.audits import one_run
from privet.audits.one_run import SHARES, Guesses, guess, guessed, least_epsilon, tail
from privet.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from estimating import DELTA, MOST, canaries, false_alarms, most_correct, mu_for

FIXED = settings(derandomize=True, deadline=None, max_examples=80)


def binomial_tail(r, v, epsilon):
    return stats.binom.sf(v - 1, r, 1 / (1 + math.exp(-epsilon)))


class TestTheorem:
    @pytest.mark.parametrize(("m", "r"), [(1, 1), (2, 2), (3, 3), (2, 1), (3, 2)])
    @pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
    @pytest.mark.parametrize("delta", [0.0, 0.01, 0.1])
    def test_no_mechanism_exceeds_it(self, m, r, epsilon, delta):
        """All (eps, delta)-DP mechanisms on up to three coins, by linear programming."""
        for v in range(1, r + 1):
            best = most_correct(m, r, v, [(epsilon, delta)])
            assert best <= tail(Guesses(m, r, v), epsilon, delta) + 1e-8

    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_randomised_response_attains_it(self, epsilon):
        """Every outcome of randomised response on four coins, added up by hand."""
        q = 1 / (1 + math.exp(-epsilon))
        for v in range(1, 5):
            exact = sum(
                q ** sum(right) * (1 - q) ** (4 - sum(right))
                for right in itertools.product((0, 1), repeat=4)
                if sum(right) >= v
            )
            assert tail(Guesses(4, 4, v), epsilon, 0.0) == pytest.approx(exact, rel=1e-12)

    def test_it_is_near_what_can_be_done(self):
        """Three coins, eps = 1, delta = 0.02, all guessed right: the best mechanism is close."""
        best = most_correct(3, 3, 3, [(1.0, 0.02)])
        bound = tail(Guesses(3, 3, 3), 1.0, 0.02)
        assert binomial_tail(3, 3, 1.0) < best <= bound + 1e-9
        assert bound - best < 0.3 * (bound - binomial_tail(3, 3, 1.0))

    def test_a_term_too_small_is_caught(self):
        """Half of m delta in the theorem would be exceeded by a mechanism."""
        half = tail(Guesses(3, 3, 3), 1.0, 0.02 / 2)
        assert most_correct(3, 3, 3, [(1.0, 0.02)]) > half

    @given(st.integers(1, 400), st.data(), st.floats(0.0, 6.0), st.floats(-8.0, -3.0))
    @FIXED
    def test_it_is_not_above_the_papers(self, m, data, epsilon, exponent):
        """P[B >= v] + 2 m delta max_i P[v > B >= v - i]/i, wherever that is below a half."""
        r = data.draw(st.integers(1, m))
        v, delta = data.draw(st.integers(1, r)), 10.0**exponent
        q, i = 1 / (1 + math.exp(-epsilon)), np.arange(1, v + 1)
        upper = stats.binom.sf(v - 1, r, q)
        slope = np.max((stats.binom.sf(v - i - 1, r, q) - upper) / i)
        papers = upper + 2 * m * delta * slope
        if papers < 0.5:
            assert upper * (1 - 1e-9) <= tail(Guesses(m, r, v), epsilon, delta) <= papers + 1e-12

    def test_far_out_nothing_underflows(self):
        """10,000 correct guesses of 10,000 against eps = 0: 2^-10000, and a term in delta."""
        found = tail(Guesses(10_000, 10_000, 10_000), 0.0, 1e-5)
        assert found == pytest.approx(1e-5, rel=1e-9)  # m delta / v, as the ratio is 1


class TestInversion:
    @pytest.mark.parametrize(
        ("m", "r", "v", "pure", "approximate"),
        [
            (5000, 250, 248, 3.6648883581252596, 3.604707918621064),
            (5000, 500, 492, 3.5223244399251725, 3.497925404677679),
            (1000, 1000, 760, 1.0290515361202064, 1.0287443956246465),
            (100, 20, 20, 1.822715468913766, 1.819596907485671),
        ],
    )
    def test_against_jax_privacy(self, m, r, v, pure, approximate):
        """jax-privacy 2.0.0, _epsilon_one_run(0, m, r, v, 0.05, delta): equal, then not below."""
        guesses = Guesses(m, r, v)
        assert least_epsilon(guesses, 0.0, 0.05) == pytest.approx(pure, abs=3e-6)
        assert approximate - 3e-6 <= least_epsilon(guesses, 1e-5, 0.05) <= pure + 3e-6

    def test_all_correct_by_hand(self):
        """20 of 20: q^20 = 0.05."""
        q = 0.05 ** (1 / 20)
        found = least_epsilon(Guesses(20, 20, 20), 0.0, 0.05)
        assert found == pytest.approx(math.log(q / (1 - q)), rel=1e-8)

    @given(st.integers(2, 200), st.data(), st.sampled_from([0.0, 1e-6, 1e-3]))
    @FIXED
    def test_one_more_correct_never_shows_less(self, r, data, delta):
        v = data.draw(st.integers(0, r - 1))
        few, many = (least_epsilon(Guesses(r, r, v + i), delta, 0.05) for i in (0, 1))
        assert few <= many + 1e-9

    def test_blind_guesses_show_nothing(self):
        assert least_epsilon(Guesses(1000, 1000, 500), 1e-5, 0.05) == 0.0


class TestGuessing:
    def test_highest_in_lowest_out(self):
        scores = np.array([3.0, -2.0, 0.1, 2.0, -3.0, 0.0])
        coins = np.array([True, False, True, False, False, True])
        assert guess(scores, coins, 4 / 6, 0.5) == Guesses(6, 4, 3)
        assert guess(scores, coins, 2 / 6, 1.0) == Guesses(6, 2, 1)
        assert guess(scores, coins, 2 / 6, 0.0) == Guesses(6, 2, 2)

    def test_ties_know_nothing_of_the_coins(self):
        coins = np.random.default_rng(0).random(4000) < 0.5
        found = guess(np.zeros(4000), coins, 1.0, 0.5)
        assert abs(found.correct - 2000) < 4 * math.sqrt(1000)


class TestOneRun:
    def test_the_ideal_audit_gives_three_and_a_half(self):
        """5,000 canaries, eps = 8: known to be about 3.6 with 250 guesses."""
        mu = mu_for(8)
        found = [
            one_run(*canaries(seed, 5000, mu), delta=DELTA, shares=(0.05,)).epsilon
            for seed in range(20)
        ]
        assert 3.45 < np.mean(found) < 4.0

    @pytest.mark.parametrize(
        ("options", "least"), [({"strategy": "bonferroni"}, 3.2), ({"strategy": "split"}, 2.9)]
    )
    def test_the_number_of_guesses_need_not_be_known(self, options, least):
        mu = mu_for(8)
        found = [
            one_run(*canaries(seed, 5000, mu), delta=DELTA, **options).epsilon for seed in range(20)
        ]
        assert least < np.mean(found)

    @pytest.mark.parametrize("strategy", ["bonferroni", "split"])
    def test_false_alarms(self, strategy):
        """Randomised response, for which the theorem is tight: nothing is left but the level."""
        truth = math.log(3.0)

        def estimate(seed):
            rng = np.random.default_rng(seed)
            coins = rng.random(400) < 0.5
            told = np.where(rng.random(400) < 0.75, coins, ~coins)
            return one_run(told, coins, delta=0.0, strategy=strategy).epsilon

        assert false_alarms(estimate, truth) <= MOST

    def test_the_best_share_without_its_price_is_caught(self):
        """The largest of many bounds, each at the full level."""
        truth = math.log(3.0)

        def estimate(seed):
            rng = np.random.default_rng(seed)
            coins = rng.random(400) < 0.5
            told = np.where(rng.random(400) < 0.75, coins, ~coins) + 1e-3 * rng.random(400)
            trials = [guess(told, coins, share, 0.5) for share in np.linspace(0.05, 1.0, 40)]
            return max(least_epsilon(trial, 0.0, 0.05) for trial in trials)

        assert false_alarms(estimate, truth) > MOST

    def test_canaries_that_choose_do_not_test(self):
        scores, coins = canaries(0, 1001, 2.0)
        (trial,) = guessed(scores, coins, SHARES, "split", 0.5, 0)
        assert trial.canaries == 501

    def test_shares_cost_what_they_should(self):
        """Two shares at 0.95 are each tested at 0.975."""
        scores, coins = canaries(0, 2000, 2.0)
        both = one_run(scores, coins, delta=DELTA, shares=(0.1, 0.3)).epsilon
        alone = [
            one_run(scores, coins, delta=DELTA, shares=(s,), confidence=0.975).epsilon
            for s in (0.1, 0.3)
        ]
        assert both == pytest.approx(max(alone), rel=1e-9)


@pytest.mark.parametrize(
    ("scores", "coins", "options"),
    [
        ([1.0], [True], {}),
        ([1.0, 2.0], [True], {}),
        ([1.0, math.nan], [True, False], {}),
        ([1.0, 2.0], [0, 2], {}),
        ([1.0, 2.0], [0, 1], {"shares": ()}),
        ([1.0, 2.0], [0, 1], {"shares": (0.0,)}),
        ([1.0, 2.0], [0, 1], {"balance": 2.0}),
        ([1.0, 2.0], [0, 1], {"strategy": "best"}),
        ([1.0, 2.0], [0, 1], {"confidence": 0.1}),
    ],
)
def test_nonsense_is_refused(scores, coins, options):
    with pytest.raises(InputError):
        one_run(scores, coins, **{"delta": DELTA, **options})


def test_more_correct_than_made_is_refused():
    with pytest.raises(InputError, match="correct"):
        Guesses(10, 5, 6)
