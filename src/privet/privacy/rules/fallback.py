"""Any module: the gradients of its own parameters by `torch.func`, on that module alone.

From the recorded arguments and the gradients of its outputs: vmap over units of the vector-Jacobian
product. Exact where the module computes the same again: randomness inside it is refused. Its
children's parameters have books of their own. Memory: units x own parameters.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from privet.privacy.rules.forms import Dense
from privet.privacy.rules.registry import Booked, own_parameters


@contextmanager
def no_advice() -> Iterator[None]:
    """Keep PyTorch from asking users to report operations that it maps one by one: slow, right."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


@final
@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module: its arguments, which of them hold rows, and which outputs matter.

    `by_row[j]` says whether leaf j of the arguments has the examples on its first axis; `watched`
    are the places among the outputs' leaves whose gradients will be given.
    """

    module: nn.Module
    leaves: Sequence[Any]
    spec: TreeSpec
    by_row: Sequence[bool]
    watched: Sequence[int]

    def gradients(self, b: Sequence[Tensor], units: int) -> Booked:
        """Of each of the module's own parameters, one a unit."""
        own = own_parameters(self.module)
        values = {name: p.detach() for name, p in own.items()}
        rows = [_by_unit(leaf, units) for leaf in self._rows()]
        with torch.no_grad(), no_advice():  # the outer graph has nothing to add
            pull_all = vmap(self._pull(values), randomness="error")
            gradients = pull_all([_by_unit(bi, units) for bi in b], rows)
        return [(own[name], Dense(rows)) for name, rows in gradients.items()]

    def _rows(self) -> list[Any]:
        return [leaf for leaf, rows in zip(self.leaves, self.by_row, strict=True) if rows]

    def _pull(self, values: dict[str, Tensor]) -> Callable[[Any, Any], dict[str, Tensor]]:
        def pull(b: list[Tensor], rows: list[Tensor]) -> dict[str, Tensor]:
            back = vjp(lambda own: self._outputs(own, rows), values)[1]
            gradients: dict[str, Tensor] = back(b)[0]
            return gradients

        return pull

    def _outputs(self, own: dict[str, Tensor], rows: list[Tensor]) -> list[Tensor]:
        given = iter(rows)
        leaves = [
            next(given) if r else leaf for leaf, r in zip(self.leaves, self.by_row, strict=True)
        ]
        args, named = tree_unflatten(leaves, self.spec)
        outputs, _ = tree_flatten(functional_call(self.module, own, args, named, tie_weights=False))
        return [outputs[place] for place in self.watched]


def _by_unit(values: Tensor, units: int) -> Tensor:
    return values.reshape(units, -1, *values.shape[1:])
