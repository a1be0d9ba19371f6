"""Patient records: irregular times, gaps, mixed types, with their public facts declared.

features.py     what is public about one column: bounds or vocabulary, and how it is discretised
schema.py       what is public about a set of records: columns, time, constraints, size
records.py      the records themselves, ragged, exactly as they were read
schema_file.py  a schema as a TOML file, and as JSON in a release
drafting.py     a schema from declarations; learned.py: bounds learned privately and charged
reading.py      records from files: chunks.py (files), cells.py (text), layouts.py (wide form),
                long_form.py, stays.py (rows into stays)
writing.py      records to files: sinks.py (files); omop.py: as OMOP-style tables
sources.py      records by name: physionet.py, mimic.py, eicu.py, with cleaning.py; simulator.py
constraints.py  how often records break their constraints; synthetic ones made to keep them
coding.py       records as codes, for generators; tensors.py: as padded tensors
parts.py        patients set aside; joining.py: parts put together
"""

from privet.data.records.features import Categorical, Feature, Numeric
from privet.data.records.joining import joined
from privet.data.records.reading import ReadingNotes, read_records, read_with_notes
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Ends, Order, Schema
from privet.data.records.schema_file import read_schema, write_schema
from privet.data.records.sources import SOURCES, load_records, read_source
from privet.data.records.writing import RecordWriter, write_records

__all__ = [
    "SOURCES",
    "Categorical",
    "Ends",
    "Feature",
    "Numeric",
    "Order",
    "PatientRecords",
    "ReadingNotes",
    "RecordWriter",
    "Schema",
    "joined",
    "load_records",
    "read_records",
    "read_schema",
    "read_source",
    "read_with_notes",
    "write_records",
    "write_schema",
]
