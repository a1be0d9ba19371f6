"""`privet synthesize`: learn to make patient records, make them, and say how good they are."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from privet.commands.screen import DataDir, Json, out, print_json, print_listing, step_bar
from privet.commands.synthesize_evaluate import evaluate
from privet.commands.synthesize_options import (
    Family,
    FamilyOptions,
    Generating,
    GeneratingOptions,
)
from privet.commands.synthesize_published import Published, PublishedOptions
from privet.commands.synthesize_records import SchemaFile, StaticFile, Told, tell_reading
from privet.commands.synthesize_sample import sample
from privet.commands.synthesize_schema import schema

synthesize_app = App(
    name="synthesize",
    help="Synthetic patient records, private for the patient: irregular times, gaps, mixed types."
    "\n\nStart here: privet synthesize fit autoregressive --epsilon 1.5 --quick --out runs/first",
)
synthesize_app.command(sample)
synthesize_app.command(evaluate)
synthesize_app.command(schema)


@synthesize_app.command
def fit(
    method: str,
    /,
    *,
    data: str = "simulator",
    schema: SchemaFile = None,
    static: StaticFile = None,
    layout: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    out: Path,
    data_dir: DataDir = None,
    options: Generating = GeneratingOptions(),  # noqa: B008 - frozen
    family: Family = FamilyOptions(),  # noqa: B008 - frozen
    published: Published = PublishedOptions(),  # noqa: B008 - frozen
    json: Json = False,
) -> None:
    """Learn to make records like these, privately, and write the release.

    The guarantee is for the patient, with all stays. Sampling from the release costs nothing more.

    Example: privet synthesize fit autoregressive --epsilon 1.5 --quick --out runs/first

    Example: privet synthesize fit autoregressive --data stays.csv --schema stays.toml
    --epsilon 1.5 --delta 1e-5 --holdout 0.2 --out runs/stays

    Example: privet synthesize fit autoregressive --analysis none --out runs/no-privacy

    Example: privet synthesize fit igamt --epsilon 1.5 --without imitator --out runs/edgamt

    Example: privet synthesize fit igamt --analysis paper --epsilon 1.5 --out runs/as-published

    Parameters
    ----------
    method
        How to learn; see `privet synthesize methods`.
    data
        A name from `privet synthesize sources` (default: simulator), or a file of your own: .csv,
        .csv.gz or .parquet, with --schema.
    schema
        Public facts about your file (.toml); `privet synthesize schema` drafts them.
    static
        A second file with static columns and outcomes, a line for each stay or patient.
    layout
        Of your file: wide (a column for each feature) or long (variable, value); default: seen
        from its header.
    epsilon
        Privacy target for the patient under add/remove neighbours; smaller is more private.
    delta
        Of the target; well below 1 / number of patients; default 1e-5.
    analysis
        sound (default): private, its epsilon proved; paper: as published, its epsilon claimed;
        none: without privacy, to compare with.
    quick
        About a minute on two cores, for a first look; what you set yourself wins.
    out
        Folder of the release, new or empty; a killed run is continued by `privet resume OUT`.
    data_dir
        Where the files of a named source are.
    options
        Settings of the method.
    family
        Settings of igamt and its baselines, private.
    published
        Settings of igamt and its baselines, as published.
    json
        Print the trust card as JSON, nothing else.
    """
    from privet.engine.ranks import Ranks
    from privet.guarantee import check_target
    from privet.synthesis.fitting import fit as learn
    from privet.synthesis.fitting import settings_of

    chosen = {**options.given(), **family.given(), **published.given()}
    # Before records are read, which may take long.
    settings_of(method, epsilon=epsilon, delta=delta, analysis=analysis, **chosen)
    if epsilon is not None:
        check_target(epsilon, 1e-5 if delta is None else delta)
    told = Told(name=data, data_dir=data_dir, schema=schema, static=static, layout=layout)
    with Ranks.joined() as ranks, step_bar(quiet=json) as watch:
        with ranks.agreed():
            records, notes = told.read()
        if ranks.leads:
            tell_reading(notes)
        release = learn(
            method,
            records,
            epsilon=epsilon,
            delta=delta,
            analysis=analysis,
            quick=quick,
            out=out,
            watch=watch,
            reference=told.reference(),
            **chosen,
        )
    if ranks.leads:
        _show(release.trust, out, as_json=json)


@synthesize_app.command
def methods(*, json: Json = False) -> None:
    """List the generators and what each one promises.

    Parameters
    ----------
    json
        Machine-readable.
    """
    from privet.synthesis.fitting import METHODS

    if json:
        print_json(
            [
                {
                    "name": method.name,
                    "summary": method.summary,
                    "promises": {name: v.promises for name, v in method.analyses.items()},
                }
                for method in METHODS.values()
            ]
        )
        return
    rows = []
    for method in METHODS.values():
        rows.append((method.name, method.summary))
        rows += [("", f"{name}: {v.promises}") for name, v in method.analyses.items()]
    print_listing(rows)


@synthesize_app.command
def sources(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List the records that are known by name, and where each was found.

    Parameters
    ----------
    data_dir
        Look here first.
    json
        Machine-readable.
    """
    from privet.data.locate import find_folder
    from privet.data.records.sources import SOURCES

    def where(source: Any) -> str | None:
        if source.holds is None:
            return "embedded"
        folder = find_folder(source.name, source.holds, data_dir)
        return None if folder is None else str(folder)

    listed = [
        {"name": source.name, "note": source.note, "where": where(source)}
        for source in SOURCES.values()
    ]
    if json:
        print_json(listed)
        return
    rows = []
    for source in listed:
        rows.append((str(source["name"]), str(source["note"])))
        rows.append(("", str(source["where"] or "not found; name its folder with --data-dir DIR")))
    print_listing(rows)


def _show(trust: Any, folder: Path, *, as_json: bool) -> None:
    from privet.reports import print_card

    if as_json:
        print_json(trust)
    else:
        print_card(trust, out, report=folder / "report.html")
