"""The canary of `lifetimes` in the project's own streams: its coins, its memory, its steps.

| symbol | here       | meaning                                                                  |
|--------|------------|--------------------------------------------------------------------------|
| D      | `tasks`    | tasks without records                                                    |
| D'     | `tasks`    | the same, and a canary in the first, whose gradient is beyond the clip   |
| y      | a row      | every noisy gradient of every task, own and of the memory, along the     |
|        |            | canary's direction, in clip norms                                        |

One run goes through all tasks: the engine's steps, the hook that reads the memory, coins and
memory by `lifelong.memory`, plans by `lifelong.planning`. Only the ledger is left out, as made-up
records belong to nobody, and the weights stay where they are, so that the direction is known. The
claim is the curve of `Lifetime.event` for the rates, steps and noise that were asked for: what the
code does with them is what is audited.

`forced` puts the canary into the memory of every run, as chance 1 does.

Guarantee: that of `audits.mechanism`.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn

from privet.audits.lifetimes import ADMITTED, DELTA, FORCED, GRID, Path
from privet.audits.mechanism import Entry, Floats, Subject
from privet.data.dataset import Bounds, Dataset, Split
from privet.engine.account import Unpaid
from privet.engine.prepare import assemble
from privet.engine.trainer import PrivateTrainer
from privet.lifelong.combining import projected
from privet.lifelong.lifetime import Lifetime, Own, Recall
from privet.lifelong.memory import Kept, admitted, kept_of, memory_of
from privet.lifelong.planning import plan_of, reading_plan
from privet.lifelong.private import RECALL
from privet.lifelong.recalling import Noted, Recalling, branched
from privet.lifelong.settings import L2dpSettings
from privet.lifelong.stream import Stream, Task
from privet.models import create
from privet.privacy.accounting import tradeoff_of
from privet.privacy.clipping import cross_entropy
from privet.privacy.correlated import History
from privet.privacy.randomness import Randomness

DECLARED: Final = 8  # records of a task
RUNS: Final = 1_000
SHORT: Final = Lifetime(
    tasks=(Own(rate=0.25, steps=2, multiplier=2.0),),
    recall=Recall(first_rate=1.0, steps=2, multiplier=1.0, admission=0.5, horizon=3, shared=False),
    shared=False,
)
SETTINGS: Final = L2dpSettings(epsilon=1.0, clip_norm=0.01, model="linear")


def tasks(number: int, included: bool) -> Stream:
    """A stream of tasks without records; the canary alone is in the first, if it is there."""
    return Stream(
        name="canary",
        tasks=tuple(
            Task(name=f"{i}", data=_data(f"canary/{i}", 1 if included and i == 1 else 0))
            for i in range(1, number + 1)
        ),
        shared=False,
    )


def _data(name: str, records: int) -> Dataset:
    both = Split(x=np.ones((2, 3), np.float32), y=np.arange(2))
    whole = Dataset(
        name=name, train=both, test=both, bounds=Bounds(low=(0.0,), high=(1.0,)),
        classes=("no", "yes"), nominal_size=DECLARED, licence="none", source="made up",
    )  # fmt: skip
    return whole.training_on(Split(x=both.x[:records], y=both.y[:records]), nominal_size=DECLARED)


@final
class Reading:
    """One task of a run: its own steps, and those of the memory, if it reads any.

    Made once for all runs: what is random begins anew with each.
    """

    def __init__(self, lifetime: Lifetime, data: Dataset, number: int, memory: Dataset) -> None:
        self.released: list[Tensor] = []
        self.own = self._assembled(data, plan_of(lifetime.tasks[0], data, SETTINGS))
        self.own.optimizer.register_step_pre_hook(lambda *_: self._see(_gradient(self.own.model)))
        assert lifetime.recall is not None
        plan = reading_plan(lifetime.recall, number, self.own.plan.steps, memory, SETTINGS)
        self.reader: PrivateTrainer | None = None
        if plan is not None:
            self.reader = assemble(
                self.own.whole, Noted(self.own.whole.parameters()), memory, plan,
                loss=cross_entropy, randomness=self.own.randomness, open_account=Unpaid,
            )  # fmt: skip
            Recalling(self.own, self.reader, self._combine)

    def _assembled(self, data: Dataset, plan: object) -> PrivateTrainer:
        model = create("linear", (3,), 2, init_seed=0)
        return assemble(
            model, Noted(model.parameters()), data, plan,  # type: ignore[arg-type]
            loss=cross_entropy, randomness=Randomness.seeded(0), open_account=Unpaid,
        )  # fmt: skip

    def _see(self, gradient: Tensor) -> None:
        self.released.append(gradient)

    def _combine(self, g: Tensor, g_ref: Tensor) -> Tensor:
        self._see(g_ref.clone())
        return projected(g, g_ref)

    def __call__(self, randomness: Randomness) -> list[Tensor]:
        """All noisy gradients of the task."""
        self.released.clear()
        self._begin(self.own, randomness)
        if self.reader is not None:
            self._begin(self.reader, branched(randomness, RECALL))
        for batch in self.own.batches():
            self.own.step(batch)
        return list(self.released)

    @staticmethod
    def _begin(trainer: PrivateTrainer, randomness: Randomness) -> None:
        trainer.noise_history, trainer.next_step = History.empty(), 0
        trainer.randomness = randomness


def _gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@final
@dataclass(frozen=True, kw_only=True)
class WholeLives:
    """Whole streams; called, it gives a row for each run, as `Path` does.

    Attributes:
        claimed: what is asked for, and claimed.
        forced: whether the canary is put into the memory.
        run: what the code is told; another than `claimed` is a mistake that an audit finds.
    """

    claimed: Lifetime = SHORT
    forced: bool = False
    run: Lifetime = field(default=SHORT)

    @property
    def path(self) -> Path:
        """The model of it, for claim and score."""
        return Path(lifetime=self.claimed, forced=self.forced)

    @property
    def recall(self) -> Recall:
        """How the memory is read."""
        assert self.run.recall is not None
        return self.run.recall

    @cached_property
    def direction(self) -> Tensor:
        """The canary's gradient, of length 1."""
        model = create("linear", (3,), 2, init_seed=0)
        data = tasks(1, True).tasks[0].data.train
        loss = cross_entropy(model(torch.from_numpy(data.x)), torch.from_numpy(data.y)).sum()
        g = torch.cat(
            [one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))]
        )
        assert float(g.norm()) > SETTINGS.clip_norm, "the canary's gradient is not clipped"
        return torch.nn.functional.normalize(g, dim=0)

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """Seeds of the runs follow from the seed."""
        stream = tasks(self.recall.horizon, included)
        readings = {
            kept: self._readings(stream, kept) for kept in ({True, False} if included else {False})
        }
        rows = []
        for own in np.random.default_rng(seed).integers(2**62, size=runs).tolist():
            randomness = Randomness.seeded(own)
            inside = included and self._admitted(stream, randomness)
            parts = [
                reading(_of_task(randomness, number))
                for number, reading in enumerate(readings[inside], start=1)
            ]
            rows.append(self._row(parts))
        return np.stack(rows)

    def _admitted(self, stream: Stream, randomness: Randomness) -> bool:
        chance = 1.0 if self.forced else self.recall.admission
        coins = randomness.sampling.branch(purpose="coins", step=0)
        return bool(admitted(stream.tasks[0], 1, chance=chance, coins=coins).all())

    def _readings(self, stream: Stream, kept: bool) -> list[Reading]:
        """Of every task, with the canary in the memory or without it."""
        coins = Randomness.seeded(0).sampling
        parts: list[Kept] = [
            kept_of(task, number, chance=1.0, coins=coins)
            for number, task in enumerate(stream, start=1)
        ]
        if not kept:
            parts = [replace(one, x=one.x[:0], y=one.y[:0], owners=one.owners[:0]) for one in parts]
        return [
            Reading(
                self.run, task.data, number,
                memory_of(stream, parts[: max(1, number - 1)], chance=self.recall.admission),
            )
            for number, task in enumerate(stream, start=1)
        ]  # fmt: skip

    def _row(self, tasks: list[list[Tensor]]) -> Floats:
        """Own sums of the first task, then what is read of the memory; in clip norms.

        Later tasks' own sums have noise alone, whether there is a canary or not.
        """
        first, later = tasks[0], [g for task in tasks[1:] for g in task[1::2]]
        own = [self._seen(g, self.run.tasks[0].rate * DECLARED) for g in first]
        expected = [self.recall.rate_at(i + 2) * self._kept(i + 1) for i in range(len(tasks) - 1)]
        per_task = [n for n in expected for _ in range(self.recall.steps)]
        read = [self._seen(g, n) for g, n in zip(later, per_task, strict=True)]
        return np.array(own + read)

    def _kept(self, behind: int) -> int:
        """Units that are expected in the memory of so many tasks."""
        return max(1, round(self.recall.admission * DECLARED * behind))

    def _seen(self, g: Tensor, normaliser: float) -> float:
        return float(g.double() @ self.direction.double()) * normaliser / SETTINGS.clip_norm


def _of_task(randomness: Randomness, number: int) -> Randomness:
    return branched(randomness, f"task {number}")


def whole(name: str, lives: WholeLives) -> Subject:
    """As a subject."""
    return Subject(
        name=name,
        claim=tradeoff_of(lives.path.event, interval=GRID),
        delta=DELTA,
        pair=FORCED if lives.forced else ADMITTED,
        sample=lives,
        statistic=lives.path.score,
        runs=RUNS,
    )


def whole_coin() -> Subject:
    """A canary that is admitted by its own coin."""
    return whole("lifelong-run-coin", WholeLives())


def whole_forced() -> Subject:
    """A canary that was put into the memory."""
    return whole("lifelong-run-forced", WholeLives(forced=True))


WHOLE: Final[dict[str, Entry]] = {
    "lifelong-run-coin": Entry(
        kind="lifelong",
        summary="The project's own streams; the memory admits by a secret coin (a minute).",
        make=whole_coin,
    ),
    "lifelong-run-forced": Entry(
        kind="lifelong",
        summary="The same, seen by a unit that was put into the memory (a minute).",
        make=whole_forced,
    ),
}
