"""What may be chosen about learning from a stream, on the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from privet.lifelong.stream import Stream


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Which tasks there are.

    Attributes
    ----------
    tasks
        A stream of `privet lifelong streams`, or a folder with a description file for each task.
    n_tasks
        How many tasks; default: the stream's usual number, or all that are there.
    records
        Units of each task; default: its share of the declared size.
    shared
        Whether all tasks have the same units (every task is then charged to each of them).
    task_seed
        Of the permutations; public.
    data_dir
        Where the files of a named stream are.
    """

    tasks: str = "permuted-digits"
    n_tasks: int | None = None
    records: int | None = None
    shared: bool | None = None
    task_seed: int = 0
    data_dir: Path | None = None

    def load(self) -> "Stream":
        """The stream."""
        from privet.lifelong.tasks import load_stream

        return load_stream(
            self.tasks,
            n_tasks=self.n_tasks,
            records=self.records,
            shared=self.shared,
            seed=self.task_seed,
            data_dir=self.data_dir,
        )


@dataclass(frozen=True, kw_only=True)
class LifelongOptions:
    """Settings of the method.

    Attributes
    ----------
    epochs
        Expected passes over each task; default 10; as published: the thesis's, or 40 where tasks
        are smaller than its batches.
    batch
        Expected units in a step; default: a fifth of the task's declared size, at most 2048; as
        published: records, the thesis's number, or half of the smallest task.
    learning_rate
        Highest one; default 0.25; without privacy 0.05; as published: by the kind of inputs.
    clip_norm
        Bound on one unit's gradient; default 1.
    combining
        What the memory does to a step: project (default, A-GEM), project-always, replay.
    admission
        Chance of a unit to be kept for the memory; default 0.2.
    recall_rate
        At which the second task samples the memory, halved whenever the number of tasks behind
        doubles; default 0.1.
    recall_batch
        Records of the memory in a step, without privacy; default: as many as of the task.
    horizon
        Tasks for which the memory is kept and paid for; default 32, or those that are known.
    consolidation
        Weight of the pull towards earlier weights (EWC); default 0, of ewc 1.
    features
        Of --memory objective: the most features that are kept, more are projected to as many;
        default 4096. Every feature more adds noise, and time with its cube.
    ridge
        Of --memory objective: what holds the weights back, in units of the size of the noise in
        the objectives; default 0.3. Less trusts the noise, more leaves the weights near zero.
    contribution
        Most records of one unit in a step, where a unit has several; default 8.
    model
        The network, see `privet models`; default by the shape of the examples. Of --memory
        objective: cosines-S-N, N random directions of spread S; default cosines-2-512. More
        directions see more and cost more noise; a larger spread tells nearer examples apart.
    init_seed
        Of the first weights; public; default 0.
    device
        cpu (default), cuda, ...
    """

    epochs: float | None = None
    batch: int | None = None
    learning_rate: float | None = None
    clip_norm: float | None = None
    combining: str | None = None
    admission: float | None = None
    recall_rate: float | None = None
    recall_batch: int | None = None
    horizon: int | None = None
    consolidation: float | None = None
    features: int | None = None
    ridge: float | None = None
    contribution: int | None = None
    model: str | None = None
    init_seed: int | None = None
    device: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedOptions:
    """Settings of l2dp under the paper analysis; what is left out is the thesis's.

    Attributes
    ----------
    variant
        published (default); agem, the same network and loop without noise; offset, which takes the
        noise off the published inputs before it learns. The last two claim nothing and take no
        --epsilon.
    epsilon_labels
        Part of epsilon for the labels.
    schedule
        Steps of a task: basic (one epoch), uniform (--epochs), balanced (the same number of steps
        for every task), heterogeneous (more epochs for small tasks).
    epochs_by_task
        With heterogeneous: epochs of each task, separated by commas.
    steps
        With balanced: of each task.
    projection
        always (as printed, default) or conditional (as A-GEM has it).
    algorithm
        batches (Algorithm 3.7, default) or whole (3.6: one step on each whole task).
    noise_at_test
        Whether the released network keeps its two draws of noise (default).
    printed_loss
        Equation 3.85 with its misprint.
    column_norm
        Largest l1 norm of the weights into a neuron of the first layer; default 1.
    """

    variant: str | None = None
    epsilon_labels: float | None = None
    schedule: str | None = None
    epochs_by_task: str | None = None
    steps: int | None = None
    projection: str | None = None
    algorithm: str | None = None
    noise_at_test: bool | None = None
    printed_loss: bool | None = None
    column_norm: float | None = None


Tasks = Annotated[StreamOptions, Parameter(name="*", group="The stream")]
Settings = Annotated[LifelongOptions, Parameter(name="*", group="Settings")]
AsPublished = Annotated[
    PublishedOptions, Parameter(name="*", group="Settings of the paper analysis")
]
