from dataclasses import replace

import numpy as np

from privet.synthesis.evaluation.projection import compare


def test_records_against_themselves_cover_each_other(make_records, beside):
    records = make_records(200)
    outcome = compare(beside(records, records))
    assert outcome.figures["first_axis"] == outcome.figures["second_axis"] == 0
    assert np.array_equal(*outcome.drawn["points"])


def test_the_plane_is_that_of_the_test_records_alone(make_records, beside):
    records, others = make_records(200), make_records(200, seed=1)
    wild = replace(others, values=others.values * 1.8)
    plain, bent = compare(beside(records, others)), compare(beside(records, wild))
    assert np.allclose(plain.drawn["points"][0], bent.drawn["points"][0])
    assert np.allclose(*(f.figures["variance_explained"] for f in (plain, bent)))
    assert bent.figures["first_axis"] > 3 * plain.figures["first_axis"]
