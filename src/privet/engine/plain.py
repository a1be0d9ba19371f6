"""Steps without privacy: minibatch gradient descent, to compare private training with.

Everything that is drawn (the order of the records, views, dropout) follows from one seed. So a run
can be repeated, and a run that goes on from a checkpoint ends where it would have ended.

Guarantee: none. The weights may hold any record they were trained on.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.engine.adversary import Adversary, attacked
from privet.engine.averaging import WeightAverage
from privet.engine.examples import Augmentation, Examples, Rows
from privet.engine.generators import drawing_at
from privet.engine.summing import MOST_ROWS, pieces
from privet.privacy.phases import enter_phase
from privet.privacy.precision import Precision
from privet.privacy.probing import undisturbed
from privet.privacy.randomness import SecretStream
from privet.privacy.sampling import Sampler, ShuffledSampler
from privet.privacy.units import PerExampleLoss, Units, cross_entropy, per_example_losses


class EpochOrder:
    """Units of each step, on a device; a shuffled epoch is ordered and sent there once."""

    def __init__(self, sampler: Sampler, stream: SecretStream, device: torch.device) -> None:
        self._sampler, self._stream, self._device = sampler, stream, device
        self._key, self._pieces = (-1, -1), list[Tensor]()

    def at(self, n: int, step: int) -> Tensor:
        """What the sampler draws of `n` units in this step."""
        sampler = self._sampler
        if not isinstance(sampler, ShuffledSampler):
            drawn = sampler.draw(n, step=step, stream=self._stream)
            return torch.from_numpy(drawn).to(self._device)
        epoch, place = divmod(step, sampler.groups)
        if self._key != (n, epoch):
            pieces = sampler.pieces(n, epoch=epoch, stream=self._stream)
            joined = torch.from_numpy(np.concatenate(pieces)).to(self._device)
            self._pieces = list(torch.split(joined, [len(piece) for piece in pieces]))
            self._key = (n, epoch)
        return self._pieces[place]


@dataclass(frozen=True, kw_only=True)
class Course:
    """How many steps, and which units each of them takes; from declared facts, as a plan is."""

    steps: int
    sampler: Sampler


class PlainTrainer:
    """Runs the steps of a course on a model and its optimiser."""

    def __init__(
        self,
        *,
        model: nn.Module,
        whole: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        plan: Course,
        stream: SecretStream,
        precision: Precision,
        average: WeightAverage | None = None,
        augmentation: Augmentation | None = None,
        adversary: Adversary | None = None,
        loss: PerExampleLoss = cross_entropy,
    ) -> None:
        self.model = model
        self.whole = whole
        self.optimizer = optimizer
        self.plan = plan
        self.average = average
        self.next_step = 0
        self.note = ""
        self._examples = examples
        self._stream = stream
        self.precision = precision
        self._augmentation = augmentation
        self._adversary = adversary
        self._per_example = loss
        self._device = next(model.parameters()).device
        self._order = EpochOrder(plan.sampler, stream, self._device)

    def step(self) -> None:
        """The gradient of the mean loss over the units whose turn it is, and an update."""
        units = self._order.at(len(self._examples), self.next_step)
        enter_phase(self.model, self.next_step, self.plan.steps)
        self.optimizer.zero_grad(set_to_none=True)
        with (
            self.precision.products(self._device),
            drawing_at(self._stream, self._device, step=self.next_step) as generator,
        ):
            for piece in pieces(units, self._at_once):
                loss = self._loss(self._rows(piece, generator)) / len(units)
                torch.autograd.backward(loss)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, self.next_step)
        self.next_step += 1

    def released_model(self) -> nn.Module:
        """The model to hand over: the whole of it, with averaged weights where there are any."""
        if self.average is None:
            return self.whole
        with undisturbed(self.model):
            self.average.copy_to(self.model)
            return copy.deepcopy(self.whole)

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The one there is."""
        return (self.optimizer,)

    def state(self) -> dict[str, Any]:
        """All that a run needs to go on: tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.restore(state["average"])

    @property
    def contribution(self) -> int:
        """The most records of one unit that a step uses."""
        return self._examples.contribution

    def _rows(self, units: Tensor, generator: torch.Generator) -> Rows:
        rows = self._examples.rows(units, generator)
        if self._augmentation is not None:
            rows = rows.seen_through(self._augmentation, generator)
        if self._adversary is not None:
            rows = attacked(rows, self._adversary, self.model, generator, self.precision)
        return rows

    def _loss(self, rows: Rows) -> Tensor:
        """The sum over units of the mean over their rows."""
        units = Units.of(rows.x, rows.y, views=rows.views, weights=rows.weights)
        with self.precision.passes(self._device):
            outputs = self.model(units.x)
        return units.weighted(per_example_losses(self._per_example, outputs.float(), units.y)).sum()

    @property
    def _at_once(self) -> int:
        """Units in a pass: bounds memory."""
        own = 1 if self._augmentation is None else self._augmentation.views
        made = 1 if self._adversary is None else len(self._adversary.shares)
        rows = MOST_ROWS.get(self._device.type, MOST_ROWS["cpu"])
        return max(1, rows // (self._examples.contribution * own * made))
