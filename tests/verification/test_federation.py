"""A card of a federation: whatever in it contradicts the settings or the ledger is found."""

import contextlib
import copy

import numpy as np
import pytest

from privet.data.dataset import Bounds, Split
from privet.errors import InputError
from privet.federation.fitting import simulate
from privet.federation.settings import FederationSettings
from privet.ledger import Ledger
from privet.privacy.participation import adjacencies
from privet.verification.books import check_ledger
from privet.verification.federation import check_facts, check_federation
from privet.verification.form import require_form
from privet.verification.settings import check_choice
from privet.verification.statements import check_epsilons, check_grounds
from privet.verification.unprotected import check_unprotected

QUICK = {"clients": 8, "rounds": 4, "model": "linear", "local_epochs": 1, "batch": 10}
CASES = {
    "capped": {"epsilon": 2.0, "times": 2},
    "banded": {"epsilon": 2.0, "times": 2, "apart": 2, "bands": 2},
    "sampled": {"epsilon": 2.0, "rule": "fedavg", "rate": 0.5},
    "buffer": {"epsilon": 2.0, "rule": "fedbuff", "buffer": 4, "times": 2},
    "pool": {"epsilon": 2.0, "pool": 2, "public_pool": "published by volunteers"},
}
PLACES = {
    "": lambda card: card,
    "mechanism": lambda card: card["mechanism"],
    "federation": lambda card: card["federation"],
    "config": lambda card: card["provenance"]["config"],
    "data": lambda card: card["data"],
    "provenance": lambda card: card["provenance"],
    "figure": lambda card: card["privacy"][0],
}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return tmp_path_factory.mktemp("federations")


@pytest.fixture(scope="module")
def kept():
    """Each card is made once."""
    return {}


@pytest.fixture
def made(house, kept, make_data):
    """Cards by name, charged to a ledger of that name; each test gets a copy."""

    def card(name, options):
        if name not in kept:
            with contextlib.closing(Ledger(house / f"{name}.db")) as book:
                kept[name] = simulate(make_data(), ledger=book, **QUICK, **options).trust
        return copy.deepcopy(dict(kept[name]))

    return card


@pytest.fixture
def capped(made):
    return made("capped", CASES["capped"])


@pytest.mark.parametrize("name", CASES)
def test_cards_hold_as_they_were_made(made, house, against, name):
    card = made(name, CASES[name])
    require_form(card)
    for check in (check_federation, check_epsilons, check_grounds):
        assert against(check(card)) == ""
    with contextlib.closing(Ledger(house / f"{name}.db")) as book:
        found = list(check_ledger(card, book))
        assert [finding.ok for finding in found] == [True]
        assert "turns of a client charged" in found[0].detail


def test_a_card_without_privacy_holds_and_is_checked(made, house, against):
    card = made("none", {})
    require_form(card)
    assert against([*check_unprotected(card), check_facts(card)]) == ""
    card["mechanism"]["steps"] = 5
    assert "steps 4 follows" in against(check_unprotected(card))
    card["federation"]["rule"] = "fedavg"
    assert "rule flsys follows from the settings" in against([check_facts(card)])


@pytest.mark.parametrize(
    ("place", "name", "value", "said"),
    [
        ("mechanism", "participations", 1, "participations 2 follows"),
        ("mechanism", "apart", 3, "apart 1 follows"),
        ("mechanism", "noise_multiplier", 9.0, "mechanism implies"),
        ("mechanism", "normaliser", 8.0, "normaliser 4.0 follows"),
        ("mechanism", "clip_norm", 0.1, "clip_norm 1.0 follows"),
        ("mechanism", "steps", 3, "steps 4 follows"),
        ("mechanism", "steps_run", 3, "steps_run 4 follows"),
        ("mechanism", "redone_steps", 1, "a second draw is not accounted"),
        ("mechanism", "bands", [0.8, 0.6], "1 bands were asked for"),
        ("mechanism", "noise", "correlated", "correlated noise with 0 bands"),
        ("federation", "by_clock", False, "by_clock True follows"),
        ("federation", "made_up", False, "made_up True follows"),
        ("federation", "pool", "public", "pool None follows"),
        ("federation", "sums", 3, "3 sums of 4 rounds"),
        ("federation", "rounds", 9, "rounds 4 follows"),
        ("config", "epsilon", 1.0, "epsilon 1 was asked for, 2 is stated"),
        ("config", "epsilon", 3.0, "epsilon 3 was asked for, 2 is stated"),
        ("config", "delta", 1e-6, "delta 1e-06 was asked for"),
        ("config", "quorum", 2, "by_clock False follows"),
        ("config", "noise_seed", 3, "known seed 3, and yet an epsilon"),
        ("config", "clients", 9, "9 clients were dealt to"),
        ("config", "skew", 0.5, "dealt was client (of 8 made up of made-up: skew 0.5"),
        ("config", "rule", "fedprox", "the rule was fedprox"),
        ("data", "unit", "client", "the unit is stated as client"),
        ("data", "name", "other", "the data are stated as other"),
        ("data", "grouped", False, "nothing says whose records"),
        ("provenance", "init_seed", 5, "seed 0 follow from the settings, 5 is stated"),
        ("config", "model", "custom", "seed None follow from the settings, 0 is stated"),
        ("mechanism", "contribution", 9, "contribution 1 follows"),
        ("mechanism", "precision", "bf16", "precision float32 follows"),
        ("", "analysis", "paper", "no paper's claim is known of a federation"),
        ("data", "nominal_size", 80, "nominal size 80"),
        ("figure", "adjacency", "zero-out", "nothing is proved for zero-out"),
        ("figure", "sampler", "server-sampled", "speaks of server-sampled clients"),
        ("figure", "unit", "example", "unit example"),
        ("", "events", [], "recorded are []"),
    ],
)
def test_what_contradicts_it_is_found(capped, against, place, name, value, said):
    PLACES[place](capped)[name] = value
    assert said in against(check_federation(capped))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("sampled", {"patient": False}, "that is not patient"),
        ("sampled", {"quorum": 2}, "a quorum where the server samples"),
        ("capped", {"rule": "median"}, "expected a sum of clipped updates"),
        ("banded", {"apart": 1}, "at most 1 bands"),
    ],
)
def test_a_card_of_what_no_coordinator_begins_with_is_found(made, against, name, changes, said):
    """Also where every other part of the card was brought into line: nothing is proved of it."""
    card = restated(made(name, CASES[name]), changes)
    assert said in against(check_federation(card))


def restated(card, changes):
    """With other settings, and all that follows from them restated, figures included."""
    config, facts, mechanism = card["provenance"]["config"], card["federation"], card["mechanism"]
    config |= changes
    facts["rule"] = card["method"] = config["rule"]
    facts["by_clock"] = (
        FederationSettings(**{key: value for key, value in config.items() if key != "precision"})
        .made_rule()
        .pacing.by_clock
    )
    mechanism |= {key: value for key, value in changes.items() if key in mechanism}
    for figure in card["privacy"]:
        figure["adjacency"] = str(adjacencies(by_clock=facts["by_clock"])[0])
    card["privacy"] = card["privacy"][:1]
    return card


def test_self_selection_passed_off_as_sampling_is_found(capped, made, against):
    """The planted lie that is worth most: the events of a server that samples."""
    sampled = made("sampled", CASES["sampled"])
    for part in ("mechanism", "events", "privacy"):
        capped[part] = sampled[part]
    said = against(check_federation(capped))
    assert "sampler self-selected follows from the settings, server-sampled is stated" in said


def test_a_buffers_card_may_not_speak_of_clients_that_come_and_go(made, against):
    card = made("buffer", CASES["buffer"])
    assert [figure["adjacency"] for figure in card["privacy"]] == ["zero-out"]
    card["privacy"][0]["adjacency"] = "add-remove"
    assert "nothing is proved for add-remove" in against(check_federation(card))


@pytest.mark.parametrize("gone", ["the server sees", "dealt out to clients", "its own records"])
def test_an_assumption_that_is_left_out_is_found(capped, against, gone):
    figure = capped["privacy"][0]
    figure["assumptions"] = [a for a in figure["assumptions"] if gone not in a]
    assert gone in against(check_grounds(capped))


def test_a_card_says_that_times_are_shown_where_clients_move_them(capped, made, against):
    assert not any("is not protected" in said for said in capped["privacy"][0]["assumptions"])
    card = made("buffer", CASES["buffer"])
    assert any("is not protected" in said for said in card["privacy"][0]["assumptions"])
    figure = card["privacy"][0]
    figure["assumptions"] = [a for a in figure["assumptions"] if "is not protected" not in a]
    assert "not stated: 'when a client takes part" in against(check_grounds(card))


def test_a_public_pool_is_among_the_assumptions(made):
    card = made("pool", CASES["pool"])
    assert any("published by volunteers" in said for said in card["privacy"][0]["assumptions"])


def test_a_ledger_that_was_charged_for_less_is_found(capped, made, house, against):
    made("capped", CASES["capped"])
    capped["mechanism"]["noise_multiplier"] *= 2
    capped["federation"]["by_clock"] = False
    with contextlib.closing(Ledger(house / "capped.db")) as book:
        said = against(check_ledger(capped, book))
    assert "step: " in said
    assert "neighbours: add-remove in the ledger, zero-out here" in said


@pytest.mark.parametrize(
    ("part", "name"),
    [("mechanism", "participations"), ("federation", "sums"), ("mechanism", "bands")],
)
def test_a_card_that_lacks_a_field_is_bad_input(capped, part, name):
    del capped[part][name]
    with pytest.raises(InputError, match=f"no '{part}.{name}'"):
        require_form(capped)


def test_a_network_that_was_chosen_on_these_records_is_said_so(make_data, tmp_path, against):
    """Also where the records were dealt out under a name of their own."""
    shape = {"x": np.zeros((40, 3, 100), dtype=np.float32), "y": np.arange(40) % 2}
    data = make_data(
        name="hapt",
        train=Split(**shape),
        test=Split(**shape),
        bounds=Bounds(low=(-1.0,), high=(1.0,)),
    )
    options = QUICK | CASES["capped"] | {"model": "har-wild-32", "rounds": 2}
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as book:
        card = simulate(data, ledger=book, **options).trust
    assert card["tuning"]["kind"] == "uncharged"
    assert against(check_choice(card)) == ""
    card["tuning"] = made_up_choice(card["tuning"])
    assert against(check_choice(card)) != ""


def made_up_choice(tuning):
    return tuning | {"kind": "declared", "detail": "the settings were given by the user"}
