"""Noise after a layer inside the network, instead of or besides noise on the input.

| symbol  | here            | meaning                                                            |
|---------|-----------------|--------------------------------------------------------------------|
| path    | `Split.path`    | the network up to and with the `layer`-th linear map               |
| rest    | `Split.rest`    | what follows                                                       |
| L       | `Split.bound`   | the path moves at most L times as far as the input (`lipschitz`)   |
| sigma_h | `hidden_scale`  | of the noise on path(x)                                            |
| sigma_x | `input_scale`   | of the noise on x                                                  |
| s       | `scale`         | of noise on the input that certifies as much                       |

PixelDP (Lecuyer et al., 2019) adds noise at any one layer; StoBatch at the input and at the first
layer. Their certificates go by (epsilon, delta); these go by the trade-off function:

Guarantee. A class of probability at least p > 1/2 stays the most probable one within

| noise                                      | norm | radius                                     |
|--------------------------------------------|------|--------------------------------------------|
| Gaussian after any layer                   | l2   | (sigma_h / L) Phi^-1(p)                    |
| Laplace after any layer                    | l1   | (sigma_h / L) (-ln(2 (1 - p)))             |
| Gaussian on x and after a *linear* path    | l2   | sqrt(sigma_x^2 + sigma_h^2/L^2) Phi^-1(p)  |

Proof. The first two: moving x by delta moves path(x) by at most L |delta| in the noise's norm, the
rest is post-processing, and the noise hides a move of its own layer as it hides one of an input
(`smoothing_noise`). Last: `layered`. With a path that is not linear, the noise on x is no longer
Gaussian at the layer; that is refused.

L multiplies over layers and is what limits later ones. The path runs in float32 whatever the
precision of the rest: the bound is of the exact map, and coarse rounding is no part of it.
"""

import copy
import dataclasses
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor, nn

from privet.certification.layered import LayeredGaussian
from privet.certification.lipschitz import lipschitz
from privet.certification.operator_norm import CONVOLUTIONS, parts_of
from privet.certification.smoothing_noise import (
    Gaussian,
    Laplace,
    SmoothingNoise,
    check_scale,
)
from privet.classifiers import Classifier
from privet.errors import InputError
from privet.privacy.precision import FULL
from privet.privacy.tradeoff import TradeOff

LEAST_GAPS: float = 2.0**12  # of floating point, in a scale of noise
LEAST: float = 1e-9  # a path that hardly moves is taken to move so much: larger is sound


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """A network in two, and the scale of input noise that certifies as much as the noise between.

    Attributes:
        path: a copy, so that later changes of the weights do not reach it.
        rest: what follows.
        bound: L.
        scale: s.
    """

    path: nn.Module
    rest: nn.Module
    bound: float
    scale: float


def split_after(model: nn.Module, layer: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Cut a Sequential behind its `layer`-th linear map (Linear or convolution), counted from 1."""
    parts = [part for _, part in parts_of(model)]
    ends = [i for i, part in enumerate(parts) if isinstance(part, (nn.Linear, *CONVOLUTIONS))]
    if not 1 <= layer <= len(ends):
        raise InputError(
            "no such layer to add noise after",
            got=f"--layer {layer} of {type(model).__name__}, {len(ends)} linear maps in sequence",
            expected=f"1 to {len(ends)}" if ends else "a Sequential of layers",
            fix="--scale alone, noise on the input, needs no layers: leave --hidden-scale out",
        )
    cut = ends[layer - 1] + 1
    return nn.Sequential(*parts[:cut]), nn.Sequential(*parts[cut:])


def takes_hidden_noise(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether noise after the first linear map can be certified."""
    try:
        path, _ = split_after(model, 1)
        lipschitz(copy.deepcopy(path).eval(), shape, "l2")
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class _HiddenNoise(SmoothingNoise):
    """What both kinds share; a radius is known once `certify` has fitted it to a classifier."""

    hidden_scale: float
    layer: int = 1
    split: Split | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        check_scale("hidden scale", self.hidden_scale)

    @property
    @abstractmethod
    def at_layer(self) -> SmoothingNoise:
        """The noise that is drawn at the layer."""

    @property
    @abstractmethod
    def at_input(self) -> SmoothingNoise:
        """The noise on the input that certifies as much."""

    @abstractmethod
    def _measured(self, path: nn.Module, shape: tuple[int, ...]) -> tuple[float, float]:
        """L of the path, and s."""

    @property
    def scale(self) -> float:
        """Of noise on the input that certifies as much."""
        return self._split.scale

    @property
    def details(self) -> dict[str, Any]:
        """Where the noise is, and what the path does to a move."""
        return {
            "layer": self.layer,
            "hidden_scale": self.hidden_scale,
            "sensitivity": self._split.bound,
        }

    def tradeoff(self, radius: float) -> TradeOff:
        """Of the equal noise on the input."""
        return self.at_input.tradeoff(radius)

    def fitted(self, classifier: Classifier, x: Tensor) -> Self:
        """Split the classifier's model and bound its path."""
        if classifier.module is None:
            raise InputError(
                "noise inside a classifier whose layers are not known",
                got=classifier.name,
                expected="a release or a module on inputs in [0, 1], without a denoiser",
            )
        path, rest = split_after(classifier.module, self.layer)
        path = copy.deepcopy(path).eval().requires_grad_(False)
        bound, scale = self._measured(path, classifier.shape)
        made = Split(path=path, rest=rest.eval(), bound=bound, scale=scale)
        return dataclasses.replace(self, split=made)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Of the input: none."""
        return torch.zeros(shape, device=generator.device)

    def scores(self, classifier: Classifier, x: Tensor, generator: torch.Generator) -> Tensor:
        """rest(path(x + noise) + noise): every row of every call has noise of its own."""
        with torch.autocast(x.device.type, enabled=False), FULL.products(x.device):
            exact = self._split.path(self.noisy(x, generator))
            self._require_unswallowed(exact)
            hidden = self.at_layer.noisy(exact, generator)
        scores: Tensor = self._split.rest(hidden)
        return scores

    def _require_unswallowed(self, exact: Tensor) -> None:
        """Refuse noise that is not far above the gaps between numbers as large as the layer's.

        Rounded away, noise hides nothing: inputs next to each other would get other classes.
        """
        largest = float(exact.abs().max()) if exact.numel() else 0.0
        gap = largest * torch.finfo(exact.dtype).eps
        if not gap * LEAST_GAPS <= self.hidden_scale:
            raise InputError(
                "hidden noise that rounding swallows",
                got=f"scale {self.hidden_scale:g} beside entries of {largest:.3g}",
                expected=f"at least {gap * LEAST_GAPS:.3g}",
                fix="a larger --hidden-scale, or --scale alone",
            )

    @property
    def _split(self) -> Split:
        if self.split is None:
            raise InputError("hidden noise that no classifier is known for", fix="certify with it")
        return self.split


@final
@dataclass(frozen=True)
class HiddenGaussian(_HiddenNoise):
    """N(0, hidden_scale^2) after the `layer`-th linear map, and input_scale on the input."""

    input_scale: float = 0.0
    name: ClassVar[str] = "hidden gaussian"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_scale:
            check_scale("input scale", self.input_scale)

    @property
    def at_layer(self) -> SmoothingNoise:
        """Gaussian."""
        return Gaussian(self.hidden_scale)

    @property
    def at_input(self) -> SmoothingNoise:
        """Gaussian."""
        return Gaussian(self.scale)

    @property
    def details(self) -> dict[str, Any]:
        """With the noise on the input."""
        return {**super().details, "input_scale": self.input_scale}

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Of the input."""
        if not self.input_scale:
            return super().draw(shape, generator)
        return Gaussian(self.input_scale).draw(shape, generator)

    def _measured(self, path: nn.Module, shape: tuple[int, ...]) -> tuple[float, float]:
        if self.input_scale:
            both = LayeredGaussian(path, self.input_scale, self.hidden_scale, shape)
            return both.norm.bound, both.effective_sigma
        bound = max(LEAST, lipschitz(path, shape, "l2"))
        return bound, self.hidden_scale / bound * (1.0 - 1e-15)


@final
@dataclass(frozen=True)
class HiddenLaplace(_HiddenNoise):
    """Laplace noise of scale hidden_scale after the `layer`-th linear map."""

    name: ClassVar[str] = "hidden laplace"
    norm: ClassVar[str] = "l1"

    @property
    def at_layer(self) -> SmoothingNoise:
        """Laplace."""
        return Laplace(self.hidden_scale)

    @property
    def at_input(self) -> SmoothingNoise:
        """Laplace."""
        return Laplace(self.scale)

    def _measured(self, path: nn.Module, shape: tuple[int, ...]) -> tuple[float, float]:
        bound = max(LEAST, lipschitz(path, shape, "l1"))
        return bound, self.hidden_scale / bound * (1.0 - 1e-15)
