"""DP-SGD (Abadi et al., 2016), the one private loop.

| paper            | here                                            |
|------------------|-------------------------------------------------|
| L_t, q = L/N     | `plan.sampler.draw(...)`, `plan.sampling_rate`  |
| g_t(x_i), C      | `clipper.clipped_sum`, `plan.clip_norm`         |
| N(0, sigma^2C^2) | `plan.noise.add_to`                             |
| 1/L              | 1/`plan.normaliser`, a constant of the plan     |

Deviations: the paper divides by the lot size L; so do we, but L is fixed beforehand from the
declared size, never from the batch that came out or from the data.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from privet.engine.account import RunAccount
from privet.engine.examples import Examples
from privet.engine.plan import Plan
from privet.errors import InputError
from privet.privacy.clipping import Clipper, trainable
from privet.privacy.noise import fingerprint
from privet.privacy.randomness import Randomness

# Examples clipped at once: bounds memory (at worst one gradient each), not privacy.
MOST_AT_ONCE: Final = 512
MOST_GRADIENT_ENTRIES: Final = 2**25


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The examples drawn for one step. Private: neither the indices nor their number may leave."""

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
        account: RunAccount,
    ) -> None:
        if clipper.clip_norm > plan.clip_norm:
            raise InputError(
                "the clipper allows more than the plan accounts",
                got=f"clip norm {clipper.clip_norm}",
                expected=f"at most {plan.clip_norm}",
            )
        if clipper.model is not model:
            raise InputError("the clipper was made for another model", fix="make it for this one")
        require_all_updated(model, optimizer)
        self.model = model
        self.optimizer = optimizer
        self.plan = plan
        self.randomness = randomness
        self.account = account
        self.next_step = 0
        self._examples = examples
        self._clipper = clipper
        self._drawn: Batch | None = None
        self.repeating = False  # whether lost steps are being done again under their old keys
        self._buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        parameters = sum(p.numel() for p in trainable(model).values())
        self._at_once = max(1, min(MOST_AT_ONCE, MOST_GRADIENT_ENTRIES // parameters))

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
        """Charge, clip, sum, add noise, update."""
        if batch is not self._drawn or batch.step != self.next_step:
            raise InputError(
                "batch out of turn",
                got=f"batch of step {batch.step}",
                expected=f"the one that batches() drew for step {self.next_step}",
            )
        self.account.charge(batch.step)
        noisy, name = self._noisy_sum(batch)
        if self.repeating and self.account.differs(batch.step, name):
            # Same sample, other noise: the pair would leak more than two steps are charged. Draw
            # everything anew, so that the second attempt is a step of its own.
            self.randomness, self.repeating = self.randomness.renewed(), False
            noisy, name = self._noisy_sum(self._draw(batch.step))
        self.account.confirm(batch.step, name)
        self._set_gradients(noisy / self.plan.normaliser)
        self.optimizer.step()
        self.next_step += 1

    def require_unchanged_buffers(self) -> None:
        """Refuse to release what the model remembered outside the private updates."""
        for name, buffer in self.model.named_buffers():
            if name not in self._buffers or not torch.equal(buffer, self._buffers[name]):
                raise InputError(
                    f"buffer '{name}' changed during training",
                    expected="buffers that stay constant: what they hold was never made private",
                )

    def _draw(self, step: int) -> Batch:
        drawn = self.plan.sampler.draw(
            len(self._examples), step=step, stream=self.randomness.sampling
        )
        return Batch(step=step, indices=torch.from_numpy(drawn))

    def _noisy_sum(self, batch: Batch) -> tuple[Tensor, str]:
        """The private sum of a batch, and its name in the journal."""
        total = self._clipped_sum(batch)
        noisy = self.plan.noise.add_to(total, step=batch.step, stream=self.randomness.noise)
        return noisy, fingerprint(noisy.cpu().numpy()).hex()[:32]

    def _clipped_sum(self, batch: Batch) -> Tensor:
        total = self._clipper.clipped_sum(*self._examples[batch.indices[:0]])
        with torch.random.fork_rng(), _full_precision():
            # Dropout draws from an address of the secret stream too: a redone step repeats it.
            seed = self.randomness.sampling.uniform(1, purpose="forward", step=batch.step)[0]
            torch.manual_seed(int(seed * 2**53))
            for chunk in torch.split(batch.indices, self._at_once):
                total = total + self._clipper.clipped_sum(*self._examples[chunk])
        return total

    def _set_gradients(self, flat: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)  # nothing but private sums may move a weight
        start = 0
        for parameter in trainable(self.model).values():
            part = flat[start : start + parameter.numel()]
            parameter.grad = part.reshape(parameter.shape).to(parameter.dtype)
            start += parameter.numel()


@contextmanager
def _full_precision() -> Iterator[None]:
    """No TF32 in matrix products: a sum that is rounded coarsely can exceed the clip norm."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


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
