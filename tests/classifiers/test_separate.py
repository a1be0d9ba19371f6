import pytest
import torch
from torch import nn

from privet.classifiers import open_classifier
from privet.classifiers.separate import require_rows_apart
from privet.errors import InputError


class Noisy(nn.Module):
    """Adds noise: of its own for every row, or one for the whole call."""

    def __init__(self, shared):
        super().__init__()
        self.shared, self.inner = shared, nn.Linear(4, 3)

    def forward(self, x):
        noise = torch.randn(1 if self.shared else len(x), 4)
        return self.inner(x + noise)


class Coin(nn.Module):
    """Throws one coin a call."""

    def forward(self, x):
        side = int(torch.rand(()) < 0.6)
        return nn.functional.one_hot(torch.full((len(x),), side), 2).float()


def opened(model):
    torch.manual_seed(0)
    return open_classifier(model, shape=(4,))


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(4, 3),
        nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)),
        nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)),
        Noisy(shared=False),
    ],
    ids=["linear", "batch norm", "layer norm", "noise"],
)
def test_rows_apart_pass(model):
    require_rows_apart(opened(model))


@pytest.mark.parametrize("model", [Noisy(shared=True), Coin()], ids=["noise", "coin"])
def test_one_draw_for_all_rows_is_refused(model):
    with pytest.raises(InputError, match="one draw of the model serves a whole batch"):
        require_rows_apart(opened(model))


def test_statistics_of_the_batch_are_refused():
    mixing = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3))
    with pytest.raises(InputError, match="mixes the rows"):
        require_rows_apart(opened(mixing))


class NoisyMean(nn.Module):
    """Noise of its own for every row, and the mean of the batch: random, and mixed."""

    def forward(self, x):
        return x[:, :3] + 0.5 * torch.randn(len(x), 3) + 3.0 * x[:, :3].mean(0)


def test_rows_that_are_mixed_behind_noise_are_refused():
    with pytest.raises(InputError, match="mixes the rows"):
        require_rows_apart(opened(NoisyMean()))
