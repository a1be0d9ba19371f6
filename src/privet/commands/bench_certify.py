"""`privet bench certify`: what certificates cost, beside the loop that everybody runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from privet.commands.bench import progress_bar, writable
from privet.commands.screen import DataDir, Json, out, print_json
from privet.commands.subjects import chosen_examples, data_of, device_named, numbers
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.release import Release


def certify(
    release: Path,
    /,
    *,
    scale: float,
    radii: str = "0.5,1,2,3",
    alpha: float = 0.001,
    n: int = 100_000,
    n0: int = 200,
    data: str | None = None,
    data_dir: DataDir = None,
    examples: int = 500,
    pace_examples: int = 20,
    rounds: int = 3,
    batch: int = 1000,
    cohen_batch: int = 1000,
    precision: str = "float32",
    device: str = "cpu",
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Json = False,
) -> None:
    """Count the votes that certificates need, and the images certified in a minute.

    First every mode runs on the same images as the reference, which gives n votes
    to each; the table has the votes saved and the certified accuracy lost. Then
    Privet and Cohen et al.'s loop, one image after another, take turns at equal n.
    Leave the machine alone while it runs.

    Example: privet bench certify runs/noisy --scale 0.25 --n 10000 --examples 50

    Parameters
    ----------
    release
        Its folder.
    scale
        Sigma of the Gaussian noise, for inputs scaled to [0, 1].
    radii
        To decide, and to draw curves up to; in sigma, separated by commas.
    alpha
        Chance that a certificate is wrong.
    n
        Most votes that estimate a probability; the reference takes them all.
    n0
        Votes that choose the class.
    data
        Whose test examples to certify; default: the data set that the release names.
    data_dir
        Where the files of a named data set are.
    examples
        How many test examples, evenly spread; all of them if there are fewer.
    pace_examples
        How many of them for the images in a minute; the loop gets a tenth of them.
    rounds
        Of the pace, after a warm-up; medians are reported.
    batch
        Noisy copies in a forward pass of Privet's.
    cohen_batch
        And of the loop's; 1000 is its authors' choice.
    precision
        Of Privet's passes: float32, tf32 or bf16. The loop runs in float32.
    device
        cpu or cuda.
    out_folder
        Where the JSON and the plot go; default: the current folder.
    json
        Print the record as JSON, nothing else.
    """
    import torch

    from privet.classifiers import open_classifier
    from privet.files import write_atomically, write_json
    from privet.release import Release, require_finished
    from privet.studies.certification_cost.results import plot, tables
    from privet.studies.certification_cost.study import Study, Terms
    from privet.studies.private_step.machine import describe

    for what, count in (("rounds", rounds), ("pace examples", pace_examples)):
        if count < 1:
            raise InputError(f"bad number of {what}", got=count, expected="1 or more")
    asked, where = numbers(radii, "radii"), device_named(device)
    folder = writable(out_folder or Path())
    require_finished(release)
    loaded = Release.load(release)
    dataset = data_of(loaded, data, data_dir)
    x, y = chosen_examples(loaded, dataset, examples)
    terms = Terms(
        sigma=scale, alpha=alpha, n0=n0, n=n, batch=batch, cohen_batch=cohen_batch,
        precision=precision,
    )  # fmt: skip
    with progress_bar(1 + 2 * len(asked) + 3 * (rounds + 1), quiet=json) as watch:
        study = Study(
            classifier=open_classifier(loaded, device=where),
            x=torch.as_tensor(x),
            y=torch.as_tensor(y),
            terms=terms,
            watch=watch,
        )
        record = {
            "what": "votes and time of certificates by Gaussian smoothing",
            "data": dataset.name,
            "release": _identity(loaded),
            **vars(terms),
            **describe(where),
            **study.votes(asked),
            "pace": study.pace(pace_examples, rounds),
        }
    if not dataset.test_is_public:
        record["private"] = "computed on private test records: not for release"
    kept = folder / f"certify_{dataset.name}_{device}.json"
    write_json(kept, record)
    write_atomically(kept.with_suffix(".svg"), plot(record))
    if json:
        print_json(record)
        return
    out.print(tables(record))
    out.print(f"\nkept in {kept} and {kept.with_suffix('.svg')}", highlight=False, soft_wrap=True)


def _identity(release: "Release") -> dict[str, Any]:
    """What was certified: how it was trained, its accuracy, its weights."""
    from privet.classifiers.classifier import weights_digest

    trust = release.trust
    return {
        "method": trust["method"],
        "settings": trust["provenance"].get("config"),
        "weights": weights_digest(release.model),
        "utility": trust.get("utility"),
    }
