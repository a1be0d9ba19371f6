"""One unit, one bounded contribution: gradients clipped unit by unit, then summed.

Two clippers, one contract. `ReferenceClipper` asks `torch.func` for every example's gradient:
slow, obviously right, for any model that treats examples apart. `FastClipper` keeps books during
one backward pass and never holds the per-example gradients of a large layer. `make_clipper` uses
the fast one only after it has agreed with plain autograd. What is clipped as one is a unit: an
example, its augmented views, or a user's records (see `units`).

Guarantee: `clipped_sum` is the sum over units of vectors of L2 norm at most `clip_norm` (in the
coordinates of the geometry), each a function of its own unit and the weights alone. Adding or
removing one unit moves it by at most `clip_norm`. A unit whose gradient is not finite, or longer
than any training makes it (`LARGEST_NORM`), contributes zero.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, Self, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from privet.errors import InputError
from privet.privacy.agreement import fault_of
from privet.privacy.describing import Layer, describe, require_supported
from privet.privacy.elliptical import weighted_by_input
from privet.privacy.geometry import (
    FLAT,
    LARGEST_NORM,
    ROUNDING_MARGIN,
    Geometry,
    Region,
    clip_factors,
    trainable,
)
from privet.privacy.precision import FULL, Precision
from privet.privacy.probing import undisturbed
from privet.privacy.recording import Folds, books_of, recorded
from privet.privacy.rules import Dense, PerExample, sum_of
from privet.privacy.rules.fallback import no_advice
from privet.privacy.units import PerExampleLoss, Units, cross_entropy, per_example_losses

__all__ = [
    "FLAT",
    "LARGEST_NORM",
    "ROUNDING_MARGIN",
    "Clipper",
    "FastClipper",
    "Geometry",
    "Layer",
    "PerExampleLoss",
    "ReferenceClipper",
    "clip_factors",
    "cross_entropy",
    "describe",
    "make_clipper",
    "trainable",
]

SMALL: Final = 2**11  # numbers of a gradient that is copied to lie beside others
MOST_COARSE: Final = 0.5  # how far gradients of a coarser precision may be off, on made-up inputs

Books = dict[str, PerExample]
"""Each parameter's gradients, one a unit; a parameter that does not matter may lack."""


class Clipper(ABC):
    """Sums the clipped gradients of a batch into one flat vector over `trainable(model)`.

    `note` says why `make_clipper` did not choose a faster one; "" if there is none.
    """

    note: str = ""

    def __init__(
        self,
        model: nn.Module,
        loss: PerExampleLoss,
        clip_norm: float,
        *,
        geometry: Geometry = FLAT,
        precision: Precision = FULL,
    ) -> None:
        if not 0 < clip_norm < math.inf:
            raise InputError("bad clip norm", got=clip_norm, expected="a positive finite number")
        if not trainable(model):
            raise InputError("the model has no trainable parameter", fix="unfreeze a layer")
        for name, parameter in trainable(model).items():
            if parameter.dtype not in (torch.float32, torch.float64):
                raise InputError(
                    f"parameter '{name}' is too coarse for exact clipping",
                    got=parameter.dtype,
                    expected="float32 or float64",
                    fix="train in float32: model.float()",
                )
        self.model = model
        self.loss = loss
        self.clip_norm = clip_norm
        self.geometry = geometry.resolved(model)
        self.precision = precision
        self._region = Region(self.geometry, model, clip_norm)

    @abstractmethod
    def books(self, units: Units) -> Books:
        """All parameters' gradients."""

    @property
    def held(self) -> int:
        """Gradient numbers that are held for each unit until the sum is made, as far as known."""
        return sum(p.numel() for p in trainable(self.model).values())

    def clipped_sum(
        self, x: Tensor, y: Tensor, *, views: int = 1, weights: Tensor | None = None
    ) -> Tensor:
        """The sum of the clipped gradients, in the geometry's coordinates; zeros if empty.

        `x` and `y` hold `views` rows for each unit; `weights`, one a row, say how they add up to
        its gradient (default: their mean). A unit whose weights are all 0 contributes exactly 0.
        """
        units = Units.of(x, y, views=views, weights=weights)
        if len(units) == 0:
            return self._joined({}, ())
        with self.precision.products(x.device):
            groups = self._groups(self.books(units))
            factors = self._factors(groups)
            broken = _broken(factors)
            if broken.any():  # 0 * inf is NaN: rows that are not finite must go before the sum
                groups = [(names, form.without(broken)) for names, form in groups]
            return self._weighted(groups, factors)

    def sum_unless_broken(self, books: Books) -> tuple[Tensor, Tensor]:
        """The clipped sum, and which units make it void because their gradients are not finite.

        Without asking the device for an answer in between; inside `precision.products`.
        """
        groups = self._groups(books)
        factors = self._factors(groups)
        return self._weighted(groups, factors), _broken(factors)

    def _groups(self, books: Books) -> list[tuple[list[str], PerExample]]:
        """In the coordinates u, but for scales of whole layers, which are in their factors.

        Small formed gradients that share a factor side by side: one norm, one product for all.

        A network has scores of biases and gains, and an operation on one of them costs its launch.
        """
        books = self._with_weighted_inputs(books)
        small = [name for name, form in books.items() if _is_small(form)]
        groups: list[tuple[list[str], PerExample]] = [
            ([name], form) for name, form in books.items() if name not in small
        ]
        for names in self._region.sharing(small):
            groups.append(
                (names, Dense(torch.cat([books[n].formed().flatten(1) for n in names], 1)))
            )
        return groups

    def _with_weighted_inputs(self, books: Books) -> Books:
        weighted = {n: w for n, w in self._region.input_scales.items() if n in books}
        return books | {n: weighted_by_input(books[n], w) for n, w in weighted.items()}

    def _factors(self, groups: Sequence[tuple[list[str], PerExample]]) -> dict[str, Tensor]:
        """What gradients are multiplied by, one number a unit; by the first name of a group."""
        rounding = self.precision.rounding
        squares = {names[0]: form.squared_norms(rounding) for names, form in groups}
        return self._region.factors(squares)

    def _weighted(
        self, groups: Sequence[tuple[list[str], PerExample]], factors: dict[str, Tensor]
    ) -> Tensor:
        sizes = {name: p.numel() for name, p in trainable(self.model).items()}
        parts: dict[str, Tensor] = {}
        for names, form in groups:
            total = form.weighted_sum(factors[names[0]]).flatten()
            parts |= zip(names, torch.split(total, [sizes[n] for n in names]), strict=True)
        return self._joined(parts, ())

    def per_example_gradients(
        self, x: Tensor, y: Tensor, *, views: int = 1, weights: Tensor | None = None
    ) -> Tensor:
        """One row for each unit, unclipped, in the parameters' own coordinates.

        To compare with, not to train with.
        """
        units = Units.of(x, y, views=views, weights=weights)
        books = self.books(units) if len(units) else {}
        return self._joined({n: part.formed() for n, part in books.items()}, (len(units),))

    def with_clip_norm(self, clip_norm: float) -> Self:
        """The same clipper with another norm."""
        twin = copy.copy(self)
        twin.clip_norm = clip_norm
        twin._region = Region(self.geometry, self.model, clip_norm)
        return twin

    def in_parameters(self, flat: Tensor) -> Tensor:
        """From `clipped_sum`'s coordinates to the parameters' own; after the noise."""
        return self._region.in_parameters(flat, self.model)

    def _joined(self, parts: dict[str, Tensor], rows: tuple[int, ...]) -> Tensor:
        """All parameters' values side by side, zeros for those without."""
        return torch.cat(
            [
                parts[name].reshape(*rows, -1) if name in parts else p.new_zeros(*rows, p.numel())
                for name, p in trainable(self.model).items()
            ],
            dim=-1,
        ).detach()


def _is_small(form: PerExample) -> bool:
    return isinstance(form, Dense) and form.squares is None and form.held <= SMALL


def _broken(factors: dict[str, Tensor]) -> Tensor:
    """Which units must not count; all parameters agree on it."""
    return next(iter(factors.values())) == 0 if factors else torch.zeros(1, dtype=torch.bool)


@final
class ReferenceClipper(Clipper):
    """Every unit's gradient through `torch.func`. Memory: units x parameters."""

    def books(self, units: Units) -> Books:
        """All formed."""
        parameters = {name: p.detach() for name, p in trainable(self.model).items()}

        def loss_of_one(values: dict[str, Tensor], x: Tensor, y: Tensor, w: Tensor) -> Tensor:
            outputs = functional_call(self.model, values, (x,))
            return (w * per_example_losses(self.loss, outputs, y)).sum()

        per_unit = vmap(grad(loss_of_one), in_dims=(None, 0, 0, 0), randomness="different")
        with no_advice():
            gradients = per_unit(parameters, *units.split())
        return {name: Dense(rows) for name, rows in gradients.items()}


@final
class FastClipper(Clipper):
    """Book-keeping: one backward pass, norms from activations and output gradients.

    Right for models that `make_clipper` has tried: it cannot see by itself whether a parameter is
    used behind its back.

    Cost: one forward and backward pass, plus for each layer the weight gradient that a plain step
    would compute too. Memory: activations; and where forming them is cheaper, per-unit gradients.
    With `channels_last`, images are laid out so: pooling and convolutions are faster, and patches
    are copied in long runs. Not every model can take them (`view` on a feature map cannot).
    """

    def __init__(
        self,
        model: nn.Module,
        loss: PerExampleLoss,
        clip_norm: float,
        *,
        geometry: Geometry = FLAT,
        precision: Precision = FULL,
        channels_last: bool = False,
    ) -> None:
        super().__init__(model, loss, clip_norm, geometry=geometry, precision=precision)
        self._folds: Folds = {}
        self._held: int | None = None
        self.footprint = 0  # numbers that the last pass held for each unit, about
        self._layout = torch.channels_last if channels_last else torch.contiguous_format

    def books(self, units: Units) -> Books:
        """Each parameter's per-unit gradient, in the cheapest form its rule knows."""
        x = units.x.to(memory_format=self._layout)  # one channel: `contiguous` would do nothing
        passes, halves = self.precision.passes(x.device), self.precision.halves
        watched = recorded(self.model, len(x), len(units), self._folds, halves=halves)
        with torch.enable_grad(), passes, watched as uses:
            losses = per_example_losses(self.loss, self.model(x), units.y)
            total = units.weighted(losses).sum()
        if not total.requires_grad:  # no layer reaches the loss
            return {}
        edges = [edge for use in uses for edge in use.edges if edge is not None]
        found: Sequence[Tensor | None] = torch.autograd.grad(total, edges, allow_unused=True)
        gradients = deque(found)
        del found  # whoever holds on to them keeps the memory
        passed = sum(b.numel() for b in gradients if b is not None)
        books = books_of(uses, gradients)
        names = trainable(self.model).items()
        forms = {n: sum_of(books[p]).settled() for n, p in names if p in books}
        formed = sum(form.held for form in forms.values())
        self._held = max(self._held or 0, formed)
        self.footprint = formed + 2 * passed // len(units)
        return forms

    @property
    def held(self) -> int:
        """What the passes so far formed: little where most parameters are in large matrices."""
        return super().held if self._held is None else self._held


def make_clipper(
    model: nn.Module,
    loss: PerExampleLoss,
    clip_norm: float,
    *,
    probe: tuple[Tensor, Tensor],
    geometry: Geometry = FLAT,
    precision: Precision = FULL,
) -> Clipper:
    """The fast clipper where it is proved equal on a public probe batch, else the reference.

    The probe (made-up inputs of the right shape, never private ones) catches what no rule can see:
    a weight used outside its layer, a layer whose output is changed behind the hook.
    """
    require_supported(model)
    with undisturbed(model):
        per_example_losses(loss, model(probe[0].clone()), probe[1])
    why = ""
    for layout in _layouts(model, probe[0], precision):
        fast = FastClipper(model, loss, clip_norm, geometry=geometry, channels_last=layout)
        why = fault_of(fast, probe, training=True)
        if not why:
            return _coarsened(fast, precision, probe)
    reference = ReferenceClipper(model, loss, clip_norm, geometry=geometry)
    worse = fault_of(reference, probe, training=False)
    if worse:
        raise _impossible(model, why, worse)
    reference.note = why
    return reference


def _coarsened(fast: FastClipper, precision: Precision, probe: tuple[Tensor, Tensor]) -> Clipper:
    """The clipper at the precision asked for, if the model can do it and stays near its gradients.

    Near in the sense of training: the guarantee does not depend on it.
    """
    if precision is FULL:
        return fast
    coarse = copy.copy(fast)
    coarse.precision = precision
    with undisturbed(fast.model):
        fast.model.eval()
        try:
            with precision.products(probe[0].device):
                found = coarse.per_example_gradients(*probe)
        except Exception as error:  # whatever the model cannot do in half precision
            got = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            raise InputError(
                f"the model does not run in {precision.name}", got=got, fix="use float32"
            ) from None
        exact = fast.per_example_gradients(*probe)
    if not (found - exact).norm() <= MOST_COARSE * exact.norm():
        raise InputError(
            f"the model's gradients in {precision.name} are not its gradients",
            got=f"{float((found - exact).norm() / exact.norm()):.0%} off on made-up inputs",
            expected=f"at most {MOST_COARSE:.0%}",
            fix="use float32",
        )
    return coarse


def _layouts(model: nn.Module, x: Tensor, precision: Precision) -> tuple[bool, ...]:
    """Whether to lay feature maps out with the channels last, what is faster first.

    So it is on a CPU and for tensor cores; cuDNN's float32 convolutions want the other order.
    """
    if x.dim() != 4 or not any(isinstance(m, nn.Conv2d) for m in model.modules()):
        return (False,)
    return (False,) if x.device.type == "cuda" and precision is FULL else (True, False)


def _impossible(model: nn.Module, why: str, worse: str) -> InputError:
    """Neither clipper can treat the model: name the layers that have no rule."""
    odd = [f"'{layer.name}' ({layer.kind})" for layer in describe(model) if layer.why]
    return InputError(
        "no way to clip this model's gradients example by example",
        got=f"fast path: {why}; torch.func: {worse}",
        expected="a model that torch.func can differentiate, or layers that have a rule",
        fix=f"replace or freeze {', '.join(odd)}" if odd else "see privet.privacy.rules",
    )
