import pytest

from privet.verification.books import check_ledger


@pytest.mark.parametrize("name", ["poisson", "shuffled", "grouped", "learned"])
def test_the_ledger_knows_our_cards(card, ledger_of, name):
    (finding,) = check_ledger(card(name), ledger_of(name))
    assert finding.ok, finding.detail


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("poisson", {"unit": "hospital"}, "unit: 'example' (each record one) in the ledger"),
        ("grouped", {"grouped": False}, "unit: 'user' (grouped by a unit column) in the ledger"),
        ("learned", {"learned": []}, "what was learned"),
        ("learned", {"learned": [{"name": "nominal size", "epsilon": 0.1}]}, "what was learned"),
        ("poisson", {"nominal_size": 8000}, "with the facts stated here"),
        ("poisson", {"bounds": {"low": [0.0], "high": [2.0]}}, "with the facts stated here"),
    ],
)
def test_a_fact_of_the_data_cannot_be_restated(card, ledger_of, against, name, change, said):
    changed, book = card(name), ledger_of(name)
    changed["data"] |= change
    assert said in against(check_ledger(changed, book))


def test_one_that_keeps_the_unit_is_told_by_the_digest_alone(card, ledger_of, against):
    changed, book = card("learned"), ledger_of("learned")
    changed["data"]["learned"] = []
    assert "unit:" not in against(check_ledger(changed, book))


def test_shuffled_batches_cannot_pass_for_fixed_ones(card, ledger_of, against):
    """Their events are the same; what differs is whom the proof is about."""
    changed, book = card("shuffled"), ledger_of("shuffled")
    changed["mechanism"]["sampler"] = "fixed-batches"
    said = against(check_ledger(changed, book))
    assert said == "neighbours: zero-out in the ledger, add-remove here"


def test_a_ledger_that_does_not_know_the_run_says_nothing(card, ledger_of):
    card("shuffled")
    assert list(check_ledger(card("poisson"), ledger_of("shuffled"))) == []
    assert list(check_ledger(card("poisson"), None)) == []
