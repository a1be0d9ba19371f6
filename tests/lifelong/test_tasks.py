"""The listing of named streams, and what is said about a name we do not know."""

import json

import numpy as np
import pytest

from privet.data import locate
from privet.errors import InputError
from privet.lifelong.tasks import STREAMS, describe_streams, load_stream


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without any data."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(locate, "user_cache_dir", lambda name: str(tmp_path / "cache" / name))
    monkeypatch.delenv(locate.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(locate, "SYSTEM_ROOT", tmp_path / "system")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("bare")
def test_without_files_only_the_embedded_streams_are_found():
    found = {info.name for info in describe_streams() if info.found}
    assert found == {"permuted-digits", "rotated-digits", "split-digits"}
    for name in STREAMS.keys() - found:
        with pytest.raises(InputError, match=r"were not found.*--data-dir"):
            load_stream(name)


def test_the_listing_tells_units_and_kinds():
    infos = {info.name: info for info in describe_streams()}
    assert len(infos) == 15
    kinds = {name: (i.unit, i.disjoint, i.shared, i.n_tasks) for name, i in infos.items()}
    assert kinds["permuted-mnist"] == ("example", True, True, 20)
    assert kinds["permuted-cifar10"] == ("example", True, True, 17)
    assert kinds["split-fashion-mnist"] == ("example", True, False, 5)
    assert kinds["hapt-rates"] == ("user", True, True, 4)
    assert kinds["wisdm-users"] == ("user", True, False, 3)
    assert all(info.what for info in infos.values())


@pytest.mark.parametrize("name", ["permuted-digits", "rotated-digits", "split-digits"])
def test_the_listing_is_true_of_what_is_loaded(name):
    (info,) = [info for info in describe_streams() if info.name == name]
    stream = load_stream(name)
    assert (len(stream), stream.unit, stream.shared) == (info.n_tasks, info.unit, False)
    if info.shared:
        assert load_stream(name, shared=True).shared


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("permuted-digits", {"n_tasks": 3, "seed": 4, "shared": True, "records": 30}),
        ("rotated-digits:30-10", {}),
        ("split-digits", {"n_tasks": 2}),
    ],
)
def test_the_reference_loads_the_same_stream_again(name, asked):
    stream = load_stream(name, **asked)
    again = load_stream(**json.loads(json.dumps(stream.reference)))
    assert (stream.name, stream.shared) == (again.name, again.shared)
    for one, other in zip(stream, again, strict=True):
        assert np.array_equal(one.data.train.x, other.data.train.x)
        assert np.array_equal(one.data.test.x, other.data.test.x)


def test_an_unknown_name_is_answered_by_a_near_one(tmp_path):
    with pytest.raises(InputError, match="did you mean 'permuted-mnist'"):
        load_stream("permuted-mnst")
    with pytest.raises(InputError, match="unknown stream of tasks"):
        load_stream(tmp_path / "none")
