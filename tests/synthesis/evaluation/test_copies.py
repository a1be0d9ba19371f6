from dataclasses import replace

import numpy as np

from privet.synthesis.evaluation.copies import compare


def test_copied_stays_are_counted_wherever_they_stand(make_records, beside):
    train, test, fresh = make_records(60, seed=1), make_records(60), make_records(60, seed=2)
    copied = train.part(np.r_[50:60][::-1])
    ids = {"patients": copied.stays, "stays": np.array([f"new{k}" for k in range(10)])}
    figures = compare(beside(test, replace(copied, **ids), train)).figures
    assert figures["percent"] == 100
    assert figures["exact_train"]["share"] == figures["codes_train"]["share"] == 1
    assert figures["exact_test"]["share"] == 0
    assert compare(beside(test, fresh, train)).figures["exact_train"]["share"] == 0


def test_a_blurred_copy_is_one_to_the_codes_only(make_records, beside):
    train, test = make_records(60, seed=1), make_records(60)
    centre = np.floor(train.values[:, 0] / 10) * 10 + 5  # 20 bins of 10
    middle = replace(train, values=np.column_stack([centre, train.values[:, 1:]]))
    blurred = replace(middle, values=middle.values + np.array([1.0, 0, 0, 0]))
    figures = compare(beside(test, blurred, middle)).figures
    assert figures["exact_train"]["share"] == 0
    assert figures["codes_train"]["share"] == 1


def test_other_bits_of_the_same_gap_or_zero_are_the_same(make_records, beside):
    train = make_records(30, seed=1)
    bits = train.values.copy()
    bits[np.isnan(bits)] = -np.float64("nan")
    zero = np.where(train.times == 0, -0.0, train.times)
    figures = compare(beside(train, replace(train, values=bits, times=zero), train)).figures
    assert figures["exact_train"]["share"] == 1
