"""`privet certify`: what a release withstands, of changed inputs and of changed records."""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from privet.commands.certify_noise import noise_asked
from privet.commands.recording import Record, record_certificates, require_recordable
from privet.commands.screen import DataDir, Json, err, out, print_json
from privet.commands.subjects import (
    chosen_examples,
    data_of,
    device_named,
    numbers,
    require_own_folder,
    warn_if_changed,
)
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.certification import Certificates, Tally

FINISHED = "certify.json"
SAVED = "certify.npz"  # votes so far; a run that was stopped goes on from there


def certify(
    *releases: Path,
    threat: str = "evasion",
    noise: str = "gaussian",
    scale: float = 0.0,
    grid: int | None = None,
    hidden_scale: float | None = None,
    layer: int | None = None,
    denoiser: Path | None = None,
    alpha: float = 0.001,
    n: int = 100_000,
    n0: int = 200,
    mode: str = "curve",
    radius: float | None = None,
    radii: str | None = None,
    tolerance: float = 0.02,
    reference: Annotated[bool, Parameter(negative="")] = False,
    records: str = "1,2,5,10",
    accuracy: float | None = None,
    data: str | None = None,
    data_dir: DataDir = None,
    examples: int = 500,
    batch: int = 1000,
    precision: str = "float32",
    compile: Annotated[bool, Parameter(negative="")] = False,
    device: str = "cpu",
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    record: Record = False,
    json: Json = False,
) -> None:
    """Certify a release against changed inputs (evasion) or changed training records (poisoning).

    Evasion is answered by randomized smoothing: certified accuracy by radius. The
    smoothed classifier asks the release about many noisy copies of an input
    and answers with the class that most of them get. Within the radius of a
    certificate no input is classified otherwise; each certificate is wrong with
    probability at most alpha. Abstentions count as errors. A classifier that was
    not trained with such noise has small radii.

    Votes are gathered for many images at once, and an image stops when it has
    enough; alpha holds at every stop. With --out, a run that was stopped goes on.

    Poisoning is answered by the privacy of training: the least mean accuracy of models
    trained after so many records were changed. It is about the mean over the randomness
    of training, not about the one model at hand.

    Example: privet certify runs/digits --scale 0.25 --examples 200

    Example: privet certify runs/digits --scale 0.25 --mode decision --radius 0.5

    Example: privet certify runs/pixeldp --noise own

    Example: privet certify runs/digits --threat poisoning --records 1,2,5 --accuracy 0.9

    Parameters
    ----------
    releases
        Folder of the release; for poisoning also of several with the same plan.
    threat
        evasion or poisoning.
    noise
        gaussian (radii in l2), laplace (l1) or uniform (l1); or own: that of the release's
        training, its scale and its place included.
    scale
        Of the noise, for inputs scaled to [0, 1]: standard deviation, scale, half width.
    grid
        Gaussian noise on a grid of so many levels: proof against tricks with floating-point bits.
        4080 is fine, 255 costs radius.
    hidden_scale
        Gaussian or laplace noise of this scale after a layer; --scale may then be 0.
    layer
        The linear map after which the hidden noise goes, counted from 1 (default); beyond the first
        without --scale.
    denoiser
        An .onnx file from images to images that noisy inputs pass before the release.
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
    tolerance
        For curves: the radius that may be left on the table, in scales of the noise.
    reference
        Cohen et al.'s loop: n votes for every example, one look.
    records
        For poisoning: numbers of changed records, separated by commas.
    accuracy
        For poisoning: the mean accuracy to assume. Default: a lower confidence bound from the test
        accuracies of several releases; of one release its own, as an assumption.
    data
        Whose test examples to certify; default: the data set that the release names.
    data_dir
        Where the files of a named data set are.
    examples
        How many test examples, evenly spread; all of them if there are fewer.
    batch
        Noisy copies in a forward pass.
    precision
        float32, tf32 or bf16 in the forward passes; the classifier at it is what is certified.
    compile
        Compile the classifier for this batch; the compiled one is what is certified.
    device
        cpu, cuda, ...
    out_folder
        Where certify.json, certify.csv and certify.svg go; default: nowhere.
    record
        Add certified accuracies to the release's trust card; what stands there is kept.
    json
        Print the summary as JSON, nothing else.
    """
    from privet.classifiers import open_classifier
    from privet.classifiers.opening import require_not_attacking
    from privet.release import Release, require_finished

    require_own_folder(out_folder)
    if threat == "poisoning":
        if record:
            raise InputError("poisoning has no figures for a card", fix="leave --record out")
        from privet.commands.certify_poisoning import poisoned

        counts = numbers(records, "records")
        poisoned(releases, counts, accuracy, alpha, folder=out_folder, as_json=json)
        return
    release = _the_one(releases, threat)
    _require_unfinished(out_folder)
    asked = None if radii is None else _radii(radii)
    require_finished(release)
    loaded = Release.load(release)
    require_not_attacking(loaded.model, loaded.trust.get("method"))
    smoothing = noise_asked(noise, scale, grid, hidden_scale, layer, of=loaded)
    dataset = data_of(loaded, data, data_dir, at=release)
    warn_if_changed(release)
    measured = require_recordable(release, dataset, record=record)
    x, y = chosen_examples(loaded, dataset, examples)
    found = _certified(
        open_classifier(loaded, device=device_named(device)),
        (x, y),
        out_folder,
        quiet=json,
        noise=smoothing,
        alpha=alpha,
        n0=n0,
        n=n,
        mode=mode,
        radius=max(asked) if asked and radius is None and mode == "curve" else radius,
        tolerance=tolerance,
        reference=reference,
        denoiser=denoiser,
        batch=batch,
        precision=precision,
        compile=compile,
    )
    listed = asked or _radii_to_show(found, mode, radius)
    summary = {"release": str(release), "data": dataset.name, **found.summary(listed)}
    if not dataset.test_is_public:
        summary["private"] = "computed on private test records: not for release"
    _tell(found, summary, out_folder, as_json=json)
    if record:
        record_certificates(release, summary, of=measured)


def _the_one(releases: tuple[Path, ...], threat: str) -> Path:
    if threat != "evasion":
        raise InputError("unknown threat", got=threat, expected="evasion or poisoning")
    if len(releases) != 1:
        raise InputError(
            "evasion is certified for one release",
            got=f"{len(releases)} folders",
            expected="the folder of one",
        )
    return releases[0]


def _radii(text: str) -> list[float]:
    found = numbers(text, "radii")
    if not found or not all(0.0 <= r < math.inf for r in found):
        raise InputError(
            "bad --radii", got=f"'{text}'", expected="numbers, 0 or more, separated by commas"
        )
    return found


def _radii_to_show(found: "Certificates", mode: str, radius: float | None) -> list[float]:
    from privet.certification.plot import even_radii

    if mode == "decision" and radius is not None:
        return [radius]
    return sorted({*even_radii(found), *([] if radius is None else [radius])})


def _require_unfinished(folder: Path | None) -> None:
    """A finished run is not done again into its folder: choosing among runs spends more alpha."""
    if folder is not None and (folder / FINISHED).exists():
        raise InputError(
            "a finished run is there", got=folder / FINISHED, fix="choose another --out"
        )


def _certified(
    classifier: Any, examples: tuple[Any, Any], folder: Path | None, *, quiet: bool, **asked: Any
) -> "Certificates":
    """The run itself, with a bar, and its votes kept on the way."""
    from privet.certification import certify as run

    with _bar(len(examples[0]), quiet=quiet) as shown:

        def watch(tally: "Tally") -> None:
            shown(tally)
            _keep_votes(tally, folder)

        return run(classifier, *examples, **asked, tally=_earlier(folder), watch=watch)


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
    if str(record.get("compiled", "")).startswith("no"):
        err.print(f"privet: not compiled: {record['compiled'][4:]}", style="yellow")
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
        _noise_words(record),
        *(f"{100 * row['accuracy']:.1f} %" for row in rows),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _noise_words(record: dict[str, Any]) -> str:
    """Inside a network: what is drawn there, and what it counts at the input."""
    if "hidden_scale" not in record:
        return f"{record['noise']} {record['scale']:.4g}"
    beside = f" and {record['input_scale']:.4g} at the input" if record.get("input_scale") else ""
    drawn = f"{record['noise']} {record['hidden_scale']:.4g}{beside}"
    return f"{drawn}, worth {record['scale']:.4g} at the input"


def _keep(found: "Certificates", record: dict[str, Any], folder: Path) -> None:
    from privet.certification.plot import curve_plot
    from privet.files import make_folder, write_atomically, write_json

    make_folder(folder)
    found.to_csv(folder / "certify.csv")
    write_atomically(folder / "certify.svg", curve_plot(found))
    write_json(folder / FINISHED, record)
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

    from privet.files import make_folder, write_atomically

    if folder is None:
        return
    make_folder(folder)
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
    progress = Progress(*columns, TimeRemainingColumn(), console=err, transient=True)
    task = progress.add_task("examples", total=images)

    def shown(tally: "Tally") -> None:
        progress.start()  # with the first votes: a refusal before them stands alone
        progress.update(
            task, completed=int(tally.done.sum()), description=f"{int(tally.draws.sum()):,} votes"
        )

    try:
        yield shown
    finally:
        if progress.live.is_started:
            progress.stop()
