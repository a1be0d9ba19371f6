"""Events as JSON, so that a release carries what happened and a stranger can recompute it."""

from collections.abc import Mapping
from typing import Any, Final

import dp_accounting as dp

from privet.errors import InputError
from privet.privacy.accounting import DiscreteLaplace, DpEvent, Selection, ZeroConcentrated

LIFELONG: Final = "lifelong"  # the field of a card that is of one task of a stream


def of_several_lifetimes(trust: Mapping[str, Any]) -> bool:
    """Whether units of a stream pay differently: the event of a card is then that of some.

    It is the costliest for add/remove at the card's delta, where epsilon is largest. At another
    delta, and of replaced units, others may pay more: nothing else may be read off it.
    """
    stream = trust.get(LIFELONG)
    if stream is None or stream["shared"]:
        return False
    return any(task != stream["tasks"][0] for task in stream["tasks"])


def to_json(event: DpEvent) -> dict[str, Any]:
    """A nested record with a `type` and plain numbers."""
    match event:
        case dp.GaussianDpEvent(noise_multiplier=z):
            return {"type": "Gaussian", "noise_multiplier": z}
        case dp.LaplaceDpEvent(noise_multiplier=b):
            return {"type": "Laplace", "noise_multiplier": b}
        case DiscreteLaplace(noise_parameter=a, sensitivity=s):
            return {"type": "DiscreteLaplace", "noise_parameter": a, "sensitivity": s}
        case dp.RandomizedResponseDpEvent(noise_parameter=p, num_buckets=k):
            return {"type": "RandomizedResponse", "noise_parameter": p, "num_buckets": k}
        case ZeroConcentrated(rho=rho, xi=0.0):
            return {"type": "ZeroConcentrated", "rho": rho}
        case dp.PoissonSampledDpEvent(sampling_probability=q, event=part):
            return {"type": "PoissonSampled", "sampling_probability": q, "event": to_json(part)}
        case dp.SelfComposedDpEvent(event=part, count=count):
            return {"type": "SelfComposed", "count": count, "event": to_json(part)}
        case dp.ComposedDpEvent(events=parts):
            return {"type": "Composed", "events": [to_json(part) for part in parts]}
        case Selection(event=part, mean=mean, shape=shape):
            return {"type": "Selection", "mean": mean, "shape": shape, "event": to_json(part)}
        case dp.NonPrivateDpEvent():
            return {"type": "NonPrivate"}
        case _:
            raise InputError("event that cannot be recorded", got=type(event).__name__)


def from_json(record: Any) -> DpEvent:
    """Inverse of `to_json`; a malformed record is bad input."""
    try:
        return _parse(record)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError("malformed privacy event", got=repr(error)) from None


def _parse(record: Any) -> DpEvent:
    match record["type"]:
        case "Gaussian":
            return dp.GaussianDpEvent(_positive(record["noise_multiplier"]))
        case "Laplace":
            return dp.LaplaceDpEvent(_positive(record["noise_multiplier"]))
        case "DiscreteLaplace":
            a = _positive(record["noise_parameter"])
            return DiscreteLaplace(a, _whole(record["sensitivity"], least=1))
        case "RandomizedResponse":
            p, k = _positive(record["noise_parameter"]), _whole(record["num_buckets"], least=2)
            if p > 1.0:
                raise ValueError(f"redrawn with probability {p}")
            return dp.RandomizedResponseDpEvent(p, k)
        case "ZeroConcentrated":
            return ZeroConcentrated(_positive(record["rho"]))
        case "PoissonSampled":
            rate = _positive(record["sampling_probability"])
            if rate > 1.0:
                raise ValueError(f"sampling probability {rate} above 1")
            return dp.PoissonSampledDpEvent(rate, _parse(record["event"]))
        case "SelfComposed":
            count = _whole(record["count"], least=1)
            return dp.SelfComposedDpEvent(_parse(record["event"]), count)
        case "Composed":
            return dp.ComposedDpEvent([_parse(part) for part in record["events"]])
        case "Selection":
            mean, shape = float(record["mean"]), float(record["shape"])
            if not (1 <= mean < float("inf") and -1 < shape < float("inf")):
                raise ValueError(f"selection with mean {mean}, shape {shape}")
            return Selection(_parse(record["event"]), mean, shape)
        case "NonPrivate":
            return dp.NonPrivateDpEvent()
        case other:
            raise ValueError(f"unknown event type {other!r}")


def _whole(value: Any, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{value!r} is not a whole number from {least} on")
    return value


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{value!r} is not a positive, finite number")
    return number
