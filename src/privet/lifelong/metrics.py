"""What a stream of tasks did to accuracy: averages, forgetting, learning curves, tests.

| spec            | here                     | meaning                                             |
|-----------------|--------------------------|-----------------------------------------------------|
| a_{tau,t}       | `accuracy[tau][t]`       | accuracy on task t after task tau                   |
| avg accuracy    | `average_accuracy[tau]`  | mean over the tasks seen, t <= tau                  |
| f_t^tau         | `forgetting[tau][t]`     | best accuracy on t before tau, less that after tau  |
| avg forgetting  | `average_forgetting[tau]`| mean over the earlier tasks, t < tau                |

Tasks are counted from 0 here. The best is sought among tau' with t <= tau' < tau: before task t
was seen there was nothing of it to forget. Forgetting is negative where later tasks helped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError

# Accuracies are of the order of 1: a spread below this is rounding.
_NO_SPREAD: Final = 1e-12


@final
@dataclass(frozen=True, kw_only=True)
class Scores:
    """What can be said about one run through a stream of m tasks.

    Attributes:
        accuracy: of m rows, the first with 1 entry, the last with m.
        average_accuracy: after each task.
        forgetting: of m rows; row tau has one entry for each earlier task, so the first is empty.
        average_forgetting: after each task; 0 after the first, which has nothing to forget.
        learning_curve_area: mean accuracy on a new task over its first batches, averaged over
            tasks; without curves, the mean of `average_accuracy`. See `curves`.
        curves: whether accuracies within tasks were given.
    """

    accuracy: tuple[tuple[float, ...], ...]
    average_accuracy: tuple[float, ...]
    forgetting: tuple[tuple[float, ...], ...]
    average_forgetting: tuple[float, ...]
    learning_curve_area: float
    curves: bool


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A two-tailed paired t-test: how far one is above the other, and whether by chance."""

    difference: float
    statistic: float
    p_value: float
    pairs: int


@final
@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean and standard deviation of a figure over seeds, with a 95% interval for the mean."""

    mean: float
    deviation: float
    low: float
    high: float
    seeds: int


def score(
    accuracy: Sequence[Sequence[float]], curves: Sequence[Sequence[float]] | None = None
) -> Scores:
    """All measures of one run.

    Args:
        accuracy: row tau has the accuracies on tasks 0, 1, ... after task tau: at least tau + 1 of
            them. Those on tasks that were not seen yet are left out.
        curves: for each task, the accuracy on it after 0, 1, ... of its first batches; as many for
            every task.
    """
    rows = _seen(accuracy)
    averages = tuple(math.fsum(row) / len(row) for row in rows)
    overall = math.fsum(averages) / len(rows)
    lost = tuple(_forgetting(rows, tau) for tau in range(len(rows)))
    return Scores(
        accuracy=rows,
        average_accuracy=averages,
        forgetting=lost,
        average_forgetting=tuple(math.fsum(row) / max(1, len(row)) for row in lost),
        learning_curve_area=overall if curves is None else _area(curves, len(rows)),
        curves=curves is not None,
    )


def compare_curves(one: Scores, other: Scores) -> Comparison:
    """Between two curves of average accuracy, pair by pair of tasks.

    As published. Its points are those of one run each and lean on one another, so its p value is
    too small: rely on `compare_seeds`.
    """
    return paired_test(one.average_accuracy, other.average_accuracy)


def compare_seeds(
    one: Sequence[Scores], other: Sequence[Scores], *, of: str = "average_accuracy"
) -> Comparison:
    """Between two methods after the last task, pair by pair of seeds; `of` names the measure."""
    return paired_test(_last(one, of), _last(other, of))


def summarise(runs: Sequence[Scores], *, of: str = "average_accuracy") -> Summary:
    """A measure after the last task, over runs with different seeds."""
    from scipy.stats import t

    values = np.array(_last(runs, of))
    if len(values) < 2:
        raise InputError("too few runs to tell a spread", got=len(values), expected="at least 2")
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    reach = float(t.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
    return Summary(
        mean=mean, deviation=deviation, low=mean - reach, high=mean + reach, seeds=len(values)
    )


def paired_test(one: Sequence[float], other: Sequence[float]) -> Comparison:
    """The two-tailed paired t-test; differences that are all equal are no chance, or none."""
    if len(one) != len(other) or len(one) < 2:
        raise InputError(
            "these cannot be compared pair by pair",
            got=f"{len(one)} and {len(other)} values",
            expected="as many of both, at least 2",
        )
    differences = np.asarray(one, dtype=np.float64) - np.asarray(other, dtype=np.float64)
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    statistic = _statistic(mean, spread, len(differences))
    return Comparison(
        difference=mean,
        statistic=statistic,
        p_value=_two_tails(statistic, len(differences) - 1),
        pairs=len(differences),
    )


def _statistic(mean: float, spread: float, n: int) -> float:
    if spread > _NO_SPREAD:
        return mean / (spread / math.sqrt(n))
    return 0.0 if abs(mean) <= _NO_SPREAD else math.copysign(math.inf, mean)


def _two_tails(statistic: float, freedom: int) -> float:
    from scipy.stats import t

    return float(2.0 * t.sf(abs(statistic), freedom))


def _seen(accuracy: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """The rows up to the diagonal, checked."""
    if not len(accuracy):
        raise InputError("no accuracies", expected="a row for each task")
    rows = []
    for tau, row in enumerate(accuracy):
        if len(row) <= tau:
            raise InputError(
                f"accuracies after task {tau + 1} are missing",
                got=len(row),
                expected=f"at least {tau + 1}: of every task seen",
            )
        rows.append(tuple(_fraction(value) for value in row[: tau + 1]))
    return tuple(rows)


def _fraction(value: float) -> float:
    if not 0.0 <= float(value) <= 1.0:  # not so of NaN, either
        raise InputError("bad accuracy", got=value, expected="a number from 0 to 1")
    return float(value)


def _forgetting(rows: Sequence[Sequence[float]], tau: int) -> tuple[float, ...]:
    return tuple(max(rows[i][t] for i in range(t, tau)) - rows[tau][t] for t in range(tau))


def _area(curves: Sequence[Sequence[float]], n_tasks: int) -> float:
    """As in A-GEM: the mean over tasks of the accuracy after b batches, averaged over b."""
    lengths = {len(curve) for curve in curves}
    if len(lengths) != 1 or 0 in lengths or len(curves) != n_tasks:
        raise InputError(
            "bad learning curves",
            got=f"{len(curves)} of lengths {sorted(lengths)}",
            expected="one for each task, all of one length",
        )
    table: NDArray[np.float64] = np.array([[_fraction(v) for v in curve] for curve in curves])
    return float(table.mean())


def _last(runs: Sequence[Scores], of: str) -> list[float]:
    known = ("average_accuracy", "average_forgetting", "learning_curve_area")
    if of not in known:
        raise InputError("unknown measure", got=f"'{of}'", expected=f"one of {', '.join(known)}")
    values = [getattr(run, of) for run in runs]
    return [value if isinstance(value, float) else value[-1] for value in values]
