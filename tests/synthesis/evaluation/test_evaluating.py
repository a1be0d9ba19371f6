import json
from dataclasses import replace

import numpy as np
import pytest

from privet.data.records.features import Numeric
from privet.errors import InputError
from privet.synthesis.evaluation import MEASURES, evaluate, find_measure
from privet.synthesis.evaluation.evaluating import LEAST

QUICK = ["marginals", "missing-rates", "timing", "nearness"]


def test_everything_is_measured_beside_its_yardstick_and_is_json(make_records):
    train, test, made = (make_records(110, seed=seed) for seed in (1, 2, 3))
    seen = []
    result = evaluate(train, test, made, watch=lambda *told: seen.append(told))
    assert seen == [(k + 1, len(MEASURES)) for k in range(len(MEASURES))]
    found = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert list(found["measures"]) == list(MEASURES)
    assert all(set(m) == {"synthetic", "real"} for m in found["measures"].values())
    assert found["stays"] == dict.fromkeys(("train", "test", "synthetic", "compared"), 110)
    assert "not for release" in found["basis"]
    unknown = [row["says"] for row in found["summary"] if row["synthetic"] is None]
    assert unknown == []


def test_copies_are_perfect_fidelity_and_no_privacy(make_records):
    train, test = make_records(120, seed=1), make_records(120, seed=2)
    result = evaluate(train, test, train, measures=[*QUICK, "copies"]).to_json()["measures"]
    for name in ("marginals", "missing-rates", "timing"):
        assert result[name]["synthetic"] == result[name]["real"]
    assert result["nearness"]["synthetic"]["beyond_luck"] == 1.0
    assert result["nearness"]["real"]["beyond_luck"] == 0.0
    assert result["copies"]["synthetic"]["percent"] == 100
    assert result["copies"]["real"]["percent"] == 0


def test_as_many_synthetic_as_training_stays_are_compared(make_records):
    train, test = make_records(50, seed=1), make_records(60, seed=2)
    many = make_records(200, seed=3)
    result = evaluate(train, test, many, measures=["downstream"])
    assert result.stays["compared"] == 50
    stays = [result.measures["downstream"][who]["stays"] for who in ("synthetic", "real")]
    assert stays == [50, 50]


def test_figures_depend_on_the_seed_alone_and_not_on_their_company(make_records):
    sides = [make_records(60, seed=seed) for seed in (1, 2, 3)]
    alone = evaluate(*sides, measures=["membership"], seed=5)
    among = evaluate(*sides, measures=["copies", "membership"], seed=5)
    other = evaluate(*sides, measures=["membership"], seed=6)
    assert alone.measures["membership"] == among.measures["membership"]
    assert alone.measures["membership"] != other.measures["membership"]


def test_the_yardstick_of_privacy_is_of_other_patients(make_records):
    """Test patients have three equal stays each: in both halves, they would look like copies."""
    train, made = make_records(60, seed=1), make_records(60, seed=3)
    test = make_records(20, seed=2).part(np.repeat(np.arange(20), 3))
    found = evaluate(train, test, made, measures=["copies"]).measures["copies"]["real"]
    assert found["exact_test"]["share"] == 0
    assert 0 < found["exact_test"]["of"] < 60


def test_shared_patients_are_a_caution(make_records):
    train, made = make_records(40, seed=1), make_records(40, seed=3)
    assert not evaluate(train, make_records(40, seed=2), made, measures=["timing"]).cautions
    (caution,) = evaluate(train, train, made, measures=["timing"]).cautions
    assert caution.startswith("40 patient ids")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_too_few_stays_and_other_schemas_are_bad_input(make_records, make_schema, place):
    sides = [make_records(40, seed=seed) for seed in (1, 2, 3)]
    name = ("real_train", "real_test", "synthetic")[place]
    few = [s.part(range(LEAST - 1)) if k == place else s for k, s in enumerate(sides)]
    with pytest.raises(InputError, match=f"{name}: too few stays: got {LEAST - 1}"):
        evaluate(*few)
    columns = (Numeric(name="pulse", low=0, high=999), *make_schema().temporal[1:])
    wider = make_schema(temporal=columns)
    other = [replace(s, schema=wider) if k == place else s for k, s in enumerate(sides)]
    with pytest.raises(InputError, match="another schema"):
        evaluate(*other)


def test_an_unknown_measure_is_bad_input_before_anything_is_computed(make_records):
    with pytest.raises(InputError, match="did you mean 'marginals'"):
        evaluate(*[make_records(5)] * 3, measures=["marginal"])
    with pytest.raises(InputError, match="classes-of:COLUMN"):
        find_measure("classes-of")


def test_records_with_hardly_anything_in_them_are_measured(make_records, make_schema):
    """No static columns, no outcomes, no constraints, a column without values, empty stays."""
    bare = make_schema(static=(), outcomes=(), constraints=())
    sides = []
    for seed in (1, 2, 3):
        records = make_records(30, seed=seed)
        values = records.values.copy()
        values[:, 1:] = np.nan
        none = np.zeros((30, 0))
        thin = replace(records, schema=bare, values=values, static=none, outcomes=none)
        sides.append(thin.first_steps(2))
    nothing = sides[2].first_steps(0)
    for synthetic in (sides[2], nothing):
        found = evaluate(*sides[:2], synthetic).to_json()
        json.dumps(found, allow_nan=False)
    assert found["measures"]["marginals"]["synthetic"]["features"]["pulse"]["wasserstein"] == 1.0
    assert found["measures"]["discriminative"]["synthetic"]["auroc"] > 0.95
