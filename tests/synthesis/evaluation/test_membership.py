from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.membership import compare


def test_copied_training_records_give_every_member_away(make_records, beside):
    train, test = make_records(200, seed=1), make_records(400)
    figures = compare(beside(test, train, train)).figures
    assert figures["auroc"] > 0.99
    assert figures["attacks"]["nearest"]["tpr_at_0.01"]["share"] > 0.95
    assert figures["attacks"]["summaries"]["auroc"] > 0.99
    assert figures["members"] == 200  # as many others: half of the test records
    assert figures["reference"] == 200


def test_fresh_draws_tell_nothing(make_records, beside):
    train, test = make_records(400, seed=1), make_records(800)
    figures = compare(beside(test, make_records(600, seed=2), train)).figures
    for attack in figures["attacks"].values():
        assert attack["low"] <= 0.5 <= attack["high"]
        assert attack["tpr_at_0.01"]["low"] <= 0.01
    assert figures["auroc"] == max(a["auroc"] for a in figures["attacks"].values())


def test_copies_of_half_the_members_find_that_half(make_records, beside):
    train, test = make_records(200, seed=1), make_records(400)
    figures = compare(beside(test, train.part(range(100)), train)).figures
    nearest = figures["attacks"]["nearest"]
    assert nearest["auroc"] == pytest.approx(0.75, abs=0.06)
    assert nearest["tpr_at_0.001"]["share"] == pytest.approx(0.5, abs=0.02)


def test_a_crowd_around_each_member_is_a_matter_of_density(make_records, beside):
    train, test = make_records(100, seed=1), make_records(300)
    crowd = train.part(np.repeat(np.arange(100), 6))
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1.0, crowd.values.shape) * [1, 1, 1, 0]
    blurred = replace(crowd, values=crowd.values + noise)
    figures = compare(beside(test, blurred, train)).figures
    assert figures["attacks"]["density"]["low"] > 0.9


def test_the_curve_rises_to_everyone(make_records, beside):
    train, test = make_records(100, seed=1), make_records(200)
    drawn = compare(beside(test, make_records(100, seed=2), train)).drawn
    assert set(drawn) == {"nearest", "calibrated", "summaries", "density"}
    for curve in drawn.values():
        assert curve["tpr"][-1] == 1.0
        assert curve["tpr"] == sorted(curve["tpr"])
