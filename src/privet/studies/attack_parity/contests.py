"""Which attacks meet, at which size, with how many gradients or queries.

Budgets are the same for everybody: size, steps, length of a step (as a share of the size), random
starts, queries. Where a peer has no such setting, `worker` says what it gets instead.
"""

from dataclasses import dataclass, field
from typing import Any, Final, final

from privet.attacks import ATTACKS, Attack, create
from privet.attacks.geometry import Norm
from privet.errors import InputError

# Where the network of `network` loses a good part of its accuracy and keeps another: at 0 % and at
# 100 % all attacks look alike.
SIZES: Final[dict[str, dict[Norm, float]]] = {
    "digits": {"linf": 0.1, "l2": 0.5},
    "mnist": {"linf": 0.1, "l2": 1.5},
}
BUDGETS: Final[dict[str, dict[str, Any]]] = {
    "fgsm": {},
    "ifgsm": {"steps": 40, "step": 0.0625},
    "mim": {"steps": 40, "step": 0.0625, "decay": 1.0},
    "pgd": {"steps": 40, "step": 0.0625, "restarts": 1},
    "apgd-ce": {"steps": 50, "restarts": 1},
    "apgd-dlr": {"steps": 50, "restarts": 1},
    "cw": {"searches": 5, "iterations": 100, "rate": 0.05, "first_c": 0.01},
    "deepfool": {"iterations": 50, "candidates": 10, "overshoot": 0.02},
    "square": {"queries": 500, "share": 0.8},
}
NORMS: Final[tuple[Norm, ...]] = ("linf", "l2")


@final
@dataclass(frozen=True, kw_only=True)
class Contest:
    """One attack in one norm: what everybody is asked for."""

    attack: str
    norm: Norm
    size: float
    budget: dict[str, Any] = field(hash=False)

    def ours(self, seed: int = 0) -> Attack:
        """Privet's."""
        return create(self.attack, norm=self.norm, seed=seed, **self.budget)

    @property
    def minimal(self) -> bool:
        """Whether the smallest perturbation is looked for, and the size only counts."""
        return ATTACKS[self.attack].minimal

    def to_json(self) -> dict[str, Any]:
        """For the record, and for the worker."""
        return {
            "attack": self.attack,
            "norm": self.norm,
            "size": self.size,
            "budget": self.budget,
            "minimal": self.minimal,
        }


def contests(data: str, attacks: list[str]) -> list[Contest]:
    """All norms of the attacks named, in the order of `BUDGETS`."""
    unknown = sorted(set(attacks) - set(BUDGETS))
    if unknown or not attacks:
        raise InputError(
            "unknown attacks", got=", ".join(unknown) or "none", expected=", ".join(BUDGETS)
        )
    if data not in SIZES:
        raise InputError("no sizes for these data", got=f"'{data}'", expected=" or ".join(SIZES))
    return [
        Contest(attack=name, norm=norm, size=SIZES[data][norm], budget=budget)
        for name, budget in BUDGETS.items()
        for norm in NORMS
        if name in attacks and norm in ATTACKS[name].norms
    ]
