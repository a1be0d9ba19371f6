"""`privet synthesize sample`: any number of synthetic records into a file, part after part."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from privet.commands.screen import Json, err, out, print_json
from privet.commands.subjects import require_own_folder
from privet.errors import InputError
from privet.files import make_folder

if TYPE_CHECKING:
    from privet.data.records.omop import OmopWriter
    from privet.data.records.schema import Schema
    from privet.data.records.writing import RecordWriter
    from privet.release import Release

ENDINGS: Final = {"csv": (".csv", ".csv.gz"), "parquet": (".parquet",)}
OMOP: Final = "omop"
FORMATS: Final = (*ENDINGS, OMOP)


def sample(
    release: Path,
    /,
    *,
    n: int = 1000,
    out_file: Annotated[Path, Parameter(name="--out")],
    where: Annotated[tuple[str, ...], Parameter(name="--where", negative="")] = (),
    form: Annotated[str | None, Parameter(name="--format")] = None,
    layout: str = "wide",
    seed: int | None = None,
    json: Json = False,
) -> None:
    """Make synthetic records in the columns, units, gaps and times of the real ones.

    Costs no privacy, however many are made. Rows are written as they are drawn, so memory does
    not grow with their number; the file gets its name when it is complete.

    Example: privet synthesize sample runs/first --n 1000 --out synthetic.csv

    Example: privet synthesize sample runs/first --n 500 --where "age>=60"
    --where "disposition=died" --out old.parquet

    Example: privet synthesize sample runs/first --n 1000 --format omop --out tables

    Parameters
    ----------
    release
        Folder of a run of `privet synthesize fit`, or what `privet export` made of it.
    n
        How many stays; each is a patient of its own.
    out_file
        .csv, .csv.gz or .parquet; for omop a folder. Must not exist.
    where
        A condition on a static column or an outcome: age>=60, gender=F, disposition=died,admitted.
        Repeat it for more; all are met. Rare outcomes take longer: other stays are thrown away.
    form
        csv, parquet, or omop (tables in the style of OMOP's common data model, a folder of CSV
        files); default: by the ending of --out.
    layout
        wide (a column for each feature) or long (variable, value); not for omop.
    seed
        To draw the same again; default: a new one. No secret depends on it.
    json
        Print what was made as JSON, nothing else.
    """
    from privet.data.records.schema_file import schema_from_json
    from privet.release import require_finished

    chosen = _format(out_file, form)
    if n < 1:
        raise InputError("bad number of records", got=n, expected="at least 1")
    require_own_folder(out_file.parent)
    require_finished(release)
    loaded = records_release(release)
    writer = _writer(chosen, out_file, schema_from_json(loaded.config["schema"]), layout)
    make_folder(out_file.parent)
    made = _made(loaded, n, where, seed, writer, quiet=json)
    found = {"release": str(release), "out": str(out_file), "format": chosen, **made}
    if json:
        print_json(found)
        return
    if where:
        out.print(
            f"met the conditions: {made['let_in']} of {made['begun']} draws of static columns, "
            f"{made['kept']} of {made['tried']} stays",
            highlight=False,
        )
    out.print(
        f"wrote {made['stays']} stays, {made['rows']} rows to {out_file}",
        highlight=False,
        soft_wrap=True,
    )


def records_release(folder: Path) -> "Release":
    """A release of records as it was made; any other is bad input."""
    from privet.release import Release, require_unchanged

    require_unchanged(folder)
    loaded = Release.load(folder)
    if "schema" not in loaded.config:
        raise InputError(
            "the release makes no records",
            got=f"{folder}, method '{loaded.trust.get('method')}'",
            expected="one made by `privet synthesize fit`",
        )
    return loaded


def _made(
    release: "Release",
    n: int,
    where: tuple[str, ...],
    seed: int | None,
    writer: "RecordWriter | OmopWriter",
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Draw and write, chunk by chunk; how many stays and rows, and of how many draws."""
    from privet.synthesis.sampling import Sampler

    sampler = Sampler.of(release, where=where, seed=seed)
    stays = rows = 0
    with _bar(n, quiet=quiet) as watch, writer:
        for chunk in sampler.chunks(n):
            writer.write(chunk)
            stays, rows = stays + len(chunk), rows + len(chunk.times)
            watch(stays)
    counts = {name: getattr(sampler, name) for name in ("begun", "let_in", "tried", "kept")}
    return {"stays": stays, "rows": rows, **counts}


def _format(path: Path, asked: str | None) -> str:
    """As asked for, or by the ending; the two must not contradict each other."""
    ending = next((f for f, ends in ENDINGS.items() if path.name.lower().endswith(ends)), None)
    if asked is not None and asked not in FORMATS:
        raise InputError(
            "unknown format", got=f"'{asked}'", expected=f"one of {', '.join(FORMATS)}"
        )
    if asked in (None, ending) and ending is not None:
        return ending
    if asked == OMOP and ending is None:
        return OMOP
    if asked is None:
        raise InputError(
            "the name does not tell the format",
            got=path,
            expected=f"an ending among {', '.join(e for ends in ENDINGS.values() for e in ends)}",
            fix="for a folder of tables: --format omop",
        )
    expected = " or ".join(ENDINGS[asked]) if asked in ENDINGS else "the name of a folder"
    raise InputError(f"--out does not fit --format {asked}", got=path, expected=expected)


def _writer(form: str, path: Path, schema: "Schema", layout: str) -> "RecordWriter | OmopWriter":
    from privet.data.records.omop import OmopWriter
    from privet.data.records.writing import RecordWriter

    if form != OMOP:
        return RecordWriter(path, schema, layout=layout)
    if layout != "wide":
        raise InputError("omop has a layout of its own", got=layout, fix="leave --layout out")
    return OmopWriter(path, schema)


@contextlib.contextmanager
def _bar(n: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """On stderr: how many of n are made, and how long the rest takes."""
    if quiet:
        yield lambda _: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("stays"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=err, transient=True)
    task = progress.add_task("", total=n)

    def watch(done: int) -> None:
        progress.start()  # only now: what is refused leaves one line and no empty bar
        progress.update(task, completed=done)

    try:
        yield watch
    finally:
        if progress.live.is_started:
            progress.stop()
