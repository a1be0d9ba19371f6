"""Draws follow the likelihoods: compared with all stays written down, and with training's view."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from privet.models.row_transformer import NEVER, Stays, with_habits
from privet.synthesis.row_sampling import Batch, draw_codes, draw_static, drawn

sys.path.insert(0, str(Path(__file__).parent))
from tiny_records import OPTIONS, all_stays, tiny_network


def test_draws_follow_their_logits():
    logits = torch.tensor([[0.0, 1.0, -2.0, 0.5]]).expand(20_000, -1)
    counts = torch.bincount(drawn(logits, torch.Generator().manual_seed(1)), minlength=4)
    expected = logits[0].softmax(0).double() * 20_000
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


def probabilities(network, stays):
    """Of each matrix of codes, summed over all habits that may lie behind it."""
    total = torch.zeros(len(stays), dtype=torch.float64)
    measured = (stays[:, 1:, 1:] > 0).any(1)
    given = property(lambda self: HIDDEN["habits"].expand(len(self.gap), -1))
    real, HIDDEN = Stays.habits, {}
    Stays.habits = given
    try:
        for habits in itertools.product(range(OPTIONS), repeat=2):
            HIDDEN["habits"] = torch.tensor(habits)
            possible = ~(measured & (HIDDEN["habits"] == NEVER)).any(1)
            with torch.no_grad():
                parts = network(stays.float() / 255).double()
            empty = stays[:, 1, 0] == 0  # never drawn: the others share their part
            no_rows = {
                int(s[0, 0]): float(p) for s, p in zip(stays[empty], parts[empty, 2], strict=True)
            }
            rest = torch.tensor([1 - np.exp(-no_rows[int(s[0, 0])]) for s in stays])
            total += torch.where(possible & ~empty, torch.exp(-parts.sum(1)) / rest, 0.0)
    finally:
        Stays.habits = real
    return total


def test_stays_come_as_often_as_the_network_says():
    """A chi-square test over every stay that can be; a right sampler fails one seed in 1,000."""
    network, n = tiny_network(steps=2), 100_000
    stays = all_stays(2)
    chances = probabilities(network, stays)
    assert abs(chances.sum() - 1.0) < 1e-5
    generator = torch.Generator().manual_seed(1)
    codes = torch.from_numpy(draw_codes(network, draw_static(network, n, generator), generator))
    places = {stay.numpy().tobytes(): place for place, stay in enumerate(stays)}
    found = torch.tensor([places[code.numpy().tobytes()] for code in codes])
    counts = torch.bincount(found, minlength=len(stays)).double()
    common = chances * n >= 10
    observed = torch.cat([counts[common], counts[~common].sum()[None]])
    expected = torch.cat([chances[common], chances[~common].sum()[None]]) * n
    assert common.sum() > 200
    assert chisquare(observed, expected * n / expected.sum()).pvalue > 1e-3


def test_a_batch_sees_what_training_sees():
    """Rows given one by one lead to the same hidden states as all at once."""
    network = tiny_network(steps=3, layers=2)
    stays = all_stays(3)
    stays = stays[(stays[:, 1:, 0] > 0).all(1)][::173]
    read = Stays.read(stays.float() / 255, network)
    static, about = network.static_inputs(read.static), read.before()
    with torch.no_grad():
        about = with_habits(about, read.habits[:, None])
        whole = network.hidden(about, read.time_inputs(), static)
        batch = Batch.begun(network, static, torch.Generator().manual_seed(0))
        batch.habits = read.habits
        for step in range(3):
            batch.row(torch.Generator().manual_seed(0))
            assert torch.allclose(batch.hidden, whole[:, step], atol=1e-5)
            batch.learn(read.gap[:, step], read.codes[:, step])


def test_what_is_never_measured_never_is():
    network = tiny_network(steps=3)
    with torch.no_grad():
        network.habit_shift.weight[0, 1:] = -1e3
    generator = torch.Generator().manual_seed(0)
    codes = draw_codes(network, draw_static(network, 500, generator), generator)
    assert (codes[:, 1:, 1] == 0).all()
    assert (codes[:, 1:, 2] > 0).any()


def test_the_same_seed_draws_the_same():
    network = tiny_network(steps=3)

    def codes(seed):
        generator = torch.Generator().manual_seed(seed)
        return draw_codes(network, draw_static(network, 50, generator), generator)

    assert (codes(1) == codes(1)).all()
    assert (codes(1) != codes(2)).any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_draws_the_same_stays():
    """But for roundings, which may tip a draw now and then."""
    network, drawn_by_device = tiny_network(steps=2), []
    for device in ("cpu", "cuda"):
        network.to(device)
        generator = torch.Generator().manual_seed(3)
        drawn_by_device.append(draw_codes(network, draw_static(network, 500, generator), generator))
    assert (drawn_by_device[0] == drawn_by_device[1]).all(axis=(1, 2)).mean() > 0.98
