import pytest

from privet.engine.assumptions import (
    ALWAYS,
    OWN_LOOP,
    PUBLIC_START,
    SIZE_IS_PUBLIC,
    TORCH_DRAWS,
    WHEN_REDONE,
    assumptions_of,
)
from privet.engine.tuned import ASSUMED, DECLARED, Selected, Tuning

CHOSEN = Selected(mean=10.0, shape=1.0, holdout=0.1, score_multiplier=5.0)


def a_card(*, tuning=DECLARED, init_seed=0, unit="example", grouped=False, **mechanism):
    """What the assumptions are read off."""
    usual = {"sampler": "poisson", "sampling_rate": 0.1, "cycle": 1, "redone_steps": 0}
    return {
        "data": {"unit": unit, "grouped": grouped},
        "mechanism": usual | {"torch_draws": False} | mechanism,
        "tuning": tuning.to_json(),
        "provenance": {"init_seed": init_seed},
    }


def test_a_plain_run_assumes_what_always_is_and_that_its_settings_were_declared():
    assert assumptions_of(a_card()) == (*ALWAYS, ASSUMED["declared"])


@pytest.mark.parametrize(
    ("fact", "assumptions"),
    [
        ({"init_seed": None}, {PUBLIC_START, OWN_LOOP}),
        ({"redone_steps": 1}, {WHEN_REDONE}),
        ({"torch_draws": True}, {TORCH_DRAWS}),
        ({"sampler": "shuffled", "cycle": 10}, {SIZE_IS_PUBLIC}),
        ({"unit": "user"}, {"no user has more than one record: no column says whose each is"}),
    ],
)
def test_each_fact_adds_its_own(fact, assumptions):
    added = set(assumptions_of(a_card(**fact))) - set(assumptions_of(a_card()))
    assert added == assumptions


@pytest.mark.parametrize(
    "fact",
    [
        {"unit": "user", "grouped": True},
        {"sampler": "fixed-batches", "cycle": 10},
        {"sampler": "cyclic-poisson", "cycle": 5},
    ],
)
def test_other_facts_add_none(fact):
    assert assumptions_of(a_card(**fact)) == assumptions_of(a_card())


@pytest.mark.parametrize("kind", ["public", "uncharged", "charged"])
def test_the_choice_of_the_settings_has_one_for_each_kind(kind):
    tuning = Tuning(kind=kind, detail="d", selected=CHOSEN if kind == "charged" else None)
    assert assumptions_of(a_card(tuning=tuning)) == (*ALWAYS, ASSUMED[kind])
    assert len(set(ASSUMED.values())) == 4
