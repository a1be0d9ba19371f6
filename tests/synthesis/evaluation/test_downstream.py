from dataclasses import replace

import numpy as np
import pytest

from privet.data.locate import find_folder
from privet.data.records.physionet import NAME, has_files, load_physionet2012
from privet.synthesis.evaluation.downstream import compare


def test_real_records_teach_the_outcome_and_records_with_dealt_outcomes_do_not(
    make_records, beside
):
    test, train = make_records(250), make_records(250, seed=1)
    dealt = replace(train, outcomes=np.random.default_rng(0).permutation(train.outcomes))
    good, bad = (compare(beside(test, candidate)).figures for candidate in (train, dealt))
    assert good["boosting"] > 0.75
    assert good["logistic"] > 0.8
    assert bad["boosting"] < 0.65
    assert good["outcomes"]["died"]["boosting"]["low"] > 0.7
    assert good["stays"] == 250


def test_turned_outcomes_teach_the_opposite(make_records, beside):
    test, train = make_records(150), make_records(150, seed=1)
    turned = replace(train, outcomes=1 - train.outcomes)
    assert compare(beside(test, turned)).figures["logistic"] < 0.2


def test_a_candidate_without_the_outcome_is_worth_a_guess(make_records, beside):
    test = make_records(100)
    same = replace(test, outcomes=np.zeros_like(test.outcomes))
    figures = compare(beside(test, same)).figures
    assert figures["boosting"] == 0.5
    assert "one class" in figures["outcomes"]["died"]["boosting"]["why"]


def test_unknown_outcomes_and_no_outcomes_are_no_error(make_records, make_schema, beside):
    test = make_records(100)
    unknown = replace(test, outcomes=np.full_like(test.outcomes, np.nan))
    assert compare(beside(unknown, test)).figures["boosting"] is None
    none = replace(test, schema=make_schema(outcomes=()), outcomes=np.zeros((100, 0)))
    assert compare(beside(none, none)).figures["outcomes"] == {}


def test_mortality_is_learned_from_the_real_stays_of_physionet_2012(beside):
    if find_folder(NAME, has_files) is None:
        pytest.skip("PhysioNet 2012 is not on this machine")
    records = load_physionet2012()
    order = np.random.default_rng(0).permutation(len(records))
    test, train = records.part(order[:4_000]), records.part(order[4_000:])
    figures = compare(beside(test, train)).figures
    assert figures["boosting"] > 0.84
    assert figures["logistic"] > 0.84
