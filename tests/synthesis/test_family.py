"""Which parts members have, and what IGAMT may go without."""

from itertools import pairwise

import pytest
import torch

from privet.data.records.simulator import simulate
from privet.errors import InputError
from privet.models.record_maker import Form
from privet.models.record_networks import RecordNetworks
from privet.synthesis.family import ABLATIONS, FAMILY, LADDER

TABLE = {
    "vae": ("gru", True, True, False, (), False),
    "gan": ("gru", False, False, True, ("x",), False),
    "vaegan": ("gru", True, True, False, ("x",), False),
    "aae": ("gru", True, False, True, ("z",), False),
    "daae": ("gru", True, False, True, ("x", "z"), False),
    "igamt": ("transformer", True, False, True, ("x", "m", "z"), True),
}


@pytest.mark.parametrize("name", TABLE)
def test_members_are_those_of_the_papers(name):
    coder, encoder, law, generator, critics, imitator = TABLE[name]
    member = FAMILY[name]
    assert (member.coder, member.encoder, member.variational) == (coder, encoder, law)
    assert (member.generator, member.imitator) == (generator, imitator)
    assert member.critics == tuple(f"critic_{letter}" for letter in critics)
    assert set(FAMILY) == set(TABLE)


def test_the_ladder_goes_from_nothing_to_all():
    """Each rung has all that the one below has, and one thing more."""
    rungs = [FAMILY["igamt"].without(gone) for gone in LADDER.values()]
    held = [{*rung.critics, *rung.embeddings, *rung.parts} for rung in rungs]
    assert held[0] == {"encoder", "critic_x", "critic_z"}
    assert [high - low for low, high in pairwise(held)] == [
        {"time"}, {"mixed"}, {"critic_m"}, {"imitator"},
    ]  # fmt: skip
    assert rungs[-1] == FAMILY["igamt"]


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_what_is_left_out_is_not_there(ablation):
    member = FAMILY["igamt"].without([ablation])
    form = Form.read("transformer-16-1-4").with_flags({"generator", *member.embeddings})
    own = RecordNetworks(form, simulate(2).schema, parts=member.parts)
    there = {
        "imitator": own.imitator is not None,
        "mask": own.critic_m is not None,
        "time": own.decoder.embedding.time is not None,
        "mixed": own.decoder.embedding.categories is not None,
    }
    assert there == {name: name != ablation for name in ABLATIONS}
    assert not any(torch.is_tensor(p) and not p.requires_grad for p in own.parameters())


def test_others_cannot_go_without():
    with pytest.raises(InputError, match="'vae' cannot go without 'time'"):
        FAMILY["vae"].without(["time"])
    with pytest.raises(InputError, match="cannot go without 'wings'"):
        FAMILY["igamt"].without(["wings"])
