"""What is stated and what was measured, in one picture: trade-off curves and an audit's points.

Both axes are in quantiles of the normal distribution, so mu-GDP is a straight line and the tails,
where privacy is decided, have room. The true curve passes below every measured point at the stated
confidence; a point below a stated curve refutes it, and is marked.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privet.errors import InputError
from privet.guarantee import Basis
from privet.privacy.tradeoff import TradeOff
from privet.reports.drawing import COLOUR, drawing

Points = tuple[NDArray[np.float64], NDArray[np.float64]]

_TICKS: Final = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_EDGE: Final = 4.4  # standard deviations: rates from 5e-6
_DASHES: Final[Mapping[Basis, str]] = {Basis.PROVED: "-", Basis.CLAIMED: "--"}


def audit_plot(stated: Mapping[Basis, TradeOff], measured: Points) -> bytes:
    """An SVG of the proved and the claimed curve, and of the region that an audit established.

    Args:
        stated: the curve of each basis; an audit states none.
        measured: upper bounds of error rates (alphas, betas), as `two_worlds.region` gives them.
    """
    if Basis.AUDITED in stated:
        raise InputError("an audit has points, not a curve", got="a curve", expected="points")
    with drawing(height=4.2) as sheet:
        grid = ndtr(np.linspace(-_EDGE, _EDGE, 221))
        _line(sheet.axes, grid, 1.0 - grid, "muted", ":", "guessing")
        for basis, curve in stated.items():
            betas = np.array([curve.beta(float(alpha)) for alpha in grid])
            _line(sheet.axes, grid, betas, basis.value, _DASHES[basis], basis.value)
        _points(sheet.axes, stated, measured)
        _axes(sheet.axes)
        sheet.figure.legend(loc="outside right upper", frameon=False)
    return sheet.svg


def below(curve: TradeOff, measured: Points) -> NDArray[np.bool_]:
    """Which points a mechanism with this curve cannot reach."""
    pairs = zip(*measured, strict=True)
    return np.array([beta < curve.beta(float(alpha)) for alpha, beta in pairs], dtype=bool)


def _points(axes: Axes, stated: Mapping[Basis, TradeOff], measured: Points) -> None:
    alphas, betas = measured
    bad = np.zeros(len(alphas), dtype=bool)
    for curve in stated.values():
        bad |= below(curve, measured)
    for chosen, role, mark, name in (
        (~bad, "audited", "v", "audited, at most"),
        (bad, "contradicted", "X", "refutes a curve"),
    ):
        if chosen.any():
            axes.plot(
                _deviate(alphas[chosen]), _deviate(betas[chosen]), mark,
                color=COLOUR[role], markersize=4.5, linestyle="none", label=name,
            )  # fmt: skip


def _line(
    axes: Axes,
    alphas: NDArray[np.float64],
    betas: NDArray[np.float64],
    role: str,
    dash: str,
    name: str,
) -> None:
    axes.plot(_deviate(alphas), _deviate(betas), dash, color=COLOUR[role], label=name)


def _deviate(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.clip(ndtri(rates), -2 * _EDGE, 2 * _EDGE))


def _axes(axes: Axes) -> None:
    names = [f"{100 * rate:.5g} %" for rate in _TICKS]
    axes.set(
        xlabel="wrongly said to be in",
        ylabel="wrongly said to be out",
        xlim=(-_EDGE, _EDGE),
        ylim=(-_EDGE, _EDGE),
    )
    axes.set_xticks(ndtri(_TICKS), names, rotation=60)
    axes.set_yticks(ndtri(_TICKS), names)
