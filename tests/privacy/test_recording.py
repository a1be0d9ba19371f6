"""Recording: nothing is left behind, unusual calls are followed, what cannot be is refused."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.privacy.clipping import FastClipper, cross_entropy, make_clipper

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import ALL, CLASSES, close, loop_rows


@pytest.mark.parametrize(
    "name", ["plain: linear", "attention: self", "recurrent: GRU", "fallback: prelu"]
)
def test_the_model_is_left_as_it_was(name):
    case = ALL[name]
    model = case.model()
    FastClipper(model, cross_entropy, 1.0).clipped_sum(*case.batch(4))
    assert not any(m._forward_hooks for m in model.modules())
    assert not any("forward" in vars(m) for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


class Fails(nn.Module):
    def forward(self, x):
        raise RuntimeError("no")


def test_the_model_is_left_as_it_was_even_if_it_fails():
    model = nn.Sequential(nn.LSTM(2, 2), Fails(), nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="no"):
        FastClipper(model, cross_entropy, 1.0).clipped_sum(torch.ones(1, 1, 2), torch.zeros(1))
    assert not any(m._forward_hooks or "forward" in vars(m) for m in model.modules())


class InPlace(nn.Module):
    """In place on what a recorded layer gave."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(12, CLASSES)

    def forward(self, x):
        y = self.layer(x)
        y = y[0] if isinstance(y, tuple) else y
        return self.head(y.mul_(2).flatten(1))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Linear(4, 4),
        lambda: nn.LayerNorm(4),
        lambda: nn.GRU(4, 4, batch_first=True),
        lambda: nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
        lambda: nn.Conv1d(3, 3, 3, padding=1),
        lambda: nn.PReLU(),
    ],
)
def test_working_in_place_on_an_output_does_no_harm(layer):
    torch.manual_seed(0)
    model = InPlace(layer())
    x, y = torch.randn(4, 3, 4), torch.tensor([0, 1, 2, 0])
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert close(found, loop_rows(model, cross_entropy, x, y))


class ChangesTheInput(nn.Module):
    """The first layer's input: autograd, asked for the layer's output only, does not notice."""

    def __init__(self, layer, call):
        super().__init__()
        self.layer, self.call, self.head = layer, call, nn.Linear(12, CLASSES)

    def forward(self, x):
        h = self.call(self.layer, x)
        x.mul_(3)
        return self.head(h.flatten(1))


@pytest.mark.parametrize(
    ("layer", "call"),
    [
        (nn.Linear(4, 4), lambda layer, x: layer(x)),
        (nn.PReLU(), lambda layer, x: layer(x)),
        (nn.GRU(4, 4, batch_first=True), lambda layer, x: layer(x)[0]),
        (nn.MultiheadAttention(4, 2, batch_first=True), lambda layer, x: layer(x, x, x)[0]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_an_input_changed_after_its_use_is_noticed(layer, call):
    clipper = FastClipper(ChangesTheInput(layer, call), cross_entropy, 1.0)
    with pytest.raises(InputError, match=f"input of a {type(layer).__name__} was changed"):
        clipper.clipped_sum(torch.randn(2, 3, 4), torch.tensor([0, 1]))


class CallsByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 2, batch_first=True)
        self.attention = nn.MultiheadAttention(2, 1, batch_first=True)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x):
        y, _ = self.lstm(input=x, hx=None)
        y, _ = self.attention(query=y, key=y, value=y, need_weights=False)
        return self.fc(input=y.flatten(1))


class PartlyUnderNoGrad(nn.Module):
    def __init__(self):
        super().__init__()
        self.fixed = nn.Linear(3, 3)
        self.scale = nn.PReLU()
        self.recurrent = nn.GRU(3, 3, batch_first=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        with torch.no_grad():
            h = self.recurrent(self.scale(self.fixed(x)))[0]
        return self.head(h.flatten(1))


class PiecesOnTheFirstAxis(nn.Module):
    """Windows of a picture, say: three pieces a row."""

    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Linear(4, 5), nn.LayerNorm(5)
        self.head = nn.Linear(15, CLASSES)

    def forward(self, x):
        return self.head(self.norm(torch.tanh(self.one(x[:, :3].reshape(-1, 4)))).reshape(-1, 15))


class UsedTwice(nn.Module):
    """One layer on sequences of two lengths, and once in vain."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 3, batch_first=True)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x):
        y = self.gru(x)[0]
        self.gru(torch.tanh(x))
        return self.head(self.gru(y[:, :2])[0][:, -1])


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (CallsByKeyword, (4, 3)),
        (PartlyUnderNoGrad, (4, 3)),
        (PiecesOnTheFirstAxis, (3, 4)),
        (UsedTwice, (4, 3)),
    ],
)
@pytest.mark.parametrize("views", [1, 2])
def test_unusual_calls_stay_on_the_fast_path_and_are_right(build, shape, views):
    torch.manual_seed(0)
    model = build()
    y = torch.tensor([0, 1, 2, 0])
    clipper = make_clipper(model, cross_entropy, 0.5, probe=(torch.randn(4, *shape), y))
    assert isinstance(clipper, FastClipper), clipper.note
    x = torch.randn(4, *shape)
    found = clipper.per_example_gradients(x, y, views=views)
    assert close(found, loop_rows(model, cross_entropy, x, y, views))


def test_a_layer_fed_with_varying_numbers_of_rows_is_refused():
    """Three rows a row at first, then two: no longer known whose they are."""
    model = PiecesOnTheFirstAxis()
    clipper = FastClipper(model, cross_entropy, 1.0)
    y = torch.tensor([0, 1])
    clipper.clipped_sum(torch.randn(2, 3, 4), y)
    model.head = nn.Linear(10, CLASSES)
    model.forward = lambda x: model.head(
        model.norm(torch.tanh(model.one(x[:, :2].reshape(-1, 4)))).reshape(-1, 10)
    )
    with pytest.raises(InputError, match="cannot tell the examples of a Linear apart"):
        clipper.clipped_sum(torch.randn(2, 3, 4), y)


def test_rows_that_do_not_come_in_whole_numbers_are_refused():
    model = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (3, 4)), nn.Linear(4, 4), nn.Flatten(0))
    model.append(nn.Unflatten(0, (2, 6)))
    with pytest.raises(InputError, match=r"apart.*\(3, 4\) for 2 rows"):
        FastClipper(model, cross_entropy, 1.0).clipped_sum(torch.randn(2, 6), torch.tensor([0, 1]))
