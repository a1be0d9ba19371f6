"""DP-SGD (Abadi et al., 2016), the one private loop.

| paper            | here                                            |
|------------------|-------------------------------------------------|
| L_t, q = L/N     | `plan.sampler.draw(...)`, `plan.sampling_rate`  |
| g_t(x_i), C      | `clipper.clipped_sum`, `plan.clip_norm`         |
| N(0, sigma^2C^2) | `plan.noise.add_to`                             |
| 1/L              | 1/`plan.normaliser`, a constant of the plan     |

Deviations: the paper divides by the lot size L; so do we, but L is fixed beforehand from the
declared size, never from the batch that came out or from the data. What one unit contributes may be
the mean over several views of an example (De et al., 2022) or over the records of a user; it is
clipped as one. Large batches are summed piece by piece: what fits in memory does not matter.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from privet.engine.account import Account
from privet.engine.adversary import Adversary
from privet.engine.averaging import WeightAverage
from privet.engine.canaries import DiracCanaries
from privet.engine.examples import Augmentation, Examples
from privet.engine.generators import drawing_at
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.ranks import Ranks
from privet.engine.summing import BatchSum
from privet.engine.untouched import Untouched, mark_trained
from privet.errors import CheckFailed, InputError
from privet.privacy.clipping import Clipper, trainable
from privet.privacy.correlated import History
from privet.privacy.describing import describe
from privet.privacy.geometry import Geometry
from privet.privacy.noise import GaussianNoise, name_of
from privet.privacy.phases import enter_phase
from privet.privacy.probing import undisturbed
from privet.privacy.randomness import Randomness, SecretStream
from privet.privacy.separation import constant_layers, kept_constant


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The units drawn for one step. Private: neither the indices nor their number may leave."""

    step: int
    indices: Tensor


class PrivateTrainer:
    """Runs the steps of a plan on a user's model and optimiser.

    Guarantee: the sequence of updates given to the optimiser is accounted by `plan.event()`. The
    optimiser, learning rates and everything computed from the weights are post-processing.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        plan: Plan,
        clipper: Clipper,
        randomness: Randomness,
        account: Account,
        origin: Origin,
        whole: nn.Module | None = None,
        average: WeightAverage | None = None,
        augmentation: Augmentation | None = None,
        adversary: Adversary | None = None,
        ranks: Ranks = Ranks(),  # noqa: B008 - frozen
        draws_by_torch: bool = False,
        probe: tuple[Tensor, Tensor] | None = None,
        compiled: bool = False,
        canaries: DiracCanaries | None = None,
    ) -> None:
        if clipper.clip_norm > plan.clip_norm:
            raise InputError(
                "the clipper allows more than the plan accounts",
                got=f"clip norm {clipper.clip_norm}",
                expected=f"at most {plan.clip_norm}",
            )
        if clipper.model is not model:
            raise InputError("the clipper was made for another model", fix="make it for this one")
        if canaries is not None and ranks.size > 1:
            raise InputError("canaries need a run of one process", got=f"{ranks.size} processes")
        require_all_updated(model, optimizer)
        self.model = model
        self.optimizer = optimizer
        self.plan = plan
        self.randomness = randomness
        self.account = account
        self.origin = origin
        self.draws_by_torch = draws_by_torch  # dropout, views, the choice of records
        self.next_step = 0
        self.whole = model if whole is None else whole
        self.average = average
        self.noise_history = History.empty()  # of correlated noise; as secret as the keys
        self.ranks = ranks
        self.canaries = canaries
        self._examples = examples
        self._clipper = clipper
        self._drawn: Batch | None = None
        self._ahead: tuple[Randomness, Batch | None] = randomness, None
        self.repeating = False  # whether lost steps may be done again under their old keys
        self.untouched = Untouched(self.whole)
        self._constant = constant_layers(self.whole)
        self._buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        self._summing = BatchSum(
            clipper=clipper,
            examples=examples,
            augmentation=augmentation,
            adversary=adversary,
            expected=plan.normaliser / ranks.size,
            probe=probe,
            compiled=compiled,
        )

    def batches(self) -> Iterator[Batch]:
        """The batches of the remaining steps; take each with `step` before the next."""
        while self.next_step < self.plan.steps:
            step = self.next_step
            self._drawn = self._draw(step)
            yield self._drawn
            if self.next_step == step:
                raise InputError(
                    f"batch {step} was not used", fix="call trainer.step(batch) once for each batch"
                )

    def step(self, batch: Batch) -> None:
        """Charge, clip, sum, add noise, update.

        A step that breaks off (^C, memory, an optimiser's error) may be tried again. It then gives
        the same update, or is drawn anew and charged again where the sampler allows that.
        """
        if batch is not self._drawn or batch.step != self.next_step:
            raise InputError(
                "batch out of turn",
                got=f"batch of step {batch.step}",
                expected=f"the one that batches() drew for step {self.next_step}",
            )
        history = self.noise_history
        try:
            with kept_constant(self._constant):
                self._take(batch)
        except BaseException:
            # Its update may be in the weights already. Another try looks at the same sample.
            self.noise_history, self.repeating = history, True
            raise

    def _take(self, batch: Batch) -> None:
        with self.ranks.agreed():
            self.untouched.require()
            enter_phase(self.model, batch.step, self.plan.steps)
            self._summing.prepare()  # tries weights out and puts them back
            self.untouched.note()
            self.account.charge(batch.step)
            part = self._clipped_sum(batch)
        total = self.ranks.total(part)
        with self.ranks.agreed():
            noisy = self._confirmed(total, batch.step)
        noisy = self.ranks.from_lead(noisy)
        if self.canaries is not None:
            self.canaries.observe(noisy)
        self._set_gradients(self._clipper.in_parameters(noisy) / self.plan.normaliser)
        mark_trained(self.model)
        try:
            self.optimizer.step()
        finally:
            self.untouched.note()
        if self.average is not None:
            self.average.update(self.model, batch.step)
        self.next_step += 1

    @property
    def geometry(self) -> Geometry:
        """In which norm a unit's gradient is clipped."""
        return self._clipper.geometry

    @property
    def precision(self) -> str:
        """How coarsely gradients are computed, by name; see `privacy.precision`."""
        return self._clipper.precision.name

    @property
    def note(self) -> str:
        """What makes a step slower than it could be; all of it is known after the first one."""
        slow = [f"{la.name} ({la.kind})" for la in describe(self.model) if la.treatment != "rule"]
        reasons = [f"torch.func for {', '.join(slow)}: no rule, slower" if slow else ""]
        reasons += [(self._summing.note if self._summing.compiled else "") or self._clipper.note]
        return "; ".join(filter(None, reasons))

    @property
    def contribution(self) -> int:
        """The most records of one unit that a step uses."""
        return self._examples.contribution

    def released_model(self) -> nn.Module:
        """The model to hand over: the whole of it, with averaged weights where there are any."""
        if self.average is None:
            return self.whole
        with undisturbed(self.model):
            self.average.copy_to(self.model)
            averaged = copy.deepcopy(self.whole)
        self.untouched.note()
        return averaged

    def require_unchanged_buffers(self) -> None:
        """Refuse to release what the model remembered outside the private updates."""
        for name, buffer in self.model.named_buffers():
            if name not in self._buffers or not torch.equal(buffer, self._buffers[name]):
                raise InputError(
                    f"buffer '{name}' changed during training",
                    expected="buffers that stay constant: what they hold was never made private",
                )

    def _draw(self, step: int) -> Batch:
        randomness, ahead = self._ahead
        if ahead is not None and ahead.step == step and randomness is self.randomness:
            return ahead
        canaries = 0 if self.canaries is None else self.canaries.present
        units = len(self._examples) + canaries
        drawn = self.plan.sampler.draw(units, step=step, stream=self._sampling)
        return Batch(step=step, indices=torch.from_numpy(drawn))

    @property
    def _sampling(self) -> SecretStream:
        return self.ranks.own(self.randomness.sampling)

    def _require_redoable(self, step: int) -> None:
        if self.ranks.size > 1:
            raise CheckFailed(
                f"step {step} was done before and now comes out different",
                got=f"a run of {self.ranks.size} processes, which has no way to draw it anew",
                expected="the same update, from the same keys on the same hardware",
                fix="start a new run",
            )
        if not self.plan.sampler.redoable or self.plan.bands:
            raise CheckFailed(
                f"step {step} was done before and now comes out different",
                got=f"{self.plan.sampler.name} sampling, where every unit has its turn once",
                expected="the same update, from the same keys on the same hardware",
                fix="start a new run",
            )

    def _confirmed(self, total: Tensor, step: int) -> Tensor:
        """The private sum, noted before it is used; not yet it on a rank that does not lead."""
        noisy, name = self._noisy_sum(total, step)
        if self.repeating and self.account.differs(step, name):
            # Same sample, other noise: the pair would leak more than two steps are charged. Draw
            # everything anew, so that the second attempt is a step of its own.
            self._require_redoable(step)
            self.randomness, self.repeating = self.randomness.renewed(), False
            noisy, name = self._noisy_sum(self._clipped_sum(self._draw(step)), step)
        self.account.confirm(step, name)
        return noisy

    def _noisy_sum(self, total: Tensor, step: int) -> tuple[Tensor, str]:
        """A sum with noise, and its name in the journal."""
        noisy = self._with_noise(total, step)
        name = name_of(noisy, self.randomness.noise).hex()[:32]
        return noisy.to(total.device), name

    def _with_noise(self, total: Tensor, step: int) -> Tensor:
        noise, stream = self.plan.noise, self.randomness.noise
        if not self.ranks.leads:
            return total.double()
        if isinstance(noise, GaussianNoise):
            return noise.add_to(total, step=step, stream=stream)
        noisy, self.noise_history = noise.add_to(
            total, step=step, stream=stream, history=self.noise_history
        )
        return noisy

    def _clipped_sum(self, batch: Batch) -> Tensor:
        draws = partial(self._draws_of, batch.step)
        ahead = partial(self._draw_ahead, batch.step + 1)
        if self.canaries is None:
            return self._summing.of(batch.indices, draws, ahead)
        real = batch.indices < len(self._examples)
        total = self._summing.of(batch.indices[real], draws, ahead)
        drawn = batch.indices[~real] - len(self._examples)
        return self.canaries.added_to(total, drawn)

    def _draw_ahead(self, step: int) -> None:
        if step < self.plan.steps:
            self._ahead = self.randomness, self._draw(step)

    @contextmanager
    def _draws_of(self, step: int) -> Iterator[torch.Generator]:
        """The generators of a step; see `generators.drawing_at`."""
        device = next(iter(trainable(self.model).values())).device
        if self._summing.fixed is not None and not self.draws_by_torch:  # nothing will be drawn
            yield torch.Generator(device)
            return
        with drawing_at(self._sampling, device, step=step) as generator:
            yield generator

    def _set_gradients(self, flat: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)  # nothing but private sums may move a weight
        parameters = list(trainable(self.model).values())
        rounded = {dtype: flat.to(dtype) for dtype in {p.dtype for p in parameters}}
        start = 0
        for parameter in parameters:
            part = rounded[parameter.dtype][start : start + parameter.numel()]
            parameter.grad = part.view(parameter.shape)
            start += parameter.numel()


def require_all_updated(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Every parameter the optimiser moves must get its gradient from the private step."""
    private = {id(p) for p in trainable(model).values()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and id(parameter) not in private:
                raise InputError(
                    "the optimiser holds a parameter that is not in the model",
                    fix="build the optimiser from model.parameters()",
                )
