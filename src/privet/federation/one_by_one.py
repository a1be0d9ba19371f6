"""Clients trained one after the other, each with a model and an optimiser of its own.

A simulator that trains all clients with one model object and one optimiser object leaks from client
to client: Adam's moments, BatchNorm's statistics, the state of the random generator. Such results
look good and do not hold on devices (FLSys, lessons learned). Here everything is new for each
client: a copy of the untouched model, an optimiser without a past, a generator with the client's
own seed. So training A and B in one process gives what training them in two gives, bit for bit.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from privet.federation.flat import flat, load_flat
from privet.federation.local_work import EMPTY, Lesson, LocalWork, Material, own_draws


class OneByOne:
    """Trains clients by plain PyTorch; any model whose loss is the cross entropy of its scores.

    Args:
        model: as it was built; never trained itself.
        material: the records, on the device where clients train.
        work: what every client does.
        proximal: mu of FedProx.
    """

    def __init__(
        self, model: nn.Module, material: Material, work: LocalWork, *, proximal: float = 0.0
    ) -> None:
        self.model = model.to(material.x.device)
        self.material, self.work, self.proximal = material, work, proximal
        # One record has no deviation to divide by, and PyTorch refuses it. Such a batch is left
        # out: no run may end by how many records one client has.
        self._fewest = 2 if any(isinstance(m, _BatchNorm) for m in model.modules()) else 1

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        """Delta of each lesson, one a row."""
        with self.work.products(self.material.x.device):
            return torch.stack([self._change(weights, lesson) for lesson in lessons])

    def _change(self, weights: Tensor, lesson: Lesson) -> Tensor:
        model = copy.deepcopy(self.model)
        start = weights.to(self.material.x.device)
        load_flat(model, start)
        model.train()
        learned = [p for p in model.parameters() if p.requires_grad]
        anchors = [p.detach().clone() for p in learned] if self.proximal else []
        optimizer = _fresh(self.work, learned)
        with own_draws(lesson.seed, start.device):
            for batch in lesson.rows:
                rows = torch.from_numpy(batch[batch != EMPTY])
                if len(rows) >= self._fewest:
                    self._step(model, optimizer, learned, anchors, rows)
        return flat(model) - start

    def _step(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        learned: Sequence[Tensor],
        anchors: Sequence[Tensor],
        rows: Tensor,
    ) -> None:
        x, y = self.material.x, self.material.y
        rows = rows.to(x.device)
        loss = cross_entropy(model(x[rows]), y[rows])
        for weight, anchor in zip(learned, anchors, strict=False):
            loss = loss + 0.5 * self.proximal * (weight - anchor).square().sum()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()


def _fresh(work: LocalWork, weights: Sequence[Tensor]) -> torch.optim.Optimizer:
    if work.optimizer == "adam":
        return torch.optim.Adam(weights, lr=work.learning_rate)
    return torch.optim.SGD(weights, lr=work.learning_rate)
