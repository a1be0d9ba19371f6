"""A stay as one long vector, cell by cell: what PCA, clusters and nearest records are found in.

As in the IGAMT paper: the first `max_steps` rows, values scaled to [0, 1], times the mask (0 where
not measured, and in rows that a stay does not have), with the gap before each row as one more
column, after the static columns. Deviations: scaled by the public bounds and on each column's own
scale, not by the least and greatest value of the records; a word is its place in the vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

from privet.synthesis.evaluation.side import Side, on_unit_scale

Vectors = NDArray[np.float32]


def flattened(side: Side) -> Vectors:
    """(stays, static columns + max_steps * (1 + temporal columns))."""
    schema, records = side.schema, side.records
    cells = sequences(side).reshape(len(side), -1)
    static = [on_unit_scale(f, records.static[:, j]) for j, f in enumerate(schema.static)]
    return np.concatenate([*(np.nan_to_num(s)[:, None] for s in static), cells], axis=1).astype(
        np.float32, copy=False
    )


def sequences(side: Side) -> Vectors:
    """(stays, max_steps, 1 + temporal columns): the gap, then values times mask."""
    schema, records = side.schema, side.records
    stay, step = side.stay_of_row, records.step_of_row
    cells = np.zeros((len(side), schema.max_steps, 1 + len(schema.temporal)), dtype=np.float32)
    cells[stay, step, 0] = on_unit_scale(schema.gap, side.gaps)
    for place, feature in enumerate(schema.temporal):
        cells[stay, step, 1 + place] = np.nan_to_num(
            on_unit_scale(feature, records.values[:, place])
        )
    return cells
