"""One table of tests for every store."""

import os
from pathlib import Path

import httpx
import pytest

from privet.errors import InputError
from privet.federation.server.store import Missing
from privet.federation.server.store.folder import FolderStore


def test_what_is_put_is_got_whole_or_in_part(store):
    store.put("versions/m/1", b"abcdefgh")
    assert store.get("versions/m/1") == b"abcdefgh"
    assert store.get("versions/m/1", start=2, length=3) == b"cde"
    assert store.get("versions/m/1", start=6) == b"gh"
    assert store.get("versions/m/1", start=6, length=100) == b"gh"
    assert store.get("versions/m/1", start=3, length=0) == b""
    assert store.size("versions/m/1") == 8


def test_parts_are_one_object_and_replace_what_was_there(store):
    store.put("taken/m/0", b"something longer than that")
    store.put("taken/m/0", [b"ab", memoryview(b"cd"), bytearray(b"ef")])
    assert store.get("taken/m/0") == b"abcdef"


def test_what_is_not_there_is_missing(store):
    store.put("a/b", b"x")
    for key in ("a/c", "a/b/c", "z"):
        assert store.size(key) is None
        with pytest.raises(Missing):
            store.get(key)
        store.delete(key)
    assert store.get("a/b") == b"x"


def test_keys_are_listed_below_a_prefix_alone(store):
    for key in ("u/m/1/b", "u/m/1/a", "u/m/10/c", "u/m2/1/d", "u/m-x"):
        store.put(key, b".")
    assert list(store.list("u/m/")) == ["u/m/1/a", "u/m/1/b", "u/m/10/c"]
    assert list(store.list("u/m/1/")) == ["u/m/1/a", "u/m/1/b"]
    assert list(store.list("none/")) == []


def test_a_deleted_object_is_gone_and_its_neighbours_stay(store):
    store.put("u/m/1/a", b"1")
    store.put("u/m/1/b", b"2")
    store.delete("u/m/1/a")
    assert list(store.list("u/m/")) == ["u/m/1/b"]
    store.delete("u/m/1/b")
    store.put("u/m/1/c", b"3")
    assert store.get("u/m/1/c") == b"3"


@pytest.mark.parametrize("key", ["", "/a", "../a", "a/../b", "a//b", "a/.b", "a/", "a\nb"])
def test_no_key_leads_out_of_the_store(store, key):
    for call in (store.get, store.size, store.delete, lambda k: store.put(k, b"")):
        with pytest.raises(InputError, match="bad key"):
            call(key)


class TestFolder:
    def test_an_upload_grows_piece_by_piece_and_goes_back(self, tmp_path):
        store = FolderStore(tmp_path)
        assert store.upload_url("u/m/1/t", seconds=5) is None
        assert store.append("u/m/1/t", 0, b"abcd") == 4
        assert store.append("u/m/1/t", 4, b"ef") == 6
        assert store.append("u/m/1/t", 2, b"X") == 3  # what was behind is cut off
        assert store.get("u/m/1/t") == b"abX"
        with pytest.raises(InputError, match="behind the end"):
            store.append("u/m/1/t", 4, b"z")

    def test_a_write_that_fails_leaves_what_was_there(self, tmp_path, monkeypatch):
        store = FolderStore(tmp_path)
        store.put("v/1", b"old")

        def full(_):
            raise OSError("no space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            store.put("v/1", b"new")
        assert store.get("v/1") == b"old"
        assert list(store.list("v/")) == ["v/1"]

    def test_an_object_and_its_folders_are_flushed_before_put_returns(self, tmp_path, monkeypatch):
        flushed = []
        real = os.fsync

        def watched(descriptor):
            flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", watched)
        FolderStore(tmp_path / "s").put("a/b/c", b"x")
        folders = {str(tmp_path / "s" / part) for part in ("", "a", "a/b")}
        assert {path.rstrip("/") for path in folders} <= set(flushed)
        assert any(".c." in path for path in flushed)


class TestS3:
    def test_a_phone_puts_and_gets_by_presigned_addresses(self, s3_store):
        where = s3_store.upload_url("updates/m/1/t", seconds=60)
        assert httpx.put(where, content=b"hello").status_code == 200
        assert s3_store.get("updates/m/1/t") == b"hello"
        where = s3_store.download_url("updates/m/1/t", seconds=60)
        assert httpx.get(where).content == b"hello"

    def test_a_store_that_is_not_there_is_the_environments_fault(self, s3_server, monkeypatch):
        from privet.errors import FaultyEnvironment
        from privet.federation.server.store.s3 import S3Store

        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        with pytest.raises(FaultyEnvironment, match="refused head_bucket"):
            S3Store(f"s3://no-such-bucket?endpoint={s3_server}")
        for url in ("http://x", "s3://", "s3://b?color=red"):
            with pytest.raises(InputError, match="bad address"):
                S3Store(url)
        with pytest.raises(InputError, match="unencrypted"):
            S3Store("s3://b?endpoint=http://store.example.org:9000")
