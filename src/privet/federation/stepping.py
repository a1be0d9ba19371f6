"""How the server moves the model by the change that its clients made together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from privet.errors import InputError


class ServerStep(ABC):
    """From the weights and one change to the next weights."""

    @abstractmethod
    def moved(self, weights: Tensor, change: Tensor) -> Tensor:
        """The weights after the step, in double precision."""

    def state(self) -> dict[str, Any]:
        """What it remembers from step to step."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with that memory."""
        del state


@final
class Move(ServerStep):
    """theta + gamma Delta."""

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = _checked(rate)

    def moved(self, weights: Tensor, change: Tensor) -> Tensor:
        """A step of `rate` along the change."""
        return weights.double() + self.rate * change.double()


@final
class Adam(ServerStep):
    """FedAdam (Reddi et al., 2021): m and v without correction of their start, as published.

    m <- b1 m + (1 - b1) Delta;  v <- b2 v + (1 - b2) Delta^2;  theta + gamma m / (sqrt v + tau),
    with v = tau^2 at first.
    """

    def __init__(
        self, size: int, *, rate: float = 0.01, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3
    ) -> None:
        self.rate, self.tau = _checked(rate), tau
        if not (0 <= b1 < 1 and 0 <= b2 < 1 and tau > 0):
            raise InputError(
                "bad settings of FedAdam",
                got=f"b1={b1}, b2={b2}, tau={tau}",
                expected="0 <= b1, b2 < 1 and tau > 0",
            )
        self.b1, self.b2 = b1, b2
        self.m = torch.zeros(size, dtype=torch.float64)
        self.v = torch.full((size,), tau**2, dtype=torch.float64)

    def moved(self, weights: Tensor, change: Tensor) -> Tensor:
        """A step by the moments, which are brought up to date."""
        self.m, self.v = self.m.to(change.device), self.v.to(change.device)
        change = change.double()
        self.m.lerp_(change, 1 - self.b1)
        self.v.lerp_(change.square(), 1 - self.b2)
        return weights.to(self.m) + self.rate * self.m / (self.v.sqrt() + self.tau)

    def state(self) -> dict[str, Any]:
        """Both moments."""
        return {"m": self.m.clone(), "v": self.v.clone()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with moments."""
        self.m.copy_(state["m"])
        self.v.copy_(state["v"])


def _checked(rate: float) -> float:
    if not 0 < rate < float("inf"):
        raise InputError(
            "bad server learning rate", got=rate, expected="a positive, finite number", fix="try 1"
        )
    return rate
