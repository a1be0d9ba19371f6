"""Schemas and networks small enough that every stay can be written down."""

import itertools

import torch

from privet.data.records.features import Categorical, Numeric
from privet.data.records.schema import Schema
from privet.models.row_transformer import HABITS, RowTransformer, Sizes

OPTIONS = len(HABITS) + 1


def tiny_schema(steps=2):
    return Schema(
        name="tiny",
        temporal=(
            Numeric(name="x", low=0, high=1, bins=2),
            Categorical(name="c", values=("a", "b")),
        ),
        static=(Categorical(name="s", values=("u", "v")),),
        outcomes=(Categorical(name="o", values=("n", "y")),),
        max_steps=steps,
        max_gap=10.0,
        gap_bins=2,
        nominal_size=10,
    )


def tiny_network(steps=2, seed=0, layers=1, size=0.4):
    """Every weight is drawn, so that no part is idle."""
    torch.manual_seed(seed)
    network = RowTransformer(Sizes.of(tiny_schema(steps)), width=16, layers=layers, heads=2)
    with torch.no_grad():
        for module in network.modules():
            for parameter in module.parameters(recurse=False):
                gain = getattr(module, "gain", 1.0)
                parameter.copy_(size / gain * torch.randn(parameter.shape))
    return network.eval()


def all_rows(steps):
    """Every sequence of rows (gap, x, c) of at most `steps`."""
    row = list(itertools.product((1, 2), (0, 1, 2), (0, 1, 2)))
    for length in range(steps + 1):
        yield from itertools.product(row, repeat=length)


def as_codes(static, outcome, rows, steps):
    codes = torch.zeros(1 + steps, 3, dtype=torch.uint8)
    codes[0, 0], codes[0, 1] = static, outcome
    for place, row in enumerate(rows):
        codes[1 + place] = torch.tensor(row, dtype=torch.uint8)
    return codes


def all_stays(steps):
    """Every matrix of codes."""
    return torch.stack(
        [
            as_codes(static, outcome, rows, steps)
            for static in range(3)
            for outcome in range(3)
            for rows in all_rows(steps)
        ]
    )
