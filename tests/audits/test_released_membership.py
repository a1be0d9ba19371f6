"""Membership inference against a release: known answers, and whom the shadows learn from."""

import json

import numpy as np
import pytest
import torch

import privet
from privet.audits import released_membership
from privet.audits.released_membership import membership, require_trained_on
from privet.audits.roc_plot import roc_plot
from privet.data.dataset import Bounds, Dataset, Split
from privet.errors import InputError
from privet.ledger import Ledger
from privet.release import Release

FEATURES = 60


def data_of(n, seed=0, units=None):
    """Random labels: nothing can be learned of a record but itself."""
    rng = np.random.default_rng(seed)

    def split():
        y = rng.integers(0, 2, n)
        return Split(x=rng.random((n, FEATURES)), y=y, units=units)

    unit = "example" if units is None else "user"
    return Dataset(
        name=f"coins of {n} {unit}", train=split(), test=split(),
        bounds=Bounds(low=(0.0,), high=(1.0,)), classes=("head", "tail"), nominal_size=n,
        licence="none", source="made up", unit=unit, test_is_public=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("home") / "ledger.db")


def released(data, ledger, epsilon, **more):
    settings = {"batch": data.nominal_size, "epochs": 20, "model": "linear", "learning_rate": 4.0}
    return privet.train("dpsgd", data, epsilon=epsilon, ledger=ledger, **settings | more)


def test_a_model_that_knows_its_members_gives_them_away():
    """Known answers: right about members alone, right about all alike."""
    data = data_of(20)
    knows = torch.nn.Linear(FEATURES, 2)
    config = {
        "shape": [FEATURES],
        "classes": list(data.classes),
        "bounds": {"low": [0], "high": [1]},
    }
    release = Release(model=knows, config=config, trust={})
    seen = {row.tobytes(): label for row, label in zip(data.train.x, data.train.y, strict=True)}

    def scores(x):
        known = np.array([seen.get(row.tobytes(), -1) for row in x])
        return np.stack([known == 0, known == 1], axis=1) * 9.0

    object.__setattr__(release, "scores", scores)
    assert membership(release, data)["loss"].auc == 1.0
    object.__setattr__(release, "scores", lambda x: np.zeros((len(x), 2)))
    assert membership(release, data)["loss"].auc == 0.5


def test_memorised_records_are_found_and_hidden_ones_are_not(ledger):
    """Epsilon 1000 hides nothing; at 0.5 both curves stay within three standard errors of 1/2."""
    data = data_of(60)
    error = np.sqrt(121 / (12 * 60 * 60))  # of an area from 60 and 60 scores
    open_ = membership(released(data, ledger, 1000), data, shadows=8, seed=0)
    assert open_["loss"].auc > 0.5 + 3 * error
    assert open_["lira"].auc > 0.5 + 4 * error
    hidden = membership(released(data, ledger, 0.5), data, shadows=8, seed=0)
    assert hidden["loss"].auc == pytest.approx(0.5, abs=3 * error)
    assert hidden["lira"].auc == pytest.approx(0.5, abs=3 * error)


def test_shadows_learn_random_halves_of_all_units_under_the_plan(ledger, monkeypatch):
    users = np.repeat(np.arange(15), 2)
    data = data_of(30, seed=7, units=users)
    release = released(data, ledger, 5.0, epochs=1, batch=15)
    seen = []
    make = released_membership.build

    def watched(half, settings, plan, **more):
        seen.append((half, plan))
        return make(half, settings, plan, **more)

    monkeypatch.setattr(released_membership, "build", watched)
    membership(release, data, shadows=8, seed=3)
    everyone = {row.tobytes() for row in np.concatenate([data.train.x, data.test.x])}
    sizes = set()
    for half, plan in seen:
        rows = {row.tobytes() for row in half.train.x}
        assert rows < everyone
        assert (np.bincount(half.train.units) == 2).all()  # a user is in or out
        assert half.nominal_size == data.nominal_size
        assert plan.normaliser == release.trust["mechanism"]["normaliser"]
        sizes.add(len(rows))
    assert len(seen) == 8
    assert len(sizes) > 1


def test_other_records_are_not_its_training_records(ledger):
    data = data_of(30)
    release = released(data, ledger, 5.0, epochs=1)
    require_trained_on(release.trust, data, ledger)
    with pytest.raises(InputError, match="trained on other records"):
        require_trained_on(release.trust, data_of(30, seed=1), ledger)
    unknown = {**release.trust, "provenance": release.trust["provenance"] | {"run": "other"}}
    require_trained_on(unknown, data_of(30, seed=1), ledger)
    with pytest.raises(InputError, match="do not fit"):
        membership(release, privet.data.load("digits"))
    with pytest.raises(InputError, match="too few shadow models"):
        membership(release, data, shadows=2)


def test_the_curves_are_drawn(ledger):
    data = data_of(30)
    curves = membership(released(data, ledger, 5.0, epochs=1), data, shadows=8, seed=0)
    drawn = roc_plot(curves)
    assert all(f">{name}<".encode() in drawn for name in ("loss", "lira", "guessing"))
    assert json.dumps(curves["loss"].to_json())
