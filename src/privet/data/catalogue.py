"""The named data sets, with the facts that are public about each of them.

Sizes, bounds and classes are literals: they are declared, never measured on the files.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privet.data import cifar, idx, locate
from privet.data.dataset import Bounds, Dataset, Split
from privet.data.description import ARRAY_SUFFIXES, TABLE_SUFFIXES, load_description
from privet.errors import InputError

_DIGITS = tuple(str(digit) for digit in range(10))
_GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named data set: its public facts, and how its files are recognised and read."""

    name: str
    shape: tuple[int, ...]
    high: float  # the upper bound of the values; the lower is 0 in all of them
    classes: tuple[str, ...]
    nominal_size: int
    licence: str
    source: str
    note: str
    read_split: Callable[[Path, str], Split]
    holds: Callable[[Path], bool] | None = None  # None: embedded, needs no files


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether and where a named data set was found, with its public facts."""

    name: str
    found: bool
    where: str
    shape: tuple[int, ...]
    nominal_size: int
    classes: int
    licence: str
    note: str


def load(name_or_path: str | Path, data_dir: str | Path | None = None) -> Dataset:
    """Load a named data set, or the user's own through its description file (.toml)."""
    suffix = Path(name_or_path).suffix.lower()
    if suffix == ".toml":
        return load_description(name_or_path)
    if suffix in (*TABLE_SUFFIXES, *ARRAY_SUFFIXES):
        raise InputError(
            "a data file alone does not tell what is public about it",
            got=name_or_path,
            expected="a data set's name or a description file (.toml)",
            fix=f"declare its public facts: privet data declare {name_or_path} ...",
        )
    return _load_entry(_entry(str(name_or_path)), data_dir)


def available(data_dir: str | Path | None = None) -> list[Availability]:
    """Say which named data sets can be loaded; looks for their files, reads none."""
    return [_availability(entry, data_dir) for entry in CATALOGUE.values()]


def _entry(name: str) -> Entry:
    if name in CATALOGUE:
        return CATALOGUE[name]
    near = difflib.get_close_matches(name.lower(), CATALOGUE, 1)
    raise InputError(
        "unknown data set",
        got=repr(name),
        expected=f"one of {', '.join(CATALOGUE)}, or a description file (.toml)",
        fix=f"did you mean '{near[0]}'?" if near else "see privet data list",
    )


def _load_entry(entry: Entry, data_dir: str | Path | None) -> Dataset:
    folder = Path()
    if entry.holds is not None:
        folder = locate.locate(entry.name, entry.holds, data_dir)
    train, test = (entry.read_split(folder, part) for part in ("train", "test"))
    if train.x.shape[1:] != entry.shape:
        raise InputError(
            f"the files in {folder} are not those of '{entry.name}'",
            got=f"examples of shape {train.x.shape[1:]}",
            expected=f"{entry.shape}",
            fix="name another folder with --data-dir DIR",
        )
    return Dataset(
        name=entry.name,
        train=train,
        test=test,
        bounds=Bounds(low=(0.0,), high=(entry.high,)),
        classes=entry.classes,
        nominal_size=entry.nominal_size,
        licence=entry.licence,
        source=entry.source,
        test_is_public=True,
    )


def _availability(entry: Entry, data_dir: str | Path | None) -> Availability:
    if entry.holds is None:
        where = "embedded"
    else:
        where = str(locate.find_folder(entry.name, entry.holds, data_dir) or "")
    return Availability(
        name=entry.name,
        found=bool(where),
        where=where,
        shape=entry.shape,
        nominal_size=entry.nominal_size,
        classes=len(entry.classes),
        licence=entry.licence,
        note=entry.note,
    )


def _read_digits(_folder: Path, part: str) -> Split:
    """Read the digits that come with scikit-learn; every fifth example is for testing."""
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    digits = load_digits()
    # By position, which is safe here because the set is public and never changes.
    in_test = np.arange(len(digits.target)) % 5 == 0
    chosen = in_test if part == "test" else ~in_test
    x = digits.images[chosen].astype(np.uint8)[:, np.newaxis]
    return Split(x=x, y=digits.target[chosen].astype(np.int64))


_ENTRIES = (
    Entry(
        name="digits",
        shape=(1, 8, 8),
        high=16.0,
        classes=_DIGITS,
        nominal_size=1437,
        licence="CC BY 4.0",
        source="Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (test part)",
        note="comes with scikit-learn; every fifth example is for testing",
        read_split=_read_digits,
    ),
    Entry(
        name="mnist",
        shape=(1, 28, 28),
        high=255.0,
        classes=_DIGITS,
        nominal_size=60_000,
        licence="CC BY-SA 3.0, as commonly stated; the files carry none",
        source="LeCun, Cortes and Burges, MNIST",
        note="IDX files, plain or gzipped; torchvision's folder MNIST/raw will do",
        read_split=idx.read_split,
        holds=idx.has_files,
    ),
    Entry(
        name="fashion-mnist",
        shape=(1, 28, 28),
        high=255.0,
        classes=_GARMENTS,
        nominal_size=60_000,
        licence="MIT",
        source="Xiao, Rasul and Vollgraf 2017, Fashion-MNIST",
        note="IDX files, plain or gzipped; on Debian: apt install dataset-fashion-mnist",
        read_split=idx.read_split,
        holds=idx.has_files,
    ),
    Entry(
        name="cifar10",
        shape=(3, 32, 32),
        high=255.0,
        classes=_THINGS,
        nominal_size=50_000,
        licence="none stated by the authors; please cite them",
        source="Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
        note="the binary or the Python version, or lossless WebP sheets",
        read_split=cifar.read_split,
        holds=cifar.has_files,
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
