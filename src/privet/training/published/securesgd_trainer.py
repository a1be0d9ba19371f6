"""The loop of SecureSGD as published; `securesgd.py` beside this file says what it claims."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn

from privet.engine.checkpoint import keys_of, randomness_from
from privet.engine.examples import Examples
from privet.engine.generators import drawing_at, generator_at
from privet.engine.plain import Course
from privet.engine.summing import BatchSum
from privet.models.hidden_noise import HiddenNoise, noise_of
from privet.privacy.clipping import Clipper, trainable
from privet.privacy.noise import GaussianNoise
from privet.privacy.randomness import Randomness
from privet.training.securesgd import vulnerability

RECORDS: Final = 1250  # that r is a mean over


@final
class SecureTrainer:
    """W warm-up steps, the redistribution, then the steps of the claim.

    Attributes:
        plan: of all steps.
        warmup: W.
        noise: on the sum of a step, scaled to C.
    """

    note = ""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        clipper: Clipper,
        *,
        plan: Course,
        warmup: int,
        batch: int,
        noise: GaussianNoise,
        spread: Callable[[Tensor], Tensor],
        randomness: Randomness,
    ) -> None:
        """`batch` divides the sums; `spread` makes deviations of r."""
        self.model, self.optimizer, self.plan = model, optimizer, plan
        self.warmup, self.noise, self.next_step = warmup, noise, 0
        self.contribution = examples.contribution
        self._batch, self._spread, self._randomness = batch, spread, randomness
        self._examples = examples
        self._summing = BatchSum(
            clipper=clipper, examples=examples, augmentation=None, expected=batch
        )
        self._first = copy.deepcopy(model.state_dict())

    def step(self) -> None:
        """Of the warm-up, or of the run; between them the redistribution."""
        if self.next_step == self.warmup:
            self._redistribute()
        self.layer.train(self.next_step >= self.warmup)
        step, streams = self.next_step, self._randomness
        drawn = self.plan.sampler.draw(len(self._examples), step=step, stream=streams.sampling)
        draws = partial(drawing_at, streams.sampling, self._device, step=step)
        total = self._summing.of(torch.from_numpy(drawn), draws, lambda: None)
        noisy = self.noise.add_to(total, step=step, stream=streams.noise)
        self._set_gradients(noisy.to(total) / self._batch)
        self.optimizer.step()
        self.next_step += 1

    def _redistribute(self) -> None:
        """The noise by what the records show, and the first weights again."""
        stream = self._randomness.sampling
        order = np.argsort(stream.uniform(len(self._examples), purpose="redistribution", step=0))
        generator = generator_at(stream, self._device, purpose="redistribution", step=0)
        rows = self._examples.rows(torch.from_numpy(order[:RECORDS]), generator)
        self.layer.scale = self._spread(vulnerability(self.model, rows.x, rows.y))
        self.model.load_state_dict(self._first)
        self.optimizer.state.clear()

    def _set_gradients(self, flat: Tensor) -> None:
        parameters = list(trainable(self.model).values())
        parts = torch.split(flat, [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)

    @property
    def layer(self) -> HiddenNoise:
        """The layer of noise."""
        return noise_of(self.model)

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The one there is."""
        return (self.optimizer,)

    def released_model(self) -> nn.Module:
        """The last weights."""
        return self.model

    def state(self) -> dict[str, Any]:
        """With the keys: a run that goes on draws what it would have drawn."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scale": self.layer.scale,
            "keys": keys_of(self._randomness),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.layer.scale = state["scale"]
        self._randomness = randomness_from(state["keys"])

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
