"""The witness of a bound against matrices whose norm is known exactly, and against bad solvers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privet.certification import singular_values
from privet.certification.singular_values import matrix_bound, sums_bound, symbol_bound

FIXED = settings(derandomize=True, deadline=None, max_examples=80)


@FIXED
@given(st.integers(1, 25), st.integers(1, 25), st.integers(0, 10**6), st.floats(-250, 250))
def test_bounds_hold_for_sparse_and_dense_alike(m, n, seed, power):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.6) * 10.0**power
    truth = float(np.linalg.norm(a, 2))
    for form in (a, sparse.csr_array(a)):
        assert truth * (1 - 1e-13) <= matrix_bound(form) <= truth * (1 + 1e-10) + 1e-290
        assert truth * (1 - 1e-13) <= sums_bound(form)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_an_exactly_known_norm_is_never_undercut(n):
    """All ones has norm n, and every product is exact: one unit below would show."""
    assert n <= matrix_bound(np.ones((n, n))) <= n * (1 + 1e-12)
    assert n <= sums_bound(np.ones((n, n)))


@pytest.mark.parametrize("factor", [0.5, 0.99, 1 - 1e-6])
def test_an_eigensolver_that_reports_too_little_cannot_lower_the_bound(monkeypatch, factor):
    """The planted fault is refuted: the factorisation fails, and the margin grows or gives up."""
    a = np.random.default_rng(0).standard_normal((30, 20))
    truth, honest = float(np.linalg.norm(a, 2)), np.linalg.eigvalsh
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda g: factor * honest(g))
    assert matrix_bound(a) >= truth


@pytest.mark.parametrize("scale", [0.9, 0.999, 1 + 1e-7])
def test_a_factor_that_is_off_only_loosens_the_bound(monkeypatch, scale):
    """What an untrusted factorisation returns is measured: its error is added."""
    a = np.random.default_rng(1).standard_normal((30, 20))
    truth, honest = float(np.linalg.norm(a, 2)), np.linalg.cholesky
    monkeypatch.setattr(np.linalg, "cholesky", lambda b: scale * honest(b))
    assert truth < matrix_bound(a)
    assert matrix_bound(a) > truth * (1 + abs(scale - 1) / 10)


def test_a_factorisation_of_another_matrix_proves_nothing_false(monkeypatch):
    """Both solvers lie in concert: too small a t, and a factor although there is none."""
    a = np.random.default_rng(2).standard_normal((30, 20))
    truth, honest = float(np.linalg.norm(a, 2)), np.linalg.eigvalsh
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda g: 0.5 * honest(g))
    monkeypatch.setattr(np.linalg, "cholesky", lambda b: np.zeros_like(b))
    assert matrix_bound(a) >= truth


def test_weights_that_are_not_finite_have_no_bound():
    with np.errstate(invalid="ignore"):
        assert matrix_bound(np.full((2, 2), math.inf)) == math.inf
        assert matrix_bound(np.full((2, 2), math.nan)) == math.inf


@FIXED
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 4), st.integers(0, 999)
)
def test_symbols_bound_the_circular_convolution_exactly(o, i, length, more, seed):
    """Oracle: the circulant matrix, written out."""
    rng, n = np.random.default_rng(seed), length + more
    kernel = rng.standard_normal((o, i, length))
    circulant = np.zeros((o, n, i, n))
    for t in range(length):
        for at in range(n):
            circulant[:, at, :, (at + t) % n] += kernel[:, :, t]
    truth = float(np.linalg.norm(circulant.reshape(o * n, i * n), 2))
    assert truth * (1 - 1e-13) <= symbol_bound(kernel, (n,)) <= truth * (1 + 1e-10)


def test_symbols_do_not_depend_on_how_many_are_held_at_a_time(monkeypatch):
    kernel = np.random.default_rng(3).standard_normal((3, 2, 3, 3))
    whole = symbol_bound(kernel, (7, 6))
    monkeypatch.setattr(singular_values, "CHUNK", 1)
    assert symbol_bound(kernel, (7, 6)) == pytest.approx(whole, rel=1e-12)


def exact_square(matrix):
    """Of the Frobenius norm, in fractions."""
    return sum(Fraction(float(entry)) ** 2 for entry in np.ravel(matrix))


@pytest.mark.parametrize("worst", [0, 1, 2])
@FIXED
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6))
def test_a_frobenius_norm_is_that_of_the_worst_matrix_of_a_stack(worst, m, n, seed):
    stack = np.random.default_rng(seed).standard_normal((3, m, n)) * 1e-3
    stack[worst] *= 1e5
    found, truth = Fraction(singular_values._frobenius(stack)), exact_square(stack[worst])
    assert truth <= found**2 <= truth * (1 + Fraction(1, 10**12))


def test_a_known_frobenius_norm_of_a_stack():
    stack = np.array([[[0.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 0.0]]])
    assert 5.0 <= singular_values._frobenius(stack) <= 5.0 * (1 + 1e-12)


@pytest.mark.parametrize("worst", [0, 1, 2])
def test_a_residual_is_that_of_the_worst_matrix_of_a_stack(worst):
    """Diagonal matrices, whose norm is exactly the largest entry."""
    factor = np.stack([np.diag([2.0, 3.0])] * 3)
    shifted = factor @ factor
    shifted[worst, 1, 1] -= 0.25
    assert 0.25 <= singular_values._residual(factor, shifted) <= 0.25 * (1 + 1e-12)


@pytest.mark.parametrize("worst", [0, 1, 2])
@pytest.mark.parametrize("root", [1 / 3, 2 / 3, 0.7, 1.1, 5 / 7])
def test_a_residual_counts_what_rounding_hides_in_the_worst_matrix(worst, root):
    """R R^T as computed is what was asked for, so nothing is seen; in fractions there is more."""
    factor = np.full((3, 1, 1), 2.0**-40)
    factor[worst] = root
    truth = abs(Fraction(root) ** 2 - Fraction(root * root))
    assert 0 < truth <= Fraction(singular_values._residual(factor, factor * factor))
