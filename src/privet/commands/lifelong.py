"""`privet lifelong`: tasks that arrive one after another, one budget for a lifetime."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from privet.commands.screen import DataDir, Json, out, print_json, print_listing, step_bar

lifelong_app = App(
    name="lifelong",
    help="Tasks that arrive one after another: a private version after each, and one epsilon that"
    " holds for all of them.\n\nStart here: privet lifelong fit l2dp --tasks permuted-digits"
    " --n-tasks 3 --epsilon 3 --out runs/life",
)


@dataclass(frozen=True, kw_only=True)
class LifelongOptions:
    """Settings of the method.

    Attributes
    ----------
    epochs
        Expected passes over each task; default 10.
    batch
        Expected units in a step; default: a fifth of the task's declared size, at most 2048.
    learning_rate
        Highest one; default 0.25; without privacy 0.05.
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

    def given(self) -> dict[str, Any]:
        """Those that were set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


Settings = Annotated[LifelongOptions, Parameter(name="*")]


@lifelong_app.command
def fit(
    method: str,
    /,
    *,
    tasks: str = "permuted-digits",
    n_tasks: int | None = None,
    records: int | None = None,
    shared: bool | None = None,
    task_seed: int = 0,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    memory: str = "episodic",
    out_folder: Annotated[Path, Parameter(name="--out")],
    data_dir: DataDir = None,
    options: Settings = LifelongOptions(),  # noqa: B008 - frozen
    json: Json = False,
) -> None:
    """Learn the tasks of a stream, one after another; write a version after each.

    Epsilon covers a unit's whole lifetime: the steps of its own task (of all tasks, where
    they share their units), and all that later tasks may read of it. It does not grow with
    the number of tasks.

    Example: privet lifelong fit l2dp --n-tasks 3 --epsilon 3 --out runs/life

    Example: privet lifelong fit l2dp --memory objective --tasks permuted-mnist --data-dir DIR
    --n-tasks 20 --records 3000 --epsilon 2 --out runs/objectives

    Example: privet lifelong fit agem --tasks permuted-digits --out runs/no-privacy

    Parameters
    ----------
    method
        See `privet lifelong methods`.
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
    epsilon
        Target for a unit's lifetime, add/remove neighbours.
    delta
        Of the target; default 1e-5.
    analysis
        sound (default), or none: without privacy, to compare with.
    memory
        Of l2dp: episodic (records kept by secret coins, read through noise) or objective (one
        noisy objective for each task, released once, minimised together ever after).
    out_folder
        Folder of the versions, new or empty; `privet lifelong extend` goes on with it.
    data_dir
        Where the files of a named stream are.
    options
        Settings of the method.
    json
        Print the scores as JSON, nothing else.
    """
    from privet.guarantee import check_target
    from privet.lifelong.fitting import find_way
    from privet.lifelong.fitting import fit as learn
    from privet.lifelong.tasks import load_stream

    find_way(method, analysis, memory)
    if epsilon is not None:
        check_target(epsilon, 1e-5 if delta is None else delta)
    stream = load_stream(
        tasks, n_tasks=n_tasks, records=records, shared=shared, seed=task_seed, data_dir=data_dir
    )
    with step_bar(quiet=json) as watch:
        learn(
            method,
            stream,
            out=out_folder,
            epsilon=epsilon,
            delta=delta,
            analysis=analysis,
            memory=memory,
            watch=watch,
            **options.given(),
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

    with step_bar(quiet=json) as watch:
        go_on(folder, n_tasks=n_tasks, watch=watch)
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
