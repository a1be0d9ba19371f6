"""The family with a proof: releases that verify, resume and make records; what is refused."""

import json
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch

import privet
from privet.data.records.coding import coded_dataset
from privet.data.records.simulator import simulate
from privet.errors import InputError
from privet.files import read_json
from privet.guarantee import Adjacency
from privet.models.record_maker import RecordMaker
from privet.release import Release
from privet.synthesis.family import FAMILY, LADDER
from privet.synthesis.fitting import METHODS, fit, resume
from privet.synthesis.sampling import sample
from privet.training import dpsgd
from privet.verification.release import verify

RECORDS = simulate(60, seed=2)
RECORDS = replace(RECORDS, schema=replace(RECORDS.schema, max_steps=6))  # enough, and quick
# Every patient in every step: calibration is then exact and instant.
SMALL = {"epochs": 8.0, "batch": RECORDS.schema.nominal_size, "free_batch": 8}


def small(name, **changes):
    size = "transformer-16-1-4" if name == "igamt" else "gru-16-1-4"
    return SMALL | {"model": size} | changes


@pytest.fixture
def ledger(tmp_path):
    opened = privet.Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


@pytest.mark.parametrize("name", FAMILY)
def test_a_release_is_verified_loaded_and_makes_records(name, ledger, tmp_path):
    made = fit(name, RECORDS, epsilon=3.0, ledger=ledger, out=tmp_path / "r", **small(name))
    checked = verify(tmp_path / "r", ledger=ledger)
    assert checked.ok, [f for f in checked.findings if not f.ok]
    again = privet.load(tmp_path / "r")
    assert isinstance(again.model, RecordMaker)
    for key, value in made.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], value)
    (one,), (two,) = (sample(r, 30, seed=5, where=["age>=40"]) for r in (made, again))
    assert np.array_equal(one.values, two.values, equal_nan=True)
    assert (one.static[:, 0] >= 40).all()
    assert (one.lengths >= 1).all()


@pytest.mark.parametrize("name", ["igamt", "gan"])
def test_the_statement_is_about_patients_and_follows_from_the_events(name, ledger):
    """One subsampled Gaussian a step, whatever the phases: the epsilon is dp-accounting's."""
    release = fit(name, RECORDS, epsilon=2.0, ledger=ledger, **small(name, batch=15, epochs=1.0))
    stated, mechanism = release.privacy, release.trust["mechanism"]
    assert (stated.unit, stated.basis, stated.adjacency) == (
        "patient",
        "proved",
        Adjacency.ADD_REMOVE,
    )
    accountant = dp.pld.PLDAccountant()
    step = dp.PoissonSampledDpEvent(
        mechanism["sampling_rate"], dp.GaussianDpEvent(mechanism["noise_multiplier"])
    )
    accountant.compose(step, mechanism["steps"])
    assert stated.epsilon == pytest.approx(accountant.get_epsilon(stated.delta), rel=1e-3)
    assert mechanism["clipping"]["name"] == "by-part"
    assert release.trust["analysis"] == "sound"


@pytest.mark.parametrize("gone", LADDER.values(), ids=LADDER)
def test_igamt_goes_without(gone, ledger):
    release = fit(
        "igamt", RECORDS, epsilon=3.0, ledger=ledger, **small("igamt", without=",".join(gone))
    )
    flags = set(release.config["model"].split("+")[1:])
    assert {"time", "mixed"} - flags == set(gone) & {"time", "mixed"}
    (made,) = sample(release, 10, seed=0)
    assert len(made) == 10


class KilledError(Exception):
    """As by a signal between two steps."""


def killed_after(steps):
    def watch(trainer):
        if trainer.next_step == steps:
            raise KilledError

    return watch


@pytest.mark.parametrize(("name", "steps"), [("igamt", 2), ("igamt", 6), ("daae", 6), ("gan", 3)])
def test_a_killed_run_ends_where_it_would_have_ended(name, steps, tmp_path, ledger):
    """In either phase: bit for bit, with all that the free steps keep."""
    given = small(name, epsilon=3.0, noise_seed=7, checkpoint_every=1)
    whole = fit(name, RECORDS, ledger=ledger, **given)
    with pytest.raises(KilledError):
        fit(name, RECORDS, ledger=ledger, out=tmp_path / "r", watch=killed_after(steps), **given)
    again = resume(tmp_path / "r", RECORDS, method=name, analysis="sound", ledger=ledger)
    assert again.trust["mechanism"]["steps_run"] == whole.trust["mechanism"]["steps_run"] == 8
    for key, value in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], value), key


def test_a_lost_step_is_repeated_with_its_secret_keys(tmp_path, ledger):
    """The checkpoint is two steps old: no step is charged twice."""
    given = small("igamt", epsilon=3.0, checkpoint_every=3)
    with pytest.raises(KilledError):
        fit("igamt", RECORDS, ledger=ledger, out=tmp_path / "r", watch=killed_after(5), **given)
    release = resume(tmp_path / "r", RECORDS, method="igamt", analysis="sound", ledger=ledger)
    assert release.trust["mechanism"]["redone_steps"] == 0
    assert verify(tmp_path / "r", ledger=ledger).ok


def test_nothing_that_saw_records_without_noise_is_released(ledger, tmp_path):
    fit("igamt", RECORDS, epsilon=3.0, ledger=ledger, out=tmp_path / "r", **small("igamt"))
    names = {name.split(".")[0] for name in Release.load(tmp_path / "r").model.state_dict()}
    assert names == {"body", "generator", "last", "levels", "spread", "start"}
    assert len(read_json(tmp_path / "r/internal/figures.json")["train_likelihood"]) == 1
    assert "likelihood" not in json.dumps(read_json(tmp_path / "r/trust.json"))


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        ("vae", {"without": "time"}, "cannot go without 'time'"),
        ("igamt", {"without": "wings"}, "cannot go without 'wings'"),
        ("igamt", {"model": "gru-16-1-4"}, "another coder"),
        ("igamt", {"model": "rows-64-1"}, "unknown generator"),
        ("igamt", {"coder_share": 1.0}, "bad coder_share"),
        ("igamt", {"free_steps": -1}, "bad free_steps"),
        ("vae", {"kl_weight": 0.0}, "are a law"),
        ("gan", {"anchor_weight": 1.0}, "nothing that private means could teach"),
        ("vae", {"anchor_weight": 1.0}, "nothing that private means could teach"),
        ("gan", {"settling": 64}, "no first phase"),
        ("igamt", {"settling": -1}, "bad settling"),
        ("igamt", {"augment": "shift"}, "records are learned as they are"),
        ("igamt", {"clipping": "round"}, "unknown clipping"),
        ("daae", {"row_weight": 1.0}, "row_weight"),
    ],
)
def test_what_cannot_be_is_refused(name, changes, match, ledger):
    with pytest.raises(InputError, match=match):
        fit(name, RECORDS, epsilon=3.0, ledger=ledger, **small(name, **changes))


@pytest.mark.parametrize("clipping", ["flat", "per-layer"])
def test_other_geometries_can_be_asked_for(clipping, ledger):
    release = fit("igamt", RECORDS, epsilon=3.0, ledger=ledger, **small("igamt", clipping=clipping))
    assert release.trust["mechanism"]["clipping"]["name"] == clipping


def test_the_first_weights_are_those_of_the_seed():
    data = coded_dataset(RECORDS)
    settings = METHODS["igamt"].under(None).settings
    models = [
        settings(epsilon=1.0, init_seed=seed, **small("igamt")).filled_for(data).network(data)
        for seed in (3, 3, 4)
    ]
    one, two, three = (model.state_dict() for model in models)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not all(torch.equal(one[key], three[key]) for key in one)


def test_the_canaries_of_a_run_say_less_than_is_proved(tmp_path, ledger):
    """Made-up patients with gradients of their own, in both phases."""
    data = coded_dataset(RECORDS)
    settings = METHODS["igamt"].under(None).settings(epsilon=2.0, canaries=2000, **small("igamt"))
    release = dpsgd.run(data, settings, out=tmp_path / "r", ledger=ledger)
    rows = read_json(tmp_path / "r/internal/audit.json")["audit"]
    assert rows
    assert all(row["epsilon"] <= release.privacy.epsilon for row in rows)
