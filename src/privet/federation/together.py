"""Many clients trained at once: how far each has moved is stacked; a step is one step of all.

far is (clients, weights). In step s client i takes its own gradient, on its own batch s, at its own
start + far_i: `vmap` of the gradient, so no client sees another's numbers. The first step is taken
by all from the same weights: there the model is applied to all records as to one batch, and only
the gradients are each client's own. Lessons of fewer steps than the longest stand still at the end.
Rows that a batch lacks are filled with a record of the same client, of no weight: whatever a model
makes of the rows of a batch together, it never sees another client's. The optimisers are written
out, since each client's must be its own; their arithmetic is that of torch.optim.

Cost: memory of a few times clients x weights beside the activations; `at_once` bounds it. On a GPU
nothing is waited for. The result is that of `one_by_one` to rounding where a model draws nothing
and treats records apart; dropout draws other masks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from privet.errors import InputError
from privet.federation.flat import flat, named, travelling
from privet.federation.local_work import EMPTY, Lesson, LocalWork, Material, own_draws

AT_ONCE: Final = 256
IN_CACHE: Final = 5_000_000  # weights of all clients of a stack; 32 clients of 159,010 were best
FEW: Final = 4  # records of a step, at which convolutions side by side are faster on a CPU, too
ADAM: Final = (0.9, 0.999, 1e-8)

Mover = Callable[[Tensor, Tensor, Tensor], Tensor]


class Together:
    """Trains clients side by side; models without statistics of a batch.

    Args:
        model: as it was built.
        material: the records, on the device where clients train.
        work: what every client does.
        proximal: mu of FedProx.
        at_once: most clients that are stacked; by default as many as a GPU keeps busy, or as fit
            in the cache of a processor.
    """

    def __init__(
        self,
        model: nn.Module,
        material: Material,
        work: LocalWork,
        *,
        proximal: float = 0.0,
        at_once: int | None = None,
    ) -> None:
        _require_stackable(model, material.x.device)
        self.model = model.to(material.x.device).train()
        self.material, self.work, self.proximal = material, work, proximal
        self.at_once = at_once or _stack(flat(model).numel(), material.x.device)

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        """Delta of each lesson, one a row."""
        start = weights.to(self.material.x.device)
        far = torch.zeros(len(lessons), start.numel(), device=start.device)
        with self.work.products(start.device):
            for first in range(0, len(lessons), self.at_once):
                some = slice(first, first + self.at_once)
                self._go(start, lessons[some], far[some])
        return far

    def _go(self, start: Tensor, lessons: Sequence[Lesson], far: Tensor) -> None:
        """Moves these clients, in place."""
        stacked = _stacked(lessons)
        some_stand_still = (stacked == EMPTY).all(2).any(0).tolist()
        rows = _sent(stacked, start.device)
        own = rows[:, :1, :1].clamp_min(0)
        move = _mover(self.work, far)
        with own_draws(lessons[0].seed, start.device):
            for step in range(rows.shape[1]):
                there = rows[:, step] != EMPTY
                chosen = torch.where(there, rows[:, step], own[:, 0])
                x, y = self.material.x[chosen], self.material.y[chosen]
                where, common = (start, None) if step == 0 else (start + far, 0)
                gradients = vmap(
                    grad(self._loss), in_dims=(common, 0, 0, 0, None), randomness="different"
                )
                g, active = gradients(where, x, y, there.float(), start), there.any(1)
                if some_stand_still[step]:
                    # Zero times what is not finite would be no zero: how long another's lesson is
                    # would decide on who has ended.
                    g = g.masked_fill(~active[:, None], 0.0)
                move(far, g, active)

    def _loss(self, theta: Tensor, x: Tensor, y: Tensor, there: Tensor, start: Tensor) -> Tensor:
        scores = functional_call(self.model, named(self.model, theta), (x,))
        losses = cross_entropy(scores, y, reduction="none")
        loss = (losses * there).sum() / there.sum().clamp_min(1.0)
        if self.proximal:
            loss = loss + 0.5 * self.proximal * (theta - start).square().sum()
        return loss


def _stacked(lessons: Sequence[Lesson]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(clients, steps, batch) as long as the longest lesson."""
    steps = max(len(lesson.rows) for lesson in lessons)
    rows = np.full((len(lessons), steps, lessons[0].rows.shape[1]), EMPTY, dtype=np.int64)
    for place, lesson in zip(rows, lessons, strict=True):
        place[: len(lesson.rows)] = lesson.rows
    return rows


def _sent(rows: np.ndarray[Any, np.dtype[np.int64]], device: torch.device) -> Tensor:
    """On the device; what it has still to do need not be over for that."""
    here = torch.from_numpy(rows)
    if device.type != "cuda":
        return here.to(device)
    return here.pin_memory().to(device, non_blocking=True)


def _mover(work: LocalWork, far: Tensor) -> Mover:
    """One step of every client that has a batch left, by an optimiser without a past."""
    return {"sgd": _sgd, "adam": _adam}[work.optimizer](work.learning_rate, far)


def _sgd(rate: float, far: Tensor) -> Mover:
    del far

    def move(far: Tensor, g: Tensor, active: Tensor) -> Tensor:
        return far.addcmul_(g, active[:, None].to(g.dtype), value=-rate)

    return move


def _adam(rate: float, far: Tensor) -> Mover:
    m, v = torch.zeros_like(far), torch.zeros_like(far)
    taken = torch.zeros(len(far), 1, device=far.device)
    b1, b2, tiny = ADAM

    def move(far: Tensor, g: Tensor, active: Tensor) -> Tensor:
        # Clients that stand still have ended: what their moments become is never used.
        taken.add_(active[:, None])
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        size = (v / (1 - b2**taken)).sqrt_().add_(tiny).mul_(1 - b1**taken)
        return far.addcdiv_(m * active[:, None], size, value=-rate)

    return move


def _stack(weights: int, device: torch.device) -> int:
    return AT_ONCE if device.type != "cpu" else max(1, min(AT_ONCE, IN_CACHE // weights))


def stackable(model: nn.Module, device: torch.device) -> bool:
    """Whether its clients can be trained side by side."""
    return not _moving(model) and not _recurrent_on_gpu(model, device)


def faster(model: nn.Module, device: torch.device, batch: int) -> bool:
    """Whether clients side by side are faster, as `benchmarks/federation_speed.py` has it.

    The products of dense layers are one larger product then. Convolutions whose weights differ
    from client to client gain on a GPU; on a CPU only where steps are small, and lose with larger
    ones.
    """
    return device.type != "cpu" or batch <= FEW or _all_dense(model)


def _all_dense(model: nn.Module) -> bool:
    owners = [module for module in model.modules() if list(module.parameters(recurse=False))]
    return all(isinstance(module, nn.Linear) for module in owners)


def _moving(model: nn.Module) -> list[str]:
    """Statistics of batches: those which travel with the weights, and those that nobody keeps."""
    buffers: Mapping[str, Tensor] = dict(model.named_buffers())
    kept = [name for name in travelling(model) if name in buffers]
    return kept + [name for name, m in model.named_modules() if isinstance(m, _BatchNorm)]


def _recurrent_on_gpu(model: nn.Module, device: torch.device) -> bool:
    """Recurrent layers of cuDNN take no weights that differ within a batch."""
    return device.type == "cuda" and any(isinstance(m, nn.RNNBase) for m in model.modules())


def _require_stackable(model: nn.Module, device: torch.device) -> None:
    moving = _moving(model)
    if moving:
        raise InputError(
            "a model with statistics of its batches cannot be trained with others at once",
            got=f"'{moving[0]}'",
            fix="a model without BatchNorm, or --engine one-by-one",
        )
    if _recurrent_on_gpu(model, device):
        raise InputError(
            "recurrent networks side by side on a GPU",
            got=str(device),
            fix="--engine one-by-one, or --device cpu",
        )
