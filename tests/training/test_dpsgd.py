"""`train dpsgd`: what its settings do, seen from the release."""

import dp_accounting as dp
import numpy as np
import pytest

import privet
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.privacy.accounting import epsilon_of
from privet.training.dpsgd import _learning_rate
from privet.training.settings import Settings
from privet.verification import verify

QUICK = {"epsilon": 3.0, "model": "linear", "epochs": 1, "batch": 250}


@pytest.fixture(scope="module")
def digits():
    return privet.data.load("digits")


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


def trained(data, ledger, tmp_path, **changes):
    return privet.train("dpsgd", data, ledger=ledger, out=tmp_path / "run", **(QUICK | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "cyclic-poisson", "bands": 3},
        {"sampler": "fixed-batches", "clipping": "per-layer"},
        {"sampler": "shuffled", "schedule": "cosine", "warmup": 0.2},
        {"clipping": "weighted", "optimizer": "adam", "learning_rate": 0.01, "ema": 0.9},
        {"model": "cnn-tiny", "augment": "shift", "views": 2},
        {"model": "scatter-linear"},
    ],
    ids=lambda c: "-".join(str(v) for v in c.values()),
)
def test_every_way_of_training_ends_in_a_release_that_verifies(digits, ledger, tmp_path, changes):
    release = trained(digits, ledger, tmp_path, **changes)
    found = verify(tmp_path / "run", ledger=ledger)
    assert found.ok, [f for f in found.findings if not f.ok]
    assert any(f.check == "ledger" for f in found.findings)
    assert release.privacy.epsilon <= 3.0
    again = privet.load(tmp_path / "run")
    assert np.array_equal(again.predict(digits.test.x), release.predict(digits.test.x))


def test_a_shuffled_run_states_no_add_remove_and_no_amplification(digits, ledger, tmp_path):
    release = trained(digits, ledger, tmp_path, sampler="shuffled", epochs=3)
    assert [g.adjacency for g in release.guarantees] == [
        Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE,
    ]  # fmt: skip
    z = release.trust["mechanism"]["noise_multiplier"]
    alone = dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 3)
    assert release.guarantees[0].epsilon == pytest.approx(epsilon_of(alone, 1e-5))
    assert any("number of units is public" in a for a in release.guarantees[0].assumptions)


def test_the_ledger_is_charged_by_turns(digits, ledger, tmp_path):
    release = trained(digits, ledger, tmp_path, sampler="fixed-batches", epochs=3)
    run = ledger.run(release.trust["provenance"]["run"])
    assert (run.planned, run.charged) == (3, 3)
    assert release.trust["mechanism"]["steps_run"] > 3


def test_correlated_noise_is_refused_with_plain_poisson(digits, ledger, tmp_path):
    with pytest.raises(InputError, match="turns apart"):
        trained(digits, ledger, tmp_path, bands=4)
    assert not (tmp_path / "run").exists()


def test_views_of_what_is_no_image_are_refused_before_anything_is_reserved(ledger, tmp_path):
    rng = np.random.default_rng(0)
    table = privet.data.Dataset(
        name="table", train=privet.data.Split(x=rng.uniform(size=(80, 4)), y=np.arange(80) % 2),
        test=privet.data.Split(x=rng.uniform(size=(8, 4)), y=np.arange(8) % 2),
        bounds=privet.data.Bounds(low=(0.0,), high=(1.0,)), classes=("a", "b"), nominal_size=80,
        licence="none", source="made up",
    )  # fmt: skip
    with pytest.raises(InputError, match="images only"):
        trained(table, ledger, tmp_path, batch=80, augment="shift", views=2)
    assert "table" not in ledger.names()
    assert not (tmp_path / "run").exists()


def test_a_front_is_sent_through_once_and_released_with_the_head(digits, ledger, tmp_path):
    release = trained(digits, ledger, tmp_path, model="scatter-linear", epochs=4)
    assert type(release.model).__name__ == "Fronted"
    assert release.trust["utility"]["test_accuracy"] > 0.6
    sizes = release.trust["provenance"]["model"]
    assert sizes["trainable"] == sum(p.numel() for p in release.model.head.parameters())


def test_sgd_is_in_units_of_the_clip_norm_and_adam_is_not():
    sgd = Settings(epsilon=1.0, learning_rate=2.0, clip_norm=0.1)
    adam = Settings(epsilon=1.0, learning_rate=2.0, clip_norm=0.1, optimizer="adam")
    assert _learning_rate(sgd, 0.5) == pytest.approx(10.0)
    assert _learning_rate(adam, 0.5) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": "stairs"}, {"optimizer": "lion"}, {"clipping": "soft"}, {"augment": "mixup"},
        {"sampler": "shuffle"}, {"ema": 1.0}, {"warmup": -0.1}, {"views": 0}, {"bands": 0},
        {"contribution": 0}, {"views": 4}, {"momentum": 1.0},
        {"keep_keys": False, "sampler": "fixed-batches"}, {"keep_keys": False, "bands": 2},
    ],
    ids=lambda c: "-".join(f"{k}={v}" for k, v in c.items()),
)  # fmt: skip
def test_bad_settings_are_refused_before_anything_is_touched(changes):
    with pytest.raises(InputError):
        Settings(epsilon=1.0, **changes)


def test_a_recipe_fills_what_was_not_set(digits, ledger, tmp_path, monkeypatch):
    from privet.training import recipes

    made_up = recipes.Recipe(
        name="made-up", summary="", tuned_on="digits",
        settings={"learning_rate": 0.7, "momentum": 0.5, "model": "mlp"},
    )  # fmt: skip
    monkeypatch.setitem(recipes.RECIPES, "made-up", made_up)
    release = trained(digits, ledger, tmp_path, recipe="made-up", momentum=0.3)
    config = release.trust["provenance"]["config"]
    assert (config["learning_rate"], config["momentum"], config["model"]) == (0.7, 0.3, "linear")
    assert release.trust["tuning"]["kind"] == "uncharged"
    assert release.trust["tuning"]["detail"].endswith("; overridden: momentum 0.3, model linear")
