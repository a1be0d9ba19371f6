"""The region that a unit's gradient is clipped into: a ball, one ball a layer, or an ellipsoid.

A layer is the module that owns the parameters; its name is the module's path ("" for the model
itself). A parameter that several layers share belongs to the first.

| name      | region for a unit's gradient g                           | public numbers        |
|-----------|----------------------------------------------------------|-----------------------|
| flat      | ||g|| <= C                                               | none                  |
| per-layer | ||g_l|| <= C_l for each layer l, with sum_l C_l^2 = C^2  | shares s_l; C_l ~ s_l |
| weighted  | sum_l w_l^2 ||g_l||^2 <= C^2                             | weights w_l           |
| by-input  | sum_j w_j^2 ||g_1j||^2 + sum_l>1 ||g_l||^2 <= C^2        | weights w_j           |
| by-part   | ||g_p|| <= r_p C for each part p, and ||g|| <= C         | r_p, at most 1        |

By input: g_1j is the gradient of those weights of the first layer, an `nn.Linear`, that input j is
multiplied with; the bias of that layer counts among the others.

By part: a part is all below a module, "" what no other part holds. Each is shortened by itself,
then all of it where it is still too long: that never happens if the r_p of the parts that learn in
one step have squares that add up to 1. Parts that learn in different steps may have the whole.

Guarantee: in the coordinates u = W g (W = 1 but for weighted and by-input), every region lies in
the ball of radius C. So the sum of clipped gradients has L2 sensitivity C under add/remove of one
unit, and isotropic Gaussian noise of standard deviation sigma C added to it is the Gaussian
mechanism with noise multiplier sigma. Going back to the parameters' own coordinates (g = W^-1 u,
public W) is post-processing; seen there, the noise is anisotropic with the public covariance
(sigma C)^2 W^-2. The numbers must be public: chosen before the data are seen, from sizes of layers
alone, or from what was learned privately before and is charged by itself.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, final

import torch
from torch import Tensor, nn

from privet.errors import InputError

# Norms have a relative error well below this; clipping to a slightly smaller norm keeps rounding
# from lifting a contribution above the clip norm.
ROUNDING_MARGIN: Final = 1e-5
LARGEST_NORM: Final = 1e18  # its square still fits in float32
EXTREME_NUMBER: Final = 1e9  # beyond, float32 loses the products with a gradient

GEOMETRIES: Final = ("flat", "per-layer", "weighted")  # that a name alone stands for
BY_INPUT: Final = "by-input"
BY_PART: Final = "by-part"
_KINDS: Final = {**dict.fromkeys(GEOMETRIES, "layer"), BY_INPUT: "input", BY_PART: "part"}


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters a private step updates, in a fixed order; shared ones once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def layer_of(parameter: str) -> str:
    """The path of the module that owns a parameter."""
    return parameter.rpartition(".")[0]


def part_of(parameter: str, parts: Iterable[str]) -> str:
    """The narrowest of the parts that holds a parameter; "" for none."""
    return max((part for part in parts if parameter.startswith(f"{part}.")), key=len, default="")


def layer_sizes(model: nn.Module) -> dict[str, int]:
    """How many trainable numbers each layer owns, in the order of the parameters."""
    sizes: dict[str, int] = {}
    for name, parameter in trainable(model).items():
        sizes[layer_of(name)] = sizes.get(layer_of(name), 0) + parameter.numel()
    return sizes


@final
@dataclass(frozen=True)
class Geometry:
    """A region by name, with its public numbers: (layer, number) pairs, or (input, number) pairs.

    Layers that are not named have the number 1. Where no number is given at all, `resolved` takes
    equal shares, or weights by the sizes of the layers. Inputs are named by their places, all.
    """

    name: str = "flat"
    numbers: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in _KINDS:
            raise InputError(
                "unknown clipping geometry",
                got=f"'{self.name}'",
                expected=f"one of {', '.join(_KINDS)}",
            )
        if self.name == "flat" and self.numbers:
            raise InputError("flat clipping has no numbers", got=dict(self.numbers))
        most = 1.0 if self.name == BY_PART else EXTREME_NUMBER
        for name, number in self.numbers:
            if not 1 / EXTREME_NUMBER <= number <= most:
                raise InputError(
                    f"bad number for {_KINDS[self.name]} '{name}'",
                    got=number,
                    expected=f"a positive number between {1 / EXTREME_NUMBER:g} and {most:g}",
                )

    @classmethod
    def per_layer(cls, shares: Mapping[str, float] | None = None) -> Self:
        """Each layer by itself, C_l = C s_l / sqrt(sum s^2); equal shares by default."""
        return cls("per-layer", tuple((shares or {}).items()))

    @classmethod
    def weighted(cls, weights: Mapping[str, float] | None = None) -> Self:
        """An ellipsoid with weights w_l; by default from the layers' sizes."""
        return cls("weighted", tuple((weights or {}).items()))

    @classmethod
    def by_input(cls, weights: Sequence[float]) -> Self:
        """An ellipsoid with a weight for each input of the first layer."""
        return cls(BY_INPUT, tuple((str(j), float(w)) for j, w in enumerate(weights)))

    @classmethod
    def by_part(cls, radii: Mapping[str, float]) -> Self:
        """Parts of a model, each by itself, within the ball; a part's radius in clip norms."""
        return cls(BY_PART, tuple(radii.items()))

    def resolved(self, model: nn.Module) -> Self:
        """The same with the number of every layer of `model` written out, for the record."""
        if self.name == "flat":
            return self
        if self.name == BY_INPUT:
            require_inputs(model, [place for place, _ in self.numbers])
            return self
        if self.name == BY_PART:
            return type(self)(self.name, tuple(self._parts(model).items()))
        sizes = layer_sizes(model)
        unknown = [layer for layer, _ in self.numbers if layer not in sizes]
        if unknown:
            raise InputError(
                "unknown layer in the clipping geometry",
                got=f"'{unknown[0]}'",
                expected="one of " + ", ".join(f"'{layer}'" for layer in sizes),
                fix="name modules that own trainable parameters, as named_modules() does",
            )
        if self.name == "weighted" and not self.numbers:
            numbers = _weights_by_size(sizes)
        else:
            numbers = dict.fromkeys(sizes, 1.0) | dict(self.numbers)
        return type(self)(self.name, tuple(numbers.items()))

    def _parts(self, model: nn.Module) -> dict[str, float]:
        """The radius of each part that owns something; of what no part holds the whole."""
        named = dict(self.numbers)
        owned = dict.fromkeys(part_of(name, named) for name in trainable(model))
        unknown = [part for part in named if part not in owned]
        if unknown:
            raise InputError(
                "unknown part in the clipping geometry",
                got=f"'{unknown[0]}'",
                expected="paths of modules with trainable parameters below",
            )
        return {part: named.get(part, 1.0) for part in owned}

    def to_json(self) -> dict[str, Any]:
        """For plans and trust cards."""
        return {"name": self.name, "numbers": dict(self.numbers)}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(tree["name"], tuple((k, float(v)) for k, v in tree["numbers"].items()))


FLAT: Final = Geometry()


def first_weight(model: nn.Module) -> str:
    """The name of the first trainable parameter of the first layer, whose inputs are weighted."""
    name = next(iter(trainable(model)))
    layer = model.get_submodule(layer_of(name))
    if not (type(layer) is nn.Linear and name.endswith("weight")):
        raise InputError(
            "no weights of single inputs",
            got=f"a first layer of kind {type(layer).__name__}, '{layer_of(name)}'",
            expected="nn.Linear: a convolution has the same weights everywhere",
            fix="use --model mlp or linear",
        )
    return name


def require_inputs(model: nn.Module, places: Sequence[str]) -> None:
    """Refuse weights that are not one for each input of the first layer."""
    inputs = model.get_parameter(first_weight(model)).shape[1]
    if list(places) != [str(j) for j in range(inputs)]:
        raise InputError(
            "weights of other inputs than the first layer has",
            got=f"{len(places)} weights",
            expected=f"one for each of the {inputs} inputs, in order",
        )


def _weights_by_size(sizes: Mapping[str, int]) -> dict[str, float]:
    """w_l = p_l^(1/4), scaled to sum_l w_l^2 = L.

    Why: without looking at data, expect every layer's gradient to be equally long. The scaling
    then leaves the length of such a gradient, and so the meaning of C, as under flat clipping; and
    among all weights of that scaling these add the least noise in total, sum_l p_l / w_l^2
    (Cauchy-Schwarz: (sum_l sqrt(p_l))^2 <= sum_l p_l/w_l^2 * sum_l w_l^2, equal at w_l^2 ~
    sqrt(p_l)).
    """
    scale = len(sizes) / sum(math.sqrt(p) for p in sizes.values())
    return {layer: math.sqrt(scale * math.sqrt(p)) for layer, p in sizes.items()}


def clip_factors(norms: Tensor, clip_norm: float) -> Tensor:
    """What to multiply each unit's gradient by; 0 where the norm is not finite or absurd."""
    bound = clip_norm * (1.0 - ROUNDING_MARGIN)
    factors = bound / norms.clamp_min(bound)
    return torch.where(norms <= LARGEST_NORM, factors, torch.zeros_like(factors))


@final
class Region:
    """A geometry laid over a model's parameters, with a clip norm."""

    def __init__(self, geometry: Geometry, model: nn.Module, clip_norm: float) -> None:
        numbers = dict(geometry.resolved(model).numbers)
        names = list(trainable(model))
        self.scales = dict.fromkeys(names, 1.0)
        self.input_scales: dict[str, Tensor] = {}  # of weights whose inputs are weighted
        self.balls = [names]  # parameters that are clipped together
        self.radii = [clip_norm]
        self.whole: float | None = None  # radius of all balls together, where that is less
        if geometry.name == "weighted":
            self.scales = {name: numbers[layer_of(name)] for name in names}
        elif geometry.name == BY_INPUT:
            weight = first_weight(model)
            row = torch.tensor(list(numbers.values()), dtype=torch.float64)
            self.input_scales = {weight: row.to(model.get_parameter(weight))}
        elif geometry.name == "per-layer":
            length = math.hypot(*numbers.values())
            self.balls = [[n for n in names if layer_of(n) == layer] for layer in numbers]
            self.radii = [clip_norm * share / length for share in numbers.values()]
        elif geometry.name == BY_PART:
            self.balls = [[n for n in names if part_of(n, numbers) == part] for part in numbers]
            self.radii = [clip_norm * radius for radius in numbers.values()]
            self.whole = clip_norm

    def factors(self, squared: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """From each parameter's squared norms to what its gradients are multiplied by.

        The scale is in it: factor times gradient is in the coordinates u. A unit that is broken in
        one ball is 0 in all.
        """
        balls = [[name for name in names if name in squared] for names in self.balls]
        norms = [self._norms(names, squared) for names in balls if names]
        radii = [radius for names, radius in zip(balls, self.radii, strict=True) if names]
        factors = [clip_factors(n, radius) for n, radius in zip(norms, radii, strict=True)]
        if self.whole is not None:
            lengths = [(f * n).nan_to_num(0.0) for f, n in zip(factors, norms, strict=True)]
            outer = clip_factors(torch.stack(lengths).square().sum(0).sqrt(), self.whole)
            factors = [f * outer for f in factors]
        if len(factors) > 1:
            sound = torch.stack(factors).amin(0) > 0
            factors = [torch.where(sound, f, torch.zeros_like(f)) for f in factors]
        present = [names for names in balls if names]
        return {
            name: factor if self.scales[name] == 1.0 else self.scales[name] * factor
            for names, factor in zip(present, factors, strict=True)
            for name in names
        }

    def sharing(self, names: Iterable[str]) -> list[list[str]]:
        """The parameters by what they are multiplied with: those of a group have one factor."""
        ball_of = {name: ball for ball, members in enumerate(self.balls) for name in members}
        groups: dict[tuple[int, float], list[str]] = defaultdict(list)
        for name in names:
            groups[ball_of[name], self.scales[name]].append(name)
        return list(groups.values())

    def _norms(self, names: Sequence[str], squared: Mapping[str, Tensor]) -> Tensor:
        """Of the parameters together, in the coordinates u."""
        lengths = [
            squared[n] if self.scales[n] == 1.0 else self.scales[n] ** 2 * squared[n] for n in names
        ]
        return torch.stack(lengths).sum(0).sqrt()

    def in_parameters(self, flat: Tensor, model: nn.Module) -> Tensor:
        """W^-1 u: a vector over the trainable parameters, from u to their own coordinates."""
        if not self.input_scales and all(scale == 1.0 for scale in self.scales.values()):
            return flat
        parameters = trainable(model)
        parts = torch.split(flat, [p.numel() for p in parameters.values()])
        back = []
        for part, (name, parameter) in zip(parts, parameters.items(), strict=True):
            if name in self.input_scales:
                scale = self.input_scales[name].to(part)
                part = (part.view(parameter.shape) / scale).flatten()
            back.append(part / self.scales[name])
        return torch.cat(back)
