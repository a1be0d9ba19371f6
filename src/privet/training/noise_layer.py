"""Noise behind the first linear map, whose norm is kept at one: PixelDP, SecureSGD, StoBatch.

| papers               | here                             | meaning                                |
|----------------------|----------------------------------|----------------------------------------|
| L                    | `attack_bound`                   | attack that the noise is made for      |
| epsilon_r, delta_r   | `robust_epsilon`, `robust_delta` | closeness of the noisy layer under it  |
| Delta                | at most 1                        | move of the layer per unit of attack   |
| sigma, b             | `noise_scale`                    | of the noise, in each entry            |

Inputs are in [0, 1], and so are the units of L; the papers' [-1, 1] has twice the numbers. Delta is
counted from there: centring, which doubles, is a part of the first map.

Sensitivity. The noise hides a move of the layer, so the layer must not move far. Before the first
step and after each one the weights of the first map are divided by a proved bound of its norm
wherever that is above one: from l2 to l2 for Gaussian noise, from l1 to l1 for Laplace noise. A
moving average of such weights is within the bound as well, for a norm is convex.

In a private run this costs nothing: it reads weights alone, which follow from private sums, and it
happens inside the optimiser's step.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import torch
from torch import nn

from privet.certification.operator_norm import l1_norm, read_linear
from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.models.hidden_noise import HiddenNoise, first_map, with_noise
from privet.training.ordinary import OrdinarySettings

ROOM: Final = 1.0 - 1e-5  # so that weights rounded to single precision stay within the bound
LARGEST_DELTA: Final = 0.5  # the calibrations are proved up to here


@dataclass(frozen=True, kw_only=True)
class NoiseLayerSettings(OrdinarySettings):
    """The settings of the noise; none of it is read off the data.

    Attributes:
        attack_bound: L, in l2 for Gaussian and in l1 for Laplace noise, inputs in [0, 1].
        robust_epsilon: epsilon_r at that size: less of it is more noise.
        robust_delta: delta_r, of Gaussian noise.
        model: default: the papers' network where the examples are images.
    """

    attack_bound: float = 0.1
    robust_epsilon: float = 1.0
    robust_delta: float = 1e-5

    _network: ClassVar[str] = "published-gn"

    @property
    @abstractmethod
    def noise_scale(self) -> float:
        """The scale that makes the noisy layer (epsilon_r, delta_r)-close up to L; the least."""

    @property
    def noise_kind(self) -> str:
        """Of `models.hidden_noise`."""
        return "gaussian"

    @property
    def noise_place(self) -> int:
        """0 for the input, 1 for behind the first linear map."""
        return 1

    def noise_for(self, model: nn.Module, shape: tuple[int, ...]) -> HiddenNoise:
        """The layer of noise of a network that has none yet; one scale for all entries."""
        return HiddenNoise(self.noise_kind, torch.tensor(self.noise_scale))

    def network(self, data: Dataset) -> nn.Module:
        """The named one with its layer of noise; its first map is within the bound already."""
        model = super().network(data)
        if not self.noise_place:
            return with_noise(model, self.noise_for(model, data.shape), layer=0)
        shorten(first_map(model), data.shape, norm_of(self.noise_kind))
        return with_noise(model, self.noise_for(model, data.shape))

    def constrained(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, shape: tuple[int, ...]
    ) -> torch.optim.Optimizer:
        """One whose every step ends with a first map within the bound."""
        if self.noise_place:
            keep_within_one(optimizer, model, shape, norm_of(self.noise_kind))
        return optimizer

    def filled_for(self, data: Dataset) -> Self:
        """The papers' network for images."""
        filled = super().filled_for(data)
        images = self.model is None and len(data.shape) == 3
        return replace(filled, model=self._network) if images else filled

    def _check_together(self) -> None:
        super()._check_together()
        for name in ("attack_bound", "robust_epsilon"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(
                    f"bad {name}", got=getattr(self, name), expected="a positive, finite number"
                )
        if not 0 < self.robust_delta < LARGEST_DELTA:
            raise InputError(
                "bad robust_delta",
                got=self.robust_delta,
                expected=f"0 < robust_delta < {LARGEST_DELTA}",
                fix="try 1e-5",
            )


def noise_facts(settings: NoiseLayerSettings) -> dict[str, Any]:
    """What a card says of the noise; `training.own_noise` reads the settings behind it."""
    place = "behind the first linear map" if settings.noise_place else "on the input"
    return {
        "noise": f"{settings.noise_kind} {place}, against changed inputs: it hides no record",
        "hidden_noise": settings.noise_kind,
        "hidden_scale": settings.noise_scale,
        "hidden_layer": settings.noise_place,
        "hidden_sensitivity": 1.0,
    }


def norm_of(kind: str) -> str:
    """In which noise of a kind hides a move."""
    return {"gaussian": "l2", "laplace": "l1"}[kind]


def keep_within_one(
    optimizer: torch.optim.Optimizer, model: nn.Module, shape: tuple[int, ...], norm: str
) -> None:
    """Have every step of the optimiser end with a first map of norm at most one."""
    path = first_map(model)
    optimizer.register_step_post_hook(lambda *_: shorten(path, shape, norm))


def shorten(path: nn.Sequential, shape: tuple[int, ...], norm: str) -> None:
    """Bring the last, linear layer of a path to norm one, if it is above."""
    bound = norm_bound(path, shape, norm)
    if bound > 1.0:
        weight = path[-1].weight
        assert isinstance(weight, nn.Parameter)
        with torch.no_grad():
            weight.mul_(ROOM / bound)


def norm_bound(path: nn.Module, shape: tuple[int, ...], norm: str) -> float:
    """A proved bound of a linear path's norm, l2 to l2 or l1 to l1, in milliseconds.

    `operator_norm` finds a smaller one in l2, a few per cent, and takes longer.
    """
    if norm == "l1":
        return l1_norm(path, shape)
    return math.prod(min(bound for bound, _ in form.bounds()) for form in read_linear(path, shape))
