"""Methods by name: `train("dpsgd", data, ...)`."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from privet.data.dataset import Dataset
from privet.engine.arguments import require_dataset, require_ledger, shown
from privet.errors import InputError
from privet.release import Release
from privet.training import dpsgd, plain
from privet.training.recipes import settings_of
from privet.training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way of training: its settings, and the functions that begin a run and go on with one."""

    name: str
    summary: str
    promises: str
    settings: type[Any]
    run: Callable[..., Release]
    resume: Callable[..., Release]

    @property
    def private(self) -> bool:
        """Whether it has a privacy target."""
        return "epsilon" in self.options

    @property
    def options(self) -> set[str]:
        """Names of its settings."""
        return {field.name for field in fields(self.settings)}


METHODS = {
    "dpsgd": Method(
        name="dpsgd",
        summary="per-example clipped, noised gradients (Abadi et al., 2016)",
        promises="(epsilon, delta)-DP, proved",
        settings=Settings,
        run=dpsgd.run,
        resume=dpsgd.resume,
    ),
    "plain": Method(
        name="plain",
        summary="minibatch gradient descent, to compare with",
        promises="no privacy",
        settings=plain.PlainSettings,
        run=plain.run,
        resume=plain.resume,
    ),
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
    method: str,
    data: Dataset,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    **options: Any,
) -> Release:
    """Train a classifier by a named method.

    Args:
        method: see `privet methods`.
        data: from `privet.data.load`, or a `Dataset` of your own.
        epsilon: target, add/remove neighbours; every private method needs one, no other takes one.
        delta: of the target; well below 1 / size of the data; default 1e-5.
        options: the method's settings, and `out` (folder), `ledger`, `watch`.
    """
    chosen = find_method(method)
    require_dataset(data)
    require_ledger(options.get("ledger"))
    require_target(chosen, epsilon, delta)
    unknown = set(options) - chosen.options - {"out", "ledger", "watch", "reference"}
    if unknown:
        raise InputError(
            f"unknown setting of '{method}'",
            got=", ".join(sorted(unknown)),
            expected=f"some of {', '.join(sorted(chosen.options))}",
        )
    given = {k: v for k, v in options.items() if k in chosen.options}
    settings = settings_of(options.get("recipe"), given, data.nominal_size) | given
    target = {"epsilon": epsilon, "delta": delta}
    settings |= {name: value for name, value in target.items() if value is not None}
    rest = {k: v for k, v in options.items() if k not in chosen.options}
    return chosen.run(data, chosen.settings(**settings), **rest)


def require_target(method: Method, epsilon: float | None, delta: float | None) -> None:
    """A private method needs a target; one without privacy must not seem to have one."""
    if method.private and epsilon is None:
        raise InputError(
            "no privacy target",
            got=f"'{method.name}' without epsilon",
            fix="give one, as in --epsilon 3; training without privacy is `privet train plain`",
        )
    if not method.private and not (epsilon is delta is None):
        raise InputError(
            f"'{method.name}' gives no privacy, and takes no target",
            got=f"epsilon {epsilon}" if epsilon is not None else f"delta {delta}",
            fix="leave it out; for a private model: `privet train dpsgd`",
        )
