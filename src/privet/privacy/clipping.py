"""One example, one bounded contribution: gradients clipped example by example, then summed.

Two clippers, one contract. `ReferenceClipper` asks `torch.func` for every example's gradient:
slow, obviously right, for any model that treats examples apart. `FastClipper` keeps books during
one backward pass (rules for Linear and Conv) and never holds a Linear layer's per-example
gradients. `make_clipper` uses the fast one only after it has agreed with the reference.

Guarantee: `clipped_sum` is the sum over examples of vectors of L2 norm at most `clip_norm`, each a
function of its own example and the weights alone. Adding or removing one example moves it by at
most `clip_norm`. An example whose gradient is not finite, or longer than any training makes it
(`LARGEST_NORM`), contributes zero.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from privet.errors import InputError
from privet.privacy.probing import make_up_weights, undisturbed
from privet.privacy.rules import RULES, Dense, PerExample, has_rule

PerExampleLoss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> one loss for each example, shape (batch,)."""

# Norms have a relative error well below this; clipping to a slightly smaller norm keeps rounding
# from lifting a contribution above the clip norm.
ROUNDING_MARGIN: Final = 1e-5
LARGEST_NORM: Final = 1e18  # its square still fits in float32


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of each example."""
    return F.cross_entropy(outputs, targets, reduction="none")


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters a private step updates, in a fixed order; shared ones once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def clip_factors(norms: Tensor, clip_norm: float) -> Tensor:
    """What to multiply each example's gradient by; 0 where the norm is not finite or absurd."""
    bound = clip_norm * (1.0 - ROUNDING_MARGIN)
    factors = bound / norms.clamp_min(bound)
    return torch.where(norms <= LARGEST_NORM, factors, torch.zeros_like(factors))


class Clipper(ABC):
    """Sums the clipped gradients of a batch into one flat vector over `trainable(model)`."""

    def __init__(self, model: nn.Module, loss: PerExampleLoss, clip_norm: float) -> None:
        if not clip_norm > 0:
            raise InputError("bad clip norm", got=clip_norm, expected="a positive number")
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

    @abstractmethod
    def clipped_sum(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of the clipped gradients; zeros for an empty batch."""

    def _zeros(self) -> Tensor:
        parameters = list(trainable(self.model).values())
        return torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)


@final
class ReferenceClipper(Clipper):
    """Every example's gradient through `torch.func`. Memory: batch x parameters."""

    def per_example_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """One row for each example: its whole gradient."""
        parameters = {name: p.detach() for name, p in trainable(self.model).items()}

        def loss_of_one(values: dict[str, Tensor], xi: Tensor, yi: Tensor) -> Tensor:
            output = functional_call(self.model, values, (xi.unsqueeze(0),))
            return self.loss(output, yi.unsqueeze(0)).sum()

        per_example = vmap(grad(loss_of_one), in_dims=(None, 0, 0), randomness="different")
        gradients = per_example(parameters, x, y)
        return torch.cat([g.flatten(1) for g in gradients.values()], dim=1)

    def clipped_sum(self, x: Tensor, y: Tensor) -> Tensor:
        """Clip every row, add them up."""
        if len(x) == 0:
            return self._zeros()
        rows = self.per_example_gradients(x, y)
        # In double precision: a float32 norm of a million entries is off by more than the margin.
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        factors = clip_factors(norms, self.clip_norm).to(rows.dtype)
        rows = torch.where(factors[:, None] > 0, rows, torch.zeros_like(rows))
        return factors @ rows


@final
class FastClipper(Clipper):
    """Book-keeping: one backward pass, norms from activations and output gradients.

    Cost: one forward and backward pass, plus for each layer the weight gradient that a plain step
    would compute too. Memory: activations; and for convolutions, batch x weights.
    """

    def clipped_sum(self, x: Tensor, y: Tensor) -> Tensor:
        """Norms first, then one weighted sum for each parameter."""
        if len(x) == 0:
            return self._zeros()
        books = self._books(x, y)
        squared = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for part in books.values():
            squared += part.squared_norms().double()
        factors = clip_factors(squared.sqrt(), self.clip_norm).float()
        broken = factors == 0
        if broken.any():  # 0 * inf is NaN: rows that are not finite must go before the sum
            books = {name: part.without(broken) for name, part in books.items()}
        return torch.cat(
            [
                books[name].weighted_sum(factors).flatten()
                if name in books
                else torch.zeros(p.numel(), device=p.device)
                for name, p in trainable(self.model).items()
            ]
        )

    def per_example_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """One row for each example, formed: to compare with, not to train with."""
        books = self._books(x, y)
        return torch.cat(
            [
                books[name].formed().flatten(1)
                if name in books
                else torch.zeros(len(x), p.numel(), device=p.device)
                for name, p in trainable(self.model).items()
            ],
            dim=1,
        )

    def _books(self, x: Tensor, y: Tensor) -> dict[str, PerExample]:
        """Each parameter's per-example gradient, in the cheapest form its rule knows."""
        with _recorded_layers(self.model) as records:
            losses = per_example_losses(self.loss, self.model(x), y)
        if not losses.requires_grad:  # no layer reaches the loss
            return {}
        edges = [edge for _, _, edge in records]
        gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
            losses.sum(), edges, allow_unused=True
        )
        names = {id(p): name for name, p in trainable(self.model).items()}
        uses: dict[str, list[PerExample]] = defaultdict(list)
        for (layer, activation, _), gradient in zip(records, gradients, strict=True):
            if gradient is None:  # a layer whose output does not reach the loss
                continue
            if len(activation) != len(x):
                raise InputError(
                    "the fast clipper cannot tell the examples of a layer's input apart",
                    got=f"{len(activation)} rows in {type(layer).__name__} for {len(x)} examples",
                    fix="use ReferenceClipper",
                )
            for own_name, part in RULES[type(layer)](layer, activation, gradient).items():
                parameter = getattr(layer, own_name)
                if parameter.requires_grad:
                    uses[names[id(parameter)]].append(part)
        # A parameter used twice has one gradient, the sum; its norm needs that sum.
        return {
            name: parts[0] if len(parts) == 1 else Dense.sum_of(parts)
            for name, parts in uses.items()
        }


def per_example_losses(loss: PerExampleLoss, outputs: Tensor, y: Tensor) -> Tensor:
    """The losses, after checking that there is one for each example."""
    losses = loss(outputs, y)
    if losses.shape != (len(y),):
        raise InputError(
            "the loss does not return one value for each example",
            got=f"shape {tuple(losses.shape)} for {len(y)} examples",
            expected=f"shape ({len(y)},)",
            fix='use reduction="none"',
        )
    return losses


def make_clipper(
    model: nn.Module,
    loss: PerExampleLoss,
    clip_norm: float,
    *,
    probe: tuple[Tensor, Tensor],
) -> Clipper:
    """The fast clipper where it is proved equal on a public probe batch, else the reference.

    The probe (made-up inputs of the right shape, never private ones) catches what no rule can see:
    a weight used outside its layer, a layer whose output is changed behind the hook.
    """
    per_example_losses(loss, model(probe[0]), probe[1])
    reference = ReferenceClipper(model, loss, clip_norm)
    if not all(has_rule(module) for module in model.modules()):
        return reference
    fast = FastClipper(model, loss, clip_norm)
    return fast if _agree(fast, reference, probe) else reference


def _agree(fast: FastClipper, reference: ReferenceClipper, probe: tuple[Tensor, Tensor]) -> bool:
    """Whether the books give every example its own gradient, for every parameter.

    Sums would not do: where nothing is clipped, gradients booked to the wrong example add up to the
    right sum. Compared at the weights given and at made-up ones, without dropout against the
    reference, and in training mode against one backward pass for each example.
    """
    model = fast.model
    # TF32 convolutions differ by more than the tolerance from one batch size to another.
    exact = torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False)
    with undisturbed(model), exact:
        try:
            for _ in range(2):
                model.eval()
                one = fast.per_example_gradients(*_copies(probe))
                if not _close(model, one, reference.per_example_gradients(*_copies(probe))):
                    return False
                model.train()
                torch.manual_seed(0)  # the same dropout masks on both paths
                one = fast.per_example_gradients(*_copies(probe))
                torch.manual_seed(0)
                if not _close(model, one, _one_by_one(fast, *_copies(probe))):
                    return False
                make_up_weights(model)
        except InputError:  # a layer that the fast path cannot follow
            return False
    return True


def _one_by_one(clipper: Clipper, x: Tensor, y: Tensor) -> Tensor:
    """Every example's gradient by a backward pass of its own."""
    parameters = list(trainable(clipper.model).values())
    losses = per_example_losses(clipper.loss, clipper.model(x), y)
    if not losses.requires_grad:
        return torch.zeros(len(x), sum(p.numel() for p in parameters), device=x.device)
    rows = [
        torch.autograd.grad(one, parameters, retain_graph=True, materialize_grads=True)
        for one in losses
    ]
    return torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])


def _close(model: nn.Module, one: Tensor, other: Tensor) -> bool:
    sizes = [p.numel() for p in trainable(model).values()]
    whole = other.norm(dim=1)
    return all(
        bool(((a - b).norm(dim=1) <= 1e-4 * b.norm(dim=1) + 1e-5 * whole + 1e-12).all())
        for a, b in zip(torch.split(one, sizes, 1), torch.split(other, sizes, 1), strict=True)
    )


def _copies(probe: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return probe[0].clone(), probe[1].clone()  # the model may work in place


Record = tuple[nn.Module, Tensor, torch.autograd.graph.GradientEdge]


@contextmanager
def _recorded_layers(model: nn.Module) -> Iterator[list[Record]]:
    """Record (layer, input, edge of the output) for each call of a layer that has parameters."""
    records: list[Record] = []

    def keep(
        layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        if not output.requires_grad:  # called under no_grad: no gradient comes back
            return None
        # The edge is taken now: an in-place activation would later rebase the output's history.
        edge = torch.autograd.graph.get_gradient_edge(output)
        records.append((layer, (inputs[0] if inputs else named["input"]).detach(), edge))
        # In place on a view (Linear on sequences) would rebase even the edge: work on a copy.
        return output.clone() if output._is_view() else None

    handles = [
        module.register_forward_hook(keep, with_kwargs=True)
        for module in model.modules()
        if any(p.requires_grad for p in module.parameters(recurse=False))
    ]
    try:
        yield records
    finally:
        for handle in handles:
            handle.remove()
