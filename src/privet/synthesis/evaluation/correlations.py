"""Correlations of columns with gaps, over many rows, in one pass of matrix products."""

from collections.abc import Callable
from typing import Final

import numpy as np

from privet.synthesis.evaluation.side import Floats

AT_ONCE: Final = 65_536  # rows
CONSTANT: Final = 1e-12  # variance, of numbers on [0, 1], that counts as none

Rows = Callable[[slice], Floats]


def correlations(rows: Rows, n: int) -> tuple[Floats, Floats]:
    """Pearson correlations of every two columns over the rows in which both are there.

    For columns i and j, with m the indicator "there" and sums over rows: n_ij = sum m_i m_j,
    S_ij = sum x_i m_j, Q_ij = sum x_i^2 m_j, P_ij = sum x_i x_j. The covariance over the complete
    rows is P/n - S S'/n^2, the variance of i among them Q/n - (S/n)^2.

    Args:
        rows: gives some of the rows, columns on [0, 1], gaps as NaN.
        n: how many rows there are.

    Returns:
        Correlations, 0 where a column is constant; and on how many rows each rests.
    """
    sums = [_sums(rows(slice(at, at + AT_ONCE))) for at in range(0, n, AT_ONCE)]
    if not sums:
        width = rows(slice(0, 0)).shape[1]
        return np.zeros((width, width)), np.zeros((width, width))
    count, s, q, p = (np.sum(part, axis=0) for part in zip(*sums, strict=True))
    known = np.maximum(count, 1.0)
    covariance = p / known - (s / known) * (s.T / known)
    variance = np.maximum(q / known - (s / known) ** 2, 0.0)
    scale = variance * variance.T
    flat = np.minimum(variance, variance.T) < CONSTANT
    found = np.where(flat, 0.0, covariance / np.sqrt(np.where(flat, 1.0, scale)))
    return np.clip(found, -1.0, 1.0), count


def _sums(x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    there = (~np.isnan(x)).astype(np.float64)
    centred = np.nan_to_num(x, nan=0.5) - 0.5  # near the middle, where squares lose least
    return there.T @ there, centred.T @ there, (centred**2).T @ there, centred.T @ centred


def pearson(x: Floats, y: Floats) -> float:
    """Of two samples without gaps; 0 where one is constant."""
    return float(correlations(lambda rows: np.stack([x[rows], y[rows]], axis=1), len(x))[0][0, 1])


def off_diagonal(matrix: Floats) -> Floats:
    """The entries above the diagonal."""
    return np.asarray(matrix[np.triu_indices(len(matrix), 1)])
