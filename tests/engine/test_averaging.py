"""The average of weights: exact, post-processing, and what is released."""

import pytest
import torch
from torch import nn

from privet.engine.averaging import WeightAverage
from privet.errors import InputError


def test_the_average_is_the_recursion_with_a_rising_decay():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(5.0)
    average, expected = WeightAverage(model, 0.6), 5.0
    for step, value in enumerate([1.0, -2.0, 3.0, 7.0, 0.5, 4.0, 2.0, 9.0]):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update(model, step)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
    average.copy_to(model)
    assert model.weight.item() == pytest.approx(expected, rel=1e-6)


def test_the_release_gets_the_average_and_training_goes_on_with_the_last(make_trainer, tools):
    plain, averaged = make_trainer(), make_trainer(average=0.8)
    for trainer in (plain, averaged):
        tools.run(trainer, until=4)
    released = averaged.released_model()
    assert torch.equal(tools.weights(plain.model), tools.weights(averaged.model))
    assert not torch.allclose(tools.weights(released), tools.weights(averaged.model))
    assert plain.released_model() is plain.model


def test_frozen_weights_stay_out_of_the_average():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    assert set(WeightAverage(model, 0.9).state()) == {"1.weight", "1.bias"}


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.1, 2.0])
def test_bad_decays_are_refused(decay):
    with pytest.raises(InputError, match="bad decay"):
        WeightAverage(nn.Linear(1, 1), decay)
