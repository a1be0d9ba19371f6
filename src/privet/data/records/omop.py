"""Records as tables in the style of OMOP's common data model, one CSV file each, in a folder.

    person             a row for each patient
    visit_occurrence   a row for each stay, from its start to its last row
    measurement        a row for each value of a numeric temporal column
    observation        a row for each other value: categorical, static or outcome
    death              a row for each patient whose outcome says so, if there is such an outcome

In the style of, because our columns have no standard concepts: every `..._concept_id` is 0 (OMOP's
"no matching concept") and the columns' own names and words stand in `..._source_value`. Ids are
numbers from 1 on. Times without a date count from 2000-01-01. The year of birth is the year of the
first stay's start less the static column `age`, blank without one; `gender` (or `sex`) and `race`
(or `ethnicity`) go to `person`.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.cells import Floats, Integers
from privet.data.records.features import Categorical, Feature, Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.data.records.sinks import Column, CsvSink, Sink, dates, numbers, texts, told
from privet.data.records.writing import moments, nothing, words
from privet.errors import InputError

TABLES: Final = ("person", "visit_occurrence", "measurement", "observation", "death")
GENDER: Final = ("gender", "sex")
RACE: Final = ("race", "ethnicity")
AGE: Final = ("age",)
DEAD: Final = frozenset({"dead", "death", "deceased", "died", "expired"})
YES: Final = frozenset({"1", "true", "yes", "y"})


def write_omop(records: PatientRecords, folder: str | Path) -> None:
    """Write records as tables; see `OmopWriter`."""
    with OmopWriter(folder, records.schema) as writer:
        writer.write(records)


@final
class OmopWriter:
    """A folder of tables to which any number of records may be written, part after part.

    The folder appears under its name when the `with` block ends well. Memory grows with the
    number of patients (their ids, to know who was there before), not with their rows.
    """

    def __init__(self, folder: str | Path, schema: Schema) -> None:
        self.schema, self._folder = schema, Path(folder)
        self._temporary = self._folder.with_name(f".{self._folder.name}.{os.getpid()}.tmp")
        self._sinks: dict[str, Sink] = {}
        self._persons: dict[str, int] = {}
        self._dead: set[int] = set()
        self._next = dict.fromkeys(TABLES, 1)

    def __enter__(self) -> Self:
        if self._folder.exists():
            raise InputError("the folder exists", got=self._folder, fix="choose another name")
        with told(self._folder):
            self._temporary.mkdir(parents=True)
        self.write(nothing(self.schema))  # a table without rows has its header
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with told(self._folder):
                for sink in self._sinks.values():
                    sink.close()
                if error is None:
                    self._temporary.rename(self._folder)
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def write(self, records: PatientRecords) -> None:
        """Add records of the writer's schema."""
        if records.schema != self.schema:
            raise InputError("records of another schema than the writer's")
        names = records.patients.tolist()
        new = np.array([self._is_new(name) for name in names], dtype=bool)
        person = np.array([self._persons[name] for name in names], dtype=np.int64)
        visit = self._ids("visit_occurrence", len(records))
        ends = _ends(records)
        self._put("person", _persons(records, person, new))
        self._put("visit_occurrence", _visits(records, person, visit, ends))
        for table, columns in _events(records, person, visit, ends):
            ids = self._ids(table, len(columns[0].cells))
            self._put(table, [numbers(f"{table}_id", ids), *columns])
        self._put_deaths(records, person, ends)

    def _is_new(self, name: str) -> bool:
        known = name in self._persons
        self._persons.setdefault(name, len(self._persons) + 1)
        return not known

    def _ids(self, table: str, count: int) -> Integers:
        first = self._next[table]
        self._next[table] += count
        return np.arange(first, first + count)

    def _put(self, table: str, columns: Sequence[Column]) -> None:
        with told(self._folder):
            if table not in self._sinks:
                self._sinks[table] = CsvSink(self._temporary / f"{table}.csv", columns)
            self._sinks[table].write(columns)

    def _put_deaths(
        self, records: PatientRecords, person: Integers, ends: NDArray[np.datetime64]
    ) -> None:
        found = death_outcome(self.schema)
        if found is None:
            return
        place, word = found
        stays = np.flatnonzero(records.outcomes[:, place] == word)
        first = [k for k in stays.tolist() if self._dies(int(person[k]))]
        self._put(
            "death",
            [
                numbers("person_id", person[first]),
                _days("death_date", ends[first]),
                dates("death_datetime", ends[first]),
                _zeros("death_type_concept_id", len(first)),
            ],
        )

    def _dies(self, person: int) -> bool:
        """Whether this death is the first that is told of a person."""
        known = person in self._dead
        self._dead.add(person)
        return not known


def death_outcome(schema: Schema) -> tuple[int, int] | None:
    """Which outcome tells of death, and the place of the word by which it does; None for none.

    A categorical outcome with a word such as "died" or "Expired"; or one whose name speaks of
    death, with a word such as "1" or "yes".
    """
    for place, feature in enumerate(schema.outcomes):
        if not isinstance(feature, Categorical):
            continue
        named = any(word in feature.name.casefold() for word in ("death", "died", "mortality"))
        telling = DEAD | YES if named else DEAD
        for word, value in enumerate(feature.values):
            if value.casefold() in telling:
                return place, word
    return None


def _persons(records: PatientRecords, person: Integers, new: NDArray[np.bool_]) -> list[Column]:
    none = np.zeros(len(records), dtype=np.int64)
    began = moments(records, np.arange(len(records)), none.astype(np.float64))
    _, age = _static(records, AGE)
    birth = _year(began) - np.floor(age)
    columns = [
        numbers("person_id", person),
        _zeros("gender_concept_id", len(records)),
        numbers("year_of_birth", birth),
        _zeros("race_concept_id", len(records)),
        _zeros("ethnicity_concept_id", len(records)),
        texts("person_source_value", records.patients),
        texts("gender_source_value", _static_words(records, GENDER)),
        texts("race_source_value", _static_words(records, RACE)),
    ]
    return [Column(name=c.name, cells=c.cells[new], decimals=c.decimals) for c in columns]


def _visits(
    records: PatientRecords, person: Integers, visit: Integers, ends: NDArray[np.datetime64]
) -> list[Column]:
    began = moments(records, np.arange(len(records)), np.zeros(len(records)))
    return [
        numbers("visit_occurrence_id", visit),
        numbers("person_id", person),
        _zeros("visit_concept_id", len(visit)),
        _days("visit_start_date", began),
        dates("visit_start_datetime", began),
        _days("visit_end_date", ends),
        dates("visit_end_datetime", ends),
        _zeros("visit_type_concept_id", len(visit)),
        texts("visit_source_value", records.stays),
    ]


def _events(
    records: PatientRecords, person: Integers, visit: Integers, ends: NDArray[np.datetime64]
) -> list[tuple[str, list[Column]]]:
    """Columns of the measurements and the observations, by table, one source column at a time."""
    schema, every = records.schema, np.arange(len(records))
    began = moments(records, every, np.zeros(len(records)))
    when = moments(records, records.stay_of_row, records.times)
    person_only = {*GENDER, *RACE}
    parts: list[tuple[str, Feature, Floats, Integers, NDArray[np.datetime64]]] = [
        (
            "measurement" if isinstance(feature, Numeric) else "observation",
            feature,
            records.values[:, place],
            records.stay_of_row,
            when,
        )
        for place, feature in enumerate(schema.temporal)
    ]
    for features, values, moment in (
        (schema.static, records.static, began),
        (schema.outcomes, records.outcomes, ends),
    ):
        parts += [
            ("observation", feature, values[:, place], every, moment)
            for place, feature in enumerate(features)
            if feature.name.casefold() not in person_only
        ]
    return [
        (table, _event(table, feature, values, person[stay], visit[stay], moment))
        for table, feature, values, stay, moment in parts
    ]


def _event(
    table: str,
    feature: Feature,
    values: Floats,
    person: Integers,
    visit: Integers,
    when: NDArray[np.datetime64],
) -> list[Column]:
    there = ~np.isnan(values)
    values, count = values[there], int(there.sum())
    numeric = isinstance(feature, Numeric)
    number = values if numeric else np.full(count, np.nan)
    decimals = feature.decimals if isinstance(feature, Numeric) else None
    word = words(feature, values) if isinstance(feature, Categorical) else np.full(count, None)
    as_text = [] if table == "measurement" else [texts("value_as_string", word)]
    return [
        numbers("person_id", person[there]),
        _zeros(f"{table}_concept_id", count),
        _days(f"{table}_date", when[there]),
        dates(f"{table}_datetime", when[there]),
        _zeros(f"{table}_type_concept_id", count),
        # As text, because columns differ in their decimals and share this one.
        texts("value_as_number", numbers("", number, decimals).texts()),
        *as_text,
        numbers("visit_occurrence_id", visit[there]),
        texts(f"{table}_source_value", [feature.name] * count),
    ]


def _ends(records: PatientRecords) -> NDArray[np.datetime64]:
    """When each stay had its last row; its start where it has none."""
    last = np.zeros(len(records))
    some = records.lengths > 0
    last[some] = records.times[records.offsets[1:][some] - 1]
    return moments(records, np.arange(len(records)), last)


def _static(records: PatientRecords, names: Sequence[str]) -> tuple[Feature | None, Floats]:
    """The static column of one of these names, and its values; NaN where there is none."""
    for place, feature in enumerate(records.schema.static):
        if feature.name.casefold() in names:
            return feature, records.static[:, place]
    return None, np.full(len(records), np.nan)


def _static_words(records: PatientRecords, names: Sequence[str]) -> Any:
    feature, values = _static(records, names)
    if isinstance(feature, Categorical):
        return words(feature, values)
    return numbers("", values).texts()


def _year(moment: NDArray[np.datetime64]) -> Floats:
    years = moment.astype("datetime64[Y]").astype(np.float64)
    return np.where(np.isnat(moment), np.nan, years + 1970.0)


def _days(name: str, moment: NDArray[np.datetime64]) -> Column:
    days = np.datetime_as_string(moment, unit="D").astype(object)
    days[np.isnat(moment)] = None
    return texts(name, days)


def _zeros(name: str, count: int) -> Column:
    return numbers(name, np.zeros(count))
