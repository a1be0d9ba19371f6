"""`privet certify`: radii within which a release's predictions cannot be moved."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from privet.commands.screen import DataDir, Json, err, out, print_json
from privet.commands.subjects import chosen_examples, device_named, numbers
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.certification import Certificates, Tally

SAVED = "certify.npz"  # votes so far; a run that was stopped goes on from there


def certify(
    release: Path,
    /,
    *,
    noise: str = "gaussian",
    scale: float,
    alpha: float = 0.001,
    n: int = 100_000,
    n0: int = 100,
    mode: str = "curve",
    radius: float | None = None,
    radii: str | None = None,
    reference: Annotated[bool, Parameter(negative="")] = False,
    data: str | None = None,
    data_dir: DataDir = None,
    examples: int = 500,
    batch: int = 1000,
    device: str = "cpu",
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Json = False,
) -> None:
    """Certify a release by randomized smoothing: certified accuracy by radius.

    The smoothed classifier asks the release about many noisy copies of an input
    and answers with the class that most of them get. Within the radius of a
    certificate no input is classified otherwise; each certificate is wrong with
    probability at most alpha. Abstentions count as errors. A classifier that was
    not trained with such noise has small radii.

    Votes are gathered for many images at once, and an image stops when it has
    enough; alpha holds at every stop. With --out, a run that was stopped goes on.

    Example: privet certify runs/digits --scale 0.25 --examples 200

    Example: privet certify runs/digits --scale 0.25 --mode decision --radius 0.5

    Parameters
    ----------
    release
        Its folder.
    noise
        gaussian (radii in l2), laplace (l1) or uniform (l1).
    scale
        Of the noise, for inputs scaled to [0, 1]: standard deviation, scale, half width.
    alpha
        Chance that a certificate is wrong.
    n
        Most votes that estimate a probability.
    n0
        Votes that choose the class; they are not counted again.
    mode
        curve: a radius for each example; decision: is --radius certified? Needs far fewer votes.
    radius
        To decide; for curves, the largest of interest.
    radii
        Of the table; separated by commas. For curves, the largest of them is that of interest.
    reference
        Cohen et al.'s loop: n votes for every example, one look.
    data
        Whose test examples to certify; default: the data set that the release names.
    data_dir
        Where the files of a named data set are.
    examples
        How many test examples, evenly spread; all of them if there are fewer.
    batch
        Noisy copies in a forward pass.
    device
        cpu, cuda, ...
    out_folder
        Where certify.json, certify.csv and certify.svg go; default: nowhere.
    json
        Print the summary as JSON, nothing else.
    """
    from privet.certification import certify as certified
    from privet.certification import make_noise
    from privet.certification.plot import even_radii
    from privet.classifiers import open_classifier
    from privet.data import load
    from privet.release import Release, require_finished

    asked = None if radii is None else numbers(radii, "radii")
    smoothing = make_noise(noise, scale)
    require_finished(release)
    loaded = Release.load(release)
    dataset = load(data or str(loaded.trust["data"]["name"]), data_dir)
    x, y = chosen_examples(loaded, dataset, examples)
    with _bar(len(x), quiet=json) as shown:

        def watch(tally: "Tally") -> None:
            shown(tally)
            _keep_votes(tally, out_folder)

        found = certified(
            open_classifier(loaded, device=device_named(device)),
            x,
            y,
            noise=smoothing,
            alpha=alpha,
            n0=n0,
            n=n,
            mode=mode,
            radius=max(asked) if asked and radius is None and mode == "curve" else radius,
            reference=reference,
            batch=batch,
            tally=_earlier(out_folder),
            watch=watch,
        )
    listed = asked or ([radius] if radius and mode == "decision" else even_radii(found))
    record = {"release": str(release), "data": dataset.name, **found.summary(listed)}
    if not dataset.test_is_public:
        record["private"] = "computed on private test records: not for release"
    _tell(found, record, out_folder, as_json=json)


def _tell(
    found: "Certificates", record: dict[str, Any], folder: Path | None, *, as_json: bool
) -> None:
    if folder is not None:
        _keep(found, record, folder)
    if as_json:
        print_json(record)
        return
    out.print(_table(record))
    votes = f"{record['samples']:,} votes, {record['abstained']} of {record['images']} abstained"
    out.print(f"alpha {record['alpha']:g} for each example; {votes}", highlight=False)
    if "private" in record:
        err.print(f"privet: {record['private']}", style="yellow", soft_wrap=True)
    if folder is not None:
        out.print(f"\nkept in {folder}", highlight=False, soft_wrap=True)


def _table(record: dict[str, Any]) -> Any:
    from rich.table import Table

    rows = record["certified_accuracy"]
    table = Table("radius", *(f"{row['radius']:g}" for row in rows))
    table.title = f"certified accuracy on {record['images']} examples ({record['norm']})"
    table.add_row(
        f"{record['noise']} {record['scale']:g}",
        *(f"{100 * row['accuracy']:.1f} %" for row in rows),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _keep(found: "Certificates", record: dict[str, Any], folder: Path) -> None:
    from privet.certification.plot import curve_plot
    from privet.files import write_atomically, write_json

    folder.mkdir(parents=True, exist_ok=True)
    found.to_csv(folder / "certify.csv")
    write_atomically(folder / "certify.svg", curve_plot(found))
    write_json(folder / "certify.json", record)
    (folder / SAVED).unlink(missing_ok=True)


def _earlier(folder: Path | None) -> "Tally | None":
    """The votes of a run that was stopped."""
    import numpy as np

    from privet.certification import Tally

    if folder is None or not (folder / SAVED).exists():
        return None
    try:
        with np.load(folder / SAVED) as saved:
            return Tally.from_arrays(saved)
    except (ValueError, OSError, KeyError) as error:
        raise InputError(
            "votes that cannot be read", got=folder / SAVED, fix="remove the file to start afresh"
        ) from error


def _keep_votes(tally: "Tally", folder: Path | None) -> None:
    import io

    import numpy as np

    from privet.files import write_atomically

    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez(buffer, **tally.to_arrays())  # type: ignore[arg-type]  # names are arrays' alone
    write_atomically(folder / SAVED, buffer.getvalue())


@contextlib.contextmanager
def _bar(images: int, *, quiet: bool) -> Iterator[Callable[["Tally"], None]]:
    """On stderr: how many examples are done, and the time left."""
    if quiet:
        yield lambda tally: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=err, transient=True) as progress:
        task = progress.add_task("examples", total=images)
        yield lambda tally: progress.update(
            task, completed=int(tally.done.sum()), description=f"{int(tally.draws.sum()):,} votes"
        )
