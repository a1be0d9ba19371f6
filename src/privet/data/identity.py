"""Recognising records again without storing them: keyed digests of rows.

A plain hash of a record can be reversed by guessing records; a keyed one cannot without the key,
which stays with the ledger. Values are brought to [0, 1] by the public bounds and rounded to 16
bits first, so that the same image as bytes and as floats has one digest. Labels are left out:
relabelled records are still the same people's.
"""

import hashlib
from typing import Final

import numpy as np

from privet.data.dataset import Dataset

ROW_BYTES: Final = 16


def row_digests(data: Dataset, key: bytes) -> list[bytes]:
    """One keyed digest for each training record."""
    scaled = data.bounds.clamp_and_scale(data.train.x.reshape(len(data.train), -1))
    grid = np.rint(scaled * 65535).astype("<u2")
    return [hashlib.blake2b(row.tobytes(), key=key, digest_size=ROW_BYTES).digest() for row in grid]


def set_digest(data: Dataset, rows: list[bytes], key: bytes) -> str:
    """A keyed digest of all training records with their labels, whatever their order."""
    labelled = sorted(
        row + int(y).to_bytes(4, "little") for row, y in zip(rows, data.train.y, strict=True)
    )
    digest = hashlib.blake2b(b"".join(labelled), key=key, digest_size=32)
    return f"blake2b-keyed:{digest.hexdigest()}"
