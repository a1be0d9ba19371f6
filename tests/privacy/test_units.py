"""Units: rows by unit, weights, gaps."""

import pytest
import torch

from privet.errors import InputError
from privet.privacy.units import Units, per_example_losses

X, Y = torch.arange(12.0).reshape(6, 2), torch.arange(6)


def test_rows_go_unit_by_unit():
    x, y, weights = Units.of(X, Y, views=3).split()
    assert x.shape == (2, 3, 2)
    assert y.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.allclose(weights, torch.tensor(1 / 3))
    assert len(Units.of(X, Y, views=3)) == 2


def test_without_weights_views_are_averaged():
    assert torch.equal(Units.of(X, Y).weighted(torch.ones(6)), torch.ones(6))
    assert torch.allclose(Units.of(X, Y, views=2).weighted(torch.ones(6)), torch.full((6,), 0.5))


def test_weights_take_the_precision_of_the_losses():
    units = Units.of(X, Y, weights=torch.full((6,), 0.5))
    weighted = units.weighted(torch.ones(6, dtype=torch.float64))
    assert weighted.dtype == torch.float64
    assert weighted.tolist() == [0.5] * 6


@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_gaps_are_filled_and_nothing_else(garbage):
    x = X.clone()
    x[1] = x[4] = garbage
    y = Y.clone()
    y[4] = -(10**9)
    weights = torch.tensor([1.0, 0.0, 1e-30, 1.0, 0.0, -1.0])
    units = Units.of(x, y, weights=weights)
    assert torch.equal(units.x[[1, 4]], torch.zeros(2, 2))
    assert torch.equal(units.x[[0, 2, 3, 5]], X[[0, 2, 3, 5]])
    assert units.y.tolist() == [0, 0, 2, 3, 0, 5]
    assert x[1].isnan().any() or x[1].isinf().any()  # the caller's rows stay as they are


def test_gaps_of_tokens_become_the_first_token():
    tokens = torch.tensor([[5, 7], [99, -1]])
    units = Units.of(tokens, tokens, weights=torch.tensor([1.0, 0.0]))
    assert units.x.tolist() == [[5, 7], [0, 0]]


@pytest.mark.parametrize(
    ("rows", "views"), [(6, 4), (6, 0), (6, -1), (5, 2)], ids=["4", "none", "negative", "odd"]
)
def test_rows_that_are_not_whole_units_are_refused(rows, views):
    with pytest.raises(InputError, match="not whole units"):
        Units.of(X[:rows], Y[:rows], views=views)


def test_as_many_targets_as_rows():
    with pytest.raises(InputError, match="not whole units"):
        Units.of(X, Y[:5])


@pytest.mark.parametrize("shape", [(5,), (6, 1), ()])
def test_one_weight_for_each_row(shape):
    with pytest.raises(InputError, match=r"bad weights.*\(6,\)"):
        Units.of(X, Y, weights=torch.ones(shape))


def test_one_loss_for_each_row():
    with pytest.raises(InputError, match=r"one value for each example.*\(6, 2\).*\(6,\)"):
        per_example_losses(lambda outputs, _: outputs, X, Y)
    assert per_example_losses(lambda outputs, _: outputs[:, 0], X, Y).shape == (6,)
