"""What may be asked for, and what follows from it where nothing was said."""

import pytest

from privet.errors import InputError
from privet.federation.settings import FederationSettings
from privet.privacy.participation import Capped, Sampled


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "fedsgd"}, "unknown rule"),
        ({"rounds": 0}, "bad rounds"),
        ({"rounds": 2.5}, "bad rounds"),
        ({"rounds": True}, "bad rounds"),
        ({"checkpoint_every": 0}, "bad checkpoint every"),
        ({"local_epochs": "x"}, "bad local epochs"),
        ({"init_seed": -1}, "bad init seed"),
        ({"epsilon": 1.0, "noise_seed": -1}, "bad noise seed"),
        ({"epsilon": 1.0, "divisor": 0.0}, "bad divisor"),
        ({"precision": "bf16"}, "unknown precision"),
        ({"rule": "fedbuff", "quorum": 3}, "buffer, stale, server rate, seconds"),
        ({"clip": "1"}, "bad clip"),
        ({"skew": 0.3}, "not dealt out"),
        ({"lacking": 1}, "not dealt out"),
        ({"pool": -1}, "bad pool"),
        ({"public_pool": "given"}, "a statement about no pool"),
        ({"pool": 3, "epsilon": 1.0, "clients": 4}, "no statement that it is public"),
        ({"times": 3}, "details of privacy without a target"),
        ({"bands": 2}, "details of privacy without a target"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "rate": 0.1, "rule": "fedavg", "times": 2}, "where the server samples"),
        ({"epsilon": 1.0, "rate": 0.1, "rule": "fedavg", "bands": 2}, "where the server samples"),
        ({"rule": "flsys", "rate": 0.1}, "no such setting"),
        ({"rule": "flsys", "rate": 0.1, "epsilon": 3.0}, "no such setting: got rate"),
        ({"rule": "fedavg", "rate": 0.1, "cohort": 8}, "two ways to choose"),
        ({"clip": 3.0}, "details of privacy without a target"),
        ({"delta": 1.0}, "details of privacy without a target"),
        ({"rule": "fedavg", "buffer": 3}, "no such setting"),
        ({"rule": "krum", "attackers": -1}, "Krum"),
        ({"engine": "ray"}, "unknown engine"),
        ({"optimizer": "lamb"}, "unknown optimizer"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options, said):
    with pytest.raises(InputError, match=said) as refused:
        FederationSettings(**options)
    assert "\n" not in str(refused.value)


def test_a_cap_is_no_larger_than_there_is_room_for(make_data):
    asked = FederationSettings(epsilon=1.0, clients=8, rounds=10, apart=4, times=9)
    filled = asked.filled_for(make_data())
    assert filled.participation() == Capped(times=3, apart=4)  # steps 0, 4 and 8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rule": "flsys", "times": 25}, 4.0),
        ({"rule": "flsys", "times": 5}, 1.0),  # never below one client
        ({"rule": "flsys"}, 8.0),
        ({"rule": "fedavg", "cohort": 3}, 3.0),
        ({"rule": "fedavg", "cohort": 64}, 8.0),
        ({"rule": "fedavg", "rate": 0.5}, 4.0),
        ({"rule": "fedbuff", "buffer": 4}, 4.0),
        ({"rule": "flsys", "divisor": 2.5}, 2.5),
    ],
)
def test_the_divisor_is_what_a_step_expects_of_a_public_number(make_data, options, expected):
    """Of clients that were asked for, never of those that came."""
    filled = FederationSettings(epsilon=1.0, clients=8, **options).filled_for(make_data())
    assert filled.divisor == expected


def test_sampling_is_accounted_only_where_the_server_samples(make_data):
    sampled = FederationSettings(epsilon=1.0, clients=8, rule="fedavg", rate=0.5, rounds=7)
    assert sampled.filled_for(make_data()).participation() == Sampled(rate=0.5, steps=7)
    chosen = FederationSettings(epsilon=1.0, clients=8, rule="fedavg", cohort=4, rounds=7)
    assert chosen.filled_for(make_data()).participation() == Capped(times=7)


@pytest.mark.parametrize(
    ("options", "by_clock"),
    [
        ({"rule": "flsys"}, True),
        ({"rule": "flsys", "quorum": 2}, False),
        ({"rule": "fedavg", "rate": 0.5}, True),
        ({"rule": "fedavg", "rate": 0.5, "patient": False}, False),
        ({"rule": "fedavg", "cohort": 4}, False),
        ({"rule": "fedbuff"}, False),
    ],
)
def test_under_privacy_rounds_end_by_the_clock_where_nothing_else_was_said(options, by_clock):
    asked = FederationSettings(epsilon=1.0, clients=8, **options)
    assert asked.made_rule().pacing.by_clock is by_clock


def test_without_privacy_the_card_says_no_word_of_it():
    said = FederationSettings().on_card()
    assert not {"epsilon", "delta", "clip", "divisor", "times"} & set(said)
    assert FederationSettings(epsilon=1.0, noise_seed=3).on_card()["noise_seed"] == 3
