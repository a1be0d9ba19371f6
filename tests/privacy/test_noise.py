"""Noise of the stated size, bound to what it hides. Statistical tests have fixed keys; each
would fail a correct implementation under a random key with the probability it states."""

import hashlib
import math
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.errors import InputError
from privet.privacy import chacha
from privet.privacy import noise as room
from privet.privacy.noise import (
    GaussianNoise,
    LaplaceNoise,
    analytic_gaussian_multiplier,
    fingerprint,
    name_of,
    stays_on_device,
)
from privet.privacy.randomness import SecretStream
from privet.privacy.tags import secret_name

FIXED = settings(derandomize=True, deadline=None, max_examples=100)
STREAM = SecretStream(bytes(range(32)))
N = 40_000


def gaussian(total, *, multiplier=1.0, sensitivity=1.0, step=0, stream=STREAM):
    noise = GaussianNoise(multiplier=multiplier, sensitivity=sensitivity)
    return noise.add_to(total, step=step, stream=stream)


def on_device(total, **changes):
    """The draw of a long sum on a GPU, on CPU tensors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "stays_on_device", lambda values: True)
        return gaussian(total, **changes)


def laplace(total, *, scale=1.0, sensitivity=1.0, step=0, stream=STREAM):
    noise = LaplaceNoise(scale=scale, sensitivity=sensitivity)
    return noise.add_to(total, step=step, stream=stream)


def related(a, b) -> bool:
    """Whether two noise vectors have to do with each other: |correlation| above 5.5 sigma of
    independence (a false alarm has probability 4e-8)."""
    a, b = np.asarray(a).ravel(), np.asarray(b).ravel()
    return abs(np.corrcoef(a, b)[0, 1]) > 5.5 / math.sqrt(a.size)


class UnboundStream(SecretStream):
    """Planted bug: draws that forget what they are bound to."""

    def _subkey(self, purpose, step, context):
        return super()._subkey(purpose, step, b"")


class TestGaussian:
    @pytest.mark.parametrize(("multiplier", "sensitivity"), [(1.0, 1.0), (0.7, 3.0), (4.0, 0.01)])
    def test_standard_deviation_is_multiplier_times_sensitivity(self, multiplier, sensitivity):
        """Two-sided chi-square test, error rate 1e-6."""
        total = torch.linspace(-1, 1, N, dtype=torch.float64)
        noise = gaussian(total, multiplier=multiplier, sensitivity=sensitivity) - total
        statistic = float((noise**2).sum()) / (multiplier * sensitivity) ** 2
        assert stats.chi2.ppf(5e-7, N) < statistic < stats.chi2.isf(5e-7, N)

    @pytest.mark.parametrize("factor", [0.95, 1.05])
    def test_five_percent_off_would_be_caught(self, factor):
        noise = gaussian(torch.zeros(N), multiplier=factor)
        statistic = float((noise**2).sum())
        assert not stats.chi2.ppf(5e-7, N) < statistic < stats.chi2.isf(5e-7, N)

    def test_the_deviation_of_an_average_is_as_told(self):
        total = torch.zeros(4000)
        drawn = [gaussian(total, multiplier=2.0, sensitivity=3.0, step=step) for step in range(5)]
        told = GaussianNoise(multiplier=2.0, sensitivity=3.0).mean_deviation(5)
        assert float(torch.stack(drawn).mean(0).std()) == pytest.approx(told, rel=0.05)

    def test_is_normal_and_centred(self):
        """Kolmogorov-Smirnov, error rate 1e-6."""
        noise = gaussian(torch.zeros(N), multiplier=2.0).numpy() / 2.0
        assert stats.kstest(noise, "norm").pvalue > 1e-6

    def test_is_added_in_double_precision(self):
        total = torch.full((1000,), 2.0**24, dtype=torch.float32)
        noisy = gaussian(total)
        assert noisy.dtype == torch.float64
        assert len(torch.unique(noisy)) == 1000
        assert not torch.equal(noisy, noisy.float().double())

    def test_leaves_the_sum_alone(self):
        total = torch.ones(10)
        gaussian(total)
        assert torch.equal(total, torch.ones(10))

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
    def test_meaningless_sizes_are_refused(self, bad):
        for sizes in ((bad, 1.0), (1.0, bad)):
            with pytest.raises(InputError):
                GaussianNoise(multiplier=sizes[0], sensitivity=sizes[1])
            with pytest.raises(InputError):
                LaplaceNoise(scale=sizes[0], sensitivity=sizes[1])


class TestLaplace:
    @pytest.mark.parametrize(("scale", "sensitivity"), [(1.0, 1.0), (0.5, 4.0)])
    def test_distribution(self, scale, sensitivity):
        """Kolmogorov-Smirnov, error rate 1e-6; and it would notice 10 % less noise."""
        total = np.linspace(0, 9, N)
        noise = laplace(total, scale=scale, sensitivity=sensitivity) - total
        assert stats.kstest(noise / (scale * sensitivity), "laplace").pvalue > 1e-6
        assert stats.kstest(noise / (0.9 * scale * sensitivity), "laplace").pvalue < 1e-6

    def test_mean_absolute_value_is_the_scale(self):
        """|noise| / scale is exponential: its sum is gamma; error rate 1e-6."""
        total = np.abs(laplace(np.zeros(N), scale=3.0) / 3.0).sum()
        assert stats.gamma.ppf(5e-7, N) < total < stats.gamma.isf(5e-7, N)

    def test_keeps_the_shape(self):
        assert laplace(np.zeros((3, 5))).shape == (3, 5)

    @FIXED
    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.floats(1e-3, 1e3))
    def test_low_bits_tell_nothing(self, total, sensitivity):
        """Whatever the sum, what comes out are whole steps of a grid that does not hang on it."""
        noise = LaplaceNoise(scale=2.0, sensitivity=sensitivity)
        g = noise.step_for(len(total))
        steps = noise.add_to(np.array(total), step=0, stream=STREAM) / g
        assert np.array_equal(steps, np.rint(steps))
        assert g <= sensitivity / len(total) / 2**20
        assert math.frexp(g)[0] == 0.5

    def test_continuous_noise_would_tell(self):
        """The planted bug: of sums a third apart, each is seen in the low bits of its own."""
        draws = np.random.default_rng(0).laplace(size=1000)
        g = LaplaceNoise(scale=1.0, sensitivity=1.0).step_for(1)
        for total in (0.0, 1 / 3):
            steps = (total + draws) / g
            assert not np.array_equal(steps, np.rint(steps))

    @pytest.mark.parametrize("n", [1, 784, 100_000])
    def test_rounding_of_sums_is_paid_for(self, n, monkeypatch):
        """In steps, neighbours are up to S / g + n apart; the noise is for all of that."""
        drawn = {}

        def spy(size, *, spread, **rest):
            drawn["spread"] = spread
            return np.zeros(size, dtype=np.int64)

        monkeypatch.setattr(room, "rounded_laplace", spy)
        noise = LaplaceNoise(scale=10.0, sensitivity=3.0)
        noise.add_to(np.zeros(n), step=0, stream=STREAM)
        g = noise.step_for(n)
        assert drawn["spread"] > 10.0 * (3.0 / g + n)
        assert drawn["spread"] * g < 30.0 * (1 + 3e-6)
        # The worst that rounding does: two sums on either side of every boundary.
        a, b = np.full(n, 0.49999 * g), np.full(n, 0.50001 * g + 3.0 / n)
        assert np.abs(np.rint(a / g) - np.rint(b / g)).sum() <= 3.0 / g + n

    def test_a_far_draw_is_added_before_it_is_rounded(self, monkeypatch):
        """Beyond 2^53 steps doubles have gaps: the sum alone may decide which one it is."""
        far = 2**54 + 1  # itself no double
        monkeypatch.setattr(
            room, "rounded_laplace", lambda n, **rest: np.full(n, far, dtype=np.int64)
        )
        g = LaplaceNoise(scale=1.0, sensitivity=1.0).step_for(1)
        for steps in range(8):
            assert laplace(np.array([steps * g]))[0] == float(far + steps) * g

    def test_a_huge_sum_is_cut_off_and_stays_finite(self):
        g = LaplaceNoise(scale=1.0, sensitivity=1.0).step_for(1)
        assert laplace(np.array([1e300]))[0] == pytest.approx(2.0**52 * g, rel=1e-6)


KINDS = [
    pytest.param(lambda x, **k: gaussian(torch.from_numpy(x), **k).numpy(), id="gaussian"),
    pytest.param(laplace, id="laplace"),
    pytest.param(lambda x, **k: on_device(torch.from_numpy(x), **k).numpy(), id="on a device"),
]


@pytest.mark.parametrize("release", KINDS)
class TestBinding:
    total = np.linspace(-1.0, 1.0, 4096)

    def noises_of_neighbours(self, release, stream):
        """Apart by the least difference there is, to Laplace noise a step of its grid."""
        other = self.total.copy()
        step = LaplaceNoise(scale=1.0, sensitivity=1.0).step_for(len(other))
        other[7] = other[7] + step if release is laplace else np.nextafter(other[7], 2.0)
        return tuple(release(x, stream=stream) - x for x in (self.total, other))

    def test_same_sum_same_output(self, release):
        assert np.array_equal(release(self.total), release(self.total.copy()))

    def test_another_sum_meets_unrelated_noise(self, release):
        assert not related(*self.noises_of_neighbours(release, STREAM))

    def test_noise_that_forgets_the_sum_is_caught(self, release):
        assert related(*self.noises_of_neighbours(release, UnboundStream(STREAM.key)))

    def test_another_step_or_key_meets_unrelated_noise(self, release):
        first = release(self.total) - self.total
        assert not related(first, release(self.total, step=1) - self.total)
        other_key = SecretStream(b"\1" * 32)
        assert not related(first, release(self.total, stream=other_key) - self.total)

    def test_another_scale_meets_unrelated_noise(self, release):
        """Else two releases of one sum would be two equations in the sum and one draw."""
        one = release(self.total, sensitivity=1.0)
        two = release(self.total, sensitivity=2.0)
        assert not related(one - self.total, two - self.total)
        assert np.std(2 * one - two - self.total) > 1.0  # solving them gives nothing


class TestOnADevice:
    total = torch.linspace(-1, 1, N, dtype=torch.float64)

    @pytest.mark.parametrize(("multiplier", "sensitivity"), [(1.0, 1.0), (0.7, 3.0)])
    def test_noise_has_the_stated_size_and_shape(self, multiplier, sensitivity):
        """Chi-square and Kolmogorov-Smirnov, error rate 1e-6 each."""
        noisy = on_device(self.total, multiplier=multiplier, sensitivity=sensitivity)
        noise = (noisy - self.total).numpy() / (multiplier * sensitivity)
        assert stats.chi2.ppf(5e-7, N) < (noise**2).sum() < stats.chi2.isf(5e-7, N)
        assert stats.kstest(noise, "norm").pvalue > 1e-6

    def test_is_added_in_double_precision_and_leaves_the_sum_alone(self):
        total = torch.full((1000,), 2.0**24, dtype=torch.float32)
        noisy = on_device(total)
        assert noisy.dtype == torch.float64
        assert not torch.equal(noisy, noisy.float().double())
        assert torch.equal(total, torch.full((1000,), 2.0**24))

    def test_has_nothing_to_do_with_the_noise_of_the_processor(self):
        assert not related(on_device(self.total) - self.total, gaussian(self.total) - self.total)

    def test_is_bound_to_the_secret_name_and_the_scale(self):
        context = secret_name(self.total, STREAM) + struct.pack("<d", 1.5)
        z = STREAM.normal_on(torch.device("cpu"), N, purpose="gaussian", step=2, context=context)
        noisy = on_device(self.total, multiplier=0.5, sensitivity=3.0, step=2)
        assert torch.equal(noisy, self.total + 1.5 * z)

    @pytest.mark.parametrize(("kernel", "least"), [(chacha.uniform, 2**16), (None, 2**17)])
    def test_long_vectors_on_a_gpu_stay_and_all_others_come(self, monkeypatch, kernel, least):
        def lying_on(kind, n):
            return SimpleNamespace(device=torch.device(kind), numel=lambda: n)

        monkeypatch.setattr(room, "fused_uniform", lambda device: kernel)
        assert stays_on_device(lying_on("cuda", least))
        assert not stays_on_device(lying_on("cuda", least - 1))
        assert not stays_on_device(lying_on("cpu", 2**30))

    def test_the_sum_never_leaves_its_device(self, monkeypatch):
        """A tensor on the device `meta` has no data: whatever copied it away would fail."""
        monkeypatch.setattr(room, "stays_on_device", lambda values: values.is_meta)
        monkeypatch.setattr(room, "secret_name", lambda values, stream: values.device.type.encode())
        total = torch.empty(1000, device="meta")
        noisy = gaussian(total)
        assert (noisy.device.type, noisy.dtype, noisy.shape) == ("meta", torch.float64, (1000,))
        monkeypatch.undo()
        with pytest.raises(NotImplementedError, match="copy out of meta"):
            gaussian(total)

    def test_names(self, monkeypatch):
        """On the processor as ever, whatever the key; elsewhere by the secret hash."""
        assert name_of(self.total, STREAM) == fingerprint(self.total.numpy())
        monkeypatch.setattr(room, "stays_on_device", lambda values: True)
        assert name_of(self.total, STREAM) == secret_name(self.total, STREAM)


class TestFingerprint:
    def test_names_the_values(self):
        x = np.arange(6.0)
        assert fingerprint(x) == fingerprint(x.copy())
        assert len(fingerprint(x)) == 32
        assert fingerprint(x) != fingerprint(x[::-1])
        assert fingerprint(np.zeros(3)) != fingerprint(np.zeros(4))

    def test_reads_strided_arrays_by_value(self):
        x = np.arange(12.0)
        assert fingerprint(x[::2]) == fingerprint(x[::2].copy())


class TestAnalyticMultiplier:
    @staticmethod
    def delta(z: float, epsilon: float) -> float:
        """Balle and Wang (2018), Theorem 8, at sensitivity 1."""
        upper = stats.norm.cdf(0.5 / z - epsilon * z)
        return upper - math.exp(epsilon) * stats.norm.cdf(-0.5 / z - epsilon * z)

    @staticmethod
    def classic(epsilon: float, delta: float) -> float:
        return math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    @given(st.floats(0.01, 20), st.floats(-10, -1).map(lambda e: 10.0**e))
    @FIXED
    def test_is_the_least_that_meets_the_definition(self, epsilon, delta):
        z = analytic_gaussian_multiplier(epsilon, delta)
        assert self.delta(z, epsilon) <= delta * (1 + 1e-6)
        assert self.delta(z * (1 - 1e-4), epsilon) > delta

    @given(st.floats(0.01, 1.0), st.floats(-10, -1).map(lambda e: 10.0**e))
    @FIXED
    def test_needs_less_than_the_classic_formula_where_that_holds(self, epsilon, delta):
        assert analytic_gaussian_multiplier(epsilon, delta) < self.classic(epsilon, delta)

    def test_the_classic_formula_breaks_its_promise_above_one(self):
        epsilon, delta = 10.0, 1e-5
        assert self.delta(self.classic(epsilon, delta), epsilon) > 1.5 * delta
        assert analytic_gaussian_multiplier(epsilon, delta) > self.classic(epsilon, delta)

    def test_known_value(self):
        assert analytic_gaussian_multiplier(1.0, 1e-5) == pytest.approx(3.730631634816, rel=1e-9)

    @pytest.mark.parametrize(
        ("epsilon", "delta"),
        [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1, 0), (1, 1), (1e-9, 1e-12), (1e9, 1e-5)],
    )
    def test_meaningless_or_unreachable_targets_are_refused(self, epsilon, delta):
        with pytest.raises(InputError):
            analytic_gaussian_multiplier(epsilon, delta)


def test_the_name_of_a_long_array_is_that_of_its_pieces(monkeypatch):
    """By hand, in pieces of 100 bytes; any bit counts, whichever piece it is in."""
    monkeypatch.setattr(room, "HASHED_AT_ONCE", 100)
    values = np.arange(64, dtype=np.float64)
    data = values.tobytes()
    pieces = [hashlib.sha256(data[i : i + 100]).digest() for i in range(0, len(data), 100)]
    assert len(pieces) == 6
    assert fingerprint(values) == hashlib.sha256(b"".join(pieces)).digest()
    names = {fingerprint(values)}
    for i in range(64):
        other = values.copy()
        other[i] = np.nextafter(other[i], 100.0)
        names.add(fingerprint(other))
    assert len(names) == 65


def test_empty_arrays_have_a_name():
    assert fingerprint(np.zeros(0)) == hashlib.sha256(b"").digest()
