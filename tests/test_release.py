import json
import shutil
import stat

import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.engine.handover import accuracy_figures
from privet.errors import InputError
from privet.ledger import Ledger
from privet.release import MANIFEST, RELEASED_FILES, Release, export
from privet.training import train
from privet.verification import verify


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def saved(trained, make_data):
    """One small release on disk, trained once for the module; a fresh copy for each test."""
    folder = trained / "run"
    if not folder.exists():
        book = Ledger(trained / "ledger.db")
        train(
            "dpsgd", make_data(), epsilon=8.0, delta=1e-5, epochs=3, model="mlp",
            out=folder, ledger=book,
        )  # fmt: skip
        book.close()
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def test_a_lost_manifest_is_told_from_an_unfinished_run(copy):
    (copy / MANIFEST).unlink()
    with pytest.raises(InputError, match=r"finished, and its manifest is gone.*restore manifest"):
        verify(copy)
    (copy / "internal" / "checkpoint.pt").write_bytes(b"")  # killed while the card was written
    with pytest.raises(InputError, match=r"the run is unfinished.*privet resume"):
        verify(copy)


def test_a_release_loads_with_the_same_predictions(saved, make_data):
    data = make_data()
    release = Release.load(saved)
    again = Release.load(saved)
    assert torch.equal(release.scores(data.test.x), again.scores(data.test.x))
    assert release.trust["utility"] == accuracy_figures(release, data)


def test_predictions_do_not_depend_on_the_company_of_other_examples(saved, make_data):
    release, x = Release.load(saved), make_data().test.x
    together = release.scores(x)
    alone = torch.cat([release.scores(x[i : i + 1]) for i in range(len(x))])
    assert torch.allclose(together, alone, atol=1e-6)


def test_values_outside_the_bounds_are_clamped_as_in_training(saved, make_data):
    release, x = Release.load(saved), make_data().test.x
    far = np.where(x > 0.5, 100.0, -100.0).astype(np.float32)
    near = np.where(x > 0.5, 1.0, 0.0).astype(np.float32)
    assert torch.equal(release.scores(far), release.scores(near))


def test_missing_values_are_refused_not_classified(saved):
    with pytest.raises(InputError, match="missing"):
        Release.load(saved).predict([[0.1, float("nan"), 0.2, 0.3]])
    assert Release.load(saved).predict([[0.1, 0.5, 0.2, 0.3]]).shape == (1,)


def test_examples_of_another_shape_are_refused(saved):
    with pytest.raises(InputError, match="wrong shape"):
        Release.load(saved).predict(np.zeros((2, 5)))


def test_no_pickle_no_key_and_no_private_figure_is_released(saved):
    released = {p.name for p in saved.iterdir() if p.is_file()}
    assert released == {*RELEASED_FILES, MANIFEST}
    card = (saved / "trust.json").read_text()
    assert "train_accuracy" not in card
    assert "train_accuracy" in (saved / "internal" / "figures.json").read_text()


def test_keys_are_destroyed_when_the_run_ends_and_the_rest_is_the_owners(saved):
    internal = saved / "internal"
    assert not (internal / "checkpoint.pt").exists()
    assert not (internal / "steps.log").exists()
    assert stat.S_IMODE(internal.stat().st_mode) == 0o700
    assert stat.S_IMODE((internal / "figures.json").stat().st_mode) == 0o600


def test_the_card_has_every_field_of_the_contract(saved):
    card = json.loads((saved / "trust.json").read_text())
    for name in ("method", "analysis", "data", "privacy", "robustness", "attacks", "audit",
                 "utility", "provenance"):  # fmt: skip
        assert name in card
    for guarantee in card["privacy"]:
        for name in ("epsilon", "delta", "unit", "adjacency", "basis", "accountant", "sampler",
                     "assumptions"):  # fmt: skip
            assert name in guarantee
    assert {g["adjacency"] for g in card["privacy"]} == {"add-remove", "replace-one"}
    assert card["provenance"]["data_digest"].startswith("blake2b-keyed:")


def test_the_strongest_proved_guarantee_is_the_quoted_one(saved):
    privacy = Release.load(saved).privacy
    assert privacy.adjacency == "add-remove"
    assert privacy.basis == "proved"
    assert 7.9 < privacy.epsilon <= 8.0


def test_an_export_leaves_internal_behind(saved, tmp_path):
    destination = export(saved, tmp_path / "out")
    assert {p.name for p in destination.iterdir()} == {*RELEASED_FILES, MANIFEST}
    assert privet.verify(destination).ok
    with pytest.raises(InputError, match="exists"):
        export(saved, tmp_path / "out")


def test_nothing_already_made_is_overwritten(saved, copy):
    with pytest.raises(InputError, match="already there"):
        Release.load(saved).save(copy)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("weights.safetensors", b"\xff" * 64),
        ("weights.safetensors", b""),
        ("trust.json", b'{"method": "dp'),
        ("trust.json", b"[]"),
        ("config.json", b"\xff\xfe"),
        ("config.json", b"{}"),
    ],
)
def test_corrupt_files_are_bad_input(copy, name, content):
    (copy / name).write_bytes(content)
    with pytest.raises(InputError):
        Release.load(copy)


def test_a_truncated_weights_file_is_bad_input(copy):
    content = (copy / "weights.safetensors").read_bytes()
    (copy / "weights.safetensors").write_bytes(content[:-10])
    with pytest.raises(InputError, match="corrupt weights"):
        Release.load(copy)


def test_weights_of_another_model_are_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model": "linear"}))
    with pytest.raises(InputError, match="do not fit"):
        Release.load(copy)


class Tied(nn.Module):
    """A weight that is used twice under two names."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_a_users_own_model_with_shared_weights_in_the_users_own_loop(tmp_path, make_data):
    data, book = make_data(), Ledger(tmp_path / "ledger.db")
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    trainer = privet.make_private(
        model, optimizer, data, epsilon=8.0, delta=1e-5, batch=20, epochs=2, ledger=book
    )
    for batch in trainer.batches():
        trainer.step(batch)
    release = privet.hand_over(trainer, data)
    release.save(tmp_path / "own")
    book.close()
    with pytest.raises(InputError, match="own model"):
        privet.load(tmp_path / "own")
    loaded = privet.load(tmp_path / "own", model=Tied())
    assert torch.equal(loaded.scores(data.test.x), release.scores(data.test.x))
    assert privet.verify(tmp_path / "own").ok
