from dataclasses import replace

import numpy as np

from privet.synthesis.evaluation.discriminative import compare


def test_fresh_draws_cannot_be_told_from_real_ones(make_records, beside):
    figures = compare(beside(make_records(200), make_records(200, seed=1))).figures
    assert figures["low"] <= 0.5 <= figures["high"]
    assert figures["positives"] == figures["negatives"] == 200


def test_a_coarser_column_gives_records_away(make_records, beside):
    made = make_records(200, seed=1)
    values = made.values.copy()
    values[:, 0] = np.round(values[:, 0], -1)
    figures = compare(beside(make_records(200), replace(made, values=values))).figures
    assert figures["low"] > 0.6


def test_other_masks_give_records_away(make_records, beside):
    made = make_records(200, seed=1)
    swapped = made.values[:, [1, 0, 2, 3]]
    values = np.where(np.isnan(swapped), np.nan, np.nan_to_num(made.values, nan=90.0))
    figures = compare(beside(make_records(200), replace(made, values=values))).figures
    assert figures["low"] > 0.55


def test_stays_of_one_patient_are_in_one_fold(make_records, beside):
    """Each patient has two identical stays: across folds the twin would give the answer away."""
    real, made = make_records(80), make_records(80, seed=1)
    twice = [r.part(np.repeat(np.arange(80), 2)) for r in (real, made)]
    assert compare(beside(*twice)).figures["auroc"] < 0.65
