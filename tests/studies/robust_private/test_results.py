"""Figures over seeds, tests, tables and plots of made-up records."""

import pytest
from scipy.stats import ttest_ind

from privet.studies.robust_private import results
from privet.studies.robust_private.plots import all_plots
from privet.studies.robust_private.protocol import Protocol
from privet.studies.robust_private.results import rows_of
from privet.studies.robust_private.tables import all_tables, gaps_of, published_table
from privet.studies.robust_private.writing import results_of

TOLD = {"data": "digits", "seeds": [0, 1], "delta": 1e-5, "command": "c", "together": {"note": "n"}}


@pytest.fixture
def records(make_record):
    return [
        make_record(name, seed, [base + step * seed + at for at in (0.05, 0.0)], basis=basis)
        for name, base, step, basis in (
            ("a", 0.5, 0.03, "proved"), ("b:paper", 0.7, 0.08, "claimed"), ("c", 0.8, 0.0, "none"),
        )
        for seed in (0, 1, 2)
    ]  # fmt: skip


def shown(records):
    protocol = Protocol(sizes=(0.05, 0.1), radii=(0.25,))
    return results_of(records, protocol=protocol, attack_size=0.1, epsilon=1.0, told=TOLD)


def test_the_best_with_a_budget_meets_each_other_one(records):
    """Whoever has no epsilon is no contestant, however accurate."""
    (row,) = results.tests_of(rows_of(records), 0.1)["rows"]
    assert (row["best"], row["best_basis"]) == ("b:paper", "claimed")
    assert (row["other"], row["other_basis"]) == ("a", "proved")
    t, p = ttest_ind([0.7, 0.78, 0.86], [0.5, 0.53, 0.56], equal_var=False)
    assert (row["t"], row["p"], row["points"]) == pytest.approx((t, p, 25.0))


def test_one_seed_is_no_test(records):
    found = results.tests_of(rows_of([r for r in records if r["seed"] == 0]), 0.1)
    assert found["rows"] == []
    assert "needs 2 seeds" in found["skipped"]


def test_seeds_without_spread_have_no_p_value(make_record):
    alike = [make_record(n, s, [v, v]) for n, v in (("a", 0.5), ("b", 0.5)) for s in (0, 1)]
    (row,) = results.tests_of(rows_of(alike), 0.1)["rows"]
    assert row["t"] is None
    assert row["p"] is None


def test_a_basis_holds_for_all_seeds_or_for_none(make_record):
    mixed = [make_record("a", 0, [0.5, 0.4]), make_record("a", 1, [0.5, 0.4], basis="claimed")]
    (row,) = rows_of(mixed)
    assert row["basis"] == "none"
    assert row["claimed"] is None
    assert row["proved"] == {"add-remove": None, "replace-one": None}


def test_claims_and_proofs_look_different_in_every_plot(records):
    for name, (svg, _) in all_plots(shown(records)).items():
        text = svg.decode()
        for said in ("a (proved)", "b:paper (claimed)", "c (no ε)"):
            assert said in text, name
        assert "stroke-dasharray" in text


def test_gaps_stand_beside_claims(records):
    rows = rows_of(records)
    assert gaps_of(rows) == {"b:paper": ["a gap"]}


def test_what_is_missing_says_why(make_record):
    found = shown([make_record("a", s, [0.5, 0.4], why="rows are mixed") for s in (0, 1)])
    text = "\n".join(table.markdown() for table in all_tables(found))
    assert "Not certified: a, rows are mixed." in text
    assert "a (proved): not certified" in all_plots(found)["certified_by_radius"][0].decode()


def test_a_published_certificate_is_shown_beside_the_correct_one(make_record):
    said = {
        "sizes": [0.05, 0.1],
        "claimed": [0.8, 0.7],
        "correct": [0.1, 0.0],
        "largest_correct_size": 0.06,
        "gaps": ["the noise is smaller than certified"],
    }
    records = [
        make_record("s:paper", s, [0.5, 0.4], basis="claimed", published=said) for s in (0, 1)
    ]
    records += [make_record("a", s, [0.5, 0.4]) for s in (0, 1)]
    found = shown(records)
    svg = all_plots(found)["published_certificates"][0].decode()
    assert "s:paper, claimed" in svg
    assert "s:paper, correct" in svg
    assert [row[2:] for row in published_table(found["rows"]).rows] == [
        ["claimed", "80.0 (80.0 to 80.0)", "70.0 (70.0 to 70.0)"],
        ["correct", "10.0 (10.0 to 10.0)", "0.0 (0.0 to 0.0)"],
    ]
    assert gaps_of(found["rows"])["s:paper, its certificate"] == said["gaps"]


def test_nobody_claims_no_plot(records):
    assert "published_certificates" not in all_plots(shown(records))
