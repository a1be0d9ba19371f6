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
from privet.lifelong.published.settings import AGEM, OFFSET, PUBLISHED, PublishedSettings
from privet.lifelong.stream import Stream
from privet.models import create
from privet.models.published_lifelong import LIFELONG, Autoencoded
from privet.privacy.randomness import Randomness, SecretStream
from privet.training.dpsgd import require_device
from privet.training.published.batches import Dealt
from privet.training.published.statistics import settle

PIECE: Final = 4096  # records that go through the network at once


class Batch(NamedTuple):
    """Records of one batch, in [0, 1]; the noise is added where they are used."""

    x: Tensor
    y: Tensor


class PublishedLearner:
    """Learns the tasks of a stream one after another.

    Attributes:
        settings: filled for the stream.
        budgets: how the claimed epsilon is split.
        network: as released after the last task that was learned; inputs in [0, 1].
        learned: how many tasks.
    """

    def __init__(self, stream: Stream, settings: PublishedSettings) -> None:
        settings = settings.filled_for(stream)
        assert settings.batch is not None
        assert settings.epsilon_labels is not None
        self.stream, self.settings, self.learned = stream, settings, 0
        self._sizes = records_of(stream)
        self._batch = settings.batch
        whole = settings.algorithm == "whole"
        self._device = require_device(settings.device)
        network = create(LIFELONG, stream.shape, len(stream.classes), init_seed=settings.seed)
        assert isinstance(network, Autoencoded)
        network.renormalise(settings.column_norm, exactly=True)
        self.network = network.to(self._device)
        self.budgets = budgets_of(
            network,
            epsilon=settings.epsilon,
            epsilon_labels=settings.epsilon_labels,
            batch=max(self._sizes) if whole else self._batch,
            column_norm=settings.column_norm,
        )
        self._noise = self._drawn()
        self._memory: list[Batch] = []
        self._kept: list[int] = []

    def learn(self, task: int) -> None:
        """Algorithm 3.7 (or 3.6) for one task; tasks come in order."""
        if task != self.learned:
            raise InputError("tasks come in order", got=task, expected=f"{self.learned}")
        rho = self.settings.learning_rate
        assert rho is not None
        batches = self._batches(task)
        self._know_offset(batches)
        self.network.train()
        for step in range(self._steps(task)):
            g = self._gradient(batches[step % len(batches)])
            if self._memory:
                g_ref = self._gradient(self._remembered(task, step))
                g = projected(g, g_ref, always=self.settings.projection == "always")
            self._descend(rho * g)
        self._require_finite(task)
        self._remember(task, batches)
        self.learned += 1
        self._release()

    def state(self) -> dict[str, Any]:
        """All that a run needs to go on after its last task: tensors and plain values. Private."""
        noise = self._noise
        return {
            "learned": self.learned,
            "kept": list(self._kept),
            "network": {name: value.clone() for name, value in self.network.state_dict().items()},
            "noise": [part.clone() for part in (noise.inputs, noise.hidden, noise.labels)],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`, for a learner of the same stream and settings."""
        self.network.load_state_dict(state["network"])
        inputs, hidden, labels = (part.to(self._device) for part in state["noise"])
        self._noise = Noise(inputs=inputs, hidden=hidden, labels=labels)
        self._kept = [int(number) for number in state["kept"]]
        self._memory = [self._batches(task)[number] for task, number in enumerate(self._kept)]
        self.learned = int(state["learned"])
        self.network.eval()

    def _drawn(self) -> Noise:
        """chi1, chi2, chi3; none of the variants without a claim but chi1 of `offset`."""
        if self.settings.variant == AGEM:
            return Noise.none(self.network)
        seed = self.settings.noise_seed
        secret = Randomness.fresh() if seed is None else Randomness.seeded(seed)
        drawn = Noise.drawn(self.budgets, self.network, secret.noise)
        if self.settings.variant == OFFSET:
            return replace(Noise.none(self.network), inputs=drawn.inputs)
        return drawn

    def _know_offset(self, batches: list[Batch]) -> None:
        """`offset`: from the noised inputs of the first task, their offset; what is left of it."""
        if self.settings.variant != OFFSET or self.learned:
            return
        n = len(batches[0].y)
        self._load_noise(n)
        lowest = torch.stack([self.network.noised(b.x).amin(0) for b in batches]).amin(0)
        found = n * (lowest + 1.0)  # the least value of an input is -1
        self._noise = replace(self._noise, inputs=self._noise.inputs - found)

    def _batches(self, task: int) -> list[Batch]:
        """Fixed and disjoint; a function of public seeds and the records."""
        data, size = self.stream.tasks[task].data, self._sizes[task]
        batch = size if self.settings.algorithm == "whole" else self._batch
        dealt = Dealt(rate=batch / size, batch=batch, groups=size // batch)
        records = replace(data.train, units=None)
        examples = Examples.of(records, data.bounds, self._device)
        unused = torch.Generator(self._device)
        rows = [
            examples.rows(torch.from_numpy(indices), unused)
            for indices in dealt.batches(len(records), self._stream_of(task))
        ]
        return [Batch(x=row.x, y=row.y) for row in rows]

    def _stream_of(self, task: int) -> SecretStream:
        """What a task draws besides noise; public."""
        return Randomness.seeded(self.settings.seed).sampling.branch(purpose="task", step=task)

    def _steps(self, task: int) -> int:
        if self.settings.algorithm == "whole":
            return 1
        settings = self.settings
        assert settings.schedule is not None
        return steps_of(
            settings.schedule,
            self._sizes,
            self._batch,
            epochs=settings.epochs,
            steps=settings.steps,
        )[task]

    def _remembered(self, task: int, step: int) -> Batch:
        luck = self._stream_of(task).uniform(1, purpose="memory", step=step)[0]
        return self._memory[int(luck * len(self._memory))]

    def _remember(self, task: int, batches: list[Batch]) -> None:
        luck = self._stream_of(task).uniform(1, purpose="kept", step=0)[0]
        self._kept.append(int(luck * len(batches)))
        self._memory.append(batches[self._kept[-1]])

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
