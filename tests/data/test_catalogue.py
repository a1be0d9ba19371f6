"""The named data sets: their public facts, and what is said about a name we do not know."""

import gzip
import struct
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from privet.data import available, catalogue, idx, load
from privet.errors import InputError


def write_idx_folder(folder, side=28):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for stem, count in (("train", 6), ("t10k", 4)):
        images = rng.integers(0, 256, (count, side, side), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            packed = gzip.compress(header + array.tobytes())
            (folder / f"{stem}-{kind}-ubyte.gz").write_bytes(packed)


def test_digits_are_split_by_position():
    data = load("digits")
    assert (len(data.train), len(data.test)) == (1437, 360)
    assert data.shape == (1, 8, 8)
    assert data.train.x.dtype == np.uint8
    assert (data.bounds.low, data.bounds.high) == ((0.0,), (16.0,))
    # The set begins 0, 1, 2, ..., 9, 0, ...: places 0 and 5 are for testing.
    assert data.test.y[:2].tolist() == [0, 5]
    assert data.train.y[:6].tolist() == [1, 2, 3, 4, 6, 7]
    assert int(data.train.x.astype(int).sum() + data.test.x.astype(int).sum()) == 561_718


IMAGES = ("digits", "mnist", "fashion-mnist", "cifar10")
STUDIES = ("activities", "hapt", "watch", "wisdm")  # of users


@pytest.mark.parametrize("name", catalogue.CATALOGUE)
def test_every_set_says_what_it_is(name):
    entry = catalogue.CATALOGUE[name]
    assert len(set(entry.classes)) == len(entry.classes)
    assert (len(entry.classes) == 10) == (name in IMAGES)
    assert entry.licence
    assert entry.source
    assert entry.cuts == (("new-users",) if name in STUDIES else ())


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_a_set_is_loaded_from_the_named_folder(tmp_path, name):
    write_idx_folder(tmp_path / name)
    data = load(name, data_dir=tmp_path)
    assert data.name == name
    assert data.train.x.shape == (6, 1, 28, 28)
    assert data.test.y.tolist() == [0, 1, 2, 3]
    assert data.nominal_size == 60_000, "declared, whatever the files hold"
    assert data.test_is_public
    assert str(tmp_path) not in data.source, "a release must not tell folders"


@pytest.mark.parametrize(("name", "size"), [("digits", 1437), ("mnist", 6)])
def test_halves_are_disjoint_and_together_all(name, size, tmp_path, monkeypatch):
    write_idx_folder(tmp_path / "mnist")
    few = replace(catalogue.CATALOGUE[name], nominal_size=size)
    monkeypatch.setitem(catalogue.CATALOGUE, name, few)
    whole, first, second = (load(f"{name}{h}", tmp_path) for h in ("", "/first", "/second"))
    assert (len(first.train), len(second.train)) == (size // 2, size - size // 2)
    assert (first.nominal_size, second.nominal_size) == (size // 2, size - size // 2)
    assert np.array_equal(np.concatenate([first.train.x, second.train.x]), whole.train.x)
    assert np.array_equal(np.concatenate([first.train.y, second.train.y]), whole.train.y)
    for half, called in ((first, "first"), (second, "second")):
        assert half.name == f"{name}/{called}"
        assert half.source == f"{whole.source}; the {called} half of the training records"
        assert np.array_equal(half.test.x, whole.test.x)
        assert half.test_is_public
        assert (half.bounds, half.classes) == (whole.bounds, whole.classes)
        assert half.parents == ()  # or the halves would count as related by the whole


def test_the_cut_is_declared_and_not_counted(tmp_path, monkeypatch):
    """One record fewer in the files moves no cut: of 6 records, declared as 8, 4 come first."""
    write_idx_folder(tmp_path / "mnist")
    entry = replace(catalogue.CATALOGUE["mnist"], nominal_size=8)
    monkeypatch.setitem(catalogue.CATALOGUE, "mnist", entry)
    assert [len(load(f"mnist/{h}", tmp_path).train) for h in ("first", "second")] == [4, 2]


def test_users_are_halved_and_known_again():
    """Whole users in each half; the test part is that of the whole."""
    whole, *halves = (load(f"activities{h}") for h in ("", "/first", "/second"))
    assert [half.nominal_size for half in halves] == [30, 30]
    assert [half.train.n_units for half in halves] == [30, 30]
    assert sum(len(half.train) for half in halves) == len(whole.train)
    assert tuple(halves[0].originals) + tuple(halves[1].originals) == tuple(whole.originals)
    assert halves[1].source.endswith("the second half of the training users")
    first = halves[0].train
    assert np.array_equal(first.x[first.units == 29], whole.train.x[whole.train.units == 29])


@pytest.mark.parametrize("name", ["mnist/third", "mnist/", "mnist/first/second", "mnist/First"])
def test_other_parts_are_refused(name):
    with pytest.raises(InputError, match="unknown part of a data set") as caught:
        load(name)
    assert f"got '{name}', expected 'mnist', or its part 'mnist/first' or" in str(caught.value)


def test_a_half_of_an_unknown_set_leads_to_the_half_of_the_nearest():
    with pytest.raises(InputError, match="did you mean 'mnist/first'"):
        load("minst/first")
    with pytest.raises(InputError, match="unknown data set: got 'runs/first'"):
        load("runs/first")


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("mnist", "mnist", True),
        ("mnist", "mnist/first", True),
        ("mnist/second", "mnist", True),
        ("mnist/first", "mnist/first", True),
        ("mnist/first", "mnist/second", False),
        ("mnist", "digits/first", False),
        ("mnist/first", "fashion-mnist/first", False),
        ("clinic", "clinic/first", False),  # not of the catalogue: two names of the user's
        ("clinic/first", "clinic/first", True),
        ("mnist", "mnist/100-clients", True),  # made of it, whatever it is
        ("hapt", "hapt/new-users", True),
        ("hapt/first", "hapt/new-users", True),
        ("hapt/new-users", "watch/new-users", False),
    ],
)
def test_names_tell_what_shares_records(one, other, shared):
    assert catalogue.share_records(one, other) == catalogue.share_records(other, one) == shared


def test_the_files_of_another_set_are_refused(tmp_path):
    write_idx_folder(tmp_path / "mnist", side=8)
    with pytest.raises(InputError, match="are not those of 'mnist'"):
        load("mnist", tmp_path)


def test_what_is_available_is_found_without_reading(tmp_path, monkeypatch):
    write_idx_folder(tmp_path / "mnist")
    for path in (tmp_path / "mnist").iterdir():
        path.write_bytes(b"unread")
    found = {entry.name: entry for entry in available(tmp_path)}
    assert list(found) == [*IMAGES, *STUDIES, "tweets"]
    mnist = found["mnist"]
    assert (mnist.found, mnist.where) == (True, str(tmp_path / "mnist"))
    assert (mnist.shape, mnist.nominal_size, mnist.classes) == ((1, 28, 28), 60_000, 10)
    assert found["digits"].found
    monkeypatch.setattr("privet.data.locate.find_folder", lambda *_: None)
    assert [entry.name for entry in available() if entry.found] == ["digits", "activities"]


@pytest.mark.parametrize(
    ("name", "near"),
    [("minst", "mnist"), ("CIFAR-10", "cifar10"), ("FashionMNIST", "fashion-mnist")],
)
def test_an_unknown_name_leads_to_the_nearest(name, near):
    with pytest.raises(InputError, match=f"did you mean '{near}'") as caught:
        load(name)
    assert "digits, mnist, fashion-mnist, cifar10" in str(caught.value)


def test_a_name_near_to_none_leads_to_the_list():
    with pytest.raises(InputError, match="privet data list"):
        load("qqq")


@pytest.mark.parametrize("path", ["a.csv", "dir/a.NPZ", "a.parquet"])
def test_a_bare_data_file_must_be_declared_first(path):
    with pytest.raises(InputError, match=f"privet data declare {path}"):
        load(path)


def test_the_catalogue_is_light_to_import():
    code = "import sys, privet.data; print([m for m in ('sklearn', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_real_fashion_mnist_has_balanced_classes():
    folder = catalogue.locate.find_folder("fashion-mnist", idx.has_files)
    if folder is None:
        pytest.skip("Fashion-MNIST is no part of the project and was not found on this machine")
    data = load("fashion-mnist")
    assert np.bincount(data.train.y).tolist() == [6000] * 10
    assert np.bincount(data.test.y).tolist() == [1000] * 10
    assert data.train.x.mean() / 255 == pytest.approx(0.2860, abs=5e-5)
