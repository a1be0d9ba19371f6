"""The generator's factors: a distribution, in the order it says, with each stay by itself."""

import itertools
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from privet.data.records import coding
from privet.data.records.simulator import simulate
from privet.models.row_transformer import HABITS, NEVER, RowTransformer, Sizes, Stays
from privet.privacy.clipping import FastClipper, describe
from privet.privacy.geometry import FLAT

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
sys.path.insert(0, str(Path(__file__).parents[1] / "synthesis"))
from clipping_cases import close, loop_rows
from tiny_records import OPTIONS, all_stays, tiny_network


def forced(habits):
    """Stays whose habits are these, whatever their rows."""
    fixed = property(lambda stays: torch.tensor(habits).expand(len(stays.gap), -1))
    return mock.patch.object(Stays, "habits", fixed)


@pytest.mark.parametrize("habits", [(1, 4), (NEVER, 2), (3, NEVER), (NEVER, NEVER)])
def test_probabilities_of_all_stays_sum_to_one(habits):
    network, stays = tiny_network(), all_stays(2)
    never = [f for f, habit in enumerate(habits) if habit == NEVER]
    kept = (stays[:, 1:, 1:][:, :, never] == 0).flatten(1).all(1)
    with forced(habits), torch.no_grad():
        static, _, rows, outcomes = network(stays[kept].float() / 255).unbind(1)
    total = torch.exp(-(static + rows + outcomes).double()).sum()
    assert total == pytest.approx(1.0, abs=1e-5)


def test_probabilities_of_all_habits_sum_to_one():
    network = tiny_network()
    static = network.static_inputs(torch.tensor([[1]]))
    every = torch.tensor(list(itertools.product(range(OPTIONS), repeat=2)))
    with torch.no_grad():
        losses = network._habits(static.expand(len(every), -1), every)
    assert torch.exp(-losses).sum() == pytest.approx(1.0, abs=1e-5)


def test_rows_after_the_first_absent_one_count_for_nothing():
    network, stays = tiny_network(steps=3), all_stays(3)[::97].clone()
    over = stays[:, 2, 0] == 0
    changed = stays[over].clone()
    changed[:, 3] = torch.tensor([2, 1, 2], dtype=torch.uint8)
    with torch.no_grad():
        before, after = network(stays[over].float() / 255), network(changed.float() / 255)
    assert torch.equal(before, after)


def test_what_is_known_before_a_row_hangs_on_earlier_rows_alone():
    network = tiny_network(steps=3)
    stay = torch.tensor([[[1, 1, 0], [1, 2, 1], [2, 0, 2], [1, 1, 1]]]).float() / 255
    other = stay.clone()
    other[0, 2:] = torch.tensor([[1, 1, 0], [2, 2, 2]]).float() / 255
    one, two = Stays.read(stay, network), Stays.read(other, network)
    for facts in ("before", "time_inputs", "last_codes"):
        same = getattr(one, facts)()[0] == getattr(two, facts)()[0]
        assert same[:2].all(), facts
        assert not same[2:].all(), facts


def test_what_is_known_of_a_column():
    network = tiny_network(steps=3)
    stay = torch.tensor([[[1, 1, 0], [1, 2, 0], [2, 0, 2], [1, 1, 0]]]).float() / 255
    stays = Stays.read(stay, network)
    known, times = stays.before(), stays.times[0]
    # One, last share, mean share, ever, in the row before; codes 1, 2 of two lie at -0.5, 0.5.
    assert known[0, 0, 0, :5].tolist() == [1, 0, 0, 0, 0]
    assert known[0, 1, 0, :5].tolist() == [1, 0.5, 0.5, 1, 1]
    assert known[0, 2, 0, :5].tolist() == [1, 0.5, 0.5, 1, 0]
    assert known[0, 2, 1, :5].tolist() == [1, 0.5, 0.5, 1, 1]
    faded = torch.exp(-(times[1] - times[0]) / network.decays)
    assert torch.allclose(known[0, 2, 0, 5:], faded)


def test_habits_are_shares_of_rows():
    network = tiny_network(steps=3)
    rows = torch.tensor([[1, 1, 0], [1, 2, 0], [1, 1, 2]])
    stay = torch.cat([torch.tensor([[1, 1, 0]]), rows])[None].float() / 255
    often = sum(share < 1.0 for share in HABITS)
    third = sum(share < 1 / 3 for share in HABITS)
    assert Stays.read(stay, network).habits.tolist() == [[often, third]]


def test_codes_beyond_the_levels_count_as_the_last():
    network = tiny_network()
    stay = torch.tensor([[[2, 2, 0], [2, 2, 2], [2, 2, 1]]]).float() / 255
    far = torch.tensor([[[9, 7, 0], [3, 255, 4], [200, 3, 1]]]).float() / 255
    with torch.no_grad():
        assert torch.equal(network(stay), network(far))


def test_every_layer_has_a_rule():
    network = tiny_network()
    assert {layer.treatment for layer in describe(network)} <= {"rule", "expansion"}


def test_gradients_of_stays_are_their_own():
    """Books against autograd, stay by stay, with every part of the network awake."""
    network, stays = tiny_network(steps=3), all_stays(3)[5::2003].float() / 255
    labels = torch.zeros(len(stays), dtype=torch.long)
    loss = lambda outputs, _: outputs.sum(1)  # noqa: E731
    found = FastClipper(network, loss, 1.0, geometry=FLAT).per_example_gradients(stays, labels)
    assert close(found, loop_rows(network, loss, stays, labels))


def test_likelihoods_do_not_depend_on_the_batch():
    records = simulate(40)
    network = RowTransformer(Sizes.of(records.schema), width=16, layers=1, heads=1)
    codes = torch.from_numpy(coding.encode(records)).float() / 255
    with torch.no_grad():
        together = network(codes)
        apart = torch.cat([network(codes[k : k + 1]) for k in range(len(codes))])
    assert torch.allclose(together, apart, rtol=1e-5, atol=1e-4)
