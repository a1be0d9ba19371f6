"""The loop of IGAMT and of what it is compared with, as published; `igamt` says what is claimed.

In iteration t, for the batch whose turn it is (symbols in `losses`):

    z = Enc(x, m);  (x-hat, m-hat) = Dec(x, m, z)
    z-tilde = G(noise);  (x-tilde, m-tilde) = Dec(z-tilde);  (x-bar, m-bar) = Dec_i(z-tilde)
    if (t mod fb) < fh:  D_x, D_m, D_z by l_dx, l_dm, l_dz, each with a gradient penalty
    Dec by l_dec;  Enc by l_enc;  theta_last by l_dec (thesis) or l_imi (AAAI);  Dec_i by l_imi
    G by l_g

A part that is noised takes  theta <- theta - eta (g / max(1, |g| / C) + N(0, sigma^2)),  g the mean
gradient of the batch: all parameters of the part as one vector. The others have Adam. All rates
fall by a factor `decay` with every epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from privet.engine.checkpoint import keys_of, randomness_from
from privet.engine.examples import Examples
from privet.engine.generators import drawing_at
from privet.engine.plain import Course, EpochOrder
from privet.models.record_coders import Made, Said, teacher_forced, unrolled
from privet.models.record_critics import gradient_penalty
from privet.models.record_losses import divergence, reconstruction
from privet.models.record_networks import RecordNetworks
from privet.models.record_rows import Rows
from privet.models.start_model import uniform_start
from privet.privacy.noise import GaussianNoise
from privet.privacy.precision import Precision
from privet.privacy.randomness import Randomness
from privet.synthesis.published.losses import (
    critic_loss,
    decoder_loss,
    encoder_loss,
    generator_loss,
    imitator_loss,
)

CRITICS: Final = ("critic_x", "critic_m", "critic_z")
THESIS: Final = "thesis"
AAAI: Final = "aaai"
PENALTY: Final = 10.0  # lambda


@final
@dataclass(frozen=True, kw_only=True)
class Rates:
    """How fast parts learn, and when.

    Attributes:
        parts: eta of Enc, Dec, G, Dec_i and the last layer.
        critics: eta_D.
        decay: factor of an epoch.
        every, turns: fb and fh: critics learn in the first fh of fb iterations.
    """

    parts: float = 5e-4
    critics: float = 1e-4
    decay: float = 0.99
    every: int = 5
    turns: int = 1


@final
@dataclass(frozen=True, kw_only=True)
class Noising:
    """Which parts are noised, and how much; see the module's words."""

    sigma: float
    clip_norm: float
    parts: frozenset[str]


@final
@dataclass(kw_only=True, eq=False)
class Part:
    """Parameters that learn by one loss, and their optimiser."""

    name: str
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer


@final
@dataclass(kw_only=True, eq=False)
class Passes:
    """What one iteration sees; what a method lacks is None."""

    rows: Rows
    z: Tensor | None = None
    law: tuple[Tensor, Tensor] | None = None  # mean and log-variance
    said: Said | None = None  # x-hat, m-hat
    faked: Tensor | None = None  # z-tilde
    made: Made | None = None  # x-tilde, m-tilde
    imitated: Made | None = None  # x-bar, m-bar
    fakes: dict[str, list[Tensor]] = field(default_factory=dict)  # by critic


@final
class PublishedTrainer:
    """Takes the iterations of a course."""

    note = ""

    def __init__(
        self,
        model: RecordNetworks,
        examples: Examples,
        *,
        plan: Course,
        rates: Rates,
        noising: Noising | None,
        version: str,
        randomness: Randomness,
        precision: Precision,
    ) -> None:
        """`version` says by what the last layer of a model with an imitator learns."""
        self.model, self.plan, self.rates, self.noising = model, plan, rates, noising
        self.next_step = 0
        self._examples, self._version, self._precision = examples, version, precision
        self._randomness = randomness
        self._device = next(model.parameters()).device
        self._order = EpochOrder(plan.sampler, randomness.sampling, self._device)
        self.parts = {
            name: Part(name=name, parameters=found, optimizer=self._optimizer(name, found))
            for name, found in parts_of(model).items()
        }

    def step(self) -> None:
        """The next iteration; a batch that nobody is in changes nothing."""
        units = self._order.at(len(self._examples), self.next_step)
        self._set_rates()
        self.model.train()
        with (
            self._precision.products(self._device),
            drawing_at(self._randomness.sampling, self._device, step=self.next_step) as generator,
        ):
            if len(units):
                codes = self._examples.rows(units, generator).x
                self._iterate(self.model.reader.read(codes), generator)
        self.next_step += 1

    def _iterate(self, rows: Rows, generator: torch.Generator) -> None:
        """The algorithm of the papers."""
        seen = self._passes(rows, generator)
        if self.next_step % self.rates.every < self.rates.turns:
            for name in CRITICS:
                if name in self.parts:
                    self._move({name: self._critic_loss(name, seen, generator)})
        self._move(self._losses(seen))

    def _passes(self, rows: Rows, generator: torch.Generator) -> Passes:
        model, seen = self.model, Passes(rows=rows)
        if model.encoder is not None:
            z, log_variance = model.encoder(model.reader, rows)
            if log_variance is not None:
                seen.law = (z, log_variance)
                drawn = torch.randn(z.shape, generator=generator, device=z.device)
                z = z + (0.5 * log_variance).exp() * drawn
            seen.z = z
            seen.said = teacher_forced(model.decoder, model.last, model.reader, rows, z)
        seen.faked = self._latents(len(rows.x), generator)
        if model.critic_x is not None:
            start = uniform_start(model.shape.sizes.start, len(rows.x), generator)
            own = (model.last, model.reader, start, seen.faked)
            seen.made = unrolled(model.decoder, *own)
            if model.imitator is not None:
                seen.imitated = unrolled(model.imitator, *own)
        seen.fakes = _fakes(seen)
        return seen

    def _latents(self, n: int, generator: torch.Generator) -> Tensor:
        """z-tilde, by G, or standard normal where there is none."""
        g = self.model.generator
        if g is not None:  # two at least: statistics of one are none
            faked: Tensor = g(g.draw(max(n, 2), generator))[:n]
            return faked
        shape = self.model.shape
        rows = () if shape.latent_steps is None else (shape.latent_steps,)
        return torch.randn(n, *rows, shape.latent, generator=generator, device=self._device)

    def _critic_loss(self, name: str, seen: Passes, generator: torch.Generator) -> Tensor:
        """l_d of one critic with its penalties, of fakes that do not learn from it."""
        critic = self.model.get_submodule(name)
        real = _real(name, seen).detach()
        fakes = [fake.detach() for fake in seen.fakes[name]]
        loss = critic_loss(critic(real), [critic(fake) for fake in fakes])
        steep = [gradient_penalty(critic, real, fake, generator) for fake in fakes]
        return loss + PENALTY * torch.stack(steep).sum()

    def _losses(self, seen: Passes) -> dict[str, Tensor]:
        """Of all parts but the critics."""
        model, found = self.model, dict[str, Tensor]()
        recon = None if seen.said is None else reconstruction(seen.said, seen.rows)
        judged = [self._judged(name, seen) for name in ("critic_x", "critic_m")]
        own = [said for kinds in judged for said in kinds[: 1 + (seen.said is not None)]]
        if own or recon is not None:
            found["decoder"] = decoder_loss(recon, own)
        if recon is not None:
            spoken = None if model.critic_z is None else model.critic_z(seen.z)
            found["encoder"] = encoder_loss(recon, spoken, _divergence(seen))
        if model.generator is not None:
            latents = self._judged("critic_z", seen)
            found["generator"] = generator_loss(latents or own)
        if seen.imitated is not None and seen.made is not None and seen.said is not None:
            kinds = (seen.said, seen.made, seen.rows)
            models = [(kind.x * kind.m, kind.m) for kind in kinds]
            about = [said[-1] for said in judged if said]
            made = (seen.imitated.xm, seen.imitated.m)
            found["imitator"] = imitator_loss(made, models, about)
            found["last"] = found["decoder" if self._version == THESIS else "imitator"]
        return found

    def _judged(self, name: str, seen: Passes) -> list[Tensor]:
        """What a critic says of each kind of fake, in the order of `_fakes`; nothing without it."""
        if name not in self.parts:
            return []
        critic = self.model.get_submodule(name)
        return [critic(fake) for fake in seen.fakes[name]]

    def _move(self, losses: Mapping[str, Tensor]) -> None:
        """All gradients at the same weights, each loss differentiated once, then the steps."""
        found: dict[str, Sequence[Tensor | None]] = {}
        for loss in dict.fromkeys(losses.values()):
            names = [name for name in losses if losses[name] is loss]
            every = [p for name in names for p in self.parts[name].parameters]
            rest = list(torch.autograd.grad(loss, every, retain_graph=True, allow_unused=True))
            for name in names:
                count = len(self.parts[name].parameters)
                found[name], rest = rest[:count], rest[count:]
        for name, gradients in found.items():
            self._step(self.parts[name], gradients)

    def _step(self, part: Part, gradients: Sequence[Tensor | None]) -> None:
        if self.noising is not None and part.name in self.noising.parts:
            gradients = self._noised(part, gradients)
        for parameter, gradient in zip(part.parameters, gradients, strict=True):
            parameter.grad = gradient
        part.optimizer.step()
        part.optimizer.zero_grad(set_to_none=True)

    def _noised(self, part: Part, gradients: Sequence[Tensor | None]) -> Sequence[Tensor]:
        """The mean gradient of the batch, clipped, with noise that does not know C."""
        assert self.noising is not None
        flat = torch.cat(
            [
                (torch.zeros_like(p) if g is None else g).flatten()
                for p, g in zip(part.parameters, gradients, strict=True)
            ]
        )
        flat = flat / (torch.linalg.vector_norm(flat) / self.noising.clip_norm).clamp_min(1.0)
        noise = GaussianNoise(multiplier=self.noising.sigma, sensitivity=1.0)
        stream = self._randomness.noise.branch(purpose=part.name, step=self.next_step)
        noisy = noise.add_to(flat, step=self.next_step, stream=stream).to(flat)
        split = torch.split(noisy, [p.numel() for p in part.parameters])
        return [piece.view(p.shape) for piece, p in zip(split, part.parameters, strict=True)]

    def _optimizer(self, name: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        rate = self.rates.critics if name in CRITICS else self.rates.parts
        if self.noising is not None and name in self.noising.parts:
            return torch.optim.SGD(parameters, lr=rate)
        return torch.optim.Adam(parameters, lr=rate)

    def _set_rates(self) -> None:
        """By the epoch that the step is in."""
        share = self.rates.decay ** (self.next_step // self.plan.sampler.cycle)
        for part in self.parts.values():
            rate = self.rates.critics if part.name in CRITICS else self.rates.parts
            for group in part.optimizer.param_groups:
                group["lr"] = rate * share

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """None follows a schedule of the settings: see `decay`."""
        return ()

    def released_model(self) -> nn.Module:
        """Imitator or decoder, last layer, G."""
        return self.model.maker().to(self._device)

    def state(self) -> dict[str, Any]:
        """With the keys: a run that goes on draws what it would have drawn."""
        return {
            "model": self.model.state_dict(),
            "optimizers": {name: p.optimizer.state_dict() for name, p in self.parts.items()},
            "keys": keys_of(self._randomness),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        for name, part in self.parts.items():
            part.optimizer.load_state_dict(state["optimizers"][name])
        self._randomness = randomness_from(state["keys"])
        self._order = EpochOrder(self.plan.sampler, self._randomness.sampling, self._device)


def parts_of(model: RecordNetworks) -> dict[str, list[nn.Parameter]]:
    """Parameters by part, none in two of them.

    The embedding that encoder and decoder share is the decoder's, since it is released with it.
    Without an imitator the last layer is a part of the decoder.
    """
    shared = set(map(id, model.decoder.parameters()))
    found = {"decoder": list(model.decoder.parameters())}
    last = list(model.last.parameters())
    if model.imitator is None:
        found["decoder"] += last
    else:
        found |= {"last": last, "imitator": list(model.imitator.parameters())}
    for name in ("encoder", "generator", *CRITICS):
        part = getattr(model, name)
        if part is not None:
            found[name] = [p for p in part.parameters() if id(p) not in shared]
    return found


def _fakes(seen: Passes) -> dict[str, list[Tensor]]:
    """By critic: of Dec on z, of Dec on z-tilde, of the imitator, those that there are."""
    kinds = [kind for kind in (seen.said, seen.made, seen.imitated) if kind is not None]
    if seen.made is None:
        kinds = []
    return {
        "critic_x": [kind.x * kind.m for kind in kinds],
        "critic_m": [kind.m for kind in kinds],
        "critic_z": [] if seen.faked is None else [seen.faked],
    }


def _real(name: str, seen: Passes) -> Tensor:
    """What a critic's fakes are held against."""
    if name == "critic_z":
        assert seen.z is not None
        return seen.z
    return seen.rows.xm if name == "critic_x" else seen.rows.m


def _divergence(seen: Passes) -> Tensor | None:
    return None if seen.law is None else divergence(*seen.law)
