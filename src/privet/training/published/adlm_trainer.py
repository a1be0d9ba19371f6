"""The steps of AdLM as published; symbols, loop and deviations stand in `adlm`."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor, nn

from privet.engine.examples import Examples
from privet.engine.generators import generator_at
from privet.engine.plain import Course, PlainTrainer
from privet.models.relevance import relevance
from privet.privacy.precision import Precision
from privet.privacy.randomness import SecretStream
from privet.privacy.sampling import sampler_for
from privet.training.published.adlm_budgets import Budgets
from privet.training.published.adlm_settings import AdlmPaperSettings
from privet.training.published.costs import quadratic_losses
from privet.training.published.statistics import settle

FARTHEST: Final = 10.0  # noised inputs are cut off there
FLOOR: Final = 1e-5  # of beta
STABILISER: Final = 1.0  # of relevance
PRETRAINING_RATE: Final = 1e-3
PRETRAINING_BATCH: Final = 128
AT_ONCE: Final = 512


class AdlmTrainer:
    """Takes the steps of a course; its first one trains the network for relevance before.

    Attributes:
        beta: shares of the inputs, of their shape; None before the first step.
    """

    def __init__(
        self,
        *,
        model: nn.Sequential,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        plan: Course,
        budgets: Budgets,
        settings: AdlmPaperSettings,
        noise: SecretStream,
        public: SecretStream,
        pretrained: Callable[[], nn.Module],
        precision: Precision,
    ) -> None:
        self.model, self.plan, self.budgets = model.train(), plan, budgets
        self.optimizer = optimizer
        self.next_step, self.note = 0, ""
        self.beta: Tensor | None = None
        self._examples, self._settings, self._precision = examples, settings, precision
        self._noise, self._public, self._network = noise, public, pretrained
        self._device = next(model.parameters()).device

    def step(self) -> None:
        """One update by noised inputs and the noised loss."""
        if self.beta is None:
            self.beta = self._shares()
        drawn = self.plan.sampler.draw(
            len(self._examples), step=self.next_step, stream=self._public
        )
        units = torch.from_numpy(drawn)
        with self._precision.products(self._device):
            x, y = self._records(units)
            noised = (x + self.input_noise(units)).clamp(-FARTHEST, FARTHEST)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(self.loss(noised, y))
        self.optimizer.step()
        self.next_step += 1
        if self.next_step == self.plan.steps:
            self._settle()

    def _settle(self) -> None:
        """For prediction, which has no noise: the batches of another epoch, without noise."""
        sampler, n = self.plan.sampler, len(self._examples)
        # From where one begins: over parts of two, records would count twice and others not at all.
        first = math.ceil(self.next_step / sampler.cycle) * sampler.cycle
        steps = range(first, first + sampler.cycle)
        drawn = (sampler.draw(n, step=step, stream=self._public) for step in steps)
        with self._precision.products(self._device):
            settle(self.model, (self._records(torch.from_numpy(units))[0] for units in drawn))

    def loss(self, noised: Tensor, labels: Tensor) -> Tensor:
        """The mean over records of the Taylor polynomial, less <N3, W>."""
        last = self.model[-1]
        assert isinstance(last, nn.Linear)
        return (
            quadratic_losses(self.model(noised), labels).mean()
            - (self.loss_noise * last.weight).sum()
        )

    @cached_property
    def loss_noise(self) -> Tensor:
        """N3, a row for each class: one draw for the run."""
        shape = (self.budgets.classes, self.budgets.hidden)
        return self.budgets.loss_scale * self._laplace(shape, "loss", 0)

    def input_noise(self, units: Tensor) -> Tensor:
        """What is added to the records of the next step: one row for all, or one for each."""
        assert self.beta is not None
        scale = self.budgets.input_scale / self.beta
        match self._settings.noise_sharing:
            case "shared_fixed":
                return scale * self._laplace(self.beta.shape, "inputs", 0)
            case "shared_per_step":
                return scale * self._laplace(self.beta.shape, "inputs of a step", self.next_step)
            case _:
                return scale * self._own_noise[units.to(self._device)]

    @cached_property
    def _own_noise(self) -> Tensor:
        """Of scale 1, for every record and input."""
        assert self.beta is not None
        return self._laplace((len(self._examples), *self.beta.shape), "own inputs", 0)

    def relevance(self) -> Tensor:
        """R: the mean over all records, each brought to [0, 1], of a network trained on them."""
        network = self._pretrained()
        total = torch.zeros(1, device=self._device)
        for part in torch.split(torch.arange(len(self._examples)), AT_ONCE):
            x, _ = self._records(part)
            total = total + _from_0_to_1(relevance(network, x, stabiliser=STABILISER)).sum(0)
        return total / len(self._examples)

    def _shares(self) -> Tensor:
        """Beta; 1 for all inputs where noise is identical."""
        if not self._settings.adaptive:
            x, _ = self._records(torch.arange(1))
            return torch.ones_like(x[0])
        mean = self.relevance()
        noise = self._laplace(mean.shape, "relevance", 0)
        return shares(mean + self.budgets.relevance_scale * noise)

    def _pretrained(self) -> nn.Module:
        """A network of the same structure, trained on the records without noise."""
        network, records = self._network(), self.budgets.records
        sampler = sampler_for(
            "shuffled", batch=min(PRETRAINING_BATCH, records), nominal_size=records
        )
        assert self._settings.pretraining_epochs is not None
        steps = max(1, round(self._settings.pretraining_epochs / sampler.rate))
        trainer = PlainTrainer(
            model=network,
            whole=network,
            optimizer=torch.optim.Adam(network.parameters(), lr=PRETRAINING_RATE),
            examples=self._examples,
            plan=Course(steps=steps, sampler=sampler),
            stream=self._public.branch(purpose="pre-training", step=0),
            precision=self._precision,
        )
        for _ in range(steps):
            trainer.step()
        return network

    def _records(self, units: Tensor) -> tuple[Tensor, Tensor]:
        rows = self._examples.rows(units, torch.Generator(self._device))
        return rows.x, rows.y

    def _laplace(self, shape: tuple[int, ...], purpose: str, step: int) -> Tensor:
        """Of scale 1; the address decides."""
        generator = generator_at(self._noise, self._device, purpose=purpose, step=step)
        u = torch.rand(shape, generator=generator, device=self._device, dtype=torch.float64)
        centred = u - 0.5
        draw = -centred.sign() * torch.log1p(-2.0 * centred.abs())
        return draw.float()

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The one there is."""
        return (self.optimizer,)

    def released_model(self) -> nn.Module:
        """The network without any noise at its inputs."""
        return self.model

    def state(self) -> dict[str, Any]:
        """The key of the noise is among it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "beta": self.beta,
            "noise": self._noise.key.hex(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.beta = state["beta"]
        self._noise = SecretStream(bytes.fromhex(state["noise"]))
        for drawn in ("loss_noise", "_own_noise"):  # under another key
            vars(self).pop(drawn, None)


def shares(noisy: Tensor) -> Tensor:
    """Beta = d |R~| / sum |R~|, floored, and brought back to a sum of d."""
    size = noisy.abs()
    floored = (size / size.mean()).clamp_min(FLOOR)
    return floored / floored.mean()


def _from_0_to_1(rows: Tensor) -> Tensor:
    """Each row by its own least and largest value; 0 where they are one."""
    flat = rows.flatten(1)
    low = flat.amin(1, keepdim=True)
    width = flat.amax(1, keepdim=True) - low
    scaled = torch.where(width > 0, (flat - low) / width.clamp_min(1e-30), 0.0)
    return scaled.view_as(rows)
