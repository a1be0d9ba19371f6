import numpy as np
import pytest

from privet.errors import InputError
from privet.studies.synthesis.sources import PUBLIC, studied


def test_so_many_patients_are_left_to_learn_from():
    """Nominally; a hash of each patient's own id decides. Nobody is on both sides."""
    found = studied("simulator", records=400)
    assert found.train.schema.nominal_size == 400
    assert len(np.unique(found.train.patients)) == pytest.approx(400, rel=0.1)
    assert not set(found.train.patients) & set(found.test.patients)
    assert found.dataset.nominal_size == 400
    assert found.facts == {"holdout": 0.2, "records": 400, "data_seed": 0}


def test_the_papers_numbers_are_the_default():
    found = studied("simulator")
    assert found.train.schema.nominal_size == 14_024
    assert len(found.test) > 3_000


def test_another_seed_makes_other_records():
    one, other = (studied("simulator", records=50, data_seed=s) for s in (0, 1))
    assert not np.array_equal(one.train.values, other.train.values)
    assert one.facts != other.facts


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("mine.csv", {}, "public records only"),
        ("mimic-iv-ed", {}, "public records only"),  # for those with access alone
        ("mimic-iv-ed-demo", {"records": 5}, "the simulator's"),
        ("eicu-demo", {"data_seed": 5}, "the simulator's"),
        ("simulator", {"records": 0}, "bad number of records"),
        ("simulator", {"holdout": 0.0}, "bad holdout"),
        ("simulator", {"holdout": 1.0}, "bad holdout"),
        ("simulator", {"records": 50, "label": "rhythm"}, "temperature, heartrate"),
    ],
)
def test_bad_sources_are_refused(name, how, said):
    with pytest.raises(InputError, match=said):
        studied(name, **how)


def test_a_label_of_ones_own():
    shown = studied("simulator", records=50, label="pain").shown
    assert shown.trajectories == ("heartrate", "sbp", "pain")
    assert PUBLIC["simulator"].label == "dbp"
