"""Layers put in the place of others."""

from torch import nn

from privet.models.replacing import replaced


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = self.a
        self.inside = nn.Sequential(self.a, nn.Tanh())


def test_a_layer_is_replaced_in_all_its_places_and_others_stay():
    model, other = Shared(), nn.Linear(2, 2)
    tanh = model.inside[1]
    assert replaced(model, {model.a: other}) is model
    assert model.a is model.b is model.inside[0] is other
    assert model.inside[1] is tanh


def test_a_new_layer_may_hold_the_old_one():
    model = nn.Sequential(nn.Linear(2, 2))
    old = model[0]
    replaced(model, {old: nn.Sequential(old, nn.Tanh())})
    assert model[0][0] is old  # and not replaced once more


def test_the_model_itself_may_be_replaced():
    model, other = nn.Linear(2, 2), nn.Tanh()
    assert replaced(model, {model: other}) is other
