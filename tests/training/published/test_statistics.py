"""Statistics of batch normalisation after the last step."""

import pytest
import torch
from torch import nn

from privet.training.published.statistics import of_the_batch, settle


def test_settled_statistics_are_those_of_the_batches():
    """By hand: means 1 and 3, variances (of two: unbiased) 2 and 8; all batches count alike."""
    model = nn.Sequential(nn.BatchNorm1d(1, momentum=0.3)).train()
    model(torch.tensor([[50.0], [90.0]]))  # forgotten
    settle(model, [torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [5.0]])])
    assert float(model[0].running_mean) == pytest.approx(2.0)
    assert float(model[0].running_var) == pytest.approx(5.0)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_else_is_changed(training):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=0.3)).train(training)
    before = [p.clone() for p in model.parameters()]
    settle(model, [torch.rand(4, 2)])
    assert (model[1].momentum, model.training, model[1].training) == (0.3, training, training)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_layers_above_see_the_statistics_of_the_batch():
    """The second layer's are of what the first makes of a batch, in training mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    settle(model, [100.0 + 7.0 * torch.randn(500, 2)])
    assert torch.allclose(model[1].running_mean, torch.zeros(2), atol=1e-4)
    assert torch.allclose(model[1].running_var, torch.ones(2), atol=1e-2)


def test_statistics_of_the_batch_are_used_and_not_kept():
    model = nn.Sequential(nn.BatchNorm1d(1)).train()
    model(torch.tensor([[3.0], [4.0]]))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with of_the_batch(model):
        seen = model(torch.tensor([[1000.0], [1002.0]]))
    assert torch.allclose(seen.flatten(), torch.tensor([-1.0, 1.0]), atol=1e-3)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model(torch.tensor([[3.0], [4.0]]))
    assert int(model[0].num_batches_tracked) == 2


def test_a_batch_that_fails_leaves_all_as_it_was():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=0.3))
    model(torch.rand(4, 2))
    model[0].eval()  # modes are kept module by module
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError):
        settle(model, [torch.rand(4, 2), torch.rand(4, 5)])
    assert model[1].momentum == 0.3
    assert [module.training for module in model.modules()] == [True, False, True]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_no_batch_is_asked_for_where_nothing_is_normalised():
    batches = iter([torch.rand(4, 2)])
    settle(nn.Sequential(nn.Linear(2, 3)), batches)
    assert len(list(batches)) == 1


def test_a_layer_that_tracks_nothing_still_does_not_afterwards():
    model = nn.Sequential(nn.BatchNorm1d(1, track_running_stats=False), nn.BatchNorm1d(1))
    with of_the_batch(model):
        assert not any(layer.track_running_stats for layer in model)
    assert [layer.track_running_stats for layer in model] == [False, True]
