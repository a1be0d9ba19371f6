"""Trade-off functions against closed forms, brute force and simulated attacks."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privet.errors import InputError
from privet.privacy.tradeoff import (
    Gaussian,
    Laplace,
    Numerical,
    Stated,
    TradeOff,
    compose,
    poisson_subsampled,
    self_compose,
)

FIXED = settings(derandomize=True, deadline=None, max_examples=60)
ALPHAS = np.linspace(0.0, 1.0, 201)


@pytest.fixture(scope="module")
def sampled() -> TradeOff:
    """Ten Gaussian steps of multiplier 1 on a 10 % Poisson sample."""
    return self_compose(poisson_subsampled(1.0, 0.1), 10)


@pytest.fixture(scope="module")
def gaussian_through_grid() -> TradeOff:
    """Nine releases of 1/3-GDP, held as a privacy loss distribution; the truth is 1-GDP."""
    return Numerical(Gaussian(1 / 3).pld().self_compose(9))


@pytest.fixture(params=["gaussian", "laplace", "sampled", "gaussian_through_grid", "mixed"])
def any_tradeoff(request, sampled, gaussian_through_grid) -> TradeOff:
    return {
        "gaussian": Gaussian(0.8),
        "laplace": Laplace(1.5),
        "sampled": sampled,
        "gaussian_through_grid": gaussian_through_grid,
        "mixed": compose([Laplace(0.5), Gaussian(0.5)]),
    }[request.param]


def betas(f: TradeOff, alphas=ALPHAS) -> np.ndarray:
    return np.array([f.beta(float(a)) for a in alphas])


def laplace_hockey_stick(shift: float, epsilon: float) -> float:
    """Divergence of Lap(0, 1) from Lap(shift, 1) at any real epsilon, by quadrature."""

    def gap(x: float) -> float:
        return max(0.0, math.exp(-abs(x)) / 2 - math.exp(epsilon - abs(x - shift)) / 2)

    crossing = min(max((shift - epsilon) / 2, 0.0), shift)
    return integrate.quad(gap, -40, 40 + shift, points=[0.0, crossing, shift], limit=500)[0]


def laplace_expectation(shift: float, g, points=()) -> float:
    """E[g(privacy loss)] for Lap(0, 1) against Lap(shift, 1): two atoms and a density."""
    middle, _ = integrate.quad(
        lambda x: math.exp(-x) / 2 * g(shift - 2 * x),
        0.0,
        shift,
        points=[p for p in points if 0 < p < shift] or None,
        limit=500,
    )
    return g(shift) / 2 + math.exp(-shift) / 2 * g(-shift) + middle


def laplace_delta(shift: float, epsilon: float) -> float:
    """The same in closed form; the middle branch is the textbook's."""
    if epsilon >= shift:
        return 0.0
    if epsilon <= -shift:
        return -math.expm1(epsilon)
    return -math.expm1((epsilon - shift) / 2)


def two_laplaces_delta(first: float, second: float, epsilon: float) -> float:
    kinks = [(second - epsilon + sign * first) / 2 for sign in (-1, 1)]
    return laplace_expectation(second, lambda loss: laplace_delta(first, epsilon - loss), kinks)


def neyman_pearson(p: np.ndarray, q: np.ndarray, probability: float) -> float:
    """The least q-mass of an event of p-mass `probability`, by sorting cells."""
    order = np.argsort(q / p)
    mass = np.concatenate([[0.0], np.cumsum(p[order])])
    return float(np.interp(probability, mass, np.concatenate([[0.0], np.cumsum(q[order])])))


class TestShape:
    def test_starts_at_one_and_ends_at_zero(self, any_tradeoff):
        assert any_tradeoff.beta(0.0) == pytest.approx(1.0, abs=1e-9)
        assert any_tradeoff.beta(1.0) == pytest.approx(0.0, abs=1e-12)

    def test_non_increasing_convex_and_below_guessing(self, any_tradeoff):
        f = betas(any_tradeoff)
        assert np.all(np.diff(f) <= 1e-12)
        assert np.all(np.diff(f, 2) >= -1e-9)
        assert np.all(f <= 1 - ALPHAS + 1e-12)

    def test_strictly_below_guessing_inside(self, any_tradeoff):
        assert any_tradeoff.beta(0.5) < 0.45

    @given(st.floats(0.05, 4), st.floats(0.001, 0.999))
    @FIXED
    def test_closed_forms_are_their_own_inverse(self, size, alpha):
        for f in (Gaussian(size), Laplace(size)):
            assert f.beta(f.beta(alpha)) == pytest.approx(alpha, rel=1e-6)

    @given(st.floats(0.05, 4), st.floats(1.01, 2), st.floats(0.01, 0.99))
    @FIXED
    def test_a_larger_shift_is_easier_to_see(self, size, factor, alpha):
        for kind in (Gaussian, Laplace):
            assert kind(size * factor).beta(alpha) < kind(size).beta(alpha)

    @pytest.mark.parametrize("kind", [Gaussian, Laplace])
    @pytest.mark.parametrize("shift", [0.0, -1.0, math.inf, math.nan])
    def test_meaningless_shift_is_refused(self, kind, shift):
        with pytest.raises(InputError):
            kind(shift)


class TestGaussian:
    @given(st.floats(0.01, 8), st.floats(1e-6, 1 - 1e-6))
    @FIXED
    def test_beta_is_the_best_normal_test(self, mu, alpha):
        truth = stats.norm.cdf(stats.norm.isf(alpha) - mu)
        assert Gaussian(mu).beta(alpha) == pytest.approx(truth, rel=1e-9)

    @pytest.mark.parametrize("alpha", [1e-30, 1e-17, 1e-15, 1e-12])
    def test_beta_keeps_small_alphas(self, alpha):
        truth = stats.norm.cdf(stats.norm.isf(alpha) - 10.0)
        assert Gaussian(10.0).beta(alpha) == pytest.approx(truth, rel=1e-9)

    @given(st.floats(0.05, 5), st.floats(0.0, 8))
    @FIXED
    def test_delta_by_quadrature(self, mu, epsilon):
        split = epsilon / mu + mu / 2  # the likelihood ratio passes e^epsilon here
        truth, _ = integrate.quad(
            lambda x: stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x),
            split,
            max(split, mu) + 12,
            points=[split + 1.0],
            epsabs=1e-14,
        )
        assert Gaussian(mu).delta(epsilon) == pytest.approx(truth, rel=1e-6, abs=1e-13)

    @given(st.floats(0.01, 6), st.floats(-12, -1))
    @FIXED
    def test_epsilon_inverts_delta_and_rounds_up(self, mu, exponent):
        f, delta = Gaussian(mu), 10.0**exponent
        epsilon = f.epsilon(delta)
        assert f.delta(epsilon) <= delta
        if epsilon > 0:
            assert f.delta(epsilon * (1 - 1e-6)) > delta

    def test_is_never_pure(self):
        assert Gaussian(1.0).epsilon(0.0) == math.inf
        assert Gaussian(1e-3).epsilon(0.0) == math.inf

    def test_known_values(self):
        # Balle and Wang (2018): at mu = 1, delta(1) = Phi(-1/2) - e Phi(-3/2).
        assert Gaussian(1.0).delta(1.0) == pytest.approx(0.126936737507, rel=1e-9)
        assert Gaussian(1.0).delta(0.0) == pytest.approx(0.382924922548, rel=1e-9)  # 2 Phi(1/2) - 1
        assert Gaussian(1.0).beta(0.05) == pytest.approx(0.740488992, rel=1e-6)


class TestLaplace:
    @given(st.floats(0.05, 5), st.floats(0.0, 6))
    @FIXED
    def test_delta_by_quadrature(self, shift, epsilon):
        truth = laplace_hockey_stick(shift, epsilon)
        assert Laplace(shift).delta(epsilon) == pytest.approx(truth, abs=1e-7)

    @given(st.floats(0.05, 5), st.floats(1e-9, 0.5))
    @FIXED
    def test_epsilon_inverts_delta(self, shift, delta):
        f = Laplace(shift)
        epsilon = f.epsilon(delta)
        assert f.delta(epsilon) <= delta * (1 + 1e-6)
        if epsilon > 1e-3:
            assert f.delta(epsilon - 1e-3) > delta

    def test_is_pure_at_its_shift(self):
        assert Laplace(1.5).epsilon(0.0) == 1.5
        assert Laplace(1.5).delta(1.5) == 0.0
        assert Laplace(1.5).delta(1.5 - 1e-9) > 0.0
        assert Laplace(1.5).epsilon(1.0) == 0.0

    @given(st.floats(0.05, 5), st.floats(1e-9, 1 - 1e-9))
    @FIXED
    def test_beta_is_the_best_threshold_test(self, shift, alpha):
        truth = stats.laplace.cdf(stats.laplace.isf(alpha) - shift)
        assert Laplace(shift).beta(alpha) == pytest.approx(truth, rel=1e-7)

    @pytest.mark.parametrize("parts", [(0.5, 0.5), (1.0, 0.2), (2.0, 2.0), (0.1, 3.0)])
    def test_one_coordinate_dominates_two_of_the_same_l1_shift(self, parts):
        total = Laplace(sum(parts))
        for epsilon in np.linspace(0, sum(parts), 23):
            assert two_laplaces_delta(*parts, epsilon) <= total.delta(epsilon) + 1e-9


class TestDuality:
    def test_delta_from_beta(self, any_tradeoff):
        """delta(eps) = sup_alpha 1 - f(alpha) - e^eps alpha (Dong et al., Proposition 5)."""
        alphas = np.concatenate([np.geomspace(1e-9, 1e-2, 2000), np.linspace(0.01, 1, 3000)])
        f = betas(any_tradeoff, alphas)
        for epsilon in (0.0, 0.3, 1.0, 1.4):
            dual = float(np.max(1 - f - math.exp(epsilon) * alphas))
            assert dual == pytest.approx(any_tradeoff.delta(epsilon), abs=2e-4)

    def test_beta_from_delta(self, any_tradeoff):
        """f(alpha) = sup_eps max(1 - delta - e^eps alpha, e^-eps (1 - delta - alpha))."""
        epsilons = np.linspace(0, 12, 1500)
        deltas = np.array([any_tradeoff.delta(float(e)) for e in epsilons])
        for alpha in (0.01, 0.1, 0.3, 0.7):
            lines = np.maximum(
                1 - deltas - np.exp(epsilons) * alpha, np.exp(-epsilons) * (1 - deltas - alpha)
            )
            assert max(0.0, lines.max()) == pytest.approx(any_tradeoff.beta(alpha), abs=5e-4)


class TestNumerical:
    def test_beta_is_a_close_lower_bound_of_the_truth(self, gaussian_through_grid):
        truth = stats.norm.cdf(stats.norm.isf(ALPHAS[1:-1]) - 1.0)
        found = betas(gaussian_through_grid, ALPHAS[1:-1])
        assert np.all(found <= truth + 1e-12)
        assert np.all(found >= truth - 1e-3)

    @pytest.mark.parametrize(("mu", "count"), [(0.05, 400), (0.5, 16), (2.0, 4), (0.01, 2500)])
    def test_composed_gaussian_errs_only_upwards(self, mu, count):
        found = Numerical(Gaussian(mu).pld().self_compose(count))
        truth = Gaussian(mu * math.sqrt(count))
        for delta in (1e-8, 1e-5, 1e-3):
            exact = truth.epsilon(delta) / (1 + 1e-9)
            assert exact * (1 - 1e-9) <= found.epsilon(delta) <= exact * 1.001 + 2e-4
        for epsilon in (0.1, 1.0, 2.0):
            assert found.delta(epsilon) >= truth.delta(epsilon) * (1 - 1e-9)

    @pytest.mark.parametrize(("first", "second"), [(0.5, 0.5), (1.0, 0.3), (2.0, 1.0)])
    def test_two_laplaces_by_brute_force(self, first, second):
        found = compose([Laplace(first), Laplace(second)])
        for epsilon in np.linspace(0.0, 0.95 * (first + second), 12):
            truth = two_laplaces_delta(first, second, float(epsilon))
            assert truth * (1 - 1e-7) <= found.delta(float(epsilon)) <= truth * 1.001 + 1e-9

    def test_three_laplaces_by_brute_force(self):
        found = self_compose(Laplace(0.7), 3)
        for epsilon in (0.1, 0.6, 1.2, 1.8):
            truth = laplace_expectation(
                0.7, lambda loss, e=epsilon: two_laplaces_delta(0.7, 0.7, e - loss)
            )
            assert truth * (1 - 1e-6) <= found.delta(epsilon) <= truth * 1.001

    def test_laplace_with_gaussian_by_brute_force(self):
        def gaussian_delta(mu, e):  # any real e
            tail = stats.norm.sf
            return tail(e / mu - mu / 2) - math.exp(e) * tail(e / mu + mu / 2)

        found = compose([Laplace(0.5), Gaussian(0.8)])
        for epsilon in (0.1, 0.8, 1.5, 3.0):
            truth = laplace_expectation(0.5, lambda loss, e=epsilon: gaussian_delta(0.8, e - loss))
            assert truth * (1 - 1e-7) <= found.delta(epsilon) <= truth * 1.001

    def test_parts_meet_on_the_grid_that_was_asked_for(self):
        coarse = poisson_subsampled(2.0, 0.1, interval=1e-3)
        fine = compose([Laplace(0.5), Gaussian(0.5), poisson_subsampled(2.0, 0.1)])
        mixed = compose([Laplace(0.5), Gaussian(0.5), coarse], interval=1e-3)
        assert fine.epsilon(1e-5) <= mixed.epsilon(1e-5) <= fine.epsilon(1e-5) + 1e-3


class TestComposition:
    @given(st.lists(st.floats(0.01, 3), min_size=1, max_size=6))
    @FIXED
    def test_gaussians_add_in_squares(self, mus):
        whole = compose([Gaussian(mu) for mu in mus])
        assert isinstance(whole, Gaussian)
        assert whole.mu == pytest.approx(math.sqrt(sum(mu * mu for mu in mus)))

    def test_repeating_is_composing(self):
        repeated = self_compose(Laplace(0.4), 3)
        composed = compose([Laplace(0.4)] * 3)
        for epsilon in (0.0, 0.3, 0.9):
            assert repeated.delta(epsilon) == pytest.approx(composed.delta(epsilon), rel=1e-6)
        assert self_compose(Gaussian(0.5), 4) == Gaussian(1.0)

    def test_one_part_is_itself(self):
        assert compose([Laplace(0.3)]) == Laplace(0.3)
        assert self_compose(Laplace(0.3), 1) == Laplace(0.3)

    def test_more_is_never_more_private(self, sampled):
        more = compose([sampled, Laplace(0.2)])
        assert more.epsilon(1e-5) > sampled.epsilon(1e-5)
        assert np.all(betas(more) <= betas(sampled) + 1e-6)

    def test_nothing_and_no_times_are_refused(self):
        with pytest.raises(InputError, match="nothing to compose"):
            compose([])
        with pytest.raises(InputError, match="repetitions"):
            self_compose(Gaussian(1.0), 0)


class TestShifted:
    @given(st.floats(0.05, 4), st.floats(0.001, 0.999))
    @FIXED
    def test_gaussian_is_cohens_formula(self, mu, p):
        cohen = stats.norm.cdf(stats.norm.ppf(p) - mu)
        assert Gaussian(mu).shifted(p) == pytest.approx(cohen, rel=1e-8)

    @pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.77, 0.99])
    @pytest.mark.parametrize("shift", [0.3, 1.0, 2.5])
    def test_brute_force_over_cells(self, shift, p):
        # Midpoints, not distribution functions: differences of those cancel in the tails, and
        # the ratio of a cell must be right to be sorted. The step divides every shift.
        x = np.arange(-40.0, 45.0, 1e-3) + 5e-4
        for f, family in ((Laplace(shift), stats.laplace), (Gaussian(shift), stats.norm)):
            p_cells, q_cells = family.pdf(x) * 1e-3, family.pdf(x, shift) * 1e-3
            kept = p_cells > 1e-300
            least = neyman_pearson(p_cells[kept], q_cells[kept], p)
            assert f.shifted(p) == pytest.approx(least, abs=1e-5)

    def test_certain_and_impossible_events(self):
        assert Gaussian(1.0).shifted(0.0) == 0.0
        assert Gaussian(1.0).shifted(1.0) == 1.0


class TestAttacks:
    """Simulated attacks. By Dvoretzky-Kiefer-Wolfowitz both empirical error rates are, at all
    thresholds at once, within `SLACK` of the truth except with probability 2e-6."""

    N = 200_000
    SLACK = math.sqrt(math.log(2 / 1e-6) / (2 * N))

    def beats(self, claimed: TradeOff, under_null, under_alternative) -> bool:
        """Whether some threshold on a score refutes `claimed` beyond doubt."""
        null, alternative = np.sort(under_null), np.sort(under_alternative)
        for t in np.quantile(alternative, np.linspace(0.001, 0.999, 200)):
            alpha = 1 - np.searchsorted(null, t, side="right") / self.N
            missed = np.searchsorted(alternative, t, side="right") / self.N
            if missed + self.SLACK < claimed.beta(min(1.0, alpha + self.SLACK)):
                return True
        return False

    def sampled_scores(self, rate: float, z: float, steps: int, *, member: bool) -> np.ndarray:
        """Log-likelihood ratios of the whole transcript: the best score there is."""
        rng = np.random.default_rng(20 + member)
        scores = np.zeros(self.N)
        for _ in range(steps):
            x = rng.normal(size=self.N)
            if member:
                x += (rng.random(self.N) < rate) / z
            scores += np.log1p(rate * np.expm1(x / z - 0.5 / z**2))
        return scores

    @pytest.mark.parametrize(("name", "mechanism"), [("normal", Gaussian), ("laplace", Laplace)])
    def test_no_threshold_beats_the_closed_form_and_a_smaller_shift_is_caught(
        self, name, mechanism
    ):
        rng = np.random.default_rng(7)
        null, alternative = getattr(rng, name)(size=self.N), getattr(rng, name)(1.0, size=self.N)
        assert not self.beats(mechanism(1.0), null, alternative)
        assert self.beats(mechanism(0.9), null, alternative)

    def test_no_threshold_beats_the_sampled_composition(self):
        null, member = (self.sampled_scores(0.1, 1.0, 10, member=m) for m in (False, True))
        claimed = self_compose(poisson_subsampled(1.0, 0.1), 10)
        assert not self.beats(claimed, null, member)
        assert not self.beats(claimed, -member, -null)

    @pytest.mark.parametrize(
        ("rate", "z", "steps"), [(0.05, 1.0, 10), (0.1, 1.3, 10), (0.1, 1.0, 5)]
    )
    def test_wrong_accounts_of_the_sampled_composition_are_caught(self, rate, z, steps):
        null, member = (self.sampled_scores(0.1, 1.0, 10, member=m) for m in (False, True))
        wrong = self_compose(poisson_subsampled(z, rate), steps)
        assert self.beats(wrong, null, member) or self.beats(wrong, -member, -null)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (0.7, 0.0), (1.0, 1e-3), (3.0, 0.05)])
def test_a_statement_against_its_own_duality_and_dp_accounting(epsilon, delta):
    f = Stated(epsilon, delta)
    oracle = Numerical(f.pld())
    for e in (0.0, 0.3, 0.7, 2.0):
        # delta(e) = sup over alpha of 1 - e^e alpha - f(alpha), on a grid with the kinks.
        alphas = [*np.linspace(0, 1, 4001), (1 - delta) / (1 + math.exp(epsilon))]
        dual = max(1 - math.exp(e) * a - f.beta(a) for a in alphas)
        assert f.delta(e) == pytest.approx(max(dual, 0.0), abs=1e-9)
        assert f.delta(e) == pytest.approx(oracle.delta(e), abs=2e-4)
    for d in (delta, 0.2, 0.5):
        found = f.epsilon(d)
        assert f.delta(found) <= d + 1e-12
        assert found == 0.0 or f.delta(found - 1e-3) > d
    assert f.epsilon(delta / 2) == math.inf or delta == 0
    assert all(f.beta(f.beta(a)) <= a + 1e-12 for a in np.linspace(0, 1, 50))  # symmetric


@FIXED
@given(st.floats(0.01, 5.0), st.floats(1e-8, 0.3), st.floats(0.0, 6.0))
def test_a_bare_claim_has_the_profile_of_dp_accounting(epsilon, delta, at):
    claim = Stated(epsilon, delta)
    oracle = claim.pld(interval=1e-4)
    # Pessimistic on its grid: at most a grid step above.
    low, high = (oracle.get_delta_for_epsilon(at + d) for d in (2e-4, 0.0))
    assert low - 1e-9 <= claim.delta(at) <= high + 1e-9


@FIXED
@given(st.floats(0.01, 5.0), st.floats(1e-8, 0.3), st.floats(0.0, 1.0))
def test_a_bare_claim_agrees_with_itself(epsilon, delta, alpha):
    claim = Stated(epsilon, delta)
    # f is the upper envelope of the lines of all (epsilon', delta(epsilon')).
    grid = np.linspace(0.0, epsilon, 400)
    deltas = np.array([claim.delta(e) for e in grid])
    rising = 1 - deltas - np.exp(grid) * alpha
    falling = np.exp(-grid) * (1 - deltas - alpha)
    assert claim.beta(alpha) == pytest.approx(max(0.0, rising.max(), falling.max()), abs=1e-12)
    assert claim.epsilon(claim.delta(epsilon / 2)) == pytest.approx(epsilon / 2, abs=1e-6)
    assert claim.epsilon(delta / 2) == math.inf
    assert claim.delta(epsilon + 1) == delta


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.0), (math.inf, 0.0), (1.0, 1.0)])
def test_a_statement_that_means_nothing_is_refused(epsilon, delta):
    with pytest.raises(InputError, match="bad privacy statement"):
        Stated(epsilon, delta)
