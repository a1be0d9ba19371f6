"""Methods by name: `train("dpsgd", data, ...)`."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from privet.data.dataset import Dataset
from privet.engine.arguments import require_dataset, require_ledger, shown
from privet.errors import InputError
from privet.release import Release
from privet.training import dpsgd
from privet.training.recipes import settings_of
from privet.training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way of training: its settings and the function that runs it."""

    name: str
    summary: str
    promises: str
    settings: type[Any]
    run: Callable[..., Release]


METHODS = {
    "dpsgd": Method(
        name="dpsgd",
        summary="per-example clipped, noised gradients (Abadi et al., 2016)",
        promises="(epsilon, delta)-DP, proved",
        settings=Settings,
        run=dpsgd.run,
    )
}


def describe_methods() -> list[Method]:
    """All methods, for `privet methods`."""
    return list(METHODS.values())


def find_method(name: str) -> Method:
    """A method by name; an unknown one is bad input."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1) if isinstance(name, str) else []
    raise InputError(
        "unknown method",
        got=shown(name),
        expected=f"one of {', '.join(METHODS)}",
        fix=f"did you mean '{near[0]}'?" if near else "see `privet methods`",
    )


def train(
    method: str, data: Dataset, *, epsilon: float, delta: float = 1e-5, **options: Any
) -> Release:
    """Train a classifier by a named method.

    Args:
        method: see `privet methods`.
        data: from `privet.data.load`, or a `Dataset` of your own.
        epsilon: target, add/remove neighbours.
        delta: of the target; well below 1 / size of the data.
        options: the method's settings, and `out` (folder), `ledger`, `watch`.
    """
    chosen = find_method(method)
    require_dataset(data)
    require_ledger(options.get("ledger"))
    names = {field.name for field in fields(chosen.settings)}
    unknown = set(options) - names - {"out", "ledger", "watch", "reference"}
    if unknown:
        raise InputError(
            f"unknown setting of '{method}'",
            got=", ".join(sorted(unknown)),
            expected=f"some of {', '.join(sorted(names))}",
        )
    given = {k: v for k, v in options.items() if k in names}
    chosen_settings = settings_of(options.get("recipe"), given, data.nominal_size) | given
    rest = {k: v for k, v in options.items() if k not in names}
    return chosen.run(
        data, chosen.settings(epsilon=epsilon, delta=delta, **chosen_settings), **rest
    )
