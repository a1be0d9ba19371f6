"""The loop of TransDenoiser as published; `transdenoiser.py` says what it claims."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from privet.engine.checkpoint import keys_of, randomness_from
from privet.engine.examples import Examples
from privet.engine.generators import drawing_at
from privet.engine.plain import Course
from privet.engine.summing import pieces, units_at_once
from privet.models.denoisers import Denoiser, slices
from privet.privacy.clipping import Clipper, clip_factors, trainable
from privet.privacy.noise import GaussianNoise
from privet.privacy.randomness import Randomness
from privet.training.published.transformation import NoiseRule, Transformation, remainders

TRANSFORMED: Final = ("first", "last")  # slices


@final
@dataclass(frozen=True, kw_only=True)
class StepNoise:
    """What a step adds to its gradients, in units of C.

    Attributes:
        xi_up: full explicit noise; 0 for none anywhere.
        rule: for the transformed slices; None where nothing is transformed.
        images: how many of a batch M is made of, at most.
        clipped: whether with their clip factors, as in Lemma 5.
    """

    xi_up: float
    rule: NoiseRule | None
    images: int
    clipped: bool


@final
class TransDenoiserTrainer:
    """Takes the steps of Algorithm 3.

    Attributes:
        model: the denoiser.
        plan: of all steps.
        noise: that they add.
        explicit: sigma-bar of the last step, by slice. It tells of the records, so nobody but who
            holds them may see it.
    """

    note = ""

    def __init__(
        self,
        denoiser: Denoiser,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        clipper: Clipper,
        *,
        released: nn.Module,
        plan: Course,
        batch: int,
        sigma: float,
        noise: StepNoise,
        randomness: Randomness,
    ) -> None:
        """`released` holds the denoiser; `batch` divides the sums."""
        self.model, self.optimizer, self.plan = denoiser.train(), optimizer, plan
        self.noise, self.next_step = noise, 0
        self.explicit: dict[str, float] = {}
        self._examples, self._clipper, self._released = examples, clipper, released
        self._batch, self._sigma, self._randomness = batch, sigma, randomness
        parts = slices(denoiser)
        self._places = {name: _places(denoiser, part) for name, part in parts.items()}
        self._transformed = {
            name: Transformation.of(denoiser, parts[name])
            for name in TRANSFORMED
            if noise.rule is not None
        }

    def step(self) -> None:
        """Noise on images, gradients of both kinds of them, explicit noise, an update."""
        step, stream = self.next_step, self._randomness.sampling
        drawn = self.plan.sampler.draw(len(self._examples), step=step, stream=stream)
        with drawing_at(stream, self._device, step=step) as generator:
            x = self._examples.rows(torch.from_numpy(drawn), generator).x
            z = x + self._sigma * torch.randn(x.shape, generator=generator, device=self._device)
            negative = self._negative(x, z)
            non = self._clipped_sum(x[~negative], z[~negative])
            neg = self._clipped_sum(x[negative], z[negative])
            self.explicit = self._explicit(x[~negative], z[~negative])
        total = self._noised(non, neg, some_negative=bool(negative.any()))
        self._set_gradients(total / self._batch)
        self.optimizer.step()
        self.next_step += 1

    def _negative(self, x: Tensor, z: Tensor) -> Tensor:
        """Which images have o(b) < 0; none is asked where nothing is transformed."""
        negative = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        if not self._transformed:
            return negative
        with _evaluating(self.model):
            for rows in self._pieces(x):
                negative[rows] = remainders(self.model, x[rows], z[rows]) < 0
        return negative

    def _clipped_sum(self, x: Tensor, z: Tensor) -> Tensor:
        """Sum of a_i grad_theta l(z_i), over all parameters."""
        total = torch.zeros(sum(p.numel() for p in trainable(self.model).values()))
        total = total.to(self._device)
        for rows in self._pieces(x):
            total = total + self._clipper.clipped_sum(z[rows], x[rows])
        return total

    def _explicit(self, x: Tensor, z: Tensor) -> dict[str, float]:
        """sigma-bar of each transformed slice, by the non-negative images."""
        rule, n = self.noise.rule, self.noise.images
        if rule is None:
            return {}
        with _evaluating(self.model):
            factors = self._factors(x[:n], z[:n])
            return {
                name: rule.explicit_noise(part.s_min(x[:n], factors, batch=self._batch, rule=rule))
                for name, part in self._transformed.items()
            }

    def _factors(self, x: Tensor, z: Tensor) -> Tensor:
        """a_i."""
        factors = torch.ones(len(x), device=x.device)
        if not self.noise.clipped:
            return factors
        for rows in self._pieces(x):
            gradients = self._clipper.per_example_gradients(z[rows], x[rows])
            norms = torch.linalg.vector_norm(gradients, dim=1)
            factors[rows] = clip_factors(norms, self._clipper.clip_norm)
        return factors

    def _noised(self, non: Tensor, neg: Tensor, *, some_negative: bool) -> Tensor:
        """G_non + G_neg: each slice with noise of its own, drawn apart."""
        total = torch.zeros_like(non)
        for name, place in self._places.items():
            if name not in self._transformed:
                total[place] = self._hidden((non + neg)[place], self.noise.xi_up, name)
                continue
            total[place] = self._hidden(non[place], self.explicit[name], f"{name}, non")
            if some_negative:
                total[place] += self._hidden(neg[place], self.noise.xi_up, f"{name}, neg")
        return total

    def _hidden(self, total: Tensor, multiplier: float, purpose: str) -> Tensor:
        if multiplier == 0:
            return total
        noise = GaussianNoise(multiplier=multiplier, sensitivity=self._clipper.clip_norm)
        stream = self._randomness.noise.branch(purpose=purpose, step=self.next_step)
        return noise.add_to(total, step=self.next_step, stream=stream).to(total)

    def _set_gradients(self, flat: Tensor) -> None:
        parameters = list(trainable(self.model).values())
        parts = torch.split(flat, [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)

    def _pieces(self, x: Tensor) -> Iterator[Tensor]:
        """Places of a few images at a time."""
        return pieces(torch.arange(len(x), device=x.device), units_at_once(self._clipper, 1))

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """One for all slices: it treats each parameter by itself."""
        return (self.optimizer,)

    def released_model(self) -> nn.Module:
        """The denoiser with the classifier behind it."""
        return self._released

    def state(self) -> dict[str, Any]:
        """With the keys: a run that goes on draws what it would have drawn."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "keys": keys_of(self._randomness),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._randomness = randomness_from(state["keys"])

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _places(denoiser: Denoiser, part: tuple[nn.Parameter, ...]) -> Tensor:
    """Where the parameters of a slice are in the flat vector of all."""
    wanted, start, found = {id(p) for p in part}, 0, []
    for parameter in trainable(denoiser).values():
        if id(parameter) in wanted:
            found.append(torch.arange(start, start + parameter.numel()))
        start += parameter.numel()
    return torch.cat(found).to(next(denoiser.parameters()).device)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout: the analysis is of one function, not of another one at each call."""
    model.eval()
    try:
        yield
    finally:
        model.train()
