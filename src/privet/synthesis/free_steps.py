"""What follows a private step and costs nothing: made records judged, generators taught.

| symbol        | here            | meaning                                                       |
|---------------|-----------------|---------------------------------------------------------------|
| z~ = G(s)     | `_latents`      | latents of stays that are made                                |
| x-bar, m-bar  | `_made`         | stays made by the imitator (the decoder, where there is none) |
| S-hat         | `anchor`        | private means of m, u m and u^2 m (u = 2 x - 1), cell by cell |
| H-hat         | `counts`        | private mean counts of cells in each bin, column by column    |

    in a step of the coders:
        the noisy mean of [m ; u m ; u^2 m] joins the average that S-hat is, that of counts H-hat
    in a step of the critics:
        first  Enc, Dec <- their averages, Dec_i <- Dec
        the private gradient of - D(real) is joined by the exact one of + D(made)
        after the optimiser's step the critics are kept from being steep
        G      descends - D_z(z~)
        Dec_i  descends - D_x(x-bar m-bar) - D_m(m-bar) + |Dec_i - Dec|^2 on its own rows
                        + |mean of [m-bar ; u-bar m-bar ; u-bar^2 m-bar] - S-hat|^2
    parts of the other phase have no gradient: what noise there was is thrown away

Guarantee: post-processing. All of it is a function of the weights, of the noisy sums that the
engine has put into `.grad`, and of draws from a public seed. It is handed no record, and holds
none: neither the data nor a batch can be reached from here.

The mean over a batch of made stays is taken twice, over halves, and their distances from S-hat are
multiplied: the square of one would count the chance of the batch, and teach stays to be alike.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from privet.models.record_coders import DecoderBody, Made, teacher_forced, unrolled
from privet.models.record_critics import limit_slopes
from privet.models.record_rows import Rows
from privet.synthesis.record_terms import CODERS, CRITICS, RecordTerms

STATE: Final = "free"  # the key among an optimiser's state
SEEDS: Final = 2**32


@final
@dataclass(frozen=True, kw_only=True)
class Free:
    """How generators are taught.

    Attributes:
        steps: after each private step of the critics.
        batch: stays that are made for one.
        rate: learning rate, of Adam, for each unit of the private one: the two fall together.
        judged: weight of the critics' judgement.
        imitated: of staying near the decoder.
        anchored: of the distance to the private means.
        average: decay of the moving average of weights that is released.
        seed: of all draws; public.
    """

    steps: int
    batch: int
    rate: float
    judged: float
    imitated: float
    anchored: float
    average: float
    seed: int


@final
class FreeSteps:
    """Rides on an optimiser; see the module's words.

    Args:
        model: what the engine trains.
        how: settings, public.
    """

    def __init__(self, model: RecordTerms, how: Free) -> None:
        self._model, self._how = model, how
        own = model.networks
        self._body: DecoderBody = own.decoder if own.imitator is None else own.imitator
        self._free = [*self._body.parameters(), *own.last.parameters()]
        self._generator = [] if own.generator is None else list(own.generator.parameters())
        self._optimizer = torch.optim.Adam([*self._free, *self._generator], lr=how.rate)
        self._steps = {CODERS: 0, CRITICS: 0}  # done, of each phase

    def ride(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The same optimiser, with hooks before and after its step and for its state."""
        optimizer.register_step_pre_hook(lambda *_: self._before())
        optimizer.register_step_post_hook(lambda *_: self._after(optimizer.param_groups[0]["lr"]))
        optimizer.register_state_dict_post_hook(lambda _, state: state | {STATE: self._state()})
        optimizer.register_load_state_dict_pre_hook(lambda _, state: self._restore(state[STATE]))
        return optimizer

    def _state(self) -> dict[str, Any]:
        return {"steps": dict(self._steps), "optimizer": self._optimizer.state_dict()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._steps = dict(state["steps"])
        self._optimizer.load_state_dict(state["optimizer"])

    def _before(self) -> None:
        phase = self._model.phase
        if phase == CODERS:
            self._note_means()
        elif self._steps[CRITICS] == 0:
            self._begin()
        learning = {id(p) for part in self._learning(phase) for p in part.parameters()}
        for parameter in self._model.parameters():
            if id(parameter) not in learning:
                parameter.grad = None
        if phase == CRITICS:
            self._add_made()

    def _after(self, rate: float) -> None:
        """Once the private parts have moved, at this learning rate: the free one goes with it."""
        phase = self._model.phase
        if phase == CRITICS:
            for critic in self._critics:
                limit_slopes(critic)
            for group in self._optimizer.param_groups:
                group["lr"] = self._how.rate * rate
            for place in range(self._how.steps):
                self._teach(place)
        self._average(self._steps[phase])
        self._steps[phase] += 1

    def _learning(self, phase: str) -> list[nn.Module]:
        """Parts that a private gradient may move."""
        own = self._model.networks
        coders: list[nn.Module | None] = [own.encoder, own.decoder, own.last]
        parts = [*(coders if phase == CODERS else self._critics), own.spread]
        if phase == CODERS or CODERS not in self._model.phases:
            parts = [*parts, own.start]
        return [part for part in parts if part is not None]

    @property
    def _critics(self) -> list[nn.Module]:
        own = self._model.networks
        return [c for c in (own.critic_x, own.critic_m, own.critic_z) if c is not None]

    @torch.no_grad()
    def _note_means(self) -> None:
        """S-hat and H-hat: averages over the steps of what their noisy sums say of the means."""
        own, weights = self._model, self._model.weights
        for part, scale in ((own.anchor, weights.anchor), (own.counts, weights.counts)):
            if part.weight.grad is not None and scale:
                part.weight.lerp_(-part.weight.grad / scale, 1.0 / (1 + self._steps[CODERS]))

    @torch.no_grad()
    def _begin(self) -> None:
        """The coders are done: what was averaged is what they are, and what is imitated."""
        own, averaged = self._model.networks, self._model.averaged
        if CODERS in self._model.phases:
            _copy(averaged, own)
        if own.imitator is not None:
            _copy(own.decoder, own.imitator)
        _copy(own, averaged)

    @torch.no_grad()
    def _average(self, done: int) -> None:
        decay = min(self._how.average, (1.0 + done) / (10.0 + done))
        pairs = zip(
            self._model.averaged.parameters(), self._model.networks.parameters(), strict=True
        )
        for averaged, now in pairs:
            averaged.lerp_(now, 1.0 - decay)

    def _drawing(self, place: int) -> torch.Generator:
        """By seed, step and place: a resumed run draws the same."""
        step = (self._steps[CRITICS] * (1 + self._how.steps) + place + 1) * 2654435761
        device = next(self._model.parameters()).device
        return torch.Generator(device).manual_seed((self._how.seed + step) % SEEDS)

    def _latents(self, generator: torch.Generator) -> Tensor:
        own, n = self._model.networks, self._how.batch
        if own.generator is not None:
            z: Tensor = own.generator(own.generator.draw(n, generator))
            return z
        steps, latent = own.shape.latent_steps, own.shape.latent
        shape = (n, latent) if steps is None else (n, steps, latent)
        return torch.randn(shape, generator=generator, device=generator.device)

    def _made(self, z: Tensor, generator: torch.Generator) -> tuple[Tensor, Made]:
        """What stays begin with, and the stays."""
        own = self._model.networks
        assert own.start is not None
        nothing = torch.zeros(len(z), 0, dtype=torch.long, device=z.device)
        start = own.start.draw(nothing, len(own.shape.sizes.start), generator)
        spread = None if own.spread is None else own.spread.deviations().detach()
        made = unrolled(
            self._body, own.last, own.reader, start, z, generator=generator, spread=spread
        )
        return start, made

    def _add_made(self) -> None:
        """The gradient of + D(made), exactly, to the private one of - D(real)."""
        generator = self._drawing(-1)
        with torch.no_grad():
            z = self._latents(generator)
            made = self._made(z, generator)[1]
        judged = self._model.weights.critics * self._judged(made, z)
        parameters = [p for critic in self._critics for p in critic.parameters()]
        for parameter, more in zip(
            parameters, torch.autograd.grad(judged, parameters), strict=True
        ):
            assert parameter.grad is not None
            parameter.grad = parameter.grad + more

    def _judged(self, made: Made, z: Tensor) -> Tensor:
        """What all critics say of made stays and their latents, on average."""
        own = self._model.networks
        total = z.new_zeros(())
        if own.critic_x is not None:
            total = total + own.critic_x(made.xm).mean()
        if own.critic_m is not None:
            total = total + own.critic_m(made.m).mean()
        if own.critic_z is not None:
            total = total + own.critic_z(_seen(z, made)).mean()
        return total

    def _teach(self, place: int) -> None:
        """One step of G and the imitator."""
        generator = self._drawing(place)
        with _learning(self._free), _learning(self._generator):
            z = self._latents(generator)
            start, made = self._made(z if self._through else z.detach(), generator)
            loss = self._loss_of_body(start, made, z)
            loss = loss - self._judged_latents(made, z)
            parameters = [*self._free, *self._generator]
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        for parameter in parameters:
            parameter.grad = None

    @property
    def _through(self) -> bool:
        """Whether G learns by the critics of records: where there is none of its latents."""
        return self._model.networks.critic_z is None

    def _judged_latents(self, made: Made, z: Tensor) -> Tensor:
        critic = self._model.networks.critic_z
        if critic is None or not self._generator:
            return z.new_zeros(())
        judged: Tensor = critic(_seen(z, made)).mean()
        return judged

    def _loss_of_body(self, start: Tensor, made: Made, z: Tensor) -> Tensor:
        own, how = self._model.networks, self._how
        loss = made.x.new_zeros(())
        if own.critic_x is not None:
            loss = loss - how.judged * own.critic_x(made.xm).mean()
        if own.critic_m is not None:
            loss = loss - how.judged * own.critic_m(made.m).mean()
        if own.imitator is not None and how.imitated:
            loss = loss + how.imitated * self._distance(start, made, z.detach())
        if self._model.weights.anchor and how.anchored:
            loss = loss + how.anchored * self._apart(made)
        return loss

    def _distance(self, start: Tensor, made: Made, z: Tensor) -> Tensor:
        """|Dec_i - Dec|^2 of values and chances, on rows that the imitator made."""
        own = self._model.networks
        rows = as_rows(start, made, own.reader.gap_time(made.x[..., -1]), own.reader.time_index)
        now = teacher_forced(self._body, own.last, own.reader, rows, z)
        with torch.no_grad():
            then = teacher_forced(own.decoder, own.last, own.reader, rows, z)
        apart = (now.x - then.x).square() * rows.m + (now.m - then.m).square()
        return (apart * rows.asked[..., None]).sum((1, 2)).mean()

    def _apart(self, made: Made) -> Tensor:
        """An estimate of |mean of [m ; u m ; u^2 m] - S-hat|^2 that is right on average."""
        profile = self._model.profile(made.x, made.m)
        target = self._model.anchor.weight[0].detach()
        one, two = (half.mean(0) - target for half in profile.tensor_split(2))
        return (one * two).sum()


def as_rows(start: Tensor, made: Made, gaps: Tensor, index: Any) -> Rows:
    """Made stays as if they had been read."""
    x, m = made.x.detach(), made.m.detach()
    return Rows(x=x, m=m, start=start, time=index((gaps * m[..., -1]).cumsum(1)))


def _seen(z: Tensor, made: Made) -> Tensor:
    """Latents of rows that are there."""
    return z if z.dim() == 2 else z * made.m[..., -1:].detach()


def _copy(source: nn.Module, target: nn.Module) -> None:
    for ours, theirs in zip(target.parameters(), source.parameters(), strict=True):
        ours.copy_(theirs)


@contextmanager
def _learning(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Gradients flow to these for a while; the engine never sees them learn."""
    before = [p.requires_grad for p in parameters]
    try:
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter, flag in zip(parameters, before, strict=True):
            parameter.requires_grad_(flag)
