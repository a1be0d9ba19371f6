"""`privet lifelong`: tasks that arrive one after another, one budget for a lifetime."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from privet.commands.lifelong_options import (
    AsPublished,
    LifelongOptions,
    PublishedOptions,
    Settings,
    StreamOptions,
    Tasks,
)
from privet.commands.options import given
from privet.commands.screen import DataDir, Json, err, out, print_json, print_listing, step_bar

lifelong_app = App(
    name="lifelong",
    help="Tasks that arrive one after another: a private version after each, and one epsilon that"
    " holds for all of them.\n\nStart here: privet lifelong fit l2dp --tasks permuted-digits"
    " --n-tasks 3 --epsilon 3 --out runs/life",
)


@lifelong_app.command
def fit(
    method: str,
    /,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    memory: str = "episodic",
    out_folder: Annotated[Path, Parameter(name="--out")],
    json: Json = False,
    stream: Tasks = StreamOptions(),  # noqa: B008 - frozen
    options: Settings = LifelongOptions(),  # noqa: B008 - frozen
    published: AsPublished = PublishedOptions(),  # noqa: B008 - frozen
) -> None:
    """Learn the tasks of a stream, one after another; write a version after each.

    Epsilon covers a unit's whole lifetime: the steps of its own task (of all tasks, where
    they share their units), and all that later tasks may read of it. It does not grow with
    the number of tasks.

    Example: privet lifelong fit l2dp --n-tasks 3 --epsilon 3 --out runs/life

    Example: privet lifelong fit l2dp --memory objective --tasks permuted-mnist --data-dir DIR
    --n-tasks 20 --records 3000 --epsilon 2 --out runs/objectives

    Example: privet lifelong fit agem --tasks permuted-digits --out runs/no-privacy

    Example: privet lifelong fit l2dp --analysis paper --n-tasks 3 --epsilon 1 --out runs/claimed

    Parameters
    ----------
    method
        See `privet lifelong methods`.
    epsilon
        Target for a unit's lifetime, add/remove neighbours; as published, what is claimed.
    delta
        Of the target; default 1e-5; as published there is none.
    analysis
        sound (default); paper: as published, the epsilon claimed, not proved; none: without
        privacy, to compare with.
    memory
        Of l2dp: episodic (records kept by secret coins, read through noise) or objective (one
        noisy objective for each task, released once, minimised together ever after).
    out_folder
        Folder of the versions, new or empty; `privet lifelong extend` goes on with it.
    json
        Print the scores as JSON, nothing else.
    stream
        Which tasks there are.
    options
        Settings of the method.
    published
        Settings of l2dp under the paper analysis.
    """
    from privet.guarantee import check_target
    from privet.lifelong.fitting import find_way
    from privet.lifelong.fitting import fit as learn

    find_way(method, analysis, memory)
    if epsilon is not None:
        check_target(epsilon, 1e-5 if delta is None else delta)
    loaded = stream.load()
    with step_bar(quiet=json) as watch:
        learn(
            method,
            loaded,
            out=out_folder,
            epsilon=epsilon,
            delta=delta,
            analysis=analysis,
            memory=memory,
            watch=watch,
            **given(options, published),
        )
    show(out_folder, json=json)


@lifelong_app.command
def extend(folder: Path, /, *, n_tasks: int | None = None, json: Json = False) -> None:
    """Go on with a stream: finish a task that was killed, and learn those that came since.

    No version that is there changes, and no guarantee that was given.

    Parameters
    ----------
    folder
        The --out folder of the stream.
    n_tasks
        How many tasks there are now; default: as many as before (of a folder: all files).
    json
        Print the scores as JSON, nothing else.
    """
    from privet.lifelong.fitting import extend as go_on
    from privet.lifelong.life import versions_in

    before = versions_in(folder)
    with step_bar(quiet=json) as watch:
        go_on(folder, n_tasks=n_tasks, watch=watch)
    if versions_in(folder) == before:
        told = f"privet: nothing new: all {before} tasks were learned before"
        err.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)
    show(folder, json=json)


@lifelong_app.command
def show(folder: Path, /, *, json: Json = False) -> None:
    """Accuracy after every task, forgetting, and what a lifetime costs.

    Parameters
    ----------
    folder
        The --out folder of the stream.
    json
        Machine-readable.
    """
    from privet.lifelong.showing import told

    found = told(folder)
    if json:
        print_json(found)
        return
    print_listing(_lines(found))


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = [("method", f"{found['method']} ({found['analysis']} analysis) on {found['stream']}")]
    for number, row in enumerate(found["accuracy"], start=1):
        shown = "  ".join(f"{100 * value:.1f}" for value in row)
        average = 100 * found["average_accuracy"][number - 1]
        lines.append((f"version {number:02d}", f"average {average:.1f} %, by task: {shown}"))
    if len(found["accuracy"]) > 1:
        lines.append(("forgetting", f"{100 * found['average_forgetting'][-1]:.1f} points"))
    lines += [("privacy", text) for text in found["privacy"]] or [("privacy", "none")]
    lines.append(("versions", str(Path(found["folder"]) / "versions")))
    return lines


@lifelong_app.command
def methods(*, json: Json = False) -> None:
    """List the methods and the analyses of each.

    Parameters
    ----------
    json
        Machine-readable.
    """
    from privet.lifelong.fitting import SUMMARIES, WAYS

    analyses = {name: [a for m, a in WAYS if m == name] for name in SUMMARIES}
    if json:
        rows = [{"name": n, "summary": s, "analyses": analyses[n]} for n, s in SUMMARIES.items()]
        print_json(rows)
        return
    print_listing((n, f"{s} ({', '.join(analyses[n])})") for n, s in SUMMARIES.items())


@lifelong_app.command
def streams(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List the named streams of tasks, and whether their files are here.

    Parameters
    ----------
    data_dir
        Where else to look for files.
    json
        Machine-readable.
    """
    from privet.lifelong.tasks import describe_streams

    found = describe_streams(data_dir)
    if json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        kinds = [k for k, there in (("disjoint", one.disjoint), ("shared", one.shared)) if there]
        here = "" if one.found else "; its files were not found"
        tail = f"{one.n_tasks} tasks, {' or '.join(kinds)}, unit {one.unit}{here}"
        out.print(f"{one.name:24} {one.what}; {tail}", highlight=False)
