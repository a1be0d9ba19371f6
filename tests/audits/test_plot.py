"""The picture of stated curves and measured points: what is in it, and which points refute."""

import re

import numpy as np
import pytest

from privet.audits.plot import audit_plot, below
from privet.errors import InputError
from privet.guarantee import Basis
from privet.privacy.tradeoff import Gaussian
from privet.reports.drawing import COLOUR

ALPHAS = np.array([0.01, 0.1, 0.5])
POINTS = (ALPHAS, np.array([Gaussian(1.0).beta(float(a)) for a in ALPHAS]))


def test_points_below_a_curve_are_those_it_forbids():
    assert below(Gaussian(0.9), POINTS).all()
    assert not below(Gaussian(1.1), POINTS).any()
    mixed = (ALPHAS, POINTS[1] + np.array([0.2, -0.2, 0.2]))
    assert below(Gaussian(1.0), mixed).tolist() == [False, True, False]


def test_a_refuted_claim_is_marked():
    stated = {Basis.PROVED: Gaussian(1.5), Basis.CLAIMED: Gaussian(0.5)}
    svg = audit_plot(stated, POINTS).decode()
    for words in ("proved", "claimed", "refutes a curve", "guessing", "wrongly said to be in"):
        assert words in svg
    assert "audited, at most" not in svg
    assert COLOUR["contradicted"] in svg


def test_a_kept_statement_is_not():
    svg = audit_plot({Basis.PROVED: Gaussian(1.5)}, POINTS).decode()
    assert "audited, at most" in svg
    assert "refutes a curve" not in svg
    assert "claimed" not in svg
    assert COLOUR["contradicted"] not in svg


def test_curves_differ_in_black_and_white():
    """Guessing is dotted, a claim dashed, a proof solid."""
    stated = {Basis.PROVED: Gaussian(1.5), Basis.CLAIMED: Gaussian(0.5)}
    svg = audit_plot(stated, POINTS).decode()
    dashes = set(re.findall(r"stroke-dasharray: ([\d., ]+)", svg))
    assert len(dashes) == 2


def test_mu_is_a_straight_line():
    """In quantiles of the normal distribution the claimed line has one slope."""
    svg = audit_plot({Basis.CLAIMED: Gaussian(1.0)}, POINTS).decode()
    path = re.search(rf'd="(M [^"]+)"[^>]*stroke-dasharray[^>]*{COLOUR["claimed"]}', svg)
    assert path is not None
    xy = np.array(re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", path[1]), dtype=float)
    steps = np.diff(xy, axis=0)
    slopes = steps[abs(steps[:, 0]) > 1, 1] / steps[abs(steps[:, 0]) > 1, 0]
    assert np.ptp(slopes) < 0.02 * abs(slopes.mean())


def test_the_same_bytes_for_the_same_input():
    stated = {Basis.PROVED: Gaussian(1.5)}
    assert audit_plot(stated, POINTS) == audit_plot(stated, POINTS)


def test_an_audit_states_no_curve():
    with pytest.raises(InputError):
        audit_plot({Basis.AUDITED: Gaussian(1.0)}, POINTS)
