"""Clipped sums of batches of any size by a step of one size.

A Poisson sample has another size every time. Compiled code, recorded GPU work and memory are made
for one. So the units of a piece are laid into buffers of `units` units; the places that are left
over weigh 0 and contribute exactly nothing. Nothing is compiled, recorded or allocated again.

| part               | what it saves                                     | where             |
|--------------------|---------------------------------------------------|-------------------|
| fixed size, masks  | memory that is asked for and given back each time | CUDA              |
| recorded work      | the time of launching a thousand small kernels    | CUDA              |
| compiled books     | passes over memory: neighbouring operations fuse  | where it is asked |

Recorded work (a CUDA graph) repeats kernels, not Python: a model that keeps state in Python
attributes, or draws by itself, is not recorded. Each part is tried on made-up inputs first and left
out, with a note, where it fails or where sums of single units differ from the clipper's own.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from privet.privacy.clipping import FastClipper
from privet.privacy.probing import draws, make_up_weights, undisturbed
from privet.privacy.replaying import recorded
from privet.privacy.tracing import Books, Compiler, TracedBooks, by_torch
from privet.privacy.units import Units

SPREAD: Final = 2.0  # standard deviations of a Poisson sample that one piece has room for


def fixed_size(expected: float, most: int) -> int:
    """Units in a piece, at most `most`, so that a Poisson sample mostly fits into whole ones."""
    room = math.ceil(expected + SPREAD * math.sqrt(expected))
    return math.ceil(room / math.ceil(room / most))


@final
class FixedSum:
    """`clipper.clipped_sum` through buffers of one size.

    `note` says what was left out and why; "" if nothing was.

    Args:
        clipper: whose sums these are.
        probe: made-up inputs and labels, to size the buffers and to try everything on.
        units: room in the buffers.
        views: rows of each unit.
        compiler: of the books; None for none.
    """

    def __init__(
        self,
        clipper: FastClipper,
        probe: tuple[Tensor, Tensor],
        *,
        units: int,
        views: int = 1,
        compiler: Compiler | None = by_torch,
    ) -> None:
        self.note = ""
        self._clipper = clipper
        self._views = views
        rows = torch.arange(units * views, device=probe[0].device)
        self._x, self._y = (part[rows % len(part)].clone() for part in probe)
        self._weights = torch.full((len(rows),), 1.0 / views, device=rows.device)
        self._books: Callable[[Units], Books] = clipper.books
        self._replay: Callable[[], tuple[Tensor, Tensor]] = self._pass
        self._made_for = _tensors_and_modes(clipper.model)
        if compiler is not None:
            self._try("compiled", lambda: self._compile(compiler))
        if rows.device.type == "cuda":
            self._try("recorded", self._record)

    @property
    def size(self) -> int:
        """Units there is room for."""
        return len(self._x) // self._views

    @property
    def pays(self) -> bool:
        """Whether anything is compiled or recorded; if not, filled-up places are a loss."""
        return self._books != self._clipper.books or self._replay != self._pass

    @property
    def is_current(self) -> bool:
        """Whether the model is where, and in the mode, that this was made for."""
        return _tensors_and_modes(self._clipper.model) == self._made_for

    def sum_unless_broken(
        self, x: Tensor, y: Tensor, *, views: int = 1, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The clipped sum of at most `size` units, and which of them make it void.

        A unit does whose gradient is not finite; with weight 0 it leaves the sum sound. Both are
        overwritten by the next call. Nothing waits for the device: what is recorded runs on while
        the caller goes on.
        """
        self._fill(Units.of(x, y, views=views, weights=weights))
        return self._replay()

    def _fill(self, units: Units) -> None:
        rows = len(units.x)
        assert units.views == self._views
        assert rows <= len(self._x)
        self._x[:rows] = units.x
        self._y[:rows] = units.y
        self._weights.zero_()
        self._weights[:rows] = units.weighted(torch.ones_like(self._weights[:rows]))

    def _pass(self) -> tuple[Tensor, Tensor]:
        """The sum of what is in the buffers, and which places make it void."""
        with self._clipper.precision.products(self._x.device):
            units = Units.of(self._x, self._y, views=self._views, weights=self._weights)
            return self._clipper.sum_unless_broken(self._books(units))

    def _try(self, what: str, install: Callable[[], object]) -> None:
        """Install a part; take it out again where it fails or does not agree."""
        before = self._books, self._replay
        model = self._clipper.model
        with undisturbed(model), _quietly():
            try:
                install()
                sound = self._agrees()
                make_up_weights(model)  # a last layer of zeros hides what is below it
                why = "" if sound and self._agrees() else "its sums are not the clipper's"
            except Exception as error:  # whatever a model does that a tool cannot follow
                why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        if why:
            self._books, self._replay = before
            self.note = "; ".join(filter(None, [self.note, f"not {what}: {why}"]))

    def _compile(self, compiler: Compiler) -> None:
        like = Units.of(self._x, self._y, views=self._views, weights=self._weights)
        with self._clipper.precision.products(self._x.device):
            self._books = TracedBooks(self._clipper, like, compiler=compiler)

    def _record(self) -> None:
        model = self._clipper.model
        if draws(model, self._x[:2]):
            raise ValueError("the model draws by itself")
        before = _python_state(model)
        self._replay = recorded(self._pass)
        if _python_state(model) != before:
            raise ValueError("a pass changes attributes of the model")

    def _agrees(self) -> bool:
        """On single units, from the first place to the last: none is lost or cut twice.

        In a sum of many, one that is left out would not show.
        """
        rows, close = self._views, self._clipper.precision.close
        for place in {0, self.size // 2, self.size - 1}:
            x, y = (part[:rows].clone() for part in (self._x, self._y))
            expected = self._clipper.clipped_sum(x, y, views=rows)
            alone = torch.zeros_like(self._weights)
            alone[place * rows : (place + 1) * rows] = 1.0 / rows
            self._x[place * rows : (place + 1) * rows] = x
            self._y[place * rows : (place + 1) * rows] = y
            self._weights.copy_(alone)
            found, broken = self._replay()
            if broken.any() or not (found - expected).norm() <= close * expected.norm():
                return False
        return True


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _tensors_and_modes(model: nn.Module) -> list[int | bool]:
    """Where the weights lie, and whether each layer trains."""
    tensors = [*model.parameters(), *model.buffers()]
    return [tensor.data_ptr() for tensor in tensors] + [m.training for m in model.modules()]


def _python_state(model: nn.Module) -> list[tuple[str, str, Any]]:
    """Numbers, flags and names that the modules keep; what a recording would freeze."""
    simple = (bool, int, float, str, type(None))
    return [
        (name, key, value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, simple)
    ]
