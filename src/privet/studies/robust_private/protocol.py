"""How every release of a study is attacked and certified: the same for all of them.

Sizes are for inputs in [0, 1], as everywhere in Privet; the papers' are for [-1, 1], twice as
large. Tables print both.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor

from privet.attacks.attack import Attack
from privet.attacks.geometry import Norm
from privet.attacks.registry import create, find_attack, settings_of
from privet.certification import Gaussian
from privet.certification.stopping import radii_of
from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.privacy.confidence import check_alpha, lower_bound
from privet.privacy.precision import FULL, PRECISIONS

NORM: Final[Norm] = "linf"
LEAST_EOT: Final = 20  # draws; fewer flatter a random classifier
PAPERS_SCALE: Final = 2.0  # the width of [-1, 1], where ours is 1
USUAL_SIZE: Final = 0.1
USUAL_EPSILON: Final = 1.0


@final
@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What is asked of every release.

    Attributes:
        attacks: by name.
        norm: of attacks.
        sizes: largest norms, ascending.
        steps: of the iterated attacks; default: each one's own.
        eot: draws of a random classifier in each gradient and check.
        restarts: of the attacks that have random starts.
        examples: test examples to attack, evenly spread; default: all.
        scale: sigma of the Gaussian noise that smooths.
        radii: l2, ascending.
        alpha: chance that a certificate is wrong.
        n: votes of each image; `n0` choose its class.
        certified_examples: test examples to certify; default: as many as are attacked.
        batch: images in a pass.
        precision: of the passes that certify: 'float32', 'tf32', 'bf16'; the classifier at it is
            what is certified.
    """

    attacks: tuple[str, ...] = ("fgsm", "ifgsm", "mim", "pgd")
    norm: Norm = NORM
    sizes: tuple[float, ...] = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    steps: int | None = None
    eot: int = LEAST_EOT
    restarts: int = 5
    examples: int | None = None
    scale: float = 0.25
    radii: tuple[float, ...] = (0.25, 0.5, 1.0)
    alpha: float = 0.001
    n: int = 10_000
    n0: int = 200
    certified_examples: int | None = None
    batch: int = 1000
    precision: str = FULL.name

    def __post_init__(self) -> None:
        _require_ascending("sizes", self.sizes)
        _require_ascending("radii", self.radii)
        check_alpha(self.alpha)
        if self.precision not in PRECISIONS:
            raise InputError(
                "unknown precision",
                got=f"'{self.precision}'",
                expected=f"one of {', '.join(PRECISIONS)}",
            )
        for name in ("steps", "restarts", "examples", "n", "n0", "certified_examples", "batch"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise InputError(f"bad {name.replace('_', ' ')}", got=count, expected="at least 1")
        if self.eot < LEAST_EOT:
            raise InputError(
                "too few draws of random classifiers",
                got=f"eot {self.eot}",
                expected=f"at least {LEAST_EOT}",
            )
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise InputError("bad attacks", got=list(self.attacks), expected="each one once")
        _ = self.configured, self.noise

    @property
    def configured(self) -> list[Attack]:
        """The attacks."""
        given = {"steps": self.steps, "restarts": self.restarts}
        return [
            create(name, norm=self.norm, eot=self.eot, **that_it_has(name, given))
            for name in self.attacks
        ]

    @property
    def noise(self) -> Gaussian:
        """What smooths."""
        return Gaussian(self.scale)

    @property
    def reach(self) -> float:
        """The largest radius that n votes can prove: all of them for one class."""
        lower = lower_bound(np.array([self.n]), self.n, self.alpha)
        return float(radii_of(self.noise, lower)[0])

    @property
    def attacking(self) -> dict[str, Any]:
        """What decides on accuracies under attack."""
        names = ("attacks", "sizes", "steps", "eot", "restarts", "examples")
        return {"norm": self.norm, **self._told(names)}

    @property
    def certifying(self) -> dict[str, Any]:
        """What decides on certificates."""
        names = ("scale", "radii", "alpha", "n", "n0")
        coarse = {} if self.precision == FULL.name else {"precision": self.precision}
        examples = self.certified_examples or self.examples
        return {**self._told(names), "examples": examples, **coarse}

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {"attacking": self.attacking, "certifying": self.certifying, "reach": self.reach}

    def _told(self, names: tuple[str, ...]) -> dict[str, Any]:
        values = {name: asdict(self)[name] for name in names}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def chosen_examples(data: Dataset, count: int | None) -> tuple[Tensor, Tensor]:
    """So many test examples, evenly spread, scaled to [0, 1]; all of them for None."""
    most = len(data.test)
    rows = np.linspace(0, most - 1, min(count or most, most)).round().astype(int)
    x = data.bounds.clamp_and_scale(data.test.x[rows])
    return torch.as_tensor(x), torch.as_tensor(data.test.y[rows].astype(np.int64))


def nearest(values: tuple[float, ...] | list[float], wanted: float) -> float:
    """The value nearest to the one that is wanted."""
    return min(values, key=lambda value: abs(value - wanted))


def on_both_scales(size: float) -> str:
    """A size for inputs in [0, 1], and what the papers call it."""
    return f"{size:g} ({PAPERS_SCALE * size:g} on [-1, 1])"


def that_it_has(name: str, given: Mapping[str, float | None]) -> dict[str, Any]:
    """Those of the settings that an attack has, and that have a value."""
    known = settings_of(find_attack(name))
    return {k: v for k, v in given.items() if k in known and v is not None}


def _require_ascending(what: str, values: tuple[float, ...]) -> None:
    usable = values and all(0 < value < math.inf for value in values)
    if not usable or list(values) != sorted(set(values)):
        raise InputError(
            f"bad {what}", got=list(values), expected="finite numbers above 0, ascending"
        )
