"""L2DP-ML as published: one draw of noise, a memory of fixed batches, projected gradients. A claim.

| thesis            | here                  | meaning                                             |
|-------------------|-----------------------|-----------------------------------------------------|
| D_tau, x, y       | `stream.tasks`        | scaled to [0, 1]; the network centres to [-1, 1]    |
| theta1, theta2    | `Autoencoded`         | auto-encoder layer, classifier                      |
| chi1, chi2, chi3  | `budgets.Noise`       | Laplace, drawn once for the whole run               |
| R-bar, L-bar, g   | `objectives`          | noised Taylor polynomials, their gradient           |
| lambda, B_1 .. B_n | `batch`, `_batches`  | fixed disjoint batches, the same in every epoch     |
| M_tau             | `_memory`             | one random batch of each past task                  |
| B_e, g_ref        | `_remembered`         | a batch of the memory, picked uniformly in a step   |
| g~, rho           | `projected`, `learning_rate` | projected gradient, its length               |
| E_tau             | `schedules`           | epochs of a task                                    |

    draw chi1, chi2, chi3 once; x-bar = x + chi1/N, h-bar = clip(theta1' x-bar) + 2 chi2/N
    for tau in 1 .. m:
        for B in the fixed batches of D_tau, E_tau times:
            g = (grad R-bar, grad L-bar) on B, with chi3/N
            if tau > 1:  g_ref = the same on B_e from M_tau;  g = g - (g'g_ref / |g_ref|^2) g_ref
            theta <- theta - rho g;  columns of theta1 no longer than c
        M_{tau+1} = M_tau and one of the batches;  release theta

N is lambda in Algorithm 3.7. Algorithm 3.6 (`algorithm` 'whole') has one batch, one step and N =
|D_tau| for each task, and whole tasks for a memory.

Claim: (epsilon, 0)-Lifelong differential privacy for any number of tasks. It does not hold: see
`claim`, and `privet audit mechanism l2dp-rank`.

Two variants without a claim. `agem` is the same network and loop with the cross-entropy and no
noise. `offset` gets the published inputs x-bar and takes chi1/N off again: the least value of a
coordinate over the first task is -1, so what it is of x-bar tells the offset. Then it is A-GEM.

What a learner needs to go on between tasks is the network of the last version and the noise: which
batches were kept follows from public seeds.

Deviations. Means instead of sums; a smaller rho for images (`settings`). "tau == 0" is the first
task; an incomplete last batch is dropped (misprint and silence of the text). Batch normalisation,
of which the text does not speak, sees one batch at a time, and predicts with statistics of the
memory at the released weights (`training.published.statistics`). Batches are dealt in a public
random order. Records are batched whoever they belong to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from privet.engine.examples import Examples
from privet.errors import InputError
from privet.lifelong.combining import projected
from privet.lifelong.published.budgets import Noise, budgets_of
from privet.lifelong.published.objectives import Gradient, agem_gradient, published_gradient
from privet.lifelong.published.schedules import records_of, steps_of
from privet.lifelong.published.settings import (
    AGEM,
    ALWAYS,
    OFFSET,
    PUBLISHED,
    WHOLE,
    PublishedSettings,
)
from privet.lifelong.stream import Stream
from privet.models import create
from privet.models.published_lifelong import LIFELONG, Autoencoded
from privet.privacy.randomness import Randomness, SecretStream
from privet.training.dpsgd import require_device
from privet.training.published.batches import Dealt, Indices
from privet.training.published.statistics import settle

PIECE: Final = 4096  # records that go through the network at once
OFFSET_OF: Final = 1.0  # the epsilon whose noise `offset` takes off: any would do


class Batch(NamedTuple):
    """Records of one batch, in [0, 1]; the noise is added where they are used."""

    x: Tensor
    y: Tensor


class PublishedLearner:
    """Learns the tasks of a stream one after another.

    Attributes:
        settings: filled for the stream.
        budgets: how the claimed epsilon is split.
        drawn: the noise, as it was drawn; another learner that is given it goes on where this is.
        network: as released after the last task that was learned; inputs in [0, 1].
        learned: how many tasks.
        next_step: of the task in hand.
    """

    def __init__(
        self, stream: Stream, settings: PublishedSettings, noise: Noise | None = None
    ) -> None:
        settings = settings.for_stream(stream)
        assert settings.batch is not None
        self.stream, self.settings = stream, settings
        self.learned, self.next_step = 0, 0
        self._sizes = records_of(stream)
        self._batch = settings.batch
        self._device = require_device(settings.device)
        network = create(LIFELONG, stream.shape, len(stream.classes), init_seed=settings.init_seed)
        assert isinstance(network, Autoencoded)
        network.renormalise(settings.column_norm, exactly=True)
        self.network = network.to(self._device)
        self.budgets = budgets_of(
            network,
            epsilon=settings.epsilon or OFFSET_OF,
            epsilon_labels=settings.epsilon_labels or OFFSET_OF / 2.0,
            batch=self._batch,
            column_norm=settings.column_norm,
        )
        self.drawn = self._draw() if noise is None else noise.to(self._device)
        self._noise = self._less_offset() if settings.variant == OFFSET else self.drawn
        self._memory: list[Batch] = []
        self._in_hand: list[Batch] = []

    def learn(self, task: int) -> None:
        """Algorithm 3.7 (or 3.6) for one task; tasks come in order."""
        if task != self.learned:
            raise InputError("tasks come in order", got=task, expected=f"{self.learned}")
        while self.learned == task:
            self.step()

    def step(self) -> None:
        """The next one of the task in hand; the last one ends it."""
        task, step = self.learned, self.next_step
        if not self._in_hand:
            self._in_hand = self._batches(task)
        self.network.train()
        g = self._gradient(self._in_hand[step % len(self._in_hand)])
        if self._memory:
            g_ref = self._gradient(self._remembered(task, step))
            g = projected(g, g_ref, always=self.settings.projection == ALWAYS)
        self._descend(self.settings.learning_rate * g)
        self.next_step += 1
        if self.next_step == self.steps(task):
            self._end(task)

    def _end(self, task: int) -> None:
        self._require_finite(task)
        self._memory.append(self._in_hand[self._kept(task)])
        self.learned, self.next_step, self._in_hand = task + 1, 0, []
        self._release()

    def state(self) -> dict[str, Any]:
        """What a learner with the same noise needs to go on. Private."""
        return {
            "learned": self.learned,
            "step": self.next_step,
            "network": {name: value.clone() for name, value in self.network.state_dict().items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`, for a learner of the same stream, settings and noise."""
        self.network.load_state_dict(state["network"])
        self.learned, self.next_step, self._in_hand = int(state["learned"]), int(state["step"]), []
        self._memory = [self._kept_batch(task) for task in range(self.learned)]
        self.network.eval()

    def _draw(self) -> Noise:
        """chi1, chi2, chi3; none of the variants without a claim but chi1 of `offset`."""
        if self.settings.variant == AGEM:
            return Noise.none(self.network)
        seed = self.settings.noise_seed
        secret = Randomness.fresh() if seed is None else Randomness.seeded(seed)
        drawn = Noise.drawn(self.budgets, self.network, secret.noise)
        if self.settings.variant == OFFSET:
            return replace(Noise.none(self.network), inputs=drawn.inputs)
        return drawn

    def _less_offset(self) -> Noise:
        """`offset`: from the noised inputs of the first task, their offset; what is left of it."""
        batches, self._noise = self._batches(0), self.drawn
        n = len(batches[0].y)
        self._load_noise(n)
        lowest = torch.stack([self.network.noised(b.x).amin(0) for b in batches]).amin(0)
        found = n * (lowest + 1.0)  # the least value of an input is -1
        return replace(self.drawn, inputs=self.drawn.inputs - found)

    def sampler(self, task: int) -> Dealt:
        """How a task is dealt into batches: fixed and disjoint."""
        size = self._sizes[task]
        batch = size if self.settings.algorithm == WHOLE else self._batch
        return Dealt(rate=batch / size, batch=batch, groups=size // batch)

    def _dealt(self, task: int) -> Indices:
        """Records of each batch, by public seeds."""
        records = len(self.stream.tasks[task].data.train)
        return self.sampler(task).batches(records, self._stream_of(task))

    def _batches(self, task: int) -> list[Batch]:
        return self._rows(task, self._dealt(task))

    def _rows(self, task: int, dealt: Indices) -> list[Batch]:
        data = self.stream.tasks[task].data
        examples = Examples.of(replace(data.train, units=None), data.bounds, self._device)
        unused = torch.Generator(self._device)
        rows = [examples.rows(torch.from_numpy(indices), unused) for indices in dealt]
        return [Batch(x=row.x, y=row.y) for row in rows]

    def _stream_of(self, task: int) -> SecretStream:
        """What a task draws besides noise; public."""
        seeded = Randomness.seeded(self.settings.init_seed)
        return seeded.sampling.branch(purpose="task", step=task)

    def steps(self, task: int) -> int:
        """How many a task takes."""
        settings = self.settings
        if settings.algorithm == WHOLE:
            return 1
        return steps_of(
            settings.schedule,
            self._sizes,
            self._batch,
            epochs=settings.passes,
            steps=settings.steps,
        )[task]

    def _remembered(self, task: int, step: int) -> Batch:
        luck = self._stream_of(task).uniform(1, purpose="memory", step=step)[0]
        return self._memory[int(luck * len(self._memory))]

    def _kept(self, task: int) -> int:
        """Which batch of a task goes to the memory."""
        luck = self._stream_of(task).uniform(1, purpose="kept", step=0)[0]
        return int(luck * self.sampler(task).groups)

    def _kept_batch(self, task: int) -> Batch:
        number = self._kept(task)
        (batch,) = self._rows(task, self._dealt(task)[number : number + 1])
        return batch

    def _gradient(self, batch: Batch) -> Tensor:
        """Of a batch, with the noise of its size; in pieces, where it is large."""
        n = len(batch.y)
        noise = self._load_noise(n)
        gradient: Gradient = agem_gradient
        if self.settings.variant == PUBLISHED:
            gradient = partial(published_gradient, printed=self.settings.printed_loss)
        parts = [
            len(y) / n * gradient(self.network, self.network.noised(x), y, noise.labels)
            for x, y in _pieces(batch)
        ]
        return torch.stack(parts).sum(0)

    def _load_noise(self, n: int) -> Noise:
        """The network gets what a batch of n records gets."""
        noise = self._noise.over(n)
        self.network.input_noise.copy_(noise.inputs)
        self.network.hidden_noise.copy_(noise.hidden)
        return noise

    @torch.no_grad()
    def _descend(self, change: Tensor) -> None:
        parameters = list(self.network.parameters())
        parts = torch.split(change, [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.sub_(part.view_as(parameter))
        if self.settings.variant == PUBLISHED:
            self.network.renormalise(self.settings.column_norm)

    def _require_finite(self, task: int) -> None:
        if not all(torch.isfinite(parameter).all() for parameter in self.network.parameters()):
            raise InputError(
                f"training diverged in task {task}",
                got=f"learning rate {self.settings.learning_rate:g}",
                fix="a smaller learning rate, or more of epsilon for the labels",
            )

    def _release(self) -> None:
        """The network as it predicts: noise of the last task, or none; settled statistics."""
        self._load_noise(len(self._memory[-1].y))
        if not self.settings.noise_at_test and self.settings.variant == PUBLISHED:
            self.network.input_noise.zero_()
            self.network.hidden_noise.zero_()
        settle(self.network, (x for batch in self._memory for x, _ in _pieces(batch)))
        self.network.eval()


def _pieces(batch: Batch) -> Iterable[tuple[Tensor, Tensor]]:
    """Alike in length, as far as that goes: a normalised piece of one record would be nothing."""
    count = -(-len(batch.y) // PIECE)
    return zip(batch.x.tensor_split(count), batch.y.tensor_split(count), strict=True)
