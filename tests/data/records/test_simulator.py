import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.data.records import simulator
from privet.data.records.features import Categorical, Numeric
from privet.data.records.simulator import (
    DEFAULT,
    Design,
    at_night,
    chances,
    schema,
    simulate,
    summaries,
)
from privet.data.records.simulator_design import (
    ADMITTED,
    CLASSES,
    CORRELATION,
    DBP,
    DIED,
    DISPOSITION,
    HEARTRATE,
    HOME,
    HOUR,
    RESPRATE,
    RHYTHM,
    SBP,
    STATUS,
    TEMPERATURE,
)
from privet.data.records.simulator_estimates import recovered
from privet.data.records.simulator_truth import PATIENTS, SIMULATED, truth
from privet.errors import InputError

PAGE = Path(__file__).parents[3] / "docs" / "methods" / "simulator.md"


@pytest.fixture(scope="module")
def records():
    return simulate(PATIENTS, seed=3)


def test_every_fact_is_recovered(records):
    assert truth().missed(recovered(records)) == {}


def test_every_fact_has_an_estimator_and_the_other_way_round(records):
    assert set(recovered(records)) == set(truth().facts)


def test_other_designs_have_other_truths_that_are_recovered():
    correlation = [list(row) for row in CORRELATION]
    correlation[SBP][DBP] = correlation[DBP][SBP] = 0.4
    correlation[HEARTRATE][RESPRATE] = correlation[RESPRATE][HEARTRATE] = 0.1
    shares = (0.4, 0.4, 0.2)
    other = Design(
        classes=tuple(
            replace(c, share=share, gap=(c.gap[0] - 0.3, 0.4))
            for c, share in zip(CLASSES, shares, strict=True)
        ),
        correlation=tuple(map(tuple, correlation)),
        memory=90.0,
        missing=(0.1, 0.2, 0.0, 0.15),
        temperature=(0.0, -0.5),
        pain=(0.0, -1.0),
        fibrillation=(0.3, 0.1),
        stays=(0.5, 0.5),
        female=0.2,
        admitted=(-1.0, 0.0, 1.0, 0.2, 0.0, 0.1),
    )
    found = recovered(simulate(PATIENTS, seed=1, design=other), other)
    assert truth(other).missed(found, times=1.5) == {}
    assert len(truth(DEFAULT).missed(found, times=1.5)) >= 25


def constant_gaps(records, rng):
    return replace(records, times=records.step_of_row * 50.0)


def gaps_of_anyone(records, rng):
    later = np.flatnonzero(records.step_of_row > 0)
    gaps = records.gaps.copy()
    gaps[later] = gaps[rng.permutation(later)]
    total = np.cumsum(gaps)
    first = np.repeat(total[records.offsets[:-1]], records.lengths)
    return replace(records, times=total - first)


def temperature_missing_at_random(records, rng):
    values, alive = records.values.copy(), records.values[:, STATUS] == 0
    later = np.flatnonzero((records.step_of_row > 0) & alive)
    temperature = values[later, TEMPERATURE]
    gone = rng.permutation(np.isnan(temperature))
    seen = rng.choice(temperature[~np.isnan(temperature)], len(later))
    values[later, TEMPERATURE] = np.where(gone, np.nan, seen)
    return replace(records, values=values)


def rows_of_anyone(records, rng):
    values = records.values.copy()
    alive = np.flatnonzero(values[:, STATUS] == 0)
    values[alive] = values[rng.permutation(alive)]
    return replace(records, values=values)


def dbp_of_another_row(records, rng):
    values = records.values.copy()
    seen = np.flatnonzero(~np.isnan(values[:, DBP]))
    values[seen, DBP] = values[rng.permutation(seen), DBP]
    return replace(records, values=values)


def pair_apart(records, rng):
    values = records.values.copy()
    alive = np.flatnonzero(values[:, STATUS] == 0)
    hidden = rng.choice(alive, len(alive) // 100)
    values[hidden, DBP] = np.nan
    return replace(records, values=values)


def resprate_missing_with_heartrate(records, rng):
    values = records.values.copy()
    fast = values[:, HEARTRATE] > 110
    values[fast & (rng.random(len(fast)) < 0.05), RESPRATE] = np.nan
    return replace(records, values=values)


def hours_permuted(records, rng):
    static = records.static.copy()
    static[:, HOUR] = rng.permutation(static[:, HOUR])
    return replace(records, static=static)


def rhythms_permuted(records, rng):
    values = records.values.copy()
    seen = np.flatnonzero(~np.isnan(values[:, RHYTHM]))
    values[seen, RHYTHM] = values[rng.permutation(seen), RHYTHM]
    return replace(records, values=values)


def outcomes_permuted(records, rng):
    return replace(records, outcomes=rng.permutation(records.outcomes))


def one_stay_each(records, rng):
    return replace(records, patients=records.stays)


def mild_patients_only(records, rng):
    mild = [replace(c, share=s) for c, s in zip(CLASSES, (0.7, 0.3, 0.0), strict=True)]
    return simulate(PATIENTS, design=replace(DEFAULT, classes=tuple(mild)))


def life_after_death(records, rng):
    values = records.values.copy()
    first = records.offsets[:-1][records.lengths > 1]
    values[first[::20], STATUS] = 1
    return replace(records, values=values)


FAULTS = {
    constant_gaps: ("log_gap_sd", "log_gap_slope_heartrate", "memory"),
    gaps_of_anyone: ("log_gap_slope_heartrate",),
    temperature_missing_at_random: ("temperature_slope",),
    rows_of_anyone: ("autocorr_heartrate", "change_corr_sbp_dbp", "temperature_slope"),
    dbp_of_another_row: ("corr_sbp_dbp", "change_corr_sbp_dbp", "sbp_above_dbp"),
    pair_apart: ("apart_sbp_dbp",),
    resprate_missing_with_heartrate: ("missing_resprate", "missing_resprate_slope"),
    hours_permuted: ("missing_pain_day", "missing_pain_night"),
    rhythms_permuted: ("rhythm_agrees", "fibrillation_old"),
    outcomes_permuted: ("admitted_age", "admitted_sbp", "auroc_admitted", "death_agrees"),
    one_stay_each: ("share_several_stays",),
    mild_patients_only: ("share_critical", "rate_died", "rows", "log_gap_mean"),
    life_after_death: ("nothing_after_death",),
}
UNTOUCHED = {
    constant_gaps: ("corr_sbp_dbp", "autocorr_heartrate", "temperature_slope", "rate_died"),
    gaps_of_anyone: ("log_gap_mean", "log_gap_sd", "corr_sbp_dbp"),
    temperature_missing_at_random: ("missing_temperature", "corr_sbp_dbp", "log_gap_sd"),
    rows_of_anyone: ("corr_sbp_dbp", "missing_temperature", "apart_sbp_dbp", "log_gap_sd"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_moves_what_it_breaks_and_not_the_rest(records, fault):
    missed = truth().missed(recovered(fault(records, np.random.default_rng(5))))
    assert set(FAULTS[fault]) <= set(missed)
    assert not set(UNTOUCHED.get(fault, ())) & set(missed)


def test_single_class_has_the_plain_numbers_of_the_design():
    """With one class and even gaps nothing is mixed: known answers by hand."""
    one = replace(CLASSES[0], share=1.0, gap=(np.log(60.0), 1e-9))
    facts = truth(Design(classes=(one,), memory=60.0))
    assert facts["autocorr_heartrate"] == pytest.approx(np.exp(-1) * 169 / (169 + 1 / 12))
    assert facts["corr_sbp_dbp"] == pytest.approx(0.7, abs=1e-3)
    assert facts["log_gap_mean"] == pytest.approx(np.log(60.0))
    assert facts["log_gap_slope_heartrate"] == pytest.approx(0.0)
    assert facts["missing_rhythm"] == pytest.approx(1 - one.rhythm)


def test_nothing_predicts_admission_better_than_the_true_chance(records):
    """Boosted trees, which see all that the chance depends on, come near and not above."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    outcome = records.outcomes[:, DISPOSITION]
    survived = np.flatnonzero(outcome != DIED)
    fit, test = survived[::2], survived[1::2]
    inputs, admitted = summaries(records), outcome == ADMITTED
    model = HistGradientBoostingClassifier(max_iter=40).fit(inputs[fit], admitted[fit])
    reached = roc_auc_score(admitted[test], model.predict_proba(inputs[test])[:, 1])
    best = roc_auc_score(admitted[test], chances(records)[0][test])
    assert best - 0.03 < reached < best


def test_true_chances_are_calibrated(records):
    outcome = records.outcomes[:, DISPOSITION]
    survived = outcome != DIED
    chance = chances(records)[0][survived]
    for low in np.arange(0, 1, 0.25):
        near = (chance >= low) & (chance < low + 0.25)
        rate = (outcome[survived][near] == ADMITTED).mean()
        assert rate == pytest.approx(chance[near].mean(), abs=0.03)


def test_summaries_by_hand():
    public = schema(1)
    values = np.full((3, 9), np.nan)
    values[:, STATUS] = (0, 0, 1)
    values[0, [TEMPERATURE, HEARTRATE, SBP, DBP]] = 100.6, 100, 90, 60
    values[1, [TEMPERATURE, SBP, DBP]] = 98.0, 110, 70
    values[2, [HEARTRATE, SBP]] = 40, 50  # after the end: not counted
    records = replace(
        simulate(1, seed=0).part([0]),
        schema=public,
        static=np.array([[75.0, 0, 0, 0, 12]]),
        offsets=np.array([0, 3]),
        times=np.array([0.0, 30, 60]),
        values=values,
    )
    assert summaries(records) == pytest.approx(np.array([[2.0, 1.0, 2.0, 2.0, 0.0]]))


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_records_keep_to_their_schema(n, seed):
    records = simulate(n, seed)
    public = records.schema
    assert public.nominal_size == n == len(set(records.patients))
    assert len(set(records.stays)) == len(records)
    assert records.lengths.min() >= 1
    assert records.lengths.max() <= public.max_steps == 50
    blocks = (
        (public.temporal, records.values),
        (public.static, records.static),
        (public.outcomes, records.outcomes),
    )
    for features, block in blocks:
        for feature, column in zip(features, block.T, strict=True):
            seen = column[~np.isnan(column)]
            if isinstance(feature, Numeric):
                assert ((seen >= feature.low) & (seen <= feature.high)).all()
                assert (seen == np.round(seen, feature.decimals)).all()
            else:
                assert isinstance(feature, Categorical)
                assert np.isin(seen, np.arange(feature.levels)).all()
    assert not np.isnan(records.outcomes).any()


def test_rules_of_the_ward(records):
    values, last = records.values, np.zeros(len(records.times), dtype=bool)
    last[records.offsets[1:] - 1] = True
    dead = values[:, STATUS] == 1
    assert dead.sum() == (records.outcomes[:, DISPOSITION] == DIED).sum() > 50
    assert not (dead & ~last).any()
    assert np.isnan(values[dead, :STATUS]).all()
    assert (values[:, SBP] > values[:, DBP])[~np.isnan(values[:, SBP])].all()
    assert (records.times[records.offsets[:-1]] == 0).all()
    assert records.gaps[records.step_of_row > 0].min() >= 1
    assert set(records.outcomes[:, DISPOSITION]) == {HOME, ADMITTED, DIED}


def test_systolic_stays_above_diastolic_where_both_are_near():
    near = replace(CLASSES[0], share=1.0, means=(98.6, 80, 16, 0.2, 75, 78, 3))
    values = simulate(300, design=Design(classes=(near,))).values
    seen = values[~np.isnan(values[:, SBP])]
    assert (seen[:, SBP] - seen[:, DBP]).min() == 10


def test_night_is_from_ten_to_seven():
    hour = np.array([22.0, 21, 21, 6, 6, 23, 12])
    minutes = np.array([0.0, 59, 60, 59, 60, 26 * 60, 24 * 60])
    assert at_night(hour, minutes).tolist() == [True, False, True, True, False, True, False]


def test_a_patient_keeps_who_they_are(records):
    patients = records.patient_of_stay
    again = np.flatnonzero(np.diff(patients) == 0)
    assert len(again) > 1000
    assert (records.static[again, :2] == records.static[again + 1, :2]).all()  # age and gender
    assert np.bincount(patients).max() <= 4


def test_abnormal_values_are_the_rarer_ones(records):
    alive = records.values[records.values[:, STATUS] == 0]
    fever, low_pressure = alive[:, TEMPERATURE] >= 100.4, alive[:, SBP] < 90
    assert 0.01 < fever.mean() < 0.15
    assert 0.01 < low_pressure.mean() < 0.1
    assert 0.002 < (alive[:, HEARTRATE] > 130).mean() < 0.05
    first = records.values[records.offsets[:-1], HEARTRATE]
    assert 75 < np.nanmedian(first) < 95


def test_same_seed_same_records_other_seed_other_records():
    one, same, other = simulate(50, 7), simulate(50, 7), simulate(50, 8)
    np.testing.assert_array_equal(one.values, same.values)
    np.testing.assert_array_equal(one.times, same.times)
    assert one.values.shape != other.values.shape or not np.array_equal(one.times, other.times)


def test_patients_made_in_chunks_are_all_different(monkeypatch):
    monkeypatch.setattr(simulator, "_CHUNK", 1000)
    records = simulate(3500, 1)
    assert len(set(records.patients)) == 3500
    assert len(set(records.stays)) == len(records)
    chunks = [np.flatnonzero(records.patients == f"p{first:07d}")[0] for first in (0, 1000, 2000)]
    assert len({tuple(records.static[stay]) for stay in chunks}) == 3
    assert truth().missed(recovered(records), times=2.0) == {}


def test_the_paper_s_size_takes_less_than_two_seconds():
    start = time.process_time()
    simulate(PATIENTS, seed=9)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("seed", range(6))
def test_few_records_are_estimated_without_complaint(seed):
    records = simulate(1, seed)
    found = recovered(records.first_steps(1 + seed // 3))
    assert set(found) == set(truth().facts)
    assert len(truth().missed(found)) > 20  # not a number, or far off


def test_records_of_something_else_are_bad_input(records):
    other = replace(records.schema, static=records.schema.static[::-1])
    with pytest.raises(InputError, match="not records of the simulator"):
        recovered(replace(records, schema=other))


def test_bad_input():
    with pytest.raises(InputError, match="patients"):
        simulate(0)
    with pytest.raises(InputError, match="seed"):
        simulate(1, -1)
    with pytest.raises(InputError, match="stays"):
        Design(stays=(0.5, 0.4))
    with pytest.raises(InputError, match="vital signs"):
        Design(spread=(1.0, 1.0))
    skew = tuple(tuple(2.0 if i == 0 else float(i == j) for j in range(7)) for i in range(7))
    with pytest.raises(InputError, match="correlation"):
        Design(correlation=skew)


def test_the_page_states_the_truth():
    rows = re.findall(r"^\| `(\w+)` \| ([-\d.]+) \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE)
    assert {name for name, *_ in rows} == set(truth().facts)
    for name, value, tolerance in rows:
        fact = truth().facts[name]
        slack = 0.0005 if name in SIMULATED else 1e-12
        decimals = len(value.partition(".")[2])
        assert float(value) == pytest.approx(round(fact.value, decimals), abs=slack), name
        assert float(tolerance) == fact.tolerance, name
