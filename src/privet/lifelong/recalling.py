"""Reading the memory inside a task's steps, and making one step of both gradients.

    own.step:   sum of the task's batch, clipped, noised  -> g
    optimiser:  before it moves a weight
                  memory.step: sum of the memory's batch, clipped, noised  -> g_ref
                  g <- combined(g, g_ref)

Both are steps of the engine, each with its plan, its sampler and its noise. The memory's moves
nothing: its optimiser only notes the gradient. Secret keys of the memory's steps are branches of
the task's, so that a run that goes on repeats both, or neither.

Guarantee: the engine's, twice, composed; what is done with the two noisy sums is post-processing.
The memory's steps are paid for in advance (`Prepaid`): the whole lifetime of a unit in the memory
was reserved when its task began, and charged when it ended.
"""

from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from privet.engine.account import Account, RunAccount
from privet.engine.trainer import PrivateTrainer
from privet.errors import CheckFailed
from privet.ledger import Ledger
from privet.lifelong.combining import Combine
from privet.privacy.randomness import Randomness


@final
class Noted(torch.optim.Optimizer):
    """Notes the gradient, and moves nothing."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(list(parameters), {"lr": 0.0})
        self.gradient: Tensor | None = None

    def step(self, closure: Any = None) -> Any:
        """All gradients in one row."""
        held = [p.grad for group in self.param_groups for p in group["params"]]
        self.gradient = torch.cat([g.detach().flatten() for g in held if g is not None])


@final
class Prepaid(Account):
    """Steps that were charged beforehand, all at once; each may come out in one way alone."""

    def __init__(self, ledger: Ledger, run_id: str, journal: Path | None) -> None:
        self._noted = RunAccount(ledger, run_id, journal)

    def charge(self, step: int) -> None:
        """Charged already."""

    def differs(self, step: int, fingerprint: str) -> bool:
        """Refuses what was done before and now comes out different: a second look is not paid."""
        if self._noted.differs(step, fingerprint):
            raise CheckFailed(
                f"the memory was read before in step {step}, and now something else is read",
                expected="the same sum, from the same keys on the same hardware",
                fix="resume where the run began; what was charged covers one look",
            )
        return False

    def confirm(self, step: int, fingerprint: str) -> None:
        """Noted before it is used."""
        self.differs(step, fingerprint)
        self._noted.confirm(step, fingerprint)

    @property
    def books(self) -> RunAccount:
        """Of the reservation."""
        return self._noted


@final
class Recalling:
    """A hook on the optimiser of a task: the gradient of the memory has a say in every step."""

    def __init__(
        self,
        own: PrivateTrainer,
        memory: PrivateTrainer,
        combine: Combine,
    ) -> None:
        self._own, self._memory, self._combine = own, memory, combine
        memory.next_step = own.next_step
        memory.repeating = own.repeating
        own.untouched.note()  # making the memory's trainer tried weights out, and put them back
        own.optimizer.register_step_pre_hook(self)

    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Before the optimiser moves a weight."""
        if self._memory.next_step >= self._memory.plan.steps:
            return
        held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        g = torch.cat([p.grad.flatten() for p in held if p.grad is not None])
        g_ref = self._recalled()
        put_back(held, self._combine(g, g_ref))

    def _recalled(self) -> Tensor:
        memory = self._memory
        memory.untouched.note()  # the task's last step moved the weights, and was meant to
        memory.step(next(memory.batches()))
        self._own.untouched.note()
        assert isinstance(memory.optimizer, Noted)
        assert memory.optimizer.gradient is not None
        return memory.optimizer.gradient


def put_back(parameters: list[torch.nn.Parameter], flat: Tensor) -> None:
    """One row, as gradients of these parameters."""
    parts = torch.split(flat, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view(parameter.shape).to(parameter.dtype)


def branched(randomness: Randomness, purpose: str) -> Randomness:
    """Keys of a part of a run, which follow from the run's."""
    return Randomness(
        init_seed=randomness.init_seed,
        sampling=randomness.sampling.branch(purpose=purpose, step=0),
        noise=randomness.noise.branch(purpose=purpose, step=0),
        secret=randomness.secret,
    )
