"""Data sets by name, or a user's own through a description file: arrays and public facts."""

from privet.data import records
from privet.data.catalogue import available, load
from privet.data.dataset import Bounds, Dataset, Split
from privet.data.description import Description, load_description, write_description

__all__ = [
    "Bounds",
    "Dataset",
    "Description",
    "Split",
    "available",
    "load",
    "load_description",
    "records",
    "write_description",
]
