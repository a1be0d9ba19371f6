"""Where files are looked for: the order, the traps, and what is said when they are not found."""

import os
from pathlib import Path

import pytest

from privet.data import locate
from privet.errors import InputError


def holds(folder):
    return (folder / "file").is_file()


def put(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_text("here")
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give a machine without any data: own home, cache, working folder and system root."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cache = tmp_path / "home" / "cache"
    monkeypatch.setattr(locate, "user_cache_dir", lambda name: str(cache / name))
    monkeypatch.delenv(locate.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(locate, "SYSTEM_ROOT", tmp_path / "system")
    (tmp_path / "work" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "here")
    return tmp_path / "home"


def test_the_places_are_searched_in_their_order(home, tmp_path, monkeypatch):
    named, listed = tmp_path / "named", tmp_path / "listed"
    monkeypatch.setenv(locate.ENVIRONMENT_VARIABLE, f"{tmp_path / 'void'}{os.pathsep}{listed}")
    places = [
        put(named / "mnist"),
        put(named),
        put(listed / "mnist"),
        put(listed),
        put(Path.cwd() / "shared/data/mnist"),
        put(tmp_path / "work/shared/data/mnist"),
        put(tmp_path / "shared/data/mnist"),
        put(home / "cache/privet/data/mnist"),
        put(Path.cwd() / "data/MNIST/raw"),
        put(home / "data/MNIST/raw"),
        put(tmp_path / "system/mnist"),
    ]
    for place in places:
        assert locate.locate("mnist", holds, named) == place
        (place / "file").unlink()
    assert locate.find_folder("mnist", holds, named) is None


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("cifar10", "cifar-10-batches-py"),
        ("cifar10", "cifar-10-batches-bin"),
    ],
)
def test_the_folders_of_the_public_archives_are_known(home, tmp_path, name, folder):
    place = put(tmp_path / "named" / folder)
    assert locate.locate(name, holds, tmp_path / "named") == place
    assert locate.locate(name, holds, str(place)) == place


def test_fashion_mnist_is_never_read_as_mnist(home, tmp_path, monkeypatch):
    place = put(tmp_path / "fashion-mnist")
    assert locate.find_folder("fashion-mnist", holds, place) == place
    assert locate.find_folder("mnist", holds, place) is None
    monkeypatch.setenv(locate.ENVIRONMENT_VARIABLE, str(put(tmp_path / "FashionMNIST" / "raw")))
    assert locate.find_folder("mnist", holds) is None


def test_a_tilde_leads_home(home, monkeypatch):
    place = put(home / "sets" / "mnist")
    monkeypatch.setenv(locate.ENVIRONMENT_VARIABLE, "~/sets")
    assert locate.find_folder("mnist", holds) == place


def test_not_found_names_the_places_and_the_fix(home, tmp_path, monkeypatch):
    monkeypatch.setenv(locate.ENVIRONMENT_VARIABLE, str(tmp_path / "listed"))
    with pytest.raises(InputError) as caught:
        locate.locate("mnist", holds, tmp_path)
    message = str(caught.value)
    for part in (tmp_path, tmp_path / "listed", "shared/data in", home / "data", "--data-dir DIR"):
        assert str(part) in message
    assert "\n" not in message


def test_a_named_folder_that_does_not_exist_is_refused(home, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        locate.find_folder("mnist", holds, tmp_path / "void")


def test_an_unreadable_folder_is_passed_over(home, tmp_path):
    def deny(folder):
        raise PermissionError(folder)

    assert locate.find_folder("mnist", deny, tmp_path) is None
