"""`privet synthesize schema`: public facts about records, from declarations, in a schema file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from privet.commands.screen import err, opened_ledger, out
from privet.commands.synthesize_records import StaticFile, Told
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.data.records import Schema
    from privet.data.records.features import Feature

Many = Annotated[list[str], Parameter(consume_multiple=True, negative="")]


def schema(
    file: Path,
    /,
    *,
    schema_file: Annotated[Path, Parameter(name="--out")],
    temporal: Many,
    static_columns: Annotated[
        list[str], Parameter(name="--static-columns", consume_multiple=True, negative="")
    ] = [],  # noqa: B006
    outcomes: Many = [],  # noqa: B006
    constraints: Many = [],  # noqa: B006
    static: StaticFile = None,
    name: str | None = None,
    patient: str = "patient",
    stay: str | None = None,
    time: str = "time",
    time_unit: str = "minutes",
    time_decimals: int | None = None,
    timestamps: Annotated[bool, Parameter(negative="")] = False,
    start: str | None = None,
    nominal_size: int | None = None,
    max_steps: int | None = None,
    max_gap: float | None = None,
    horizon: float | None = None,
    licence: str | None = None,
    learn_epsilon: float | None = None,
) -> None:
    """Draft a schema file from what you declare, for `privet synthesize fit --schema`.

    Of the file only the header is read. Facts that you do not know can be learned privately: leave
    them out and give --learn-epsilon; the cost is charged to the ledger and counted in every
    release from these records.

    Example: privet synthesize schema stays.csv --patient subject_id --stay stay_id --time minutes
    --temporal heartrate=20:250:0 sbp=30:300:0 dbp=10:200:0 rhythm=sinus,fibrillation
    --static-columns age=18:100:0 gender=F,M --outcomes disposition=home,admitted,died
    --constraints "sbp>=dbp" --nominal-size 12000 --out stays.toml

    Parameters
    ----------
    file
        Your records: .csv, .csv.gz or .parquet, in wide or long form.
    schema_file
        The schema file to write (.toml). Open it afterwards: everything can be corrected there.
    temporal
        Columns measured again and again: NAME=LOW:HIGH[:log][:DECIMALS] for numbers within public
        bounds (log: narrow bins near LOW), NAME=WORD,WORD,... for a public vocabulary; NAME alone:
        numbers whose bounds are learned.
    static_columns
        Columns that are known when a stay begins, declared likewise.
    outcomes
        Columns that are known when it is over, declared likewise.
    constraints
        What is true of every record: ABOVE>=BELOW, or COLUMN=WORD for "nothing comes after it".
    static
        A second file with static columns and outcomes, a line for each stay or patient.
    name
        What the ledger calls the records; default: the file's name.
    patient
        Column with the patient's id: what is protected as one, with all stays.
    stay
        Column with the stay's id, where a patient may have several.
    time
        Column with the time of a row.
    time_unit
        Of numbers of time, of --max-gap and --horizon: seconds, minutes, hours or days.
    time_decimals
        Of synthetic times, in that unit; default: as they come.
    timestamps
        The time column has dates; otherwise numbers since the stay's start.
    start
        With --timestamps: column with the date on which a stay began; default: its first row.
    nominal_size
        Public number of patients, may be rough; left out: learned.
    max_steps
        The most rows of a stay that are used, the first ones; default 50.
    max_gap
        The longest time between rows that is told apart; default 1440.
    horizon
        The longest time since the start that synthetic rows have; default: no limit.
    licence
        Of the records.
    learn_epsilon
        Privacy budget for facts left out, for the patient, under add/remove neighbours.
    """
    from privet.data.records.drafting import draft_schema
    from privet.data.records.schema_file import write_schema

    if schema_file.exists():  # before anything is charged
        raise InputError("the schema file exists", got=schema_file, fix="choose another name")
    columns = {"temporal": temporal, "static": static_columns, "outcomes": outcomes}
    unknown = [text.strip() for texts in columns.values() for text in texts if "=" not in text]
    learned = [*unknown, *(["the number of patients"] if nominal_size is None else [])]
    _require_budget(learned, learn_epsilon)
    facts: dict[str, Any] = {
        "name": name, "patient": patient, "stay": stay, "time": time, "time_unit": time_unit,
        "time_decimals": time_decimals, "timestamps": timestamps, "start": start,
        "nominal_size": nominal_size or 1, "max_steps": max_steps, "max_gap": max_gap,
        "horizon": horizon, "licence": licence,
    }  # fmt: skip
    draft = draft_schema(
        file,
        **{kind: [_declared(text) for text in texts] for kind, texts in columns.items()},
        constraints=constraints,
        static_path=static,
        **{key: value for key, value in facts.items() if value is not None},
    )
    found = draft.schema
    if learn_epsilon is not None:
        told = Told(name=str(file), static=static)
        found = _learned(told, found, unknown, learn_epsilon, size=nominal_size is None)
    write_schema(found, schema_file)
    if draft.undeclared:
        listed = ", ".join(draft.undeclared)
        err.print(
            f"privet: not declared, so not read: {listed}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    out.print(
        f"wrote {schema_file}; use it: --data {file} --schema {schema_file}",
        highlight=False,
        soft_wrap=True,
    )


def _require_budget(unknown: Sequence[str], epsilon: float | None) -> None:
    if unknown and epsilon is None:
        raise InputError(
            "facts are neither declared nor to be learned",
            got=", ".join(unknown),
            fix="declare them (NAME=LOW:HIGH, --nominal-size N), or give --learn-epsilon 0.1",
        )
    if epsilon is not None and not unknown:
        raise InputError(
            "nothing is left to learn", got=f"--learn-epsilon {epsilon:g}", fix="leave it out"
        )


def _declared(text: str) -> "str | Feature":
    """A declaration as it is, or a column whose bounds will be learned; until then they are none.

    The placeholder is never written: whatever fails in between fails the verb.
    """
    from privet.data.records.features import Numeric

    return text if "=" in text else Numeric(name=text.strip(), low=0.0, high=1.0)


def _learned(
    told: Told, draft: "Schema", columns: Sequence[str], epsilon: float, *, size: bool
) -> "Schema":
    from privet.data.records.learned import learn_schema

    records, _ = told.read(draft)
    with opened_ledger() as ledger:
        found = learn_schema(records, columns, epsilon=epsilon, ledger=ledger, size=size)
    for fact in found.learned:
        out.print(f"learned {fact.name}: epsilon {fact.epsilon:g} charged", highlight=False)
    return found
