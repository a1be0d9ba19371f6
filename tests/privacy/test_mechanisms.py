"""HGM and MGM: the sound core of both, and why the covariance must be public.

Statistical tests have fixed keys; each would fail a correct implementation under a random key with
the probability it states."""

import math

import dp_accounting as dp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privet.errors import InputError
from privet.privacy.accounting import tradeoff_of
from privet.privacy.mechanisms import HGM, MGM
from privet.privacy.noise import GaussianNoise
from privet.privacy.randomness import SecretStream
from privet.privacy.tradeoff import Gaussian

FIXED = settings(derandomize=True, deadline=None, max_examples=50)
STREAM = SecretStream(bytes(range(32)))
DEVIATIONS = (0.5, 1.0, 4.0)
SIGMA = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])


def hgm(deviations=DEVIATIONS, *, clip_norm=1.0, multiplier=1.0, source="made up"):
    return HGM(deviations=deviations, clip_norm=clip_norm, multiplier=multiplier, source=source)


def mgm(covariance=SIGMA, *, clip_norm=1.0, multiplier=1.0, source="made up"):
    return MGM(covariance=covariance, clip_norm=clip_norm, multiplier=multiplier, source=source)


BOTH = [
    pytest.param(hgm, np.diag(np.square(DEVIATIONS)), id="hgm"),
    pytest.param(mgm, SIGMA, id="mgm"),
]


def mahalanobis(rows, covariance):
    """|Sigma^(-1/2) v| by the explicit inverse."""
    rows = np.asarray(rows)
    return np.sqrt(np.einsum("ni,ij,nj->n", rows, np.linalg.inv(covariance), rows))


def hockey_stick(log_p, log_q, epsilon, ends):
    """sup over events of P - exp(epsilon) Q, for densities on the line, by quadrature."""

    def gap(x):
        return max(0.0, math.exp(log_p(x)) - math.exp(epsilon + log_q(x)))

    return integrate.quad(gap, -ends, ends, points=[0.0], limit=2000)[0]


@pytest.mark.parametrize(("make", "covariance"), BOTH)
class TestClipping:
    rows = (
        torch.tensor(np.random.default_rng(0).normal(size=(200, 3)))
        * torch.linspace(0, 3, 200)[:, None]
    )

    def test_bounds_the_mahalanobis_norm_and_reaches_it(self, make, covariance):
        before = mahalanobis(self.rows, covariance)
        after = mahalanobis(make(clip_norm=0.7).clip(self.rows), covariance)
        assert np.all(after <= 0.7)
        long = before > 0.7
        assert 50 < long.sum() < 190
        assert np.all(after[long] > 0.7 * (1 - 2e-5))

    def test_short_rows_are_left_alone_and_directions_kept(self, make, covariance):
        clipped = make(clip_norm=0.7).clip(self.rows)
        short = mahalanobis(self.rows, covariance) < 0.699
        assert torch.equal(clipped[short], self.rows[short])
        cosine = torch.cosine_similarity(clipped, self.rows)[1:]  # the first row is zero
        assert torch.allclose(cosine, torch.ones_like(cosine))

    def test_a_row_that_is_not_finite_contributes_nothing(self, make, covariance):
        rows = torch.tensor([[1.0, math.nan, 0.0], [math.inf, 0.0, 0.0], [0.1, 0.1, 0.1]])
        clipped = make().clip(rows)
        assert torch.equal(clipped[:2], torch.zeros(2, 3, dtype=torch.float64))
        assert clipped[2, 0] > 0

    def test_another_size_is_refused(self, make, covariance):
        with pytest.raises(InputError, match="another size"):
            make().clip(torch.zeros(2, 4))
        with pytest.raises(InputError, match="another size"):
            make().add_to(torch.zeros(4), step=0, stream=STREAM)


@pytest.mark.parametrize(("make", "covariance"), BOTH)
class TestNoise:
    def test_has_the_stated_covariance(self, make, covariance):
        """Whitened by the explicit inverse root, n draws have a Wishart scatter: trace and log det
        are within 5.5 standard errors (error rate 1e-7)."""
        n, scale = 4000, 0.5 * 3.0
        noise = make(clip_norm=0.5, multiplier=3.0)
        total = torch.zeros(3, dtype=torch.float64)
        draws = np.stack([noise.add_to(total, step=t, stream=STREAM).numpy() for t in range(n)])
        white = np.linalg.solve(np.linalg.cholesky(covariance), draws.T) / scale
        scatter = white @ white.T / n
        assert abs(np.trace(scatter) - 3) < 5.5 * math.sqrt(2 * 3 / n)
        assert abs(np.linalg.slogdet(scatter)[1]) < 5.5 * math.sqrt(2 * 3 / n) + 10 / n
        wrong = white * np.array([[1.0], [1.0], [1.2]])  # one direction 20 % too wide is noticed
        assert abs(np.trace(wrong @ wrong.T / n) - 3) > 5.5 * math.sqrt(2 * 3 / n)

    def test_same_sum_same_output_in_double_precision(self, make, covariance):
        total = torch.ones(3, dtype=torch.float32)
        first, second = (make().add_to(total, step=1, stream=STREAM) for _ in range(2))
        assert first.dtype == torch.float64
        assert torch.equal(first, second)
        assert torch.equal(total, torch.ones(3))

    def test_is_bound_to_sum_step_scale_and_covariance(self, make, covariance):
        def z(total=0.0, step=0, **changes):
            noise = make(**changes)
            total = torch.full((3,), total, dtype=torch.float64)
            noisy = noise.add_to(total, step=step, stream=STREAM) - total
            return noise.whiten(noisy) / (noise.clip_norm * noise.multiplier)

        first = z()
        for changed in (z(total=1e-300), z(step=1), z(multiplier=2.0), z(clip_norm=2.0)):
            assert not torch.allclose(first, changed, atol=1e-3)

    def test_two_shapes_of_one_sum_get_unrelated_draws(self, make, covariance):
        """Else the pair would be solved for the draw, and the sum read off; error rate 4e-8."""
        size = 400
        total = torch.linspace(-1, 1, size, dtype=torch.float64)
        one = np.ones(size) if make is hgm else np.eye(size)
        a, b = (make(s).add_to(total, step=0, stream=STREAM) - total for s in (one, 2 * one))
        assert abs(np.corrcoef(a, b)[0, 1]) < 5.5 / math.sqrt(size)


class TestGuarantee:
    @pytest.mark.parametrize("make", [hgm, mgm])
    def test_clipped_sum_plus_noise_is_gaussian_dp(self, make):
        """By the multivariate densities themselves: the worst clipped v, against no v."""
        noise = make(clip_norm=0.8, multiplier=2.5)
        covariance = (0.8 * 2.5) ** 2 * (np.diag(np.square(DEVIATIONS)) if make is hgm else SIGMA)
        v = noise.clip(torch.tensor([[9.0, -2.0, 5.0]])).numpy()[0]
        # The loss log N(v)/N(0) is linear in the output: normal, with mean mu^2/2, variance mu^2.
        mean = float(v @ np.linalg.inv(covariance) @ v) / 2
        mu = noise.tradeoff.mu
        assert mu == pytest.approx(1 / 2.5)
        assert mean <= mu**2 / 2
        assert mean == pytest.approx(mu**2 / 2, rel=1e-4)

    @pytest.mark.parametrize("make", [hgm, mgm])
    def test_event_and_tradeoff_agree(self, make):
        noise = make(multiplier=1.7)
        assert noise.event == dp.GaussianDpEvent(1.7)
        assert tradeoff_of(noise.event) == noise.tradeoff == Gaussian(1 / 1.7)

    def test_l2_sensitivity_alone_pays_for_the_thinnest_direction(self):
        noise = HGM.for_l2(deviations=DEVIATIONS, sensitivity=2.0, source="made up")
        assert noise.tradeoff.mu == pytest.approx(2.0 / 0.5)
        assert noise.multiplier * noise.clip_norm == pytest.approx(1.0)  # the noise as it was given
        wide = MGM.for_l2(covariance=SIGMA, sensitivity=2.0, source="made up")
        assert wide.tradeoff.mu == pytest.approx(2.0 / math.sqrt(np.linalg.eigvalsh(SIGMA)[0]))

    @given(st.integers(0, 10_000))
    @FIXED
    def test_no_vector_of_that_length_exceeds_it_and_one_reaches_it(self, seed):
        rng = np.random.default_rng(seed)
        factor = rng.normal(size=(4, 4))
        covariance = factor @ factor.T + 0.1 * np.eye(4)
        covariance = (covariance + covariance.T) / 2
        mu = MGM.for_l2(covariance=covariance, sensitivity=1.5, source="made up").tradeoff.mu
        rows = rng.normal(size=(50, 4))
        rows *= 1.5 / np.linalg.norm(rows, axis=1, keepdims=True)
        assert np.all(mahalanobis(rows, covariance) <= mu)
        worst = 1.5 * np.linalg.eigh(covariance)[1][:, :1].T
        assert mahalanobis(worst, covariance)[0] == pytest.approx(mu, rel=1e-6)

    def test_diagonal_mgm_is_hgm_and_equal_deviations_are_plain_gaussian_noise(self):
        rows = torch.tensor(np.random.default_rng(1).normal(size=(20, 3)))
        diagonal = mgm(np.diag(np.square(DEVIATIONS)))
        assert torch.allclose(diagonal.whiten(rows), hgm().whiten(rows))
        plain = GaussianNoise(multiplier=2.0, sensitivity=3.0)
        same = HGM.for_l2(deviations=[6.0] * 3, sensitivity=3.0, source="made up")
        assert same.multiplier == pytest.approx(plain.multiplier)


class TestPublishedConditions:
    """SecureSGD and TransDenoiser measure the same norm as we do, and ask for more noise."""

    @staticmethod
    def published_norm(v, deviations):
        """|v-hat| / sigma with sigma^2 the mean variance and r_i the shares, as printed."""
        variances = np.square(deviations)
        shares = variances / variances.sum()
        v_hat = math.sqrt(np.sum(np.square(v) / (len(v) * shares)))
        return v_hat / math.sqrt(variances.mean())

    @given(st.integers(0, 10_000))
    @FIXED
    def test_the_published_norm_is_ours(self, seed):
        rng = np.random.default_rng(seed)
        deviations, v = rng.uniform(0.1, 5.0, size=6), rng.normal(size=6)
        ours = torch.linalg.vector_norm(hgm(deviations).whiten(torch.tensor(v)))
        assert self.published_norm(v, deviations) == pytest.approx(float(ours), rel=1e-12)

    @given(st.floats(0.01, 1.0), st.floats(-10, -2).map(lambda e: 10.0**e))
    @FIXED
    def test_the_classic_condition_is_looser_up_to_one(self, epsilon, delta):
        """mu = epsilon / sqrt(2 log(1.25/delta)) is what the condition allows."""
        mu = epsilon / math.sqrt(2 * math.log(1.25 / delta))
        assert Gaussian(mu).delta(epsilon) < delta

    def test_and_does_not_hold_above(self):
        mu = 10.0 / math.sqrt(2 * math.log(1.25 / 1e-5))
        assert Gaussian(mu).delta(10.0) > 1.5e-5

    @given(st.floats(0.05, 10.0), st.floats(-10, -2).map(lambda e: 10.0**e))
    @FIXED
    def test_securesgds_extended_condition_is_looser_everywhere(self, epsilon, delta):
        """sigma = sqrt(2) Delta (sqrt(s) + sqrt(s + epsilon)) / (2 epsilon), any epsilon."""
        s = math.log(math.sqrt(2 / math.pi) / delta)
        sigma = math.sqrt(2) * (math.sqrt(s) + math.sqrt(s + epsilon)) / (2 * epsilon)
        assert Gaussian(1 / sigma).delta(epsilon) < delta


class TestWhyPublic:
    """The flaw of a covariance computed from the batch, in one dimension."""

    @staticmethod
    def loss(x, s):
        return float(stats.norm(0, s).logpdf(x) - stats.norm(0, 1).logpdf(x))

    def test_equal_means_are_told_apart_by_the_noise_itself(self):
        """S_min says mu = 0, perfect privacy; the truth at epsilon = 1 is far from it."""
        for s, least in ((0.2, 0.25), (0.1, 0.54), (0.01, 0.92)):
            true = hockey_stick(stats.norm(0, s).logpdf, stats.norm(0, 1).logpdf, 1.0, 12 * s)
            assert true > least
        assert Gaussian(1e-9).delta(1.0) == 0.0  # what the published formula promises here

    def test_the_log_det_term_grows_without_bound(self):
        for s in (1e-1, 1e-3, 1e-6):
            assert self.loss(0.0, s) == pytest.approx(math.log(1 / s))

    def test_and_so_does_the_quadratic_term(self):
        assert self.loss(10.0, 2.0) == pytest.approx(10**2 * 3 / 8 - math.log(2))

    def test_a_constant_deviation_has_neither(self):
        """The same pair with one public deviation: delta(1) is that of the Gaussian mechanism."""
        near = hockey_stick(stats.norm(0.3, 0.5).logpdf, stats.norm(0, 0.5).logpdf, 1.0, 6)
        exact = HGM.for_l2(deviations=[0.5], sensitivity=0.3, source="made up").tradeoff
        assert near == pytest.approx(exact.delta(1.0), rel=1e-6)

    def test_the_source_must_be_said(self):
        for make in (hgm, mgm):
            with pytest.raises(InputError, match="never one computed from the private records"):
                make(source=" ")
        assert "made up" in hgm().assumption

    def test_the_shape_cannot_follow_the_data_afterwards(self):
        deviations, covariance = np.array(DEVIATIONS), SIGMA.copy()
        noise, wide = hgm(deviations), mgm(covariance)
        deviations[0], covariance[0, 0] = 1e-9, 99.0
        assert noise.deviations[0] == 0.5
        assert wide.covariance[0, 0] == 2.0
        for constant in (noise.deviations, wide.covariance):
            with pytest.raises(ValueError, match="read-only"):
                constant[...] = 1.0


class TestRefusals:
    @pytest.mark.parametrize("bad", [[], [[1.0]], [1.0, 0.0], [1.0, -1.0], [1.0, math.inf]])
    def test_bad_deviations(self, bad):
        with pytest.raises(InputError, match="deviations"):
            hgm(bad)

    @pytest.mark.parametrize(
        "bad",
        [
            np.ones((2, 3)),
            np.array([[1.0, 0.5], [0.4, 1.0]]),
            np.array([[1.0, 2.0], [2.0, 1.0]]),
            np.array([[1.0, 1.0], [1.0, 1.0]]),
            np.diag([1.0, 1e-13]),
            np.array([[math.nan]]),
        ],
        ids=["oblong", "skew", "indefinite", "singular", "nearly-singular", "nan"],
    )
    def test_what_is_no_covariance(self, bad):
        with pytest.raises(InputError, match="covariance"):
            mgm(bad)

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
    def test_meaningless_sizes(self, bad):
        for make in (hgm, mgm):
            with pytest.raises(InputError):
                make(clip_norm=bad)
            with pytest.raises(InputError):
                make(multiplier=bad)
