"""The embedding of rows, part by part."""

import math
import sys
from pathlib import Path

import torch

from privet.models.mixed_embedding import MixedEmbedding, sinusoids
from privet.models.record_rows import RowSizes

sys.path.insert(0, str(Path(__file__).parent))
from small_records import small_schema


def embedding(**parts):
    torch.manual_seed(0)
    return MixedEmbedding(RowSizes.of(small_schema()), 8, **parts)


def inputs():
    torch.manual_seed(1)
    return torch.rand(2, 4, 6), torch.randint(0, 48, (2, 4)), torch.tensor([[1, 2, 1], [4, 0, 2]])


def test_sum_of_all_parts():
    own, (rows, time, start) = embedding(), inputs()
    found = own(rows, time, start)
    for i in range(2):
        for t in range(4):
            expected = own.read.weight @ rows[i, t] + own.read.bias + sinusoids(4, 8)[t]
            expected = expected + own.time.weight[time[i, t]]
            # One table lies behind the other: three words and "missing", then two and "missing".
            expected = expected + own.categories.weight[start[i, 1]]
            expected = expected + own.categories.weight[4 + start[i, 2]]
            assert torch.allclose(found[i, t], expected, atol=1e-6)


def test_parts_that_are_left_out_have_no_say():
    rows, time, start = inputs()
    bare = embedding(place=False, time=False, categories=False)
    assert len(list(bare.parameters())) == 2
    assert torch.allclose(bare(rows, time, start), bare.read(rows))


def test_a_row_alone_is_embedded_as_among_the_others():
    own, (rows, time, start) = embedding(), inputs()
    whole = own(rows, time, start)
    alone = own(rows[:, 2:3], time[:, 2:3], start, first=2)
    assert torch.allclose(whole[:, 2:3], alone, atol=1e-6)


def test_places_have_many_frequencies():
    table = sinusoids(50, 8)
    assert torch.allclose(table[:, 0], torch.sin(torch.arange(50.0)), atol=1e-5)
    assert torch.allclose(table[:, 7], torch.cos(torch.arange(50) / 1000.0), atol=1e-5)
    assert math.isclose(float(table[3, 2]), math.sin(3 / 10), abs_tol=1e-5)
