"""The steps of DPAL and StoBatch: Algorithms A and B of `stobatch`, in one loop.

A step averages the gradients of its pairs of batches. Each pair is worked on alone, from the same
weights, by whichever process it falls to; batch normalisation sees one pair at a time, and its
running statistics are averaged as the gradients are. So the number of processes changes nothing but
the order of sums, which are taken in double precision.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from privet.engine.examples import Examples, Rows
from privet.engine.generators import generator_at
from privet.engine.plain import Course
from privet.engine.ranks import Ranks
from privet.errors import InputError
from privet.models.published_noised import Noised
from privet.privacy.precision import Precision
from privet.privacy.randomness import SecretStream
from privet.training.published.batches import Indices, Pair, Pairing
from privet.training.published.budgets import Budgets, Draws
from privet.training.published.costs import (
    classification_cost,
    quadratic_losses,
    reconstruction_cost,
)
from privet.training.published.crafting import crafted
from privet.training.published.statistics import of_the_batch, settle
from privet.training.published.stobatch_settings import PublishedSettings


class StobatchTrainer:
    """Takes the steps of a course; what it draws besides the noise follows from a public seed.

    Attributes:
        losses: reconstruction and classification cost of the last step, before its update.
    """

    def __init__(
        self,
        *,
        model: Noised,
        optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer],
        examples: Examples,
        batches: Indices,
        pairing: Pairing,
        draws: Draws,
        budgets: Budgets,
        plan: Course,
        settings: PublishedSettings,
        stream: SecretStream,
        precision: Precision,
        ranks: Ranks = Ranks(),  # noqa: B008 - frozen
    ) -> None:
        _require_work_for_all(ranks, pairing)
        self.model, self.optimizers, self.plan = model.train(), optimizers, plan
        self.budgets, self.ranks = budgets, ranks
        self.next_step, self.note = 0, ""
        self._device = model.input_noise.device
        self.losses = torch.zeros(2, device=self._device)
        self._examples, self._batches, self._pairing = examples, batches, pairing
        self._settings, self._stream, self._precision = settings, stream, precision
        model.input_noise.copy_(draws.inputs)
        model.hidden_noise.copy_(draws.hidden)
        self._label_noise = draws.labels.to(model.last.weight)
        self._theta1 = (model.first.weight,)
        self._theta2 = (*model.hidden.parameters(), model.last.weight)

    def step(self) -> None:
        """theta1 goes down the reconstruction cost, theta2 down the classification cost."""
        pairs = self._pairing.pairs(self._batches, self.next_step, self._stream)
        statistics = list(self.model.hidden.buffers())
        first = [kept.clone() for kept in statistics]
        found = []
        with self._precision.products(self._device):
            for number in range(self.ranks.rank, len(pairs), self.ranks.size):
                _set(statistics, first)
                found.append(self._found(pairs[number], number))
        mean = (self.ranks.total(torch.stack(found).double().sum(0)) / len(pairs)).float()
        parts = [*self._theta1, *self._theta2, *_fractional(statistics), self.losses]
        pieces = torch.split(mean, [part.numel() for part in parts])
        values = [v.view_as(part) for v, part in zip(pieces, parts, strict=True)]
        trained = (*self._theta1, *self._theta2)
        for parameter, gradient in zip(trained, values, strict=False):
            parameter.grad = gradient
        _set(parts[len(trained) :], values[len(trained) :])
        for optimizer in self.optimizers:
            optimizer.step()
        self.next_step += 1
        if self.next_step == self.plan.steps:
            self._settle()

    def _settle(self) -> None:
        """For prediction, which has the noise of training: each batch once, benign."""
        if self.ranks.leads:
            with self._precision.products(self._device):
                settle(self.model, (self._rows(batch).x for batch in self._batches))
        statistics = list(self.model.hidden.buffers())
        _set(statistics, self.ranks.told([kept.cpu() for kept in statistics]))

    def _found(self, pair: Pair, number: int) -> Tensor:
        """Gradients, running statistics and costs of a pair, in one vector."""
        (x, y), (source, source_labels) = map(self._records, pair)
        attack = self._crafted(source, number)
        inputs, labels = torch.cat([x, attack]), torch.cat([y, source_labels])
        model, settings = self.model, self._settings
        with torch.no_grad():  # the classification cost trains theta2 alone
            hidden = model.first(inputs)
        r = reconstruction_cost(
            model.first, inputs, hidden, model.hidden_noise, settings.reconstruction
        )
        _, scores = model.above(hidden + model.hidden_noise)
        assert settings.xi is not None
        l = classification_cost(  # noqa: E741 - the paper's letter
            quadratic_losses(scores, labels),
            len(x),
            settings.xi,
            model.last.weight,
            self._label_noise,
            self.budgets.batch,
        )
        gradients = [*torch.autograd.grad(r, self._theta1), *torch.autograd.grad(l, self._theta2)]
        statistics = _fractional(list(model.hidden.buffers()))
        return torch.cat(
            [*(part.flatten() for part in (*gradients, *statistics)), torch.stack([r, l]).detach()]
        )

    def _crafted(self, source: Tensor, number: int) -> Tensor:
        """Of the noised inputs, against the network as it is; one random size for the step."""
        settings, at = self._settings, self.next_step
        assert settings.adversarial_size is not None
        assert settings.adversarial_steps is not None
        luck = 1.0 - float(self._stream.uniform(1, purpose="attack size", step=at)[0])
        generator = generator_at(self._stream, self._device, purpose=f"attack {number}", step=at)
        with of_the_batch(self.model):  # running ones lag behind where noise is large
            return crafted(
                self.model.scored,
                source,
                size=2.0 * settings.adversarial_size * luck,  # [-1, 1] is twice as wide as [0, 1]
                steps=settings.adversarial_steps,
                generator=generator,
            )

    def _records(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Noised inputs and labels."""
        rows = self._rows(indices)
        return self.model.noised(rows.x), rows.y

    def _rows(self, indices: Indices) -> Rows:
        return self._examples.rows(torch.from_numpy(indices), torch.Generator(self._device))

    def released_model(self) -> Noised:
        """The network with its noise, as the papers predict with it."""
        return self.model

    @property
    def contribution(self) -> int:
        """Records of a unit in a step."""
        return self._examples.contribution

    def state(self) -> dict[str, Any]:
        """The noise is among it: input and hidden noise with the model."""
        return {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "label_noise": self._label_noise,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self._label_noise.copy_(state["label_noise"])


def _require_work_for_all(ranks: Ranks, pairing: Pairing) -> None:
    if ranks.size > pairing.parts:
        raise InputError(
            "more processes than parts of a step",
            got=f"{ranks.size} processes, {pairing.parts} parts",
            expected="at least one part (trainers times shards) for each",
            fix=f"--trainers {ranks.size}, or fewer processes",
        )


def _fractional(tensors: list[Tensor]) -> list[Tensor]:
    """Those that can be averaged; the others count batches."""
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def _set(tensors: list[Any], values: list[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
