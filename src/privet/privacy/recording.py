"""Recording a forward pass: which parameters were used on what, and where the gradients will come.

Every layer that owns trainable parameters is watched: by a hook that keeps its input (rules), by
computing it through recorded products (expansions), or by keeping the whole call (fallback). After
one backward pass to the watched outputs, each use yields its parameters' per-unit gradients.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_map_only

from privet.errors import InputError
from privet.privacy.rules import (
    EXPANSIONS,
    RULES,
    WITH_OUTPUT,
    Book,
    Booked,
    PerExample,
    kept,
    own_parameters,
    why_no_rule,
)
from privet.privacy.rules.fallback import Call
from privet.privacy.rules.plain import product, shift

Folds = dict[tuple[int, int], int | None]
"""(layer or argument, its how-manieth use in a pass) -> rows for each row of the batch."""


@final
@dataclass(frozen=True, eq=False)
class Use:
    """One use of parameters: outputs whose gradients `book` turns into forms, one a unit."""

    edges: Sequence[GradientEdge | None]
    blanks: Sequence[Callable[[], Tensor]]
    book: Book


class Recorder:
    """Keeps the uses of one forward pass over `rows` rows that make up `units` units.

    `folds` outlives the pass: a layer that sees k rows for each row of the batch must always do so.
    Where the number depends on the data (a layer fed with chosen rows alone), rows cannot be told
    apart by counting.
    """

    def __init__(self, rows: int, units: int, folds: Folds, *, halves: bool = False) -> None:
        self.uses: deque[Use] = deque()
        self._rows = rows
        self._units = units
        self._folds = folds
        self._halves = halves  # whether bfloat16 was asked for
        self._calls: dict[int, int] = defaultdict(int)

    def apply_rule(
        self, layer: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Tensor
    ) -> Tensor:
        """Hook of a layer with a rule."""
        a = kept(layer, args[0] if args else named["input"])
        y = [kept(layer, output)] if type(layer) in WITH_OUTPUT else []

        def book(b: Sequence[Tensor]) -> Booked:
            like = b[0]  # autocast may have let them differ
            forms = RULES[type(layer)](layer, _as(a(), like), like, *(_as(v(), like) for v in y))
            return [(getattr(layer, name), form) for name, form in forms.items()]

        self.watch(layer, [output], book)
        return _unaliased(output)

    def keep_call(
        self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> Any:
        """Hook of a module without a rule."""
        leaves, spec = tree_flatten((args, named))
        again = [kept(module, leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        by_row = [self._holds_rows(module, leaf) for leaf in leaves]
        outputs, _ = tree_flatten(output)
        watched = [j for j, leaf in enumerate(outputs) if isinstance(leaf, Tensor)]
        watched = [j for j in watched if outputs[j].requires_grad]
        if not watched:  # under no_grad
            return output
        call = Call(module, leaves, spec, by_row, watched)
        chosen = [outputs[j] for j in watched]
        folds = [self._fold(module, o.shape[0] if o.dim() else 0) for o in chosen]
        if not any(by_row) or not all(folds):
            raise _lost(module, [tuple(o.shape) for o in chosen], self._rows)

        def book(b: Sequence[Tensor]) -> Booked:
            for check in again:
                check()
            return call.gradients(b, self._units)

        self._add(chosen, book)
        return tree_map_only(Tensor, _unaliased, output)

    def watch(self, layer: nn.Module, outputs: Sequence[Tensor], book: Book) -> None:
        """Record outputs with rows on the first axis; `book` gives forms by row."""
        if not any(output.requires_grad for output in outputs):  # under no_grad, or all frozen
            return
        fold = self._fold(layer, len(outputs[0]))
        if not fold:
            raise _lost(layer, [tuple(o.shape) for o in outputs], self._rows)
        views = self._rows // self._units * fold

        def folded(b: Sequence[Tensor]) -> Booked:
            return [(p, form.folded(views).settled()) for p, form in book(b) if p.requires_grad]

        self._add(outputs, folded)

    def _add(self, outputs: Sequence[Tensor], book: Book) -> None:
        fine = (torch.float32, torch.float64, *((torch.bfloat16,) if self._halves else ()))
        coarse = [o.dtype for o in outputs if o.dtype not in fine]
        if coarse:
            raise InputError(
                "a layer's output is too coarse for exact clipping",
                got=coarse[0],
                expected="float32 or float64",
                fix="leave autocast out of the model; ask for precision bf16",
            )
        # Edges are taken now: an in-place activation would later rebase the output's history.
        edges = [get_gradient_edge(o) if o.requires_grad else None for o in outputs]
        self.uses.append(Use(edges, [_blank(output) for output in outputs], book))

    def _fold(self, layer: nn.Module, count: int) -> int | None:
        """How many of a layer's rows belong to each row of the batch; None if that varies."""
        self._calls[id(layer)] += 1
        key = (id(layer), self._calls[id(layer)])
        whole = count > 0 and count % self._rows == 0
        fold = count // self._rows if whole else None
        if self._folds.setdefault(key, fold) != fold:
            self._folds[key] = None
        return self._folds[key]

    def _holds_rows(self, module: nn.Module, leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and leaf.dim() > 0 and bool(self._fold(module, len(leaf)))


@final
class LayerTape:
    """What an expanded layer records on."""

    def __init__(self, recorder: Recorder, layer: nn.Module) -> None:
        self._recorder = recorder
        self._layer = layer

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product x W^T + bias, recorded."""
        output = F.linear(x, weight, bias)
        a = kept(self._layer, x)

        def book(b: Sequence[Tensor]) -> Booked:
            booked = [(weight, product(a(), b[0]))]
            return booked if bias is None else [*booked, (bias, shift(b[0]))]

        self.watch([output], book)
        return _unaliased(output)

    def watch(self, outputs: Sequence[Tensor], book: Book) -> None:
        """Record other products."""
        self._recorder.watch(self._layer, outputs, book)


@contextmanager
def recorded(
    model: nn.Module, rows: int, units: int, folds: Folds, *, halves: bool = False
) -> Iterator[deque[Use]]:
    """Record the uses of every trainable parameter in the forward passes inside."""
    recorder = Recorder(rows, units, folds, halves=halves)
    handles = []
    expanded = []
    for module in model.modules():
        if type(module) in EXPANSIONS and not why_no_rule(module) and _trains(module):
            tape = LayerTape(recorder, module)
            module.forward = partial(EXPANSIONS[type(module)], module, tape)
            expanded.append(module)
        elif own_parameters(module):
            hook = recorder.keep_call if why_no_rule(module) else recorder.apply_rule
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
    try:
        yield recorder.uses
    finally:
        for handle in handles:
            handle.remove()
        for module in expanded:
            del module.forward


def books_of(uses: deque[Use], gradients: deque[Tensor | None]) -> dict[Tensor, list[PerExample]]:
    """Each parameter's forms, one for each use that reaches the loss.

    Both queues are emptied: what a form no longer needs is let go before the next one is made.
    """
    books: dict[Tensor, list[PerExample]] = defaultdict(list)
    while uses:
        use = uses.popleft()
        b = [None if edge is None else gradients.popleft() for edge in use.edges]
        if all(bi is None for bi in b):  # a layer whose output does not reach the loss
            continue
        filled = [blank() if bi is None else bi for bi, blank in zip(b, use.blanks, strict=True)]
        for parameter, form in use.book(filled):
            books[parameter].append(form)
    return books


def _as(values: Tensor, like: Tensor) -> Tensor:
    """In the precision of `like`; what is not a floating-point number stays."""
    return values.to(like.dtype) if values.is_floating_point() else values


def _trains(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())


def _blank(output: Tensor) -> Callable[[], Tensor]:
    """A gradient of zeros, without keeping the output itself."""
    return partial(torch.zeros, output.shape, dtype=output.dtype, device=output.device)


def _unaliased(output: Tensor) -> Tensor:
    # In place on a view (Linear on sequences) would rebase even the edge: work on a copy.
    return output.clone() if output._is_view() else output


def _lost(layer: nn.Module, shapes: Sequence[tuple[int, ...]], rows: int) -> InputError:
    return InputError(
        f"the fast clipper cannot tell the examples of a {type(layer).__name__} apart",
        got=f"outputs of shape {', '.join(map(str, shapes))} for {rows} rows",
        expected="rows on the first axis of inputs and outputs",
        fix="use ReferenceClipper",
    )
