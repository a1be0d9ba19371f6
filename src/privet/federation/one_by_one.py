"""Clients trained one after the other, each with a model and an optimiser of its own.

A simulator that trains all clients with one model object and one optimiser object leaks from client
to client: Adam's moments, BatchNorm's statistics, the state of the random generator. Such results
look good and do not hold on devices (FLSys, lessons learned). Here everything is new for each
client: a copy of the untouched model, an optimiser without a past, a generator with the client's
own seed. So training A and B in one process gives what training them in two gives, bit for bit.

A `Pupil` is one client in the middle of its lesson. A phone may stop it between two steps; the
simulator never does. Both train by the same lines.
"""

import copy
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from privet.federation.flat import flat, load_flat
from privet.federation.local_work import EMPTY, Lesson, LocalWork, Material, own_draws


@final
class Pupil:
    """One client with its lesson: a model, an optimiser and a generator of its own.

    Args:
        model: as it was built; a copy is trained.
        material: the records, on the device where the client trains.
        work: what it does.
        weights: the version that it begins with.
        lesson: the rows of each step.
        proximal: mu of FedProx.
    """

    def __init__(
        self,
        model: nn.Module,
        material: Material,
        work: LocalWork,
        weights: Tensor,
        lesson: Lesson,
        *,
        proximal: float = 0.0,
    ) -> None:
        self._model, self._material = copy.deepcopy(model), material
        self._lesson, self._proximal = lesson, proximal
        self._start = weights.to(material.x.device)
        load_flat(self._model, self._start)
        self._model.train()
        self._learned = [p for p in self._model.parameters() if p.requires_grad]
        self._anchors = [p.detach().clone() for p in self._learned] if proximal else []
        self._optimizer = _fresh(work, self._learned)
        # One record has no deviation to divide by, and PyTorch refuses it. Such a batch is left
        # out: no run may end by how many records one client has.
        self._fewest = 2 if any(isinstance(m, _BatchNorm) for m in model.modules()) else 1
        self._drawn: Tensor | None = None  # the generator's state where it stopped
        self.steps_done = 0

    @property
    def done(self) -> bool:
        """Whether the lesson is over."""
        return self.steps_done == len(self._lesson.rows)

    def go_on(self, may: Callable[[], bool] = lambda: True) -> bool:
        """Step after step while it may; whether the lesson is over. Stops change nothing."""
        device = self._start.device
        with own_draws(self._lesson.seed, device):
            if self._drawn is not None:
                _set_draws(self._drawn, device)
            while not self.done and may():
                batch = self._lesson.rows[self.steps_done]
                rows = torch.from_numpy(batch[batch != EMPTY])
                if len(rows) >= self._fewest:
                    self._step(rows)
                self.steps_done += 1
            if not self.done:
                self._drawn = _draws(device)
        return self.done

    def change(self) -> Tensor:
        """Delta so far."""
        return self.weights() - self._start

    def weights(self) -> Tensor:
        """The weights so far."""
        return flat(self._model)

    def _step(self, rows: Tensor) -> None:
        x, y = self._material.x, self._material.y
        rows = rows.to(x.device)
        loss = cross_entropy(self._model(x[rows]), y[rows])
        for weight, anchor in zip(self._learned, self._anchors, strict=False):
            loss = loss + 0.5 * self._proximal * (weight - anchor).square().sum()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()


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

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        """Delta of each lesson, one a row."""
        with self.work.products(self.material.x.device):
            return torch.stack([self._change(weights, lesson) for lesson in lessons])

    def pupil(self, weights: Tensor, lesson: Lesson) -> Pupil:
        """A client that has not begun yet."""
        return Pupil(self.model, self.material, self.work, weights, lesson, proximal=self.proximal)

    def _change(self, weights: Tensor, lesson: Lesson) -> Tensor:
        pupil = self.pupil(weights, lesson)
        pupil.go_on()
        return pupil.change()


def _draws(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_draws(state: Tensor, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def _fresh(work: LocalWork, weights: Sequence[Tensor]) -> torch.optim.Optimizer:
    if work.optimizer == "adam":
        return torch.optim.Adam(weights, lr=work.learning_rate)
    return torch.optim.SGD(weights, lr=work.learning_rate)
