"""From settings and declared sizes to the noise of every task and of what is read of the memory.

Fixed before the first task: how the memory is read, for all tasks up to the horizon. A task's own
noise is found when the task arrives; tasks of a shared stream, whose units are in all of them, get
theirs together, so they must all be declared.
"""

from dataclasses import dataclass, replace
from typing import Final, final

from privet.data.dataset import Dataset
from privet.engine.plan import Plan
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.lifelong.lifetime import Lifetime, Own, Recall
from privet.lifelong.settings import StreamSettings
from privet.lifelong.stream import Stream
from privet.privacy.accounting import calibrate, sampled_gaussian

HORIZON: Final = 32  # tasks, of disjoint streams


@final
@dataclass(frozen=True, kw_only=True)
class Turn:
    """Of one task: rate and number of steps, from its declared size."""

    rate: float
    steps: int

    def own(self, multiplier: float) -> Own:
        """With noise."""
        return Own(rate=self.rate, steps=self.steps, multiplier=multiplier)


def turn_of(data: Dataset, settings: StreamSettings) -> Turn:
    """For any settings; the batch is filled in."""
    filled = settings.filled_for(data)
    assert filled.batch is not None
    sampler, steps = Turns(
        sampler="poisson",
        batch=filled.batch,
        nominal_size=data.nominal_size,
        epochs=settings.epochs,
    ).resolved()
    return Turn(rate=sampler.rate, steps=steps)


def begun(stream: Stream, settings: StreamSettings) -> Lifetime:
    """Of a stream before its first task: the plan of the memory, no task yet."""
    horizon = horizon_of(stream, settings)
    if not settings.remembers or horizon < 2:
        return _with_all(Lifetime(tasks=(), recall=None, shared=stream.shared), stream, settings)
    recall = _recall(settings, turn_of(stream.tasks[0].data, settings), horizon, stream.shared)
    multiplier = _summed(settings, recall) if settings.adds_up else _joint(stream, settings, recall)
    made = Lifetime(tasks=(), recall=_with_noise(recall, multiplier), shared=stream.shared)
    return _with_all(made, stream, settings)


def require_declared(stream: Stream) -> None:
    """Refuse tasks whose facts were learned from records: nobody counts that over a stream."""
    for task in stream:
        if task.data.learned:
            raise InputError(
                "facts that were learned privately are not counted over a stream",
                got=f"task '{task.name}'",
                fix="declare its bounds, classes and size",
            )


def _with_all(lifetime: Lifetime, stream: Stream, settings: StreamSettings) -> Lifetime:
    """Of a shared stream the plan of every task: a unit pays for all of them from the first on."""
    if not stream.shared:
        return lifetime
    return replace(
        lifetime, planned=tuple(_own(lifetime, stream, settings, n) for n in range(len(stream)))
    )


def horizon_of(stream: Stream, settings: StreamSettings) -> int:
    """How many tasks the plan is made for."""
    if settings.horizon is not None and settings.horizon < len(stream):
        raise InputError(
            "the horizon is nearer than the tasks that are known",
            got=settings.horizon,
            expected=f"at least {len(stream)}",
        )
    if stream.shared or settings.adds_up:
        if settings.horizon not in (None, len(stream)):
            raise InputError(
                "all tasks must be known beforehand where their costs add up for a unit",
                got=f"horizon {settings.horizon}, {len(stream)} tasks",
                fix="leave --horizon out",
            )
        return len(stream)
    return settings.horizon or max(HORIZON, len(stream))


def next_own(lifetime: Lifetime, stream: Stream, settings: StreamSettings) -> Own:
    """The steps of the next task, with the noise that keeps the target."""
    number = len(lifetime.tasks)
    if lifetime.planned:
        return lifetime.planned[number]
    return _own(lifetime, stream, settings, number)


def _own(lifetime: Lifetime, stream: Stream, settings: StreamSettings, number: int) -> Own:
    turn = turn_of(stream.tasks[number].data, settings)
    same = [own for own in lifetime.tasks if (own.rate, own.steps) == (turn.rate, turn.steps)]
    if same:  # fewer tasks will read it than its like: what was enough there is enough here
        return same[0]
    if settings.adds_up:
        return turn.own(_of_a_share(settings, turn, horizon_of(stream, settings)))
    if number == 0 and lifetime.recall is not None:  # found together with the memory's
        return turn.own(lifetime.recall.multiplier)
    if stream.shared:
        return turn.own(_shared_noise(lifetime, stream, settings))
    multiplier = calibrate(
        settings.epsilon,
        settings.delta,
        lambda z: lifetime.after(turn.own(z)).event(number + 1),
        what=f"{turn.steps} steps at rate {turn.rate:g}, and what later tasks read",
    )
    return turn.own(multiplier)


def plan_of(own: Own, data: Dataset, settings: StreamSettings) -> Plan:
    """Of a task's own steps, for the engine."""
    return Plan(
        steps=own.steps,
        sampling_rate=own.rate,
        clip_norm=settings.clip_norm,
        noise_multiplier=own.multiplier,
        normaliser=own.rate * data.nominal_size,
        delta=settings.delta,
        unit=data.unit,
    )


def reading_plan(
    recall: Recall, number: int, steps: int, memory: Dataset, settings: StreamSettings
) -> Plan | None:
    """Of what task `number` reads in its `steps` steps; None where it reads nothing."""
    rate = recall.rate_at(number)
    if rate == 0:
        return None
    return Plan(
        steps=min(steps, recall.steps),
        sampling_rate=rate,
        clip_norm=settings.clip_norm,
        noise_multiplier=recall.multiplier,
        normaliser=rate * memory.nominal_size,
        delta=settings.delta,
        unit=memory.unit,
    )


def _recall(settings: StreamSettings, turn: Turn, horizon: int, shared: bool) -> Recall:
    return Recall(
        first_rate=settings.recall_rate,
        steps=turn.steps,
        multiplier=1.0,
        admission=settings.admission,
        horizon=horizon,
        shared=shared,
    )


def _with_noise(recall: Recall, multiplier: float) -> Recall:
    return replace(recall, multiplier=multiplier)


def _joint(stream: Stream, settings: StreamSettings, recall: Recall) -> float:
    """One multiplier for the memory and for tasks like the first; of shared streams, for all."""
    turns = [turn_of(task.data, settings) for task in stream]
    own = turns if stream.shared else turns[:1]

    def lifetime(z: float) -> Lifetime:
        return Lifetime(
            tasks=tuple(turn.own(z) for turn in own),
            recall=_with_noise(recall, z),
            shared=stream.shared,
        )

    return calibrate(
        settings.epsilon,
        settings.delta,
        lambda z: lifetime(z).event(1),
        what=f"a lifetime of {recall.horizon} tasks",
    )


def _shared_noise(lifetime: Lifetime, stream: Stream, settings: StreamSettings) -> float:
    """One multiplier for all tasks of a shared stream: that of the memory, if there is one."""
    if lifetime.recall is not None:
        return lifetime.recall.multiplier
    turns = [turn_of(task.data, settings) for task in stream]

    def all_of(z: float) -> Lifetime:
        tasks = tuple(turn.own(z) for turn in turns)
        return Lifetime(tasks=tasks, recall=None, shared=True)

    return calibrate(
        settings.epsilon,
        settings.delta,
        lambda z: all_of(z).event(1),
        what=f"{len(stream)} tasks with the same units",
    )


def _of_a_share(settings: StreamSettings, turn: Turn, horizon: int) -> float:
    """Noise of one part of the sum: m tasks, and m - 1 that read the memory."""
    parts = 2 * horizon - 1
    return calibrate(
        settings.epsilon / parts,
        settings.delta / parts,
        lambda z: sampled_gaussian(z, turn.rate, turn.steps),
        what=f"one of {parts} parts of epsilon",
    )


def _summed(settings: StreamSettings, recall: Recall) -> float:
    rates = {recall.rate_at(task) for task in range(2, recall.horizon + 1)}
    turn = Turn(rate=max(rates), steps=recall.steps)
    return _of_a_share(settings, turn, recall.horizon)
