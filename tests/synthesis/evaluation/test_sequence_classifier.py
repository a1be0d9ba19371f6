from dataclasses import replace

import numpy as np
import pytest
import torch

from privet.errors import InputError
from privet.synthesis.evaluation.registry import find_measure
from privet.synthesis.evaluation.sequence_classifier import (
    CnnLstm,
    _prepared,
    compare,
    stay_means,
)
from privet.synthesis.evaluation.side import Side


def test_the_class_of_a_column_is_learned_from_real_rows_and_not_from_dealt_ones(
    make_records, beside
):
    test, train = make_records(100), make_records(200, seed=1)
    values = train.values.copy()
    for column in (0, 1):  # what tells of `below` is dealt anew
        values[:, column] = np.random.default_rng(column).permutation(values[:, column])
    good, bad = (
        compare(beside(test, c), column="below", epochs=4).figures
        for c in (train, replace(train, values=values))
    )
    assert good["percent"] > bad["percent"] + 10
    assert good["auroc"] > 0.75
    assert bad["auroc"] < 0.65


def test_the_network_does_not_see_the_column_in_question(make_records):
    records = make_records(30)
    other = replace(records, values=records.values.copy())
    other.values[:, 2] = 77.0
    edges = np.array([70.0, 80.0, 90.0])
    means = stay_means(Side(records), 2)
    seen = [_prepared(Side(r), 2, means, edges)[0] for r in (records, other)]
    assert torch.equal(*seen)
    assert seen[0].shape[1:] == (12, 1 + 3 + 3)  # gap, values, masks


def test_padding_does_not_count():
    """Neither what stands there, nor how much of it, nor how long the others of a batch are."""
    torch.manual_seed(0)
    model = CnnLstm(torch.zeros(3), torch.ones(3))
    x = torch.rand(1, 6, 3)
    half = torch.tensor([[1.0, 1, 1, 0, 0, 0]])
    alone = model(x[:, :3], torch.ones(1, 3))
    beside = model(torch.cat([x, x]), torch.cat([half, torch.ones(1, 6)]))
    assert torch.allclose(model(x, half), alone, atol=1e-6)
    assert torch.allclose(beside[:1], alone, atol=1e-6)
    assert not torch.allclose(beside[1:], alone, atol=1e-3)
    assert torch.isfinite(model(x, torch.zeros(1, 6))).all()


def test_a_column_is_named_and_numeric(make_records, beside):
    records = make_records(20)
    for column in ("rhythm", "age", "nothing"):
        measure = find_measure(f"classes-of:{column}")
        with pytest.raises(InputError, match="pulse, above, below"):
            measure.compare(beside(records, records))


def test_a_column_without_values_is_no_error(make_records, beside):
    records = make_records(20)
    values = records.values.copy()
    values[:, 2] = np.nan
    empty = replace(records, values=values)
    measure = find_measure("classes-of:below")
    assert measure.compare(beside(empty, records)).figures["percent"] is None
    assert measure.compare(beside(records, empty)).figures["percent"] == 25
