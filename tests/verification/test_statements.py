import pytest

from privet.engine.assumptions import (
    ALWAYS,
    OWN_LOOP,
    PUBLIC_START,
    SIZE_IS_PUBLIC,
    TORCH_DRAWS,
    WHEN_REDONE,
)
from privet.verification.statements import check_basis, check_grounds


def failed(findings):
    return {finding.check for finding in findings if not finding.ok}


def test_what_our_cards_state_has_its_grounds(sound):
    assert failed([*check_grounds(sound), *check_basis(sound)]) == set()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("left", [0, 1, 4])
def test_assumptions_left_out_of_any_statement_are_named(card, against, which, left):
    changed = card("poisson")
    stated = changed["privacy"][which]
    stated["assumptions"], gone = stated["assumptions"][:left], stated["assumptions"][left:]
    assert len(gone) >= 2
    said = against(check_grounds(changed))
    assert all(f"not stated: '{text}'" in said for text in gone)


def test_more_assumptions_than_needed_contradict_nothing(card):
    changed = card("poisson")
    for stated in changed["privacy"]:
        stated["assumptions"].insert(0, "the moon is round")
    assert failed(check_grounds(changed)) == set()


def redone(card):
    card["mechanism"]["redone_steps"] = 5


def brought_weights(card):
    card["provenance"]["init_seed"] = None


def bare_unit(card):
    card["data"]["unit"] = "patient"


def torch_draws(card):
    card["mechanism"]["torch_draws"] = True


def uncharged(card):
    card["tuning"]["kind"] = "uncharged"


def shuffled(card):
    card["mechanism"].update(sampler="shuffled", cycle=8)


@pytest.mark.parametrize(
    ("fact", "assumption"),
    [
        (redone, WHEN_REDONE),
        (brought_weights, PUBLIC_START),
        (brought_weights, OWN_LOOP),
        (bare_unit, "no patient has more than one record: no column says whose each is"),
        (torch_draws, TORCH_DRAWS),
        (uncharged, "the choice of the settings, made on these records without charge, reveals"),
        (shuffled, SIZE_IS_PUBLIC),
    ],
)
def test_every_fact_of_the_card_asks_for_its_assumption(card, against, fact, assumption):
    changed = card("poisson")
    assert against(check_grounds(changed)) == ""
    fact(changed)
    said = against(check_grounds(changed))
    assert said.count("not stated") == (2 if fact is brought_weights else 1)
    assert f"not stated: '{assumption}" in said


@pytest.mark.parametrize(
    ("name", "needed", "not_needed"),
    [
        ("shuffled", SIZE_IS_PUBLIC, WHEN_REDONE),
        ("grouped", TORCH_DRAWS, "no user has more than one record"),
        ("poisson", ALWAYS[0], SIZE_IS_PUBLIC),
    ],
)
def test_our_cards_state_what_applies_and_no_more(card, name, needed, not_needed):
    stated = card(name)["privacy"][0]["assumptions"]
    assert needed in stated
    assert not any(text.startswith(not_needed) for text in stated)


@pytest.mark.parametrize("accountant", ["magic", "rdp", "pld, plus luck"])
def test_another_accountant_is_named(card, against, accountant):
    changed = card("poisson")
    changed["privacy"][0]["accountant"] = accountant
    assert against(check_grounds(changed)) == f"'{accountant}' is named"


def test_learned_facts_belong_to_the_accountant(card, against):
    changed = card("learned")
    assert changed["privacy"][0]["accountant"] == "pld, plus pure epsilons of learned facts"
    changed["privacy"][0]["accountant"] = "pld"
    assert against(check_grounds(changed)) == "'pld' is named"


def claim(card, **changes):
    card["privacy"].append(dict(card["privacy"][0], basis="claimed", epsilon=0.001, **changes))


def test_a_sound_analysis_claims_nothing(card, against):
    changed = card("poisson")
    claim(changed, gaps=["the lemma assumes what it proves"])
    assert "a claim is stated" in against(check_basis(changed))


def test_a_papers_analysis_is_there_for_its_claim_and_the_gaps_of_it(card, against):
    changed = card("poisson")
    changed["analysis"] = "paper"
    assert "nothing is claimed" in against(check_basis(changed))
    claim(changed, gaps=[])
    assert "without its gaps" in against(check_basis(changed))
    changed["privacy"][-1]["gaps"] = ["the lemma assumes what it proves"]
    assert against(check_basis(changed)) == ""
