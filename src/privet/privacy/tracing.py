"""A clipper's books by a compiled graph: forward pass, backward pass and forms, fused by PyTorch.

The books of a batch of one size are traced once on made-up tensors (`make_fx`) and compiled. What
comes out of the graph are the forms themselves, in memory. Their norms and sums are taken outside
it: a compiler may compute a number twice and round it in two ways, and a norm must be that of the
very numbers which are added.

Not every model can be traced: values must not decide on shapes or on the way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Protocol, cast, final

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.stateless import _reparametrize_module

from privet.privacy.rules import Dense, PerExample
from privet.privacy.units import Units

Books = dict[str, PerExample]
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


class Bookkeeper(Protocol):
    """What is traced; see `clipping.FastClipper`."""

    model: nn.Module

    def books(self, units: Units) -> Books:
        """All parameters' gradients."""


def by_torch(graph: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile` for one size."""
    compiled: Callable[..., Any] = torch.compile(graph, dynamic=False)
    return compiled


@final
class TracedBooks:
    """`clipper.books` for as many units as in `like`, which have weights.

    Raises whatever tracing or compiling raises for a model that it cannot follow.
    """

    def __init__(self, clipper: Bookkeeper, like: Units, *, compiler: Compiler = by_torch) -> None:
        model = clipper.model
        self._clipper = clipper
        self._views = like.views
        self._state = dict(model.named_parameters()) | dict(model.named_buffers())
        self._rebuild: Callable[[Iterator[Tensor]], Any] = iter
        traced = make_fx(partial(TracedBooks._tensors, self), tracing_mode="fake")
        self._run = compiler(traced(*self._inputs(like)))

    def __call__(self, units: Units) -> Books:
        """The same as `clipper.books(units)`, up to rounding."""
        books: Books = self._rebuild(iter(self._run(*self._inputs(units))))
        return books

    def _inputs(self, units: Units) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        assert units.weights is not None
        return {n: t.detach() for n, t in self._state.items()}, units.x, units.y, units.weights

    def _tensors(
        self, state: dict[str, Tensor], x: Tensor, y: Tensor, weights: Tensor
    ) -> Sequence[Tensor]:
        """Those that the forms consist of; how to put them together again is noted."""
        trained = {n for n, t in self._state.items() if t.requires_grad}
        values = {n: t.detach().requires_grad_(n in trained) for n, t in state.items()}
        with _reparametrize_module(self._clipper.model, values):
            books = self._clipper.books(Units(x, y, self._views, weights))
        tensors: list[Tensor] = []
        self._rebuild = _taken_apart(books, tensors)
        return tensors


def _taken_apart(value: Any, tensors: list[Tensor]) -> Callable[[Iterator[Tensor]], Any]:
    """Append the tensors in a form; the answer puts others in their places, in the same order."""
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        return next
    if isinstance(value, dict):
        parts = {key: _taken_apart(part, tensors) for key, part in value.items()}
        return lambda given: {key: part(given) for key, part in parts.items()}
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        listed = [_taken_apart(part, tensors) for part in value]
        return lambda given: tuple(part(given) for part in listed)
    if isinstance(value, Dense):  # measured again outside, whatever the graph has measured
        value = replace(value, squares=None)
    if isinstance(value, PerExample):
        kind: Callable[..., PerExample] = type(value)
        names = [field.name for field in fields(cast(Any, value))]
        named = {name: _taken_apart(getattr(value, name), tensors) for name in names}
        return lambda given: kind(**{name: part(given) for name, part in named.items()})
    return lambda given: value
