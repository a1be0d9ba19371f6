"""The results as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from privet.studies.lifelong.published import FORGETTING, SAID
from privet.studies.lifelong.results import rows_of_stream, streams_in
from privet.studies.robust_private.tables import NOTHING, Table, privacy_table, shown, who

MOST: Final = 6  # columns of a curve
OVER: Final = "Means over seeds, and their range, in %."

Row = Mapping[str, Any]


def all_tables(results: Mapping[str, Any]) -> list[Table]:
    """Every table, most important first."""
    rows = results["rows"]
    tables = []
    for stream in streams_in(rows):
        there = rows_of_stream(rows, stream)
        tables += [accuracy_table(stream, there), test_table(stream, results["tests"])]
        privacy = privacy_table(there)
        tables.append(replace(privacy, title=f"Privacy of a unit's lifetime, {stream}"))
        tables += [forgetting_table(stream, there), by_task_table(stream, there)]
        beside = published_table(stream, there)
        tables += [] if beside is None else [beside]
    return [*tables, cost_table(rows)]


def summary(results: Mapping[str, Any]) -> list[Table]:
    """What fits on a screen: one for each stream."""
    return [
        Table(
            title=f"{stream}: accuracy and forgetting after the last task",
            head=["contender", "ε", "basis", "accuracy", "forgetting"],
            rows=[
                [*who(row), row["basis"], shown(row["accuracy"]), _forgotten(row)]
                for row in rows_of_stream(results["rows"], stream)
            ],
        )
        for stream in streams_in(results["rows"])
    ]


def accuracy_table(stream: str, rows: Sequence[Row]) -> Table:
    """Average accuracy over the tasks seen, as they come."""
    places = chosen_places(max(row["tasks"] for row in rows))
    return Table(
        title=f"Average accuracy after so many tasks, {stream}",
        head=["contender", "ε", "basis", *(str(place) for place in places), "area", "forgetting"],
        rows=[
            [
                *who(row),
                row["basis"],
                *(_at(row["curve"], place) for place in places),
                shown(row["area"]),
                _forgotten(row),
            ]
            for row in rows
        ],
        note=f"{OVER} Area: the mean of the curve. Forgetting: after the last task, in points. What"
        " learns all tasks at once has one figure.",
    )


def forgetting_table(stream: str, rows: Sequence[Row]) -> Table:
    """Average forgetting as tasks come."""
    places = [p for p in chosen_places(max(row["tasks"] for row in rows)) if p > 1]
    return Table(
        title=f"Average forgetting after so many tasks, {stream}",
        head=["contender", "ε", *(str(place) for place in places)],
        rows=[
            [*who(row), *(_at(row["forgetting_curve"], place) for place in places)]
            for row in rows
            if row["tasks"] > 1
        ],
        note="In points: the best accuracy on a task before, less that after; negative where later"
        " tasks helped.",
    )


def by_task_table(stream: str, rows: Sequence[Row]) -> Table:
    """What the last version can do, task by task."""
    most = max(row["tasks"] for row in rows)
    places = chosen_places(most)
    return Table(
        title=f"Accuracy of the last version on single tasks, {stream}",
        head=["contender", "ε", *(f"task {place}" for place in places)],
        rows=[
            [*who(row), *(_at(row["by_task"], place) for place in places)]
            for row in rows
            if row["tasks"] == most
        ],
        note=OVER,
    )


def test_table(stream: str, tests: Mapping[str, Any]) -> Table:
    """One against the others."""
    return Table(
        title=f"Average accuracy after the last task, {stream}: one against the others",
        head=["ε", "one", "other", "points", "95 %", "t", "p", "p, Holm", "p over tasks"],
        rows=[
            [
                NOTHING if test["epsilon"] is None else f"{test['epsilon']:g}",
                test["one"],
                f"{test['other']} ({test['other_basis']})",
                f"{test['points']:+.1f}",
                "{:+.1f} to {:+.1f}".format(*test["interval"]),
                NOTHING if test["t"] is None else f"{test['t']:.3g}",
                f"{test['p']:.2g}",
                f"{test['p_holm']:.2g}",
                NOTHING if test["p_over_tasks"] is None else f"{test['p_over_tasks']:.2g}",
            ]
            for test in tests["rows"]
            if test["stream"] == stream
        ],
        note=f"No test: {tests['skipped']}."
        if "skipped" in tests
        else f"{tests['test']}: {tests['why']}. p over tasks: as the thesis computes it, along the"
        " curve of one run; its points are not independent, so it is too small.",
    )


def published_table(stream: str, rows: Sequence[Row]) -> Table | None:
    """The thesis's forgetting beside ours; None for streams that it does not have."""
    base = stream.partition("/")[0].partition(":")[0]
    theirs = FORGETTING.get(base)
    if theirs is None:
        return None
    ours = {(row["name"], row["epsilon"]): row for row in rows}
    return Table(
        title=f"Average forgetting beside the thesis's, {stream}",
        head=["contender", "ε", "published", "here"],
        rows=[
            [
                name,
                NOTHING if epsilon is None else f"{epsilon:g}",
                f"{100 * mean:.1f} ± {100 * error:.1f}",
                _forgotten(ours[name, epsilon]) if (name, epsilon) in ours else NOTHING,
            ]
            for (name, epsilon), (mean, error) in theirs.items()
        ],
        note=f"In points. Published accuracies: {SAID[base]}. Other tasks' sizes and epochs: for"
        " their order, not their size.",
    )


def cost_table(rows: Sequence[Row]) -> Table:
    """How long it took."""
    return Table(
        title="Seconds to learn and measure a stream",
        head=["contender", "ε", "stream", "seconds"],
        rows=[[*who(row), row["stream"], f"{row['seconds']['mean']:.0f}"] for row in rows],
        note="Wall clock, on what the machine had free; of those that were resumed, since then.",
    )


def chosen_places(tasks: int) -> list[int]:
    """Numbers of tasks, evenly spread, the first and the last among them."""
    most = min(MOST, tasks)
    if most == 1:
        return [1]
    return sorted({1 + round(i * (tasks - 1) / (most - 1)) for i in range(most)})


def _at(curve: Sequence[Mapping[str, Any]], place: int) -> str:
    """The figure after so many tasks; nothing where there is none."""
    return shown(curve[place - 1]) if place <= len(curve) else NOTHING


def _forgotten(row: Row) -> str:
    return shown(row["forgetting"]) if row["tasks"] > 1 else NOTHING
