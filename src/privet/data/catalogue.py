"""The named data sets, with the facts that are public about each of them.

Sizes, bounds and classes are literals: they are declared, never measured on the files.

NAME/first and NAME/second are the halves of the training records of NAME, in the order of the
files, each a data set of its own: one for what must not have seen the other. They are cut at half
of the declared size, never of the counted one. Neighbours differ by a record of a half; where the
cut lies is a constant of the published files. Where users are the units, they are halved.

Some sets have another cut into training and testing, such as NAME/new-users.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from privet.data import activities, cifar, idx, locate, tweets
from privet.data.activities import hapt, named, simulated, watch, wisdm
from privet.data.activities.by_user import USER
from privet.data.dataset import EXAMPLE, Bounds, Dataset, Split
from privet.data.description import ARRAY_SUFFIXES, TABLE_SUFFIXES, load_description
from privet.errors import InputError

HALVES: Final = ("first", "second")

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
    classes: tuple[str, ...]
    nominal_size: int
    licence: str
    source: str
    note: str
    read: "Callable[[Entry, Path, str], Dataset]"  # from a folder; "" or one of `cuts`
    holds: Callable[[Path], bool] | None = None  # None: embedded, needs no files
    unit: str = EXAMPLE  # what the nominal size counts
    cuts: tuple[str, ...] = ()  # names of other cuts into training and testing

    @property
    def parts(self) -> tuple[str, ...]:
        """What may follow the name."""
        return (*HALVES, *self.cuts)


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether and where a named data set was found, with its public facts."""

    name: str
    found: bool
    where: str
    shape: tuple[int, ...]
    nominal_size: int
    unit: str
    classes: int
    licence: str
    note: str
    cuts: tuple[str, ...]


def load(name_or_path: str | Path, data_dir: str | Path | None = None) -> Dataset:
    """Load a named data set or a half of it, or the user's own by its description file (.toml)."""
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
    whole, part = _parts(str(name_or_path))
    half = part in HALVES
    data = _load_entry(CATALOGUE[whole], data_dir, "" if half else part)
    return _half_of(data, part) if half else data


def share_records(one: str, other: str) -> bool:
    """Whether two names stand for common training records, as far as names tell.

    A set, its halves and its other cuts do, and whatever else was made of it under its name; its
    two halves do not. Of names that are not in the catalogue each stands for itself alone.
    """
    if one == other:
        return True
    (whole, _, part), (other_whole, _, other_part) = one.partition("/"), other.partition("/")
    if whole != other_whole or whole not in CATALOGUE:
        return False
    return {part, other_part} != {*HALVES}


def available(data_dir: str | Path | None = None) -> list[Availability]:
    """Say which named data sets can be loaded; looks for their files, reads none."""
    return [_availability(entry, data_dir) for entry in CATALOGUE.values()]


def _parts(name: str) -> tuple[str, str]:
    """A name of the catalogue, and which part of it ("" for the whole); others are bad input."""
    whole, slash, part = name.partition("/")
    if whole not in CATALOGUE:
        near = difflib.get_close_matches(whole.lower(), CATALOGUE, 1)
        raise InputError(
            "unknown data set",
            got=repr(name),
            expected=f"one of {', '.join(CATALOGUE)}, or a description file (.toml)",
            fix=f"did you mean '{near[0]}{slash}{part}'?" if near else "see privet data list",
        )
    parts = CATALOGUE[whole].parts
    if slash and part not in parts:
        raise InputError(
            "unknown part of a data set",
            got=repr(name),
            expected=f"'{whole}', or its part " + " or ".join(f"'{whole}/{p}'" for p in parts),
        )
    return whole, part


def _half_of(data: Dataset, half: str) -> Dataset:
    """Units before the middle of the declared size, or those from there on; all of the test."""
    middle = data.nominal_size // 2
    first = half == HALVES[0]
    chosen = (data.train.unit_of_record < middle) == first
    known = data.originals
    if known is not None:  # those of the units, in their order
        known = tuple(known)[:middle] if first else tuple(known)[middle:]
    return replace(
        data,
        name=f"{data.name}/{half}",
        train=data.train.part(chosen),
        nominal_size=middle if first else data.nominal_size - middle,
        source=f"{data.source}; the {half} half of the training {_called(data)}s",
        originals=known,
    )


def _called(data: Dataset) -> str:
    return "record" if data.unit == EXAMPLE else data.unit


def _load_entry(entry: Entry, data_dir: str | Path | None, part: str) -> Dataset:
    folder = Path()
    if entry.holds is not None:
        folder = locate.locate(entry.name, entry.holds, data_dir)
    return entry.read(entry, folder, part)


def _images(
    high: float, read_split: Callable[[Path, str], Split]
) -> Callable[[Entry, Path, str], Dataset]:
    """Reads images with values 0 to `high`, whose test records are public."""

    def read(entry: Entry, folder: Path, part: str) -> Dataset:
        del part
        train, test = (read_split(folder, split) for split in ("train", "test"))
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
            bounds=Bounds(low=(0.0,), high=(high,)),
            classes=entry.classes,
            nominal_size=entry.nominal_size,
            licence=entry.licence,
            source=entry.source,
            test_is_public=True,
        )

    return read


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
        unit=entry.unit,
        classes=len(entry.classes),
        licence=entry.licence,
        note=entry.note,
        cuts=entry.cuts,
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


def _study(
    about: activities.About, note: str, holds: Callable[[Path], bool] | None, shape: tuple[int, ...]
) -> Entry:
    return Entry(
        name=about.name,
        shape=shape,
        classes=about.classes,
        nominal_size=len(about.users),
        licence=about.licence,
        source=about.source,
        note=note,
        read=lambda entry, folder, part: named.load_part(entry.name, folder, part),
        holds=holds,
        unit=USER,
        cuts=(named.NEW_USERS,),
    )


_ENTRIES = (
    Entry(
        name="digits",
        shape=(1, 8, 8),
        classes=_DIGITS,
        nominal_size=1437,
        licence="CC BY 4.0",
        source="Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (test part)",
        note="comes with scikit-learn; every fifth example is for testing",
        read=_images(16.0, _read_digits),
    ),
    Entry(
        name="mnist",
        shape=(1, 28, 28),
        classes=_DIGITS,
        nominal_size=60_000,
        licence="CC BY-SA 3.0, as commonly stated; the files carry none",
        source="LeCun, Cortes and Burges, MNIST",
        note="IDX files, plain or gzipped; torchvision's folder MNIST/raw will do",
        read=_images(255.0, idx.read_split),
        holds=idx.has_files,
    ),
    Entry(
        name="fashion-mnist",
        shape=(1, 28, 28),
        classes=_GARMENTS,
        nominal_size=60_000,
        licence="MIT",
        source="Xiao, Rasul and Vollgraf 2017, Fashion-MNIST",
        note="IDX files, plain or gzipped; on Debian: apt install dataset-fashion-mnist",
        read=_images(255.0, idx.read_split),
        holds=idx.has_files,
    ),
    Entry(
        name="cifar10",
        shape=(3, 32, 32),
        classes=_THINGS,
        nominal_size=50_000,
        licence="none stated by the authors; please cite them",
        source="Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
        note="the binary or the Python version, or lossless WebP sheets",
        read=_images(255.0, cifar.read_split),
        holds=cifar.has_files,
    ),
    _study(simulated.ABOUT, "made-up phones, five activities", None, named.SHAPE),
    _study(hapt.ABOUT, "a phone at the waist, six activities", hapt.has_files, named.SHAPE),
    _study(watch.ABOUT, "a watch, seven exercises", watch.has_files, named.SHAPE),
    _study(
        wisdm.ABOUT,
        "features of ten seconds, six activities",
        wisdm.has_files,
        (len(wisdm.ABOUT.features),),
    ),
    Entry(
        name=tweets.NAME,
        shape=tweets.SHAPE,
        classes=tweets.CLASSES,
        nominal_size=tweets.NOMINAL_SIZE,
        licence=tweets.LICENCE,
        source=tweets.SOURCE,
        note="TweetEval's sentiment beside GloVe's vectors (folder word_vectors or glove.6B)",
        read=lambda entry, folder, part: tweets.read_tweets(folder),
        holds=tweets.has_files,
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
