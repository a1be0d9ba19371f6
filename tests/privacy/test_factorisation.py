"""Coefficients of banded noise against dense matrices, a dense optimum, a known factor."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from privet.errors import InputError
from privet.privacy import factorisation
from privet.privacy.factorisation import Workload, expected_error, optimal_coefficients

FIXED = settings(derandomize=True, deadline=None, max_examples=60)
WORKLOADS = [
    Workload(steps=12),
    Workload(steps=12, momentum=0.9),
    Workload(steps=12, last_rate=0.0),
    Workload(steps=12, momentum=0.5, last_rate=0.25),
]


def iterates(workload, sums):
    """SGD as it runs: velocity, learning rate, weights."""
    velocity, weights, seen = 0.0, 0.0, []
    for t, total in enumerate(sums):
        rate = 1 - (1 - workload.last_rate) * t / workload.steps
        velocity = workload.momentum * velocity + total
        weights += rate * velocity
        seen.append(weights)
    return np.array(seen)


def dense_error(coefficients, workload):
    """|A C^-1| / sqrt(T) with the longest column of C scaled to 1, by dense matrices."""
    n = workload.steps
    strategy = sum(np.diag([c] * (n - j), -j) for j, c in enumerate(coefficients))
    longest = np.linalg.norm(strategy, axis=0).max()
    return float(
        longest * np.linalg.norm(workload.matrix() @ np.linalg.inv(strategy)) / math.sqrt(n)
    )


def dense_optimum(a):
    """The least |A C^-1| / sqrt(T) over *all* matrices C with columns of norm 1.

    Fixed point of the dual (Denisov et al., 2022): X = C^T C has diagonal 1 at the optimum.
    """
    gram, v = a.T @ a, np.ones(len(a))
    for _ in range(500):
        d = np.sqrt(v)
        values, vectors = np.linalg.eigh(d[:, None] * gram * d)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        v = np.diag(root)
    x = root / d[:, None] / d
    assert np.diag(x) == pytest.approx(np.ones(len(a)), abs=1e-6)
    return math.sqrt(np.trace(gram @ np.linalg.inv(x)) / len(a))


def square_root(n):
    """The series of 1/sqrt(1 - x): binomial(2j, j) / 4^j."""
    return tuple(math.comb(2 * j, j) / 4**j for j in range(n))


class TestWorkload:
    @pytest.mark.parametrize("workload", WORKLOADS)
    def test_is_what_sgd_does(self, workload):
        sums = np.random.default_rng(0).normal(size=12)
        assert workload.matrix() @ sums == pytest.approx(iterates(workload, sums))

    def test_ends_where_dpsgd_ends(self):
        """Its learning rate at step t of T is 1 - t/T."""
        assert Workload(steps=4, last_rate=0.0).rates == pytest.approx([1, 0.75, 0.5, 0.25])

    @pytest.mark.parametrize(
        "bad", [{"steps": 0}, {"steps": 2.5}, {"momentum": 1.0}, {"last_rate": -0.1}]
    )
    def test_meaningless_ones_are_refused(self, bad):
        with pytest.raises(InputError):
            Workload(**({"steps": 5} | bad))


class TestExpectedError:
    @pytest.mark.parametrize("workload", WORKLOADS)
    @given(st.lists(st.floats(-0.9, 0.9), max_size=4))
    @FIXED
    def test_agrees_with_dense_matrices(self, workload, rest):
        coefficients = (1.3, *rest)
        assert expected_error(coefficients, workload) == pytest.approx(
            dense_error(coefficients, workload), rel=1e-9
        )

    @pytest.mark.parametrize("workload", WORKLOADS)
    def test_gradient_by_differences(self, workload):
        c, h = np.array([1.0, 0.4, -0.2, 0.1]), 1e-6
        _, gradient = factorisation._squared_error(c, workload)
        for j in range(4):
            step = h * np.eye(4)[j]
            up, down = (factorisation._squared_error(c + s, workload)[0] for s in (step, -step))
            assert gradient[j] == pytest.approx((up - down) / (2 * h), rel=1e-5)

    def test_independent_noise_on_prefix_sums(self):
        """Iterate t holds t draws: the mean of 1..T is (T+1)/2."""
        assert expected_error((1.0,), Workload(steps=99)) == pytest.approx(math.sqrt(50))


class TestOptimum:
    @pytest.mark.parametrize("n", [4, 8, 16])
    def test_lies_between_the_dense_optimum_and_the_square_root(self, n):
        workload = Workload(steps=n)
        ours = expected_error(optimal_coefficients(workload, n), workload)
        best = dense_optimum(workload.matrix())
        assert best < ours < expected_error(square_root(n), workload)
        assert ours < 1.04 * best  # what the Toeplitz form costs

    @pytest.mark.parametrize("workload", WORKLOADS)
    @pytest.mark.parametrize("bands", [2, 3])
    def test_no_other_banded_toeplitz_matrix_is_better(self, workload, bands):
        """Nelder-Mead on dense matrices, from several starts."""
        ours = dense_error(optimal_coefficients(workload, bands), workload)
        found = min(
            minimize(
                lambda tail: dense_error((1.0, *tail), workload),
                np.full(bands - 1, start),
                method="Nelder-Mead",
                options={"xatol": 1e-6, "fatol": 1e-9},
            ).fun
            for start in (-0.3, 0.1, 0.6)
        )
        assert ours == pytest.approx(found, rel=1e-5)

    def test_two_bands_in_the_limit(self):
        """|c|^2 / (c_0 + c_1)^2 tends to 1/2 for prefix sums, at c_1 = c_0."""
        workload = Workload(steps=20_000)
        c = optimal_coefficients(workload, 2)
        assert c[1] / c[0] == pytest.approx(1.0, abs=0.05)
        assert expected_error(c, workload) ** 2 == pytest.approx(20_000 / 4, rel=0.01)

    def test_more_bands_are_never_worse(self):
        workload = Workload(steps=64, momentum=0.9, last_rate=0.0)
        errors = [
            expected_error(optimal_coefficients(workload, b), workload) for b in (1, 2, 4, 8, 16)
        ]
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] < 0.5 * errors[0]

    def test_a_workload_of_its_own_beats_one_that_was_meant_for_another(self):
        momentum = Workload(steps=40, momentum=0.9)
        own = optimal_coefficients(momentum, 4)
        other = optimal_coefficients(Workload(steps=40), 4)
        assert expected_error(own, momentum) < expected_error(other, momentum)

    @pytest.mark.parametrize("workload", WORKLOADS)
    @pytest.mark.parametrize("bands", [1, 2, 5, 12])
    def test_norm_is_one_from_below(self, workload, bands):
        c = optimal_coefficients(workload, bands)
        assert len(c) == bands
        assert 1 - 1e-11 < math.hypot(*c) < 1.0

    def test_a_search_that_fails_falls_back_to_independent_noise(self, monkeypatch):
        class Nowhere:
            x = np.full(2, 1e9)

        monkeypatch.setattr(factorisation, "minimize", lambda *a, **k: Nowhere)
        assert optimal_coefficients(Workload(steps=50), 3) == pytest.approx((1.0, 0.0, 0.0))

    @pytest.mark.parametrize("bands", [0, 13])
    def test_meaningless_bands_are_refused(self, bands):
        with pytest.raises(InputError, match="bands"):
            optimal_coefficients(Workload(steps=12), bands)
