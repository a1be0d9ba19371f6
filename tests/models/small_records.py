"""A schema whose codes can be written down, and what reads them."""

import torch

from privet.data.records.features import Categorical, Numeric
from privet.data.records.schema import Schema
from privet.models.record_rows import RecordRows, RowSizes


def small_schema(steps=4):
    return Schema(
        name="small",
        temporal=(
            Numeric(name="x", low=0, high=1, bins=4),
            Categorical(name="c", values=("a", "b")),
        ),
        static=(
            Numeric(name="age", low=0, high=100, bins=10),
            Categorical(name="s", values=("u", "v", "w")),
        ),
        outcomes=(Categorical(name="o", values=("n", "y")),),
        max_steps=steps,
        max_gap=10.0,
        gap_bins=5,
        nominal_size=10,
    )


def reader(steps=4, **how):
    return RecordRows(RowSizes.of(small_schema(steps), **how))


def codes_of(*rows, start=(3, 2, 1), steps=4):
    codes = torch.zeros(1, 1 + steps, 3)
    codes[0, 0] = torch.tensor(start)
    for place, row in enumerate(rows):
        codes[0, 1 + place] = torch.tensor(row)
    return codes
