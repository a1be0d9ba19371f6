"""A frozen, public encoder of short texts: 768 numbers, nothing of which was learned here.

| numbers | what                                                                                   |
|---------|----------------------------------------------------------------------------------------|
| 0-299   | mean, greatest and least of the GloVe vectors (100 each) of a text's words             |
| 300-767 | 1 or -1 for each token at a place that its CRC-32 names, divided by sqrt(tokens)       |

Only the 10,000 most frequent words of GloVe have vectors: a list that is public and the same for
everybody. A vocabulary that was made from the texts themselves would tell which words are in them.
Names of users and addresses are dropped. Read from `glove6b_100d_subset_int8.npz` (words in the
order of GloVe, one byte a number) or from `glove.6B.100d.txt`, as published; the two differ by the
rounding to bytes, at most 0.014.
"""

import itertools
import re
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.data.tables import read_npz
from privet.errors import InputError

NAME: Final = "word-vectors"
WORDS: Final = 10_000
SIZE: Final = 100
HASHED: Final = 468
FEATURES: Final = 3 * SIZE + HASHED

# Beyond these only rare texts lie, and are cut off: public, chosen by the vectors of the words.
LOW: Final = (-1.0,) * SIZE + (-1.0,) * SIZE + (-3.0,) * SIZE + (-1.0,) * HASHED
HIGH: Final = (1.0,) * SIZE + (3.0,) * SIZE + (1.0,) * SIZE + (1.0,) * HASHED

Vectors = dict[str, NDArray[np.float32]]

_ARCHIVE: Final = "glove6b_100d_subset_int8.npz"
_PUBLISHED: Final = "glove.6B.100d.txt"
_UNNAMED: Final = re.compile(r"@\w+|https?\S*")
_ESCAPED: Final = {"\\u2019": "'", "’": "'", "\\u002c": ",", "&amp;": "&"}
_TOKEN: Final = re.compile(r"n't|'\w+|\w+?(?=n't)|\w+|[^\w\s]")


def tokens(text: str) -> list[str]:
    """Words, small, and signs; without names of users and addresses."""
    text = text.lower()
    for written, meant in _ESCAPED.items():
        text = text.replace(written, meant)
    return _TOKEN.findall(_UNNAMED.sub(" ", text))


def encoded(texts: Sequence[Sequence[str]], vectors: Vectors) -> NDArray[np.float32]:
    """One row of `FEATURES` numbers for each text, given as its tokens."""
    return np.stack([np.concatenate([_pooled(t, vectors), _hashed(t)]) for t in texts])


def read_vectors(folder: Path) -> Vectors:
    """Vectors of the `WORDS` most frequent words."""
    if (folder / _ARCHIVE).is_file():
        words, bytes_, scale = read_npz(folder / _ARCHIVE, ("words", "q", "scale"))
        table = bytes_[:WORDS].astype(np.float32) * scale[:WORDS, None].astype(np.float32)
        return dict(zip(words[:WORDS].tolist(), table, strict=True))
    return _read_published(folder / _PUBLISHED)


def has_files(folder: Path) -> bool:
    """Say whether `folder` has them in one of the two forms; reads none."""
    return (folder / _ARCHIVE).is_file() or (folder / _PUBLISHED).is_file()


def _read_published(path: Path) -> Vectors:
    vectors: Vectors = {}
    with path.open(encoding="utf-8") as lines:
        for line in itertools.islice(lines, WORDS):
            word, *numbers = line.rstrip().split(" ")
            if len(numbers) != SIZE:
                raise InputError(
                    f"{path} has other columns", got=len(numbers), expected=f"{SIZE} after the word"
                )
            vectors[word] = np.array(numbers, dtype=np.float32)
    return vectors


def _pooled(text: Sequence[str], vectors: Vectors) -> NDArray[np.float32]:
    known = [vectors[token] for token in text if token in vectors]
    found = np.stack(known) if known else np.zeros((1, SIZE), dtype=np.float32)
    return np.concatenate([found.mean(0), found.max(0), found.min(0)])


def _hashed(text: Sequence[str]) -> NDArray[np.float32]:
    counts = np.zeros(HASHED, dtype=np.float32)
    for token in text:
        place, sign = _place(token)
        counts[place] += sign
    return counts / np.float32(np.sqrt(max(len(text), 1)))


@cache
def _place(token: str) -> tuple[int, int]:
    code = zlib.crc32(token.encode("utf-8", "surrogatepass"))
    return code % HASHED, 1 if code >> 31 else -1
