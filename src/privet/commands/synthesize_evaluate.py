"""`privet synthesize evaluate`: how good synthetic records are, and what they tell of real ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

from cyclopts import Parameter

from privet.commands.bench import progress_bar
from privet.commands.screen import DataDir, Json, err, opened_ledger, out, print_json
from privet.commands.subjects import listed, require_own_folder
from privet.commands.synthesize_records import (
    SchemaFile,
    StaticFile,
    Told,
    are_records,
    tell_reading,
)
from privet.commands.synthesize_sample import records_release
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.data.records import PatientRecords
    from privet.release import Release
    from privet.synthesis.evaluation import FidelityResult

HOLDOUT: Final = 0.2  # where the run set nobody aside
PRIVATE: Final = "computed from real records, without charge: not for release"


def evaluate(
    release: Path,
    /,
    *,
    real: str | None = None,
    schema: SchemaFile = None,
    static: StaticFile = None,
    layout: str | None = None,
    data_dir: DataDir = None,
    synthetic: Path | None = None,
    n: int | None = None,
    holdout: float | None = None,
    measures: str | None = None,
    seed: int = 0,
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Json = False,
) -> None:
    """Compare synthetic with real records: distributions, gaps, times, use, privacy.

    Synthetic records are compared with patients whom the run set aside (fit --holdout), and the
    training records are too, as the yardstick: no generator is closer to them than real records.
    Reads real records without charge, so the figures stay in the run's internal/ folder:
    fidelity.json, and fidelity.html with plots. Nothing of them may be published.

    Example: privet synthesize evaluate runs/first

    Example: privet synthesize evaluate runs/stays --real stays.csv --schema stays.toml

    Parameters
    ----------
    release
        Folder of a run of `privet synthesize fit`.
    real
        The real records: a name from `privet synthesize sources`, or a file. Default: those that
        the run learned from, by its own notes.
    schema
        Of a file; default: the release's own.
    static
        A second file with static columns and outcomes.
    layout
        Of the file: wide or long; default: seen from its header.
    data_dir
        Where the files of a named source are.
    synthetic
        Evaluate this file of synthetic records (.csv, .csv.gz, .parquet); default: draw them.
    n
        How many stays to draw; default: as many as there are training stays.
    holdout
        Share of the patients to compare with, where the run set nobody aside; default 0.2.
    measures
        Some of them, separated by commas; default: all. classes-of:COLUMN is asked for by name.
    seed
        Of synthetic records and of everything else that is drawn.
    out_folder
        Where the figures go instead; needed for an exported release, which has no internal/.
    json
        Print the figures as JSON, nothing else.
    """
    from privet.data.records.schema_file import schema_from_json
    from privet.release import require_finished
    from privet.synthesis.evaluation import evaluate as compare
    from privet.synthesis.evaluation.registry import find_measures

    names = None if measures is None else listed(measures)
    total = len(find_measures(names))
    if synthetic is not None and n is not None:
        raise InputError("a number of records to draw, and a file of them", fix="leave --n out")
    require_finished(release)
    loaded, folder = records_release(release), _place(release, out_folder)
    given = (real, data_dir, schema, static, layout)
    told = _told(release, *given)
    records, notes = told.read(schema_from_json(loaded.config["schema"]))
    if not json:
        tell_reading(notes)
    sides = _sides(loaded, records, holdout)
    made = _synthetic(loaded, synthetic, n or len(sides.train), seed)
    with progress_bar(total, quiet=json) as tell:
        result = compare(
            sides.train,
            sides.test,
            made,
            measures=names,
            seed=seed,
            watch=lambda done, of: tell(f"measure {done} of {of}"),
        )
    found = _found(release, synthetic, sides, result)
    _keep(folder, result, found)
    if json:
        print_json(found)
        return
    _tell(result, found, folder)


@final
@dataclass(frozen=True, kw_only=True)
class _Sides:
    """Real records that the run learned from, others, and what speaks against the division."""

    train: "PatientRecords"
    test: "PatientRecords"
    holdout: float
    cautions: tuple[str, ...]


def _place(release: Path, asked: Path | None) -> Path:
    """The folder of the figures: never a release."""
    from privet.training.run_folder import RunFolder

    require_own_folder(asked)
    internal = RunFolder(release).internal
    if asked is None and not internal.is_dir():
        raise InputError(
            "figures of real records have no place here",
            got=f"{release}, a release without its {internal.name}/",
            fix="say where they go: --out DIR; or name the folder that the run itself made",
        )
    return internal if asked is None else asked


def _told(
    release: Path,
    real: str | None,
    data_dir: Path | None,
    schema: Path | None,
    static: Path | None,
    layout: str | None,
) -> Told:
    """What the user says of the real records, or else what the run noted."""
    from privet.files import read_json
    from privet.training.run_folder import RunFolder

    if real is not None:
        return Told(name=real, data_dir=data_dir, schema=schema, static=static, layout=layout)
    notes = RunFolder(release).settings
    reference = read_json(notes).get("data") if notes.exists() else None
    if not are_records(reference):
        raise InputError(
            "the release does not say where the real records are",
            got=release,
            fix="say it: --real NAME, or --real FILE",
        )
    if any(value is not None for value in (data_dir, schema, static, layout)):
        raise InputError("facts about records that are not named", fix="add --real NAME or FILE")
    return Told.of_reference(reference)


def _sides(release: "Release", records: "PatientRecords", asked: float | None) -> _Sides:
    """Divided as the run did it."""
    from privet.data.records.parts import parted

    own = float(release.trust["provenance"]["config"].get("holdout", 0.0))
    if own and asked is not None and asked != own:
        raise InputError(
            "the run set other patients aside",
            got=f"--holdout {asked:g}",
            expected=f"{own:g}, as the run had it",
            fix="leave --holdout out",
        )
    share = own or (HOLDOUT if asked is None else asked)
    learned_from = parted(records, own)[0]
    train, test = parted(records, share)
    cautions = []
    if not own:
        cautions.append(
            "the run set no patients aside: it learned from all of these, and figures on privacy "
            f"and use are too kind. {share:g} of them stand in for others; fit with --holdout 0.2"
        )
    if not _learned_from(release, learned_from):
        cautions.append(
            "nobody could check that the run learned from these records; if it did not, the "
            "figures on privacy mean nothing"
        )
    return _Sides(train=train, test=test, holdout=share, cautions=tuple(cautions))


def _learned_from(release: "Release", records: "PatientRecords") -> bool:
    """Whether the ledger says so; False where it knows of no such run or says otherwise."""
    from privet.audits.released_membership import require_trained_on
    from privet.data.records.coding import coded_dataset
    from privet.ledger import default_ledger_path

    if not default_ledger_path().exists():
        return False
    with opened_ledger() as ledger:
        try:
            return require_trained_on(release.trust, coded_dataset(records), ledger)
        except InputError:
            return False


def _synthetic(release: "Release", file: Path | None, n: int, seed: int) -> "PatientRecords":
    from privet.data.records.joining import joined
    from privet.data.records.reading import read_records
    from privet.data.records.schema_file import schema_from_json
    from privet.synthesis.sampling import sample

    if file is None:
        return joined(list(sample(release, n, seed=seed)))
    # Drawn rows may repeat each other; that is no slip of whoever wrote the file.
    return read_records(file, schema_from_json(release.config["schema"]), keep_duplicates=True)


def _found(
    release: Path, synthetic: Path | None, sides: _Sides, result: "FidelityResult"
) -> dict[str, Any]:
    found = result.to_json()
    found["cautions"] = [*sides.cautions, *found["cautions"]]
    drawn = "drawn from the release" if synthetic is None else str(synthetic)
    return {"release": str(release), "synthetic": drawn, "holdout": sides.holdout, **found}


def _keep(folder: Path, result: "FidelityResult", found: Mapping[str, Any]) -> None:
    from dataclasses import replace

    from privet.files import make_folder, write_atomically, write_json
    from privet.synthesis.evaluation import render_fidelity_report

    make_folder(folder)
    page = render_fidelity_report(replace(result, cautions=tuple(found["cautions"])))
    write_json(folder / "fidelity.json", found, private=True)
    write_atomically(folder / "fidelity.html", page.encode(), private=True)


def _tell(result: "FidelityResult", found: Mapping[str, Any], folder: Path) -> None:
    from rich.table import Table

    from privet.synthesis.evaluation.report import number

    stays = result.stays
    title = f"{stays['synthetic']} synthetic stays against {stays['test']} real ones"
    table = Table("measure", "figure", "synthetic", "real", "best", title=title)
    for column in table.columns[2:]:
        column.justify = "right"
    before = ""
    for row in result.rows:
        unit = row.headline.unit
        table.add_row(
            "" if row.measure == before else row.measure,
            row.headline.says,
            number(row.synthetic, unit),
            number(row.real, unit),
            number(row.headline.best),
        )
        before = row.measure
    out.print(table)
    for caution in (*found["cautions"], PRIVATE):
        err.print(
            f"privet: {caution}", style="yellow", markup=False, highlight=False, soft_wrap=True
        )
    out.print(f"kept in {folder}: fidelity.json, fidelity.html", highlight=False, soft_wrap=True)
