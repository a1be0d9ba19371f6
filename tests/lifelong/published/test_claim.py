"""The claim on the card: refuted, with its gaps."""

from dataclasses import replace

import numpy as np

from privet.audits.registry import subjects
from privet.guarantee import REFUTED, Adjacency, Basis
from privet.lifelong.published.claim import GAPS, claims
from privet.lifelong.published.settings import PublishedSettings
from privet.training.published.pure_claim import KNOWN_NOISE


def test_the_claim_is_no_proof(lights):
    (found,) = claims(PublishedSettings(epsilon=0.5), lights())
    assert (found.epsilon, found.delta, found.basis) == (0.5, 0.0, Basis.CLAIMED)
    assert found.adjacency is Adjacency.REPLACE_ONE
    assert found.unit == "example"
    assert found.gaps[0].startswith(REFUTED)
    assert len(GAPS) == 12
    assert found.gaps[1:] == GAPS


def test_the_counter_examples_that_it_names_exist(lights):
    (found,) = claims(PublishedSettings(epsilon=0.5), lights())
    named = [name for name in subjects() if name in found.gaps[0]]
    assert named == ["l2dp-inputs", "l2dp-labels", "l2dp-rank"]


def test_known_noise_is_told(lights):
    (found,) = claims(PublishedSettings(epsilon=0.5, noise_seed=1), lights())
    assert found.gaps[-1] == KNOWN_NOISE


def test_a_user_has_several_records(lights):
    stream = lights(unit="user")
    for task in stream:
        object.__setattr__(task.data, "train", replace(task.data.train, units=np.arange(48) // 4))
    (found,) = claims(PublishedSettings(epsilon=0.5), stream)
    assert found.unit == "example"
    assert "a user has several" in found.gaps[-1]


def test_what_claims_nothing_states_nothing(lights):
    for variant in ("agem", "offset"):
        assert claims(PublishedSettings(variant=variant), lights()) == ()
