"""Banded noise: its covariance, its sensitivity by brute force, and what it refuses.

Statistical tests have fixed keys; each would fail a correct implementation under a random key with
the probability it states."""

import itertools
import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.errors import InputError
from privet.privacy import noise as noise_room
from privet.privacy.accounting import tradeoff_of
from privet.privacy.correlated import BandedNoise, History
from privet.privacy.factorisation import Workload, expected_error, optimal_coefficients
from privet.privacy.noise import GaussianNoise
from privet.privacy.randomness import SecretStream

FIXED = settings(derandomize=True, deadline=None, max_examples=50)
STREAM = SecretStream(bytes(range(32)))
THREE = (2 / 3, 2 / 3, 1 / 3)


def banded(coefficients=THREE, *, multiplier=1.0, sensitivity=1.0):
    return BandedNoise(
        multiplier=multiplier, sensitivity=sensitivity, coefficients=tuple(coefficients)
    )


def run(noise, sums, *, stream=STREAM, history=None, first=0):
    """The noise of consecutive steps, as rows; and the history after them."""
    history = History.empty(step=first) if history is None else history
    rows = []
    for step, total in enumerate(sums, start=first):
        noisy, history = noise.add_to(total, step=step, stream=stream, history=history)
        rows.append(noisy - total)
    return torch.stack(rows).numpy(), history


class UnitDraws(SecretStream):
    """Step t draws the t-th unit vector: what comes out is the inverse of the strategy matrix."""

    def normal(self, n, *, purpose, step, context=b""):
        return np.eye(n)[step]


class Recording(SecretStream):
    """Remembers the fresh draws z."""

    def __init__(self, key):
        super().__init__(key)
        self.drawn = []

    def normal(self, n, **address):
        self.drawn.append(super().normal(n, **address))
        return self.drawn[-1]

    def normal_on(self, device, n, **address):
        self.drawn.append(super().normal_on(device, n, **address).numpy())
        return torch.from_numpy(self.drawn[-1])


def strategy_of(noise, steps):
    """The matrix C that the code really uses, read off its output."""
    sums = [torch.zeros(steps, dtype=torch.float64)] * steps
    inverse, _ = run(noise, sums, stream=UnitDraws(STREAM.key))
    return np.linalg.inv(inverse / (noise.multiplier * noise.sensitivity))


def toeplitz(coefficients, steps):
    return sum(np.diag([c] * (steps - j), -j) for j, c in enumerate(coefficients[:steps]))


def patterns(steps, cycle):
    """All sets of steps that are at least `cycle` apart."""
    for size in range(1, steps + 1):
        for chosen in itertools.combinations(range(steps), size):
            if all(b - a >= cycle for a, b in itertools.pairwise(chosen)):
                yield chosen


def sensitivity(strategy, cycle):
    """The largest |C x| with |x_t| <= 1 at separated steps and 0 elsewhere: over all vertices."""
    steps = len(strategy)
    worst = 0.0
    for chosen in patterns(steps, cycle):
        for signs in itertools.product([-1.0, 1.0], repeat=len(chosen)):
            x = np.zeros(steps)
            x[list(chosen)] = signs
            worst = max(worst, float(np.linalg.norm(strategy @ x)))
    return worst


class TestRecurrence:
    @given(st.lists(st.floats(-1, 1), min_size=0, max_size=5), st.integers(1, 9))
    @FIXED
    def test_is_a_solve_with_the_banded_matrix(self, rest, steps):
        c = np.array([1.0, *rest])
        noise = banded(c / np.linalg.norm(c) * (1 - 1e-12), multiplier=1.5, sensitivity=2.0)
        sums = [torch.full((7,), float(t), dtype=torch.float64) for t in range(steps)]
        stream = Recording(STREAM.key)
        rows, _ = run(noise, sums, stream=stream)
        solved = np.linalg.solve(toeplitz(noise.coefficients, steps), np.stack(stream.drawn))
        assert np.allclose(rows, 3.0 * solved, atol=1e-9)

    def test_one_band_is_independent_noise(self):
        assert np.allclose(strategy_of(banded((1.0,)), 5), np.eye(5))

    def test_covariance_is_that_of_the_inverse(self):
        """C (noise) must be independent standard normal over steps: Kolmogorov-Smirnov for each
        step (error rate 6e-6 together), correlations below 5.5 sigma (1e-6)."""
        size, steps = 20_000, 6
        noise = banded(multiplier=0.5, sensitivity=3.0)
        rows, _ = run(noise, [torch.zeros(size)] * steps)
        fresh = toeplitz(THREE, steps) @ rows / 1.5
        for row in fresh:
            assert stats.kstest(row, "norm").pvalue > 1e-6
            assert stats.kstest(1.15 * row, "norm").pvalue < 1e-6  # and 15 % more is noticed
        correlations = np.corrcoef(fresh) - np.eye(steps)
        assert np.abs(correlations).max() < 5.5 / math.sqrt(size)
        inverse = np.linalg.inv(toeplitz(THREE, steps))
        assert np.cov(rows) / 2.25 == pytest.approx(inverse @ inverse.T, abs=0.15)
        assert abs(np.corrcoef(rows)[0, 1]) > 0.5  # while the noise itself is correlated

    def test_prefix_sums_have_the_expected_error(self):
        """Mean square over 4000 coordinates and 16 iterates; standard error about 2 %."""
        workload = Workload(steps=16)
        noise = banded(optimal_coefficients(workload, 4))
        rows, _ = run(noise, [torch.zeros(4000)] * 16)
        error = math.sqrt(np.mean(np.cumsum(rows, axis=0) ** 2))
        assert error == pytest.approx(expected_error(noise.coefficients, workload), rel=0.05)
        assert error < 0.75 * expected_error((1.0,), workload)

    def test_is_double_precision_and_leaves_the_sum_alone(self):
        total = torch.full((100,), 2.0**24, dtype=torch.float32)
        noisy, history = banded().add_to(total, step=0, stream=STREAM, history=History.empty())
        assert noisy.dtype == history.draws.dtype == torch.float64
        assert not torch.equal(noisy, noisy.float().double())
        assert torch.equal(total, torch.full((100,), 2.0**24))


class TestSensitivity:
    """Brute force over all participation patterns, on the matrix read off the code."""

    @pytest.mark.parametrize(("steps", "cycle"), [(7, 3), (9, 3), (9, 4), (6, 6), (2, 3)])
    def test_a_separated_unit_moves_the_rows_by_the_root_of_its_turns(self, steps, cycle):
        strategy = strategy_of(banded(), steps)
        turns = math.ceil(steps / cycle)
        worst = sensitivity(strategy, cycle)
        assert worst <= math.sqrt(turns) * (1 + 1e-12)
        if (turns - 1) * cycle + 3 <= steps:  # the last window is not cut off by the end
            assert worst == pytest.approx(math.sqrt(turns))

    @pytest.mark.parametrize("cycle", [1, 2])
    def test_turns_closer_than_the_bands_move_them_by_more(self, cycle):
        assert sensitivity(strategy_of(banded(), 7), cycle) > 1.05 * math.sqrt(math.ceil(7 / cycle))

    def test_optimised_coefficients_keep_the_bound(self):
        noise = banded(optimal_coefficients(Workload(steps=8, momentum=0.9, last_rate=0.0), 4))
        assert sensitivity(strategy_of(noise, 8), 4) <= math.sqrt(2)

    def test_a_band_too_many_is_caught(self, monkeypatch):
        """Planted bug: the recurrence remembers one step more than it has bands."""
        wide = (*THREE, 1 / 3)

        def one_too_many(self, history, size, **_):
            rest = torch.tensor(wide[1 : len(history.draws) + 1], dtype=torch.float64)
            return rest @ history.draws if len(rest) else torch.zeros(size).double()

        monkeypatch.setattr(BandedNoise, "_taken_back", one_too_many)
        monkeypatch.setattr(BandedNoise, "bands", 4)
        assert sensitivity(strategy_of(banded(), 7), 3) > 1.01 * math.sqrt(3)

    def test_a_band_off_by_one_is_caught(self, monkeypatch):
        """Planted bug: c_(j-1) where c_j belongs."""

        def off_by_one(self, history, size, **_):
            rest = torch.tensor(THREE[: len(history.draws)], dtype=torch.float64)
            return rest @ history.draws if len(rest) else torch.zeros(size).double()

        monkeypatch.setattr(BandedNoise, "_taken_back", off_by_one)
        assert sensitivity(strategy_of(banded(), 9), 3) > 1.1 * math.sqrt(3)

    def test_columns_longer_than_one_are_refused(self):
        for longer in ((1.0, 0.1), (0.8, 0.61), (1.0 + 1e-9,)):
            with pytest.raises(InputError, match="raise the sensitivity"):
                banded(longer)
        assert sensitivity(toeplitz((1.0, 0.1), 4), 2) > math.sqrt(2)  # what the check prevents


class TestWhichSamplers:
    def test_separating_samplers_are_admitted(self):
        for name in ("cyclic-poisson", "fixed-batches"):
            for cycle in (3, 4, 100):
                banded().require_valid_with(name, cycle)

    @pytest.mark.parametrize("name", ["poisson", "shuffled", "anything"])
    def test_others_are_refused(self, name):
        with pytest.raises(InputError, match="cyclic-poisson or fixed-batches"):
            banded().require_valid_with(name, 100)

    def test_a_cycle_shorter_than_the_bands_is_refused(self):
        with pytest.raises(InputError, match="at most 2 bands"):
            banded().require_valid_with("cyclic-poisson", 2)

    @staticmethod
    def delta_of_two_steps(rate, z, epsilon, strategy, coins):
        """Exact, on a grid: mixture over the unit's coins at steps 0 and 1, against its absence."""
        grid = np.linspace(-8 * z, 8 * z + 2, 700)
        a, b = np.meshgrid(grid, grid, indexing="ij")
        cell = (grid[1] - grid[0]) ** 2

        def density(mean):
            return np.exp(-((a - mean[0]) ** 2 + (b - mean[1]) ** 2) / (2 * z * z)) / (
                2 * math.pi * z * z
            )

        present = sum(
            (rate if coin[0] else 1 - rate if coins[0] else 1)
            * (rate if coin[1] else 1 - rate if coins[1] else 1)
            * density(strategy @ np.array(coin, dtype=float))
            for coin in itertools.product(*[(0, 1) if c else (0,) for c in coins])
        )
        return float(np.maximum(0, present - math.exp(epsilon) * density((0.0, 0.0))).sum() * cell)

    def test_plain_poisson_would_leak_more_than_is_accounted(self):
        """Two steps that the unit may both join: above two sampled Gaussians; in turns: below one
        sampled Gaussian."""
        strategy, rate, z, epsilon = toeplitz((math.sqrt(0.5),) * 2, 2), 0.5, 1.0, 1.0
        step = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z))
        one = tradeoff_of(step).delta(epsilon)
        two = tradeoff_of(dp.SelfComposedDpEvent(step, 2)).delta(epsilon)
        both = self.delta_of_two_steps(rate, z, epsilon, strategy, (True, True))
        assert both > 1.02 * two
        independent = self.delta_of_two_steps(rate, z, epsilon, np.eye(2), (True, True))
        assert independent == pytest.approx(two, rel=0.01)
        first = self.delta_of_two_steps(rate, z, epsilon, strategy, (True, False))
        last = self.delta_of_two_steps(rate, z, epsilon, strategy, (False, True))
        assert first == pytest.approx(one, rel=0.01)  # the whole column is felt
        assert last < one  # a column cut off by the end


class TestGoingOn:
    sums = tuple(torch.full((5,), float(t), dtype=torch.float64) for t in range(10))

    def test_a_stored_history_goes_on_exactly(self, tmp_path):
        whole, _ = run(banded(), self.sums)
        first, history = run(banded(), self.sums[:5])
        torch.save(vars(history), tmp_path / "history.pt")
        loaded = History(**torch.load(tmp_path / "history.pt", weights_only=True))
        rest, _ = run(banded(), self.sums[5:], history=loaded, first=5)
        assert np.array_equal(whole, np.concatenate([first, rest]))

    def test_holds_as_many_draws_as_it_needs(self):
        _, history = run(banded(), self.sums)
        assert history.draws.shape == (2, 5)
        _, none = run(banded((1.0,)), self.sums)
        assert none.draws.shape == (0, 5)

    def test_says_nothing_when_printed(self):
        _, history = run(banded(), self.sums)
        assert repr(history) == "History(next_step=10)"

    def test_fresh_keys_on_an_old_history_are_refused(self):
        _, history = run(banded(), self.sums[:5])
        with pytest.raises(InputError, match=r"begin with History\.empty"):
            run(banded(), self.sums[5:], stream=SecretStream(bytes(32)), history=history, first=5)

    def test_under_fresh_keys_no_row_holds_a_sum_from_before(self):
        """The strategy matrix falls into two blocks, and no column grew."""
        sums = [torch.zeros(6, dtype=torch.float64)] * 6
        first, _ = run(banded(), sums[:3], stream=UnitDraws(STREAM.key))
        rest, _ = run(banded(), sums[3:], stream=UnitDraws(bytes(32)), first=3)
        strategy = np.linalg.inv(np.concatenate([first, rest]))
        assert np.allclose(strategy[3:, :3], 0)
        assert np.linalg.norm(strategy, axis=0).max() <= 1 + 1e-12

    def test_a_history_of_another_step_size_or_plan_is_refused(self):
        _, history = run(banded(), self.sums[:5])
        with pytest.raises(InputError, match="another step"):
            run(banded(), self.sums[6:], history=history, first=6)
        with pytest.raises(InputError, match="another run"):
            run(banded(), [torch.zeros(4)], history=history, first=5)
        with pytest.raises(InputError, match="another run"):
            run(banded((0.9, 0.1)), self.sums[5:], history=history, first=5)


class TestBinding:
    size = 4096
    total = torch.linspace(-1, 1, size, dtype=torch.float64)

    def related(self, a, b):
        """|correlation| above 5.5 sigma of independence (a false alarm: 4e-8)."""
        return abs(np.corrcoef(a, b)[0, 1]) > 5.5 / math.sqrt(self.size)

    def fresh_draw(self, noise, total, history, step=1):
        """The draw z that the step used, by undoing the recurrence."""
        noisy, kept = noise.add_to(total, step=step, stream=STREAM, history=history)
        taken = sum(c * d for c, d in zip(noise.coefficients[1:], history.draws, strict=False))
        assert torch.allclose((noisy - total) / noise.sensitivity, kept.draws[0])
        return (noise.coefficients[0] * kept.draws[0] + taken).numpy()

    def test_anything_that_differs_meets_unrelated_noise(self):
        _, history = run(banded(), [self.total])
        first = self.fresh_draw(banded(), self.total, history)
        assert np.array_equal(first, self.fresh_draw(banded(), self.total.clone(), history))
        other_sum = self.total.clone()
        other_sum[7] = np.nextafter(other_sum[7].item(), 2.0)
        _, other_past = run(banded(), [other_sum])
        for changed in (
            self.fresh_draw(banded(), other_sum, history),
            self.fresh_draw(banded(sensitivity=2.0), self.total, history),
            self.fresh_draw(banded((2 / 3, 2 / 3, 0.0)), self.total, history),
            self.fresh_draw(banded(), self.total, other_past),
            self.fresh_draw(banded(), self.total, replace(history, next_step=2), step=2),
        ):
            assert not self.related(first, changed)

    def test_has_nothing_to_do_with_independent_noise_of_the_same_sum(self):
        plain = GaussianNoise(multiplier=1.0, sensitivity=1.0)
        a = plain.add_to(self.total, step=0, stream=STREAM) - self.total
        b, _ = run(banded((1.0,)), [self.total])
        assert not self.related(a, b[0])


class TestOnADevice:
    """The draws of a long sum on a GPU, on CPU tensors."""

    sums = tuple(torch.linspace(-t, t, 2000, dtype=torch.float64) for t in range(6))

    @pytest.fixture(autouse=True)
    def _long(self, monkeypatch):
        monkeypatch.setattr(noise_room, "stays_on_device", lambda values: True)

    def test_is_a_solve_with_the_banded_matrix_on_fresh_normals(self):
        """Kolmogorov-Smirnov on all draws, error rate 1e-6."""
        stream = Recording(STREAM.key)
        rows, _ = run(banded(multiplier=1.5, sensitivity=2.0), self.sums, stream=stream)
        assert np.allclose(toeplitz(THREE, 6) @ rows, 3.0 * np.stack(stream.drawn), atol=1e-9)
        assert stats.kstest(np.concatenate(stream.drawn), "norm").pvalue > 1e-6
        assert np.abs(np.corrcoef(stream.drawn) - np.eye(6)).max() < 5.5 / math.sqrt(2000)

    def test_a_stored_history_goes_on_exactly(self, tmp_path):
        whole, _ = run(banded(), self.sums)
        first, history = run(banded(), self.sums[:3])
        torch.save(vars(history), tmp_path / "history.pt")
        loaded = History(**torch.load(tmp_path / "history.pt", weights_only=True))
        rest, _ = run(banded(), self.sums[3:], history=loaded, first=3)
        assert np.array_equal(whole, np.concatenate([first, rest]))

    def test_any_change_of_the_sum_or_the_past_meets_unrelated_noise(self):
        other = self.sums[1].clone()
        other[7] = np.nextafter(other[7].item(), 2.0)
        first, second = {}, {}
        for name, sums in {
            "same": self.sums[1:3],
            "sum": (self.sums[1], self.sums[2] + 1e-9),
            "past": (other, self.sums[2]),
        }.items():
            stream = Recording(STREAM.key)
            run(banded(), sums, stream=stream)
            first[name], second[name] = stream.drawn
        assert np.array_equal(first["same"], first["sum"])
        pairs = [(first["same"], first["past"]), *itertools.combinations(second.values(), 2)]
        for one, two in pairs:
            assert abs(np.corrcoef(one, two)[0, 1]) < 5.5 / math.sqrt(2000)

    def test_neither_sum_nor_history_leaves_the_device(self, monkeypatch):
        """A tensor on the device `meta` has no data: whatever copied it away would fail. A history
        that lies elsewhere, as after a resume, is brought to the sum."""
        monkeypatch.setattr(noise_room, "stays_on_device", lambda values: values.is_meta)
        monkeypatch.setattr(noise_room, "secret_name", lambda values, stream: b"")
        total = torch.empty(2000, device="meta")
        for history in (History.empty(step=2), run(banded(), self.sums[:2])[1]):
            assert history.draws.device.type == "cpu"
            for step in (2, 3, 4):
                noisy, history = banded().add_to(total, step=step, stream=STREAM, history=history)
                assert noisy.device.type == history.draws.device.type == "meta"
            assert history.draws.shape == (2, 2000)


@pytest.mark.parametrize("bad", [(), (0.0, 0.5), (-0.5,), (math.nan,), (0.5, math.inf)])
def test_meaningless_bands_are_refused(bad):
    with pytest.raises(InputError, match="bad bands"):
        banded(bad)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_meaningless_sizes_are_refused(bad):
    with pytest.raises(InputError):
        banded(multiplier=bad)
    with pytest.raises(InputError):
        banded(sensitivity=bad)


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
@pytest.mark.parametrize("coefficients", [(1.0,), (0.8, 0.6), THREE])
def test_the_deviation_of_an_average_is_as_told(coefficients, steps):
    """Against noise that is drawn: 4,000 numbers, at five deviations of their estimate."""
    noise = banded(coefficients, multiplier=2.0, sensitivity=3.0)
    rows, _ = run(noise, torch.zeros(steps, 4000))
    assert rows.mean(0).std() == pytest.approx(noise.mean_deviation(steps), rel=0.056)
