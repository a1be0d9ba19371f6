"""What a part cost: read off its card, composed with a run, refused where nothing is left."""

import re

import dp_accounting as dp
import pytest

from privet.engine.fixed_parts import PAID, FixedPart, counted_with
from privet.engine.spent import Spent
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import epsilon_of, sampled_gaussian, total_epsilon
from privet.privacy.events import to_json

BOTH = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
THERE = sampled_gaussian(2.0, 0.2, 10)
HERE = sampled_gaussian(1.3, 0.1, 30)
FACT = dp.LaplaceDpEvent(2.0)
RELATIONS = {
    Adjacency.ADD_REMOVE: dp.NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: dp.NeighboringRelation.REPLACE_ONE,
}


def spent(**changes):
    facts = {
        "run": "r", "data": "clinic", "unit": "patient", "grouped": True, "events": (THERE,),
        "adjacencies": BOTH, "assumptions": ("its keys stay secret",),
    }  # fmt: skip
    return Spent(**(facts | changes))


def part(**changes):
    made = {"part": "network that attacks", "source": "runs/ain", "digest": "0" * 64}
    return FixedPart(**(made | {"public": False, "statement": PAID, "spent": spent()} | changes))


def card(**changes):
    statement = {
        "epsilon": 2.0, "delta": 1e-5, "unit": "patient", "adjacency": "add-remove",
        "basis": "proved", "accountant": "pld", "sampler": "poisson",
        "assumptions": ["its keys stay secret"], "gaps": [],
    }  # fmt: skip
    return {
        "analysis": "sound",
        "privacy": [statement, statement | {"adjacency": "replace-one", "epsilon": 4.0}],
        "withheld": [],
        "events": [{"label": "train", "event": to_json(THERE)}],
        "data": {"name": "clinic", "unit": "patient", "grouped": True},
        "provenance": {"run": "r"},
    } | changes


@pytest.mark.parametrize("adjacency", BOTH)
def test_a_part_and_a_run_cost_what_dp_accounting_composes(adjacency):
    accountant = dp.pld.PLDAccountant(RELATIONS[adjacency])
    accountant.compose(THERE)
    accountant.compose(HERE)
    found = epsilon_of(spent().composed_with(HERE), 1e-5, adjacency)
    assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)
    assert found > 1.05 * epsilon_of(HERE, 1e-5, adjacency)


def test_facts_that_were_learned_for_the_part_are_added_as_pure_epsilons():
    events = counted_with([part(spent=spent(events=(FACT, THERE)))], [("train", HERE)])
    assert [event for _, event in events] == [FACT, dp.ComposedDpEvent([THERE, HERE])]
    whole = epsilon_of(dp.ComposedDpEvent([THERE, HERE]), 1e-5)
    assert total_epsilon([event for _, event in events], 1e-5) == pytest.approx(0.5 + whole)


def test_facts_of_the_run_are_counted_again():
    events = counted_with(
        [part(spent=spent(events=(FACT, THERE)))], [("learned: size", FACT), ("train", HERE)]
    )
    assert [event for _, event in events][:2] == [FACT, FACT]


def test_what_a_public_part_cost_others_is_not_counted():
    assert counted_with([part(public=True)], [("train", HERE)]) == [("train", HERE)]


def test_a_card_is_read_as_it_stands():
    assert Spent.of_card(card()) == spent()


@pytest.mark.parametrize(
    "changes",
    [
        {"analysis": "paper"},
        {"analysis": "none"},
        {"withheld": ["noise from a known seed"]},
        {"privacy": []},
        {"events": [{"event": to_json(dp.NonPrivateDpEvent())}], "privacy": []},
        {"events": [{"event": to_json(THERE)}, {"event": to_json(THERE)}]},
    ],
)
def test_a_card_that_proves_nothing_to_compose_with_costs_nothing_known(changes):
    assert Spent.of_card(card(**changes)) is None


def test_it_survives_being_text():
    odd = spent(events=(FACT, sampled_gaussian(1 / 3, 0.1, 7)))
    assert Spent.from_text(odd.to_text()) == odd
    assert Spent.from_text(odd.to_text()).to_text() == odd.to_text()


@pytest.mark.parametrize("missing", ["run", "events", "adjacencies"])
def test_a_malformed_record_is_bad_input(missing):
    record = spent().to_json()
    record.pop(missing)
    with pytest.raises(InputError, match="malformed cost"):
        Spent.from_json(record)


def test_what_is_left_is_the_target_less_the_pure_facts():
    assert spent().left_of(3.0, 1e-5, BOTH, part="network") == 3.0
    assert spent(events=(FACT, THERE)).left_of(3.0, 1e-5, BOTH, part="network") == 2.5


@pytest.mark.parametrize("events", [(THERE,), (FACT, THERE)])
@pytest.mark.parametrize("beyond", [-1.0, 0.0, 0.01])
def test_a_part_that_took_it_all_leaves_nothing_and_says_how_much_it_took(events, beyond):
    """A hair more than it took would be met by noise and nothing else."""
    alone = epsilon_of(THERE, 1e-5) + 0.5 * (len(events) - 1)
    with pytest.raises(InputError, match="next to nothing is left for this run") as refused:
        spent(events=events).left_of(alone + beyond, 1e-5, BOTH, part="network")
    enough = float(re.search(r"--epsilon above ([\d.]+)", str(refused.value))[1])
    assert alone < enough <= alone + 0.03  # in three digits
    spent(events=events).left_of(enough, 1e-5, BOTH, part="network")


@pytest.mark.parametrize("here", [(Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE), BOTH])
def test_other_neighbours_are_not_added_up(here):
    there = BOTH if here != BOTH else (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
    with pytest.raises(InputError, match="proved for other neighbours"):
        spent(adjacencies=there).left_of(30.0, 1e-5, here, part="network")


@pytest.mark.parametrize(
    ("these", "said"),
    [
        (("other", "patient", True), "trained on other records"),
        (("clinic", "visit", True), "another unit"),
        (("clinic", "patient", False), "another unit"),
    ],
)
def test_other_records_and_other_units_are_not_added_up(these, said):
    spent().require_same_units("clinic", "patient", True, part="network")
    with pytest.raises(InputError, match=said):
        spent().require_same_units(*these, part="network")
