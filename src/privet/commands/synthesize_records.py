"""Which records a verb is told to read, what reading did to them, and how they are found again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self, TypeGuard, final

from cyclopts import Parameter

from privet.commands.screen import err

if TYPE_CHECKING:
    from privet.data.records import PatientRecords, Schema
    from privet.data.records.reading import ReadingNotes

KIND: Final = "records"  # in the reference of a run: tells them from data sets with classes

SchemaFile = Annotated[Path | None, Parameter(name="--schema")]
StaticFile = Annotated[Path | None, Parameter(name="--static")]


@final
@dataclass(frozen=True, kw_only=True)
class Told:
    """What a user says of records.

    Attributes:
        name: of a source, or the path of a file.
        data_dir: where the files of a named source are.
        schema: path of the schema file.
        static: path of a second file with static columns and outcomes.
        layout: of the file: wide or long; None to see it from the header.
    """

    name: str
    data_dir: Path | None = None
    schema: Path | None = None
    static: Path | None = None
    layout: str | None = None

    def read(self, schema: "Schema | None" = None) -> "tuple[PatientRecords, ReadingNotes]":
        """The records, and what was done to them; `schema` is for files that come without one."""
        from privet.data.records.sources import SOURCES, read_source

        own = self.schema or (None if self.name in SOURCES else schema)
        how = {"static_path": self.static, "layout": self.layout}
        given = {name: value for name, value in how.items() if value is not None}
        return read_source(self.name, self.data_dir, own, **given)

    def reference(self) -> dict[str, str | None]:
        """How a resumed run, perhaps started from another folder, finds them again."""
        from privet.data.records.sources import SOURCES

        named = self.name if self.name in SOURCES else str(Path(self.name).resolve())
        paths = {"data_dir": self.data_dir, "schema": self.schema, "static": self.static}
        found = {key: None if path is None else str(path.resolve()) for key, path in paths.items()}
        return {"kind": KIND, "name": named, "layout": self.layout, **found}

    @classmethod
    def of_reference(cls, reference: Mapping[str, str | None]) -> Self:
        """What `reference` wrote."""
        paths = {
            key: None if reference.get(key) is None else Path(str(reference[key]))
            for key in ("data_dir", "schema", "static")
        }
        return cls(name=str(reference["name"]), layout=reference.get("layout"), **paths)


def tell_reading(notes: "ReadingNotes") -> None:
    """What was read and what was done to it, on stderr: counts of private records."""
    for line in noted(notes):
        err.print(f"privet: {line}", markup=False, highlight=False, soft_wrap=True)


def noted(notes: "ReadingNotes") -> Iterator[str]:
    """Lines; nothing is said of what did not happen."""
    yield f"read {notes.rows} rows of {notes.stays} stays of {notes.patients} patients"
    if notes.duplicates:
        yield f"dropped: {notes.duplicates} rows that repeat another one exactly"
    if notes.unsorted:
        yield f"sorted: {notes.unsorted} rows stood behind a later one of their stay"
    outside = {name: count for name, count in notes.outside.items() if count}
    if outside:
        counts = ", ".join(f"{name} {count}" for name, count in outside.items())
        yield f"outside the declared bounds, counted as the nearest bound: {counts}"
    yield from (f"{what}: {count}" for what, count in notes.done.items() if count)


def are_records(reference: object) -> TypeGuard[Mapping[str, str | None]]:
    """Whether the data that a run's own notes refer to are patient records."""
    return isinstance(reference, Mapping) and reference.get("kind") == KIND
