"""Recognising records again without storing them: keyed digests of rows.

A plain hash of a record can be reversed by guessing records; a keyed one cannot without the key,
which stays with the ledger. Each record has two digests: of its values as they are (the same file
declared with other bounds is recognised), and of its values brought to [0, 1] by the public bounds
and rounded to 16 bits (the same image as bytes and as floats is recognised). Labels and units are
left out: relabelled or regrouped records are still the same people's. Patient records, which are
coded by a schema, have digests of what a schema does not change: whose they are, and when. Images
that were permuted or rotated have those of the images as they were.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Bounds, Dataset
from privet.ledger import Ledger

ROW_BYTES: Final = 16
_BLOCK: Final = 4096  # records scaled at a time


def row_digests(data: Dataset, key: bytes, *, scaled: bool = True) -> list[bytes]:
    """Keyed digests of the training records: the raw ones, and (if `scaled`) the scaled ones.

    Of records that were coded, of what they were before: other codes do not hide them.
    """
    return [_digest(content, key) for content in contents(data, scaled=scaled)]


def contents(data: Dataset, *, scaled: bool = True) -> Collection[bytes]:
    """What the digests of the training records are made of.

    As `originals` of data that was made from these records, it makes the ledger know them again.
    """
    if data.originals is not None:
        return data.originals
    return _Contents(data.train.x, data.bounds if scaled else None)


def set_digest(data: Dataset, key: bytes) -> str:
    """A keyed digest of all training records with their labels and units, whatever their order."""
    flat = data.train.x.reshape(len(data.train), -1)
    parts = [
        _digest(_raw(row) + int(y).to_bytes(4, "little"), key)
        for row, y in zip(flat, data.train.y, strict=True)
    ]
    if data.train.units is not None:  # who owns what counts, not how the owners are numbered
        owned: dict[int, list[bytes]] = defaultdict(list)
        for unit, part in zip(data.train.units.tolist(), parts, strict=True):
            owned[unit].append(part)
        parts = [_digest(b"".join(sorted(records)), key) for records in owned.values()]
    digest = hashlib.blake2b(b"".join(sorted(parts)), key=key, digest_size=32)
    return f"blake2b-keyed:{digest.hexdigest()}"


def enter_in_ledger(data: Dataset, ledger: Ledger, *, bounds_known: bool = True) -> str:
    """Register the records of `data`; returns their keyed digest.

    Before bounds are learned only raw digests can be entered; the rest follows with the first run.
    Records on which something was spent for one unit are refused for another.
    """
    key = ledger.digest_key
    snapshot = set_digest(data, key)
    ledger.register(
        data.name,
        unit=data.unit,
        grouped=data.train.units is not None,
        snapshot=snapshot,
        rows=row_digests(data, key, scaled=bounds_known),
        parents=data.parents,
    )
    return snapshot


@contextmanager
def entered_in_ledger(data: Dataset, ledger: Ledger, *, bounds_known: bool = True) -> Iterator[str]:
    """The same for what may still be refused: then a new entry is taken out again."""
    known = data.name in ledger.names()
    snapshot = enter_in_ledger(data, ledger, bounds_known=bounds_known)
    try:
        yield snapshot
    except BaseException:
        if not known:
            ledger.withdraw(data.name)
        raise


@final
@dataclass(frozen=True, eq=False)
class _Contents(Collection[bytes]):
    """One at a time: those of all images at once may not fit in memory."""

    x: NDArray[np.generic]
    bounds: Bounds | None

    def __len__(self) -> int:
        return len(self.x) * (1 if self.bounds is None else 2)

    def __iter__(self) -> Iterator[bytes]:
        flat = self.x.reshape(len(self.x), -1)
        yield from map(_raw, flat)
        if self.bounds is None:
            return
        for start in range(0, len(flat), _BLOCK):
            scaled = self.bounds.clamp_and_scale(flat[start : start + _BLOCK])
            yield from (row.tobytes() for row in np.rint(scaled * 65535).astype("<u2"))

    def __contains__(self, content: object) -> bool:
        return any(content == own for own in self)


def _raw(row: NDArray[np.generic]) -> bytes:
    # Row by row: a whole table in double precision may not fit in memory.
    return row.astype("<f8").tobytes()


def _digest(content: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=ROW_BYTES).digest()
