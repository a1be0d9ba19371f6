import math

import pytest

from privet.privacy.accounting import epsilon_of, sampled_gaussian, tradeoff_of
from privet.privacy.events import to_json
from privet.reports.recomputing import curves_of


def trust(**changes):
    mechanism = {
        "sampler": "poisson", "noise_multiplier": 2.0, "sampling_rate": 0.1, "cycle": 1,
        "steps": 100, "redone_steps": 0,
    }  # fmt: skip
    event = to_json(sampled_gaussian(2.0, 0.1, 100))
    stated = {
        "epsilon": epsilon_of(sampled_gaussian(2.0, 0.1, 100), 1e-5), "delta": 1e-5,
        "unit": "example", "adjacency": "add-remove", "basis": "proved", "accountant": "pld",
        "sampler": "poisson",
    }  # fmt: skip
    return {
        "privacy": [stated],
        "mechanism": mechanism,
        "events": [{"label": "train", "event": event}],
        "data": {"learned": []},
    } | changes


def test_the_curves_are_those_of_the_recorded_mechanism():
    card = trust()
    curves, truth = curves_of(card), tradeoff_of(sampled_gaussian(2.0, 0.1, 100))
    last_step, last_epsilon = curves.epsilon_by_step[-1]
    assert last_step == 100
    assert last_epsilon == pytest.approx(card["privacy"][0]["epsilon"], rel=0.01)
    assert last_epsilon >= card["privacy"][0]["epsilon"]
    for alpha, beta in curves.tradeoff[::20]:
        assert beta == truth.beta(alpha)
    for epsilon, delta in curves.profile[::10]:
        assert delta == truth.delta(epsilon)
    assert any(math.isclose(alpha, 0.01) for alpha, _ in curves.tradeoff)


def test_learned_facts_leave_no_joint_curve_but_raise_every_epsilon():
    plain, learned = curves_of(trust()), curves_of(trust(data={"learned": [{"epsilon": 0.5}]}))
    assert learned.tradeoff == learned.profile == ()
    for (_, one), (_, other) in zip(plain.epsilon_by_step, learned.epsilon_by_step, strict=True):
        assert other == pytest.approx(one + 0.5)


def test_redone_steps_are_drawn_too():
    card = trust()
    card["mechanism"]["redone_steps"] = 10
    assert curves_of(card).epsilon_by_step[-1][0] == 110


def test_a_withheld_card_has_no_curves():
    curves = curves_of(trust(privacy=[]))
    assert curves.epsilon_by_step == curves.profile == curves.tradeoff == ()
