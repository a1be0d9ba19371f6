"""Freezing by name: what is trained, what is refused, what is reported."""

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import freeze, trainable_report


def made():
    body = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.LayerNorm(6))
    return nn.ModuleDict({"body": body, "head": nn.Linear(6, 2)})


def trained(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("except_", "expected"),
    [
        ([], set()),
        (["head"], {"head.weight", "head.bias"}),
        (["head.bias"], {"head.bias"}),
        (["body.1", "body.3"], {f"body.{i}.{p}" for i in (1, 3) for p in ("weight", "bias")}),
        (["*.bias"], {"head.bias", *(f"body.{i}.bias" for i in range(4))}),
        (["body.[02].weight"], {"body.0.weight", "body.2.weight"}),
    ],
)
def test_exactly_what_is_named_is_trained(except_, expected):
    model = made()
    model["head"].requires_grad_(False)  # naming it makes it trainable again
    assert freeze(model, except_) is model
    assert trained(model) == expected


def test_frozen_layers_get_no_gradient_and_do_not_move():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    before = model[0].weight.clone()
    freeze(model, ["2"])
    model(torch.rand(3, 4)).sum().backward()
    assert model[0].weight.grad is None
    assert model[2].weight.grad.abs().sum() > 0
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("pattern", ["haed", "body.4", "hea", "bias", ""])
def test_a_pattern_that_fits_nothing_is_refused(pattern):
    """A slip would leave the head frozen and nobody the wiser. 'hea' is no prefix by parts."""
    model = made()
    with pytest.raises(InputError, match=rf"fits nothing in the model: got '{pattern}'"):
        freeze(model, ["head", pattern])
    assert len(trained(model)) == 10  # refused before anything was changed


def test_the_report_counts_each_parameter_once():
    model = made()
    model["tied"] = model["head"]
    report = trainable_report(freeze(model, ["head"]))
    assert report.trained == {"head.weight": 12, "head.bias": 2}
    assert report.entries == (14, 14 + 30 + 12 + 42 + 12)
    assert str(report) == "14 of 110 parameters are trained, in 2 tensors"
