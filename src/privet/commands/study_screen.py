"""What the studies' commands share: lists of numbers, progress, what people see."""

import contextlib
import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from privet.commands.screen import err, out, print_json
from privet.commands.subjects import listed, numbers
from privet.errors import InputError

OPTIONS: Final = {"out_folder": "--out", "assignments": "--set"}


def repeated_by(verb: Callable[..., None], given: Mapping[str, Any]) -> str:
    """The command by which a study is repeated: what is not as by default."""
    words = ["privet", "study", verb.__name__.replace("_", "-")]
    for name, parameter in inspect.signature(verb).parameters.items():
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        value = given[name]
        if value == parameter.default or name == "json":
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [option] if one is True else [option, str(one)]
    return shlex.join(words)


def one_of(name: str, value: float | None, among: Sequence[float], usual: float) -> float:
    """What `--name` says, which must be among what is measured; default: the nearest to usual."""
    from privet.studies.robust_private.protocol import nearest

    if not among:
        raise InputError(f"no {name}s", expected="at least one", fix=f"--{name}s {usual:g}")
    if value is not None and value not in among:
        raise InputError(
            f"--{name} is none of those that are measured",
            got=value,
            expected=f"one of {', '.join(f'{one:g}' for one in among)}",
        )
    return nearest(list(among), usual) if value is None else value


def tell(results: Mapping[str, Any], folder: Path, tables: Iterable[Any], *, as_json: bool) -> None:
    """The results on a screen, or as JSON; exit code 1 if an audit contradicts a release."""
    from privet.commands.audit_telling import fail_if

    if as_json:
        print_json(dict(results))
    else:
        for table in tables:
            out.print(table.screen())
        for note in dict.fromkeys(note for row in results["rows"] for note in row["warnings"]):
            err.print(
                f"privet: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True
            )
        out.print(f"\n{results['together']['note']}", highlight=False, soft_wrap=True)
        out.print(f"kept in {folder}; see {folder / 'index.html'}", highlight=False, soft_wrap=True)
    wrong = [row["name"] for row in results["rows"] if row["contradicted"]]
    fail_if(bool(wrong), f"what is stated of {', '.join(dict.fromkeys(wrong))}")


def ascending(text: str, what: str) -> tuple[float, ...]:
    """Numbers, separated by commas, sorted."""
    return tuple(sorted(set(numbers(text, what))))


def whole(text: str) -> list[int]:
    """Seeds."""
    parts = listed(text)
    if not parts or not all(part.isdecimal() for part in parts):
        raise InputError(
            "bad seeds", got=f"'{text}'", expected="whole numbers, separated by commas: 0,1,2"
        )
    return [int(part) for part in parts]


@contextlib.contextmanager
def bar(cells: int, *, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """On stderr: how many cells are done, and what is being done; how to go on if it is stopped."""
    if quiet:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    progress = Progress(*columns, console=err, transient=True)
    task = progress.add_task("", total=cells)

    def watch(done: int, what: str) -> None:
        progress.start()  # with the first news: a refusal before stands alone
        progress.update(task, completed=done, description=what)

    try:
        yield watch
    except KeyboardInterrupt:
        err.print("privet: the same command goes on with the study", highlight=False)
        raise
    finally:
        if progress.live.is_started:
            progress.stop()
