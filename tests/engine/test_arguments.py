"""What is given in the wrong kind: one line, what it is and what to give instead."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from privet.data.dataset import Bounds
from privet.engine.arguments import (
    require_dataset,
    require_fitting,
    require_geometry,
    require_ledger,
    require_model,
    require_numbers,
    require_optimizer,
    require_views,
    shown,
)
from privet.engine.examples import made_up_batch
from privet.errors import InputError
from privet.models import Tokens
from privet.privacy.clipping import FLAT, cross_entropy

CPU = torch.device("cpu")


def said_by(check, *given, **named):
    with pytest.raises(InputError) as caught:
        check(*given, **named)
    return str(caught.value)


def tried(model, data, loss=cross_entropy):
    require_fitting(model, loss, data, made_up_batch(data, CPU))


def test_data_by_name_are_to_be_loaded():
    assert "got 'digits'" in said_by(require_dataset, "digits")
    assert "privet.data.load('digits')" in said_by(require_dataset, "digits")


def test_other_containers_are_named_and_their_content_is_not():
    tensors = TensorDataset(torch.full((3, 2), 0.12345), torch.zeros(3))
    said = said_by(require_dataset, tensors)
    assert "got an object of type TensorDataset" in said
    assert "privet.data.Split(x=..., y=...)" in said
    assert "0.1234" not in said_by(require_dataset, (np.full((3, 2), 0.12345), np.zeros(3)))


def test_a_dataset_and_a_module_are_let_through(make_data):
    require_dataset(make_data())
    require_model(nn.Linear(4, 2))
    require_ledger(None)
    require_numbers(a=1, b=2.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("linear", "privet.models.create('linear', data.shape, len(data.classes))"),
        (nn.Linear, "got the class Linear"),
        (nn.Flatten(), "no trainable parameter"),
        (nn.Sequential(nn.Linear(4, 2)).requires_grad_(False), "unfreeze"),
    ],
)
def test_what_is_no_model_is_refused(given, said):
    assert said in said_by(require_model, given)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_model_is_to_be_shown_a_batch_first():
    assert "one made-up batch" in said_by(require_model, nn.LazyLinear(2))


def test_the_name_of_a_geometry_is_none():
    assert "Geometry(name)" in said_by(require_geometry, "per-layer")
    require_geometry(FLAT)


def test_a_class_is_no_optimiser_and_a_path_no_ledger():
    assert "got the class SGD" in said_by(require_optimizer, torch.optim.SGD)
    assert "got 'x.db'. Fix: open one: privet.Ledger(path)" in said_by(require_ledger, "x.db")


@pytest.mark.parametrize("value", ["3", None, True, [3]])
def test_what_is_no_number_is_refused_by_name(value):
    assert "bad epsilon" in said_by(require_numbers, epsilon=value)


@pytest.mark.parametrize("outputs", [1, 3])
def test_outputs_that_are_not_the_classes_are_refused(make_data, outputs):
    """Fewer end in an index error during training, more in a prediction without a name."""
    said = said_by(tried, nn.Linear(4, outputs), make_data())
    assert f"got ({outputs},) outputs for each example, expected (2,)" in said
    assert said.endswith("end the model with 2 outputs")


def one_score(outputs, y):
    return nn.functional.binary_cross_entropy_with_logits(
        outputs[:, 0], y.float(), reduction="none"
    )


def own_cross_entropy(outputs, y):
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def test_a_loss_of_ones_own_reads_the_outputs_its_own_way(make_data):
    tried(nn.Linear(4, 1), make_data(), one_score)
    said = said_by(tried, nn.Linear(4, 1), make_data(), own_cross_entropy)
    assert "the loss does not take the model's outputs: got IndexError" in said
    assert "not callable" in said_by(tried, nn.Linear(4, 2), make_data(), "mse")


def test_a_model_of_other_shapes_is_refused_with_the_shape_of_the_data(make_data):
    said = said_by(tried, nn.Linear(5, 2), make_data())
    assert "got RuntimeError" in said
    assert "shape (4,) for each example" in said


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


def test_a_model_that_returns_several_things_is_refused(make_data):
    assert "got an object of type tuple" in said_by(tried, Pair(4, 2), make_data())


def embedded(size, *before):
    return nn.Sequential(*before, nn.Embedding(size, 3), nn.Flatten(), nn.Linear(12, 2))


def test_an_embedding_without_tokens_is_shown_the_way(make_data):
    assert "privet.models.Tokens(size)" in said_by(tried, embedded(2), make_data())
    tried(embedded(2, Tokens(2)), make_data())  # made-up data are in [0, 1]: two tokens


def test_a_vocabulary_that_is_not_the_declared_one_is_refused(make_data):
    """Else token 1 of 0..1 would silently be read as token 9 of 0..9."""
    said = said_by(tried, embedded(10, Tokens(10)), make_data())
    assert "expected bounds from 0 to 9" in said


def test_the_last_token_is_tried_before_it_is_met_in_training(make_data):
    """Random tokens of a large vocabulary hardly ever hit it."""
    data = make_data(bounds=Bounds(low=(0.0,), high=(9999.0,)))
    tried(embedded(10_000, Tokens(10_000)), data)
    assert "IndexError" in said_by(tried, embedded(9_999, Tokens(10_000)), data)


def test_the_model_is_left_as_it_was(make_data):
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    state = torch.get_rng_state()
    tried(model, make_data())
    assert model.training
    assert model[1].training
    assert torch.equal(torch.get_rng_state(), state)


def test_values_are_shown_plain_or_by_their_type():
    assert shown("a") == "'a'"
    assert (shown(3), shown(None)) == ("3", "None")
    assert shown(np.zeros(2)) == "an object of type ndarray"
    assert shown(dict) == "the class dict"


class Augmenting:
    """Views by a function of (x, generator)."""

    def __init__(self, make, views=2):
        self.make, self.views = make, views

    def __call__(self, x, generator):
        return self.make(x, generator)


def jittered(x, generator):
    seen = x.repeat_interleave(2, 0)
    return seen + 0.1 * torch.rand(seen.shape, generator=generator)


def swapped_at_times(x, generator):
    flipped = torch.rand(1, generator=generator) < 0.3
    return (x.flip(0) if flipped else x).repeat_interleave(2, 0)


MADE_UP = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))


def test_views_of_one_example_are_let_through():
    require_views(Augmenting(jittered), MADE_UP)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, _: x.flip(0).repeat_interleave(2, 0),
        lambda x, _: (x - x.mean(0)).repeat_interleave(2, 0),
        lambda x, _: x.repeat(2, 1),  # all first views, then all second ones
        lambda x, _: torch.cat([x[:1], x[:-1]]).repeat_interleave(2, 0),
        swapped_at_times,
    ],
)
def test_an_augmentation_that_mixes_examples_is_refused(mix):
    assert "mixes examples" in said_by(require_views, Augmenting(mix), MADE_UP)


def test_what_is_no_augmentation_is_refused():
    assert "whole number `views`" in said_by(require_views, jittered, MADE_UP)
    assert "views" in said_by(require_views, Augmenting(jittered, views=0), MADE_UP)
    assert "8 rows for 4" in said_by(require_views, Augmenting(jittered, views=3), MADE_UP)
    broken = Augmenting(lambda x, _: x.reshape(7, 7))
    assert "does not take such examples" in said_by(require_views, broken, MADE_UP)


def test_an_optimiser_that_asks_for_the_loss_again_is_refused():
    said = said_by(require_optimizer, torch.optim.LBFGS(nn.Linear(2, 2).parameters()))
    assert "LBFGS" in said


class FlipAll:
    """A bug: one coin for all examples of a call."""

    views = 1

    def __call__(self, x, generator):
        return x.flip(-1) if torch.rand((), generator=generator) < 0.5 else x


class FlipEach:
    views = 1

    def __call__(self, x, generator):
        coins = torch.rand(len(x), generator=generator) < 0.5
        return torch.where(coins.view(-1, 1), x.flip(-1), x)


def test_views_under_one_coin_for_all_are_refused():
    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
    require_views(FlipEach(), x)
    with pytest.raises(InputError, match="draws random numbers that examples share"):
        require_views(FlipAll(), x)
