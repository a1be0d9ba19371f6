"""Tweets with a sentiment (TweetEval): negative or positive, as vectors of a frozen encoder.

Read from `sentiment.csv.gz` (columns split, label, text) or from the text files as published,
`sentiment/val_text.txt` and so on. Of the benchmark's parts `val` and `test` are read, since the
texts of its `train` are not everywhere; neutral tweets are left out. A tweet is for testing if the
hash of its tokens says so (one in five): one tweet more moves no other, and doubles stay on one
side. Nobody knows whose they are: tweets of one person may be on both sides, and clients of a
federation are made up (`--clients`).
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from privet.data import word_vectors
from privet.data.dataset import Bounds, Dataset, Split
from privet.data.locate import find_folder, locate
from privet.data.units import place_of
from privet.errors import InputError

NAME: Final = "tweets"
CLASSES: Final = ("negative", "positive")
SHAPE: Final = (word_vectors.FEATURES,)
NOMINAL_SIZE: Final = 6000
LICENCE: Final = "no restrictions by its authors; Twitter's terms may apply to the texts"
SOURCE: Final = (
    "Barbieri et al. 2020, TweetEval, sentiment (Rosenthal et al. 2017), val and test without "
    "neutral; encoded by GloVe (Pennington et al. 2014) and hashed words"
)
PARTS: Final = ("val", "test")
TESTED: Final = 0.2

_TABLE: Final = "sentiment.csv.gz"
_LABELS: Final = {"0": 0, "2": 1}


def read_tweets(folder: Path) -> Dataset:
    """From this folder; the encoder's vectors lie in it, beside it, or where they usually are."""
    vectors = word_vectors.read_vectors(
        locate(word_vectors.NAME, word_vectors.has_files, folder.resolve().parent)
    )
    read = [(y, word_vectors.tokens(text)) for y, text in _labelled(folder)]
    if not read:
        raise InputError(f"{folder} has no tweets", fix="fetch the files again")
    x = word_vectors.encoded([words for _, words in read], vectors)
    y = np.array([label for label, _ in read], dtype=np.int64)
    places = np.array([place_of(" ".join(words)) for _, words in read], dtype=np.uint64)
    tested = places < np.uint64(int(TESTED * 2**64))
    return Dataset(
        name=NAME,
        train=Split(x=x[~tested], y=y[~tested]),
        test=Split(x=x[tested], y=y[tested]),
        bounds=Bounds(low=word_vectors.LOW, high=word_vectors.HIGH),
        classes=CLASSES,
        nominal_size=NOMINAL_SIZE,
        licence=LICENCE,
        source=SOURCE,
        test_is_public=True,
    )


def has_files(folder: Path) -> bool:
    """Say whether `folder` has them in one of the two forms, and the vectors are to be found."""
    published = all(path.is_file() for part in PARTS for path in _published(folder, part))
    if not (published or (folder / _TABLE).is_file()):
        return False
    near = folder.resolve().parent
    return find_folder(word_vectors.NAME, word_vectors.has_files, near) is not None


def _labelled(folder: Path) -> Iterator[tuple[int, str]]:
    """Label and text of every tweet that is not neutral."""
    source = _from_table(folder / _TABLE) if (folder / _TABLE).is_file() else _from_texts(folder)
    try:
        yield from ((_LABELS[label], text) for label, text in source if label in _LABELS)
    except (OSError, EOFError, UnicodeError, zlib.error, csv.Error, KeyError, ValueError) as error:
        raise InputError(
            f"the tweets in {folder} cannot be read: {type(error).__name__}",
            fix="fetch the files again",
        ) from error


def _from_table(path: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        yield from ((r["label"], r["text"]) for r in csv.DictReader(stream) if r["split"] in PARTS)


def _from_texts(folder: Path) -> Iterator[tuple[str, str]]:
    for part in PARTS:
        texts, labels = _published(folder, part)
        with texts.open(encoding="utf-8") as lines, labels.open(encoding="utf-8") as marks:
            rows = zip(marks, lines, strict=True)
            yield from ((mark.strip(), line.rstrip("\n")) for mark, line in rows)


def _published(folder: Path, part: str) -> tuple[Path, Path]:
    inside = folder / "sentiment"
    return inside / f"{part}_text.txt", inside / f"{part}_labels.txt"
