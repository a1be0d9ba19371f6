"""`privet data`: what is here, and declaring your own."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from privet.commands.screen import DataDir, Json, err, opened_ledger, out, print_json
from privet.errors import InputError

data_app = App(name="data", help="Data sets: what is here, and declaring your own.")


@data_app.command(name="list")
def list_data(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List the named data sets and where each was found.

    NAME/first and NAME/second are the halves of a set's training records. Where users have several
    records, NAME tests on what everybody did later, and NAME/new-users on other users.

    Parameters
    ----------
    data_dir
        Look here first.
    json
        Machine-readable.
    """
    from rich.table import Table

    from privet.data import available

    found = available(data_dir)
    if json:
        print_json([asdict(entry) for entry in found])
        return
    table = Table(box=None)
    for column in ("data set", "size", "shape", "classes", "where", "licence"):
        table.add_column(column, overflow="fold", no_wrap=column == "data set")
    for entry in found:
        table.add_row(
            entry.name,
            f"{entry.nominal_size} {entry.unit}s",
            "x".join(map(str, entry.shape)),
            str(entry.classes),
            entry.where if entry.found else f"not found; {entry.note}",
            entry.licence,
        )
    out.print(table)
    out.print("halves of the training records: NAME/first, NAME/second", highlight=False)
    cut = [f"{entry.name}/{name}" for entry in found for name in entry.cuts]
    out.print(f"tested on other users: {', '.join(cut)}", highlight=False)


@data_app.command
def declare(
    file: Path,
    /,
    *,
    classes: Annotated[list[str], Parameter(consume_multiple=True)],
    description: Annotated[Path, Parameter(name="--out")],
    name: str | None = None,
    label: str | None = None,
    feature: Annotated[list[str], Parameter(consume_multiple=True)] = [],  # noqa: B006
    bounds: tuple[float, float] | None = None,
    nominal_size: int | None = None,
    test: Path | None = None,
    test_fraction: float | None = None,
    test_is_public: bool = False,
    unit: str = "example",
    unit_column: str | None = None,
    licence: str = "not stated",
    parent: Annotated[list[str], Parameter(consume_multiple=True)] = [],  # noqa: B006
    learn_epsilon: float | None = None,
) -> None:
    """Declare the public facts about your own data in a description file, for `--data FILE.toml`.

    Facts you do not know can be learned privately: leave them out and give --learn-epsilon; the
    cost is charged to the ledger and counted in every release from this data.

    Example: privet data declare clinic.csv --label outcome --classes healthy ill
    --feature age=0:110 bmi=10:70 --nominal-size 1200 --test-fraction 0.2 --out clinic.toml

    Parameters
    ----------
    file
        Training data: .csv, .parquet, or .npz with arrays x and y.
    classes
        All labels that can occur, in order: what is possible, not what was seen.
    description
        The description file to write (.toml).
    name
        What to call the data set; default: the file's name.
    label
        Column of the label (tables).
    feature
        Columns to use with their public bounds, NAME=LOW:HIGH; NAME alone: learn its bounds.
    bounds
        Public bounds of all values (.npz).
    nominal_size
        Public number of units in the training data (records, or what --unit-column groups), may
        be rough; left out: learned.
    test
        File with test records.
    test_fraction
        Or: share of the records to test on, chosen by each record's own content, or by its unit.
    test_is_public
        Whether figures on the test records may be published.
    unit
        What is protected as one, a name for the card; without --unit-column each record is one.
    unit_column
        Column (.npz: array) with the id of each record's unit, where a unit has several records.
    licence
        Of the data.
    parent
        Data sets in the ledger that this one was made from.
    learn_epsilon
        Privacy budget for facts left out, under add/remove neighbours.
    """
    from privet.data.dataset import EXAMPLE
    from privet.data.declaring import declare as declare_data

    with opened_ledger() as book:
        facts = declare_data(
            file,
            description,
            name=name or file.stem,
            classes=tuple(classes),
            label=label,
            features=dict(_feature(text) for text in feature),
            bounds=bounds,
            nominal_size=nominal_size,
            test=test,
            test_fraction=test_fraction,
            test_is_public=test_is_public,
            unit=unit,
            unit_column=unit_column,
            licence=licence,
            parents=tuple(parent),
            learn_epsilon=learn_epsilon,
            ledger=book,
        )
    if unit != EXAMPLE and unit_column is None:
        err.print(
            f"note: each record is taken as one {unit}. If a {unit} can have several, declare again"
            " with --unit-column",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    for fact in facts.learned:
        out.print(f"learned {fact.name}: epsilon {fact.epsilon:g} charged", highlight=False)
    out.print(f"wrote {description}; use it: --data {description}", highlight=False, soft_wrap=True)


def _feature(text: str) -> tuple[str, tuple[float, float] | None]:
    name, _, pair = text.rpartition("=")
    if not name and ":" not in text:
        return text, None
    try:
        low, high = map(float, pair.split(":"))
    except ValueError:
        raise InputError(
            "bad feature", got=f"'{text}'", expected="NAME=LOW:HIGH, as in age=0:110"
        ) from None
    return name, (low, high)
