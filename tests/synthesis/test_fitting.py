"""Fitting by name: targets, settings, holdout, and releases that load, verify and resume."""

from dataclasses import replace

import numpy as np
import pytest

import privet
from privet.data.records.simulator import simulate
from privet.errors import InputError
from privet.models.row_transformer import GAINS
from privet.release import Release
from privet.synthesis.autoregressive import SHARES
from privet.synthesis.fitting import METHODS, find_method, fit, quick_epochs
from privet.synthesis.sampling import sample
from privet.verification.release import verify

TINY = {"model": "rows-16-0", "epochs": 1.0}


@pytest.fixture
def ledger(tmp_path):
    opened = privet.Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


@pytest.mark.parametrize("analysis", ["sound", "none"])
def test_a_release_is_saved_loaded_and_verified(analysis, ledger, tmp_path):
    target = {"epsilon": 3.0} if analysis == "sound" else {}
    made = fit(
        "autoregressive", simulate(80), analysis=analysis, ledger=ledger, out=tmp_path / "r",
        **target, **TINY,
    )  # fmt: skip
    checked = verify(tmp_path / "r", ledger=ledger)
    assert checked.ok, [f for f in checked.findings if not f.ok]
    again = Release.load(tmp_path / "r")
    for name, value in made.model.state_dict().items():
        assert (again.model.state_dict()[name] == value).all()
    assert (made.privacy is not None) == (analysis == "sound")


def test_a_schema_that_was_changed_is_noticed(ledger, tmp_path):
    from privet.files import read_json, write_json
    from privet.release import sha256

    folder = tmp_path / "r"
    fit("autoregressive", simulate(60), analysis="none", ledger=ledger, out=folder, **TINY)
    config = read_json(folder / "config.json")
    config["schema"]["temporal"][0]["high"] += 1
    write_json(folder / "config.json", config)
    manifest = read_json(folder / "manifest.json")
    manifest["files"]["config.json"] = sha256(folder / "config.json")
    write_json(folder / "manifest.json", manifest)
    checked = verify(folder, ledger=ledger)
    assert [f.check for f in checked.findings if not f.ok] == ["config matches the card"]


def test_figures_on_private_records_stay_inside(ledger, tmp_path):
    from privet.files import read_json

    release = fit(
        "autoregressive", simulate(60), epsilon=3.0, ledger=ledger, out=tmp_path / "r", **TINY
    )
    inside = read_json(tmp_path / "r/internal/figures.json")
    assert len(inside["train_likelihood"]) == 4
    assert "train_likelihood" not in str(release.trust)


def test_patients_set_aside_are_not_learned_from(ledger):
    records = simulate(100)
    release = fit("autoregressive", records, epsilon=3.0, holdout=0.3, ledger=ledger, **TINY)
    assert release.trust["data"]["nominal_size"] == 70
    assert release.trust["provenance"]["config"]["holdout"] == 0.3


def test_a_target_is_needed_or_refused(ledger):
    with pytest.raises(InputError, match="no privacy target"):
        fit("autoregressive", simulate(20), ledger=ledger)
    with pytest.raises(InputError, match="takes no target"):
        fit("autoregressive", simulate(20), analysis="none", epsilon=1.0, ledger=ledger)


def test_unknown_names_are_refused_with_the_nearest(ledger):
    with pytest.raises(InputError, match="did you mean 'autoregressive'"):
        find_method("autoregresive")
    with pytest.raises(InputError, match="unknown setting"):
        fit("autoregressive", simulate(20), epsilon=1.0, learning=3, ledger=ledger)
    with pytest.raises(InputError, match="no patient records"):
        fit("autoregressive", np.zeros(3), epsilon=1.0)


def test_one_patient_can_be_learned_from(ledger, tmp_path):
    one = simulate(40)
    one = one.part(one.patients == one.patients[0])
    release = fit(
        "autoregressive", one, epsilon=3.0, batch=10, ledger=ledger, out=tmp_path / "r", **TINY
    )
    assert release.privacy.epsilon <= 3.0


@pytest.mark.parametrize("kept", [(), ("static",), ("outcomes",)])
def test_static_columns_and_outcomes_may_be_absent(kept, ledger):
    records = simulate(40)
    gone = {part: () for part in ("static", "outcomes") if part not in kept}
    empty = {part: np.zeros((len(records), 0)) for part in gone}
    bare = replace(records, schema=replace(records.schema, **gone), **empty)
    release = fit("autoregressive", bare, epsilon=3.0, ledger=ledger, **TINY)
    (made,) = sample(release, 20, seed=1)
    assert made.static.shape == (20, len(bare.schema.static))
    assert made.outcomes.shape == (20, len(bare.schema.outcomes))


def test_layers_are_clipped_to_their_shares(ledger):
    release = fit("autoregressive", simulate(40), epsilon=3.0, ledger=ledger, **TINY)
    numbers = release.trust["mechanism"]["clipping"]["numbers"]
    assert {name: numbers[name] for name in SHARES} == dict(SHARES)


def test_a_patient_with_two_sequences_and_no_column_of_stays_is_refused():
    records = simulate(60)
    with pytest.raises(InputError, match="several stays"):
        replace(records, schema=replace(records.schema, stay=None))


def test_the_gains_that_released_weights_are_for():
    """Weights of `rows-WIDTH-LAYERS` mean something only under these: others need another name."""
    assert GAINS == {
        "shift": 16.0, "own": 10.0, "gap": 5.0, "measured": 12.0, "values": 4.0, "habits": 5.0,
        "static": 5.0, "outcome": 4.5, "outcome shift": 3.0,
    }  # fmt: skip


def test_quick_passes_follow_from_public_sizes():
    small, large = simulate(100).schema, replace(simulate(10).schema, nominal_size=10**7)
    assert quick_epochs(small) == 10.0
    assert quick_epochs(large) == 1.0


def test_a_quick_fit_as_published_has_no_larger_batch_than_patients_are_left(ledger):
    """Of 100, a fifth are set aside: 80 are fewer than the usual batch of a first look."""
    few = simulate(100)
    few = replace(few, schema=replace(few.schema, max_steps=3)).first_steps(3)
    release = fit("vae", few, analysis="none", quick=True, holdout=0.2, ledger=ledger)
    assert release.trust["mechanism"]["batch"] == 80


def test_every_method_is_sound_first():
    assert all(next(iter(method.analyses)) == "sound" for method in METHODS.values())
