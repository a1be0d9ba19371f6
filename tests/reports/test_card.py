from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet.audits import gaussian, one_run, one_run_gaussian, two_worlds
from privet.reports import card as reading

Make = Callable[..., dict[str, Any]]


def test_the_headline_speaks_about_the_strongest_proved_figure(card: Make) -> None:
    headline = reading.headline(card())
    assert headline.verdict == "proved"
    assert headline.sentence == (
        "Whoever sees this model learns nearly the same about any one example as if that example "
        "had not been in the data: (ε = 2.98, δ = 1e-05), adding or removing one example, proved."
    )


@pytest.mark.parametrize(
    ("epsilon", "words", "not_words"),
    [
        (3.0, "nearly the same", "weakly"),
        (8.0, "is limited:", "nearly the same"),
        (50.0, "limited only weakly", "nearly the same"),
    ],
)
def test_the_words_are_no_stronger_than_the_figure(
    card: Make, figure: Make, epsilon: float, words: str, not_words: str
) -> None:
    sentence = reading.headline(card(privacy=[figure(epsilon=epsilon)])).sentence
    assert words in sentence
    assert not_words not in sentence


def test_an_infinite_epsilon_is_no_guarantee(card: Make, figure: Make) -> None:
    headline = reading.headline(card(privacy=[figure(epsilon=float("inf"))]))
    assert (headline.verdict, headline.statement) == ("withheld", None)


def test_a_claim_is_never_called_proved(card: Make, figure: Make) -> None:
    headline = reading.headline(card(privacy=[figure(basis="claimed", gaps=["wrong"])]))
    assert headline.verdict == "claimed"
    assert "not proved" in headline.sentence


def test_a_claim_with_a_counter_example_limits_nothing(card: Make, figure: Make) -> None:
    """Whatever was measured of this very model; and no bound is computed from it."""
    claim = figure(basis="claimed", gaps=["refuted: by an audit", "wrong"])
    trust = card(analysis="paper", withheld=["nothing is proved"], privacy=[claim])
    headline = reading.headline(trust)
    assert headline.verdict == "contradicted"
    assert headline.sentence.startswith("Do not rely on this model's privacy")
    assert "known to break it" in headline.sentence
    (statement,) = reading.statements(trust)
    assert statement.refuted
    assert not statement.contradicted, "which would be of this release"


def test_an_unknown_basis_counts_as_a_claim_with_a_gap(card: Make, figure: Make) -> None:
    (statement,) = reading.statements(card(privacy=[figure(basis="certain")]))
    assert (statement.basis, statement.gaps) == ("claimed", ("unknown basis: certain",))


def test_an_audit_alone_promises_nothing(card: Make, figure: Make) -> None:
    sentence = reading.headline(card(privacy=[figure(basis="audited", epsilon=1.239)])).sentence
    assert sentence.startswith("No upper limit is known")
    assert "ε ≥ 1.23," in sentence


AUDIT = {"basis": "audited", "epsilon": 1.2}


@pytest.mark.parametrize(
    ("claim", "audit", "contradicted"),
    [
        ({"epsilon": 0.2}, AUDIT, True),
        ({"epsilon": 1.2}, AUDIT, False),  # a lower bound that meets the upper one
        ({"epsilon": 2.0}, AUDIT, False),
        ({"epsilon": 0.2}, AUDIT | {"adjacency": "replace-one"}, False),
        ({"epsilon": 0.2}, AUDIT | {"unit": "patient"}, False),
        ({"epsilon": 0.2}, AUDIT | {"delta": 1e-3}, True),  # holds at every larger delta, too
        ({"epsilon": 0.2}, AUDIT | {"delta": 1e-9}, False),  # there epsilon may well be larger
        # An audit that says itself whether it refutes is taken at its word.
        ({"epsilon": 0.2}, AUDIT | {"refutes": False, "confidence": 0.95}, False),
        ({"epsilon": 2.0}, AUDIT | {"refutes": True}, True),
    ],
)
@pytest.mark.parametrize("basis", ["claimed", "proved"])
def test_when_an_audit_contradicts(
    card: Make,
    figure: Make,
    basis: str,
    claim: dict[str, Any],
    audit: dict[str, Any],
    contradicted: bool,
) -> None:
    stated = figure(basis=basis, **claim)
    beside = card(privacy=[stated, figure(**audit)])
    in_its_own_list = card(privacy=[stated], audit=[figure(**audit), {"note": "no figure"}])
    for trust in (beside, in_its_own_list):
        assert reading.statements(trust)[0].contradicted is contradicted
        assert (reading.headline(trust).verdict == "contradicted") is contradicted


def test_an_audit_never_contradicts_another_audit(card: Make, figure: Make) -> None:
    audits = [figure(basis="audited", epsilon=epsilon) for epsilon in (0.5, 1.5)]
    assert not any(s.contradicted for s in reading.statements(card(privacy=audits)))


def test_a_withholding_card_states_nothing_as_proved(card: Make, figure: Make) -> None:
    trust = card(withheld=["a seed was given"], privacy=[figure(), figure(basis="claimed")])
    assert [s.basis for s in reading.statements(trust)] == ["claimed"]
    assert reading.headline(trust).statement is None


def test_the_words_for_mu_gdp_are_those_that_audits_write() -> None:
    """A card is read by these words: bounds that assume mu-GDP have them, all others have not."""
    rng = np.random.default_rng(0)
    without, with_ = rng.standard_normal(200), rng.standard_normal(200) + 1.0
    scores, coins = np.concatenate([without, with_]), np.repeat([False, True], 200)
    assumed = [gaussian(without, with_, delta=1e-5), one_run_gaussian(scores, coins, delta=1e-5)]
    free = [two_worlds(without, with_, delta=1e-5), one_run(scores, coins, delta=1e-5)]
    for bound in assumed:
        assert sum(reading.MU_GDP in text for text in bound.assumptions) == 1
    for bound in free:
        assert bound.assumptions
        assert not any(reading.MU_GDP in text for text in bound.assumptions)
