"""How numbers and values are written: bounds are rounded only in their safe direction."""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

_SIGNIFICANT = 3


def at_most(value: float) -> str:
    """An upper bound (epsilon, delta) to three significant digits, never below its value."""
    return _rounded(value, ROUND_CEILING)


def at_least(value: float) -> str:
    """A lower bound (an audited epsilon) to three significant digits, never above its value."""
    return _rounded(value, ROUND_FLOOR)


def percent(share: float) -> str:
    """A measured share, to a tenth of a per cent."""
    return f"{100 * share:.1f} %"


def percent_at_most(share: float) -> str:
    """An upper bound on a share, rounded up to a tenth of a per cent."""
    tenths = math.ceil(1000 * share - 1e-9)  # 0.29 * 1000 is a hair above 290 in binary
    return f"{tenths / 10:.1f} %"


def interval(low: float, high: float) -> str:
    """A confidence interval in per cent, rounded outwards."""
    return f"{math.floor(1000 * low + 1e-9) / 10:.1f} to {percent_at_most(high)}"


def value_text(value: Any) -> str:
    """Any JSON value in words: for facts whose meaning this page does not know."""
    if value is None:
        return "not stated"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{label(k)} {value_text(v)}" for k, v in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(value_text(v) for v in value) or "none"
    return str(value)


def label(key: object) -> str:
    """A JSON key as words: `noise_multiplier` reads `noise multiplier`."""
    return str(key).replace("_", " ")


def _rounded(value: float, rounding: str) -> str:
    if not math.isfinite(value):
        return "∞" if value > 0 else "undefined"
    exact = Decimal(repr(float(value)))
    if exact == 0:
        return "0"
    unit = Decimal(1).scaleb(exact.adjusted() - _SIGNIFICANT + 1)
    return f"{float(exact.quantize(unit, rounding=rounding)):.6g}"
