"""Small fits without and with a canary patient: what paper mode leaks, and sound mode does not."""

import numpy as np
import pytest
import torch

from privet.audits.canary_patient import PATIENTS, canary_patient, patients, schema, seen
from privet.audits.mechanism import audit_mechanism, refutes
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.models.record_maker import RecordMaker
from privet.models.record_rows import RecordRows, RowSizes
from privet.synthesis.family import FAMILY


def test_the_worlds_differ_in_the_canary_alone():
    without, with_ = patients(False), patients(True)
    assert (len(without.train), len(with_.train)) == (PATIENTS - 1, PATIENTS)
    assert np.array_equal(with_.train.x[:-1], without.train.x)
    assert without.nominal_size == with_.nominal_size == PATIENTS
    rows = RecordRows(RowSizes.of(schema())).read(torch.from_numpy(with_.train.x).float() / 255)
    assert rows.m[-1].min() == 1
    assert rows.x[-1].min() == pytest.approx(7 / 8), "the middle of the last of four bins"
    assert rows.m[:-1].sum() == PATIENTS - 1, "a row each, and nothing else"


@pytest.mark.parametrize("analysis", ["paper", "sound"])
@pytest.mark.parametrize("method", FAMILY)
def test_every_member_can_be_audited(method, analysis):
    """Whole fits, by the method's own trainer: the same seed, the same generator."""
    subject = canary_patient(method, analysis, epochs=2.0)
    assert subject.epsilon == pytest.approx(1.5, abs=2e-3)
    assert subject.adjacency is Adjacency.ADD_REMOVE
    assert subject.unit == "patient"
    assert bool(subject.flaw) == (analysis == "paper")
    first, again = (subject.sample(True, 2, 5) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert first.shape == (2, 2 * 3 * 3)


def test_a_fit_that_begins_anew_is_a_new_fit():
    fits, data = canary_patient("igamt", epochs=4.0).sample, patients(True)
    one = fits.fitter(data)
    one(1)
    assert np.array_equal(seen(one(2)), seen(fits.fitter(data)(2)))


def test_cut_points_and_odds_are_looked_at():
    """Or what only they tell would be overlooked: all in the last bin, nothing empty."""
    maker = canary_patient("igamt", epochs=2.0).sample.fitter(patients(False))(1)
    as_it_is = seen(maker)
    with torch.no_grad():
        maker.levels.cuts.fill_(-1e6)
    all_high = seen(maker).reshape(3, 6)
    assert np.allclose(all_high[:, :3], 7 / 8 * all_high[:, 3:], atol=1e-5)
    assert not np.allclose(all_high.flatten(), as_it_is, atol=0.05)
    with torch.no_grad():
        maker.levels.odds.fill_(20.0)
    assert np.allclose(seen(maker).reshape(3, 6), [7 / 8] * 3 + [1.0] * 3, atol=1e-3)


def test_what_igamt_releases_as_published_tells_the_canary():
    """Of four fits in each world all are told apart, by far: chance does that once in 70."""
    subject = canary_patient("igamt", "paper")
    without, with_ = (subject.statistic(subject.sample(one, 4, 3 + one)) for one in (False, True))
    assert with_.min() > without.max() + 1.0


@pytest.mark.slow
@pytest.mark.parametrize("version", ["thesis", "aaai"])
def test_the_claim_of_igamt_is_refuted(version):
    subject = canary_patient("igamt", "paper", version=version)
    evidence = audit_mechanism(subject)
    assert refutes(evidence, subject)
    assert evidence.epsilon > 2.0


@pytest.mark.slow
def test_the_proof_of_igamt_stands():
    subject = canary_patient("igamt", "sound")
    evidence = audit_mechanism(subject)
    assert not refutes(evidence, subject)
    assert evidence.epsilon < subject.epsilon


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("autoregressive", "sound"), {}, "no canary patient"),
        (("igamt", "none"), {}, "nothing is claimed"),
        (("vae", "paper"), {"without": "mask"}, "no such setting here"),
        (("igamt", "sound"), {"version": "aaai"}, "no such setting here"),
        (("igamt", "paper"), {"epsilon": -1.0}, "epsilon"),
    ],
)
def test_what_cannot_be_audited_so_is_refused(arguments, options, message):
    with pytest.raises(InputError, match=message):
        canary_patient(*arguments, **options)


def test_a_generator_that_diverged_is_a_run_like_any_other():
    maker = canary_patient("vae", "paper", epochs=1.0).sample.fitter(patients(False))(1)
    assert isinstance(maker, RecordMaker)
    with torch.no_grad():
        maker.last.x.bias.fill_(float("nan"))
    assert np.isfinite(seen(maker)).all()
