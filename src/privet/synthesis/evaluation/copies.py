"""Records that stand among real ones as they are: to the last digit, or to the codes of the schema.

Real records coincide with each other, too, where stays are short: hence the same count against
held-out records. Finding none says that nothing was copied whole, and no more.
"""

import hashlib
from typing import Final

import numpy as np

from privet.data.records.coding import encode
from privet.synthesis.evaluation.intervals import share
from privet.synthesis.evaluation.measure import Comparison, Figures, Headline, Measure, Outcome
from privet.synthesis.evaluation.side import Side


def compare(comparison: Comparison) -> Outcome:
    """The share of candidate stays that are also in the training, and in the test records."""
    figures: Figures = {}
    for how, marks in (("exact", exact_marks), ("codes", code_marks)):
        own = marks(comparison.candidate)
        for name, side in (("train", comparison.train), ("test", comparison.test)):
            others = set(marks(side))
            hits = sum(mark in others for mark in own)
            figures[f"{how}_{name}"] = share(hits, len(own))
    summary = {"percent": 100 * (figures["exact_train"]["share"] or 0.0)}
    return Outcome(figures=summary | figures)


def exact_marks(side: Side) -> list[bytes]:
    """A digest of each stay: static columns, outcomes, times and values, bit by bit."""
    records = side.records
    fixed = np.concatenate([records.static, records.outcomes], axis=1) + 0.0  # no minus zeros
    rows = np.concatenate([records.times[:, None], records.values], axis=1) + 0.0
    fixed[np.isnan(fixed)], rows[np.isnan(rows)] = np.nan, np.nan  # one pattern of bits for all
    bounds = zip(records.offsets[:-1], records.offsets[1:], strict=True)
    return [_digest(fixed[i], rows[a:b]) for i, (a, b) in enumerate(bounds)]


def code_marks(side: Side) -> list[bytes]:
    """A digest of each stay's codes: values, times and words as far as a generator sees them."""
    return [_digest(codes) for codes in encode(side.records)]


def _digest(*parts: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bytes:
    mark = hashlib.blake2b(digest_size=16)
    for part in parts:
        mark.update(part.tobytes())
    return mark.digest()


MEASURE: Final = Measure(
    name="copies",
    says="Whether whole stays were copied from the training records.",
    compare=compare,
    headlines=(
        Headline(figure="percent", says="exact copies of training stays", best=0.0, unit="%"),
    ),
    private=True,
)
