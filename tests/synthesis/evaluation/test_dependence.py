from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.dependence import compare, persistence, row_correlations
from privet.synthesis.evaluation.side import Side


def test_records_against_themselves_agree(make_records, beside):
    records = make_records(200)
    figures = compare(beside(records, records)).figures
    assert [figures[k] for k in ("rows_mean", "rows_largest", "stays_mean", "lag_mean")] == [0] * 4


def test_a_column_dealt_anew_loses_its_correlations_and_nothing_else(make_records, beside):
    records = make_records(600)
    rng = np.random.default_rng(0)
    values = records.values.copy()
    values[:, 2] = rng.permutation(values[:, 2])
    dealt = replace(records, values=values)
    names, real, _ = row_correlations(Side(records))
    pair = names.index("above"), names.index("below")
    assert real[pair] > 0.5
    outcome = compare(beside(records, dealt))
    difference = outcome.drawn["rows"]["difference"]
    assert difference[pair] == pytest.approx(-real[pair], abs=0.1)
    assert difference[names.index("pulse"), names.index("above")] == 0
    assert outcome.figures["rows_largest"] == pytest.approx(abs(difference[pair]), abs=0.05)
    assert outcome.figures["lag"]["below"]["error"] > 0.3  # the patient's level is gone
    assert outcome.figures["lag"]["pulse"]["error"] == 0


def test_outcomes_dealt_anew_are_seen_over_stays(make_records, beside):
    records = make_records(600)
    dealt = replace(records, outcomes=np.random.default_rng(0).permutation(records.outcomes))
    figures = compare(beside(records, dealt)).figures
    assert figures["rows_largest"] == 0
    assert figures["stays_largest"] > 0.3


def test_the_next_value_skips_gaps_and_stays_in_its_stay(make_records):
    """Values alternate within a stay: wholly opposed, whatever lies between stays and gaps."""
    records = make_records(100)
    values = np.full_like(records.values, np.nan)
    seen = records.step_of_row % 2 == 0  # every other row is empty
    turn = (records.step_of_row // 2) % 2
    values[seen, 0] = 50.0 + 100.0 * turn[seen]
    values[seen, 3] = turn[seen]
    side = Side(replace(records, values=values))
    assert persistence(side, 0) == pytest.approx(-1)
    assert persistence(side, 3) == 0.0  # the same word never comes again
    assert persistence(side, 1) is None


def test_correlations_of_few_rows_are_left_out(make_records, beside):
    records = make_records(300)
    values = records.values.copy()
    values[30:, 1] = np.nan
    few = replace(records, values=values)
    figures = compare(beside(few, records)).figures
    assert figures["rows_left_out"] == 5  # with pulse, below, and three words


def test_what_the_candidate_has_too_few_of_counts_as_nothing_met(make_records, beside):
    """Else a generator that never measures two columns together would be let off their pair."""
    records = make_records(300)
    values = records.values.copy()
    values[30:, 1] = np.nan
    few = replace(records, values=values)
    figures = compare(beside(records, few)).figures
    names, real, _ = row_correlations(Side(records))
    pair = names.index("above"), names.index("below")
    assert figures["rows_left_out"] == 0
    assert figures["rows_largest"] == pytest.approx(abs(real[pair]))
    assert figures["rows_largest"] > 0.5
    assert figures["lag"]["above"]["error"] == pytest.approx(persistence(Side(records), 1))
