import stat

import pytest

from privet.errors import InputError
from privet.signing import new_key, sign


def test_the_secret_key_is_the_owners_alone_and_never_overwritten(tmp_path):
    secret, public = new_key(tmp_path / "key")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert b"PRIVATE" in secret.read_bytes()
    assert b"PRIVATE" not in public.read_bytes()
    with pytest.raises(InputError, match="exists"):
        new_key(tmp_path / "key")


def test_keys_of_the_wrong_kind_are_refused(tmp_path):
    secret, public = new_key(tmp_path / "key")
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="private key"):
        sign(folder, public)
    (tmp_path / "junk").write_text("junk")
    with pytest.raises(InputError, match="private key"):
        sign(folder, tmp_path / "junk")
    with pytest.raises(InputError, match="not found"):
        sign(folder, tmp_path / "nowhere")
    sign(folder, secret)
    assert (folder / "signature.json").exists()


def test_an_unfinished_release_cannot_be_signed(tmp_path):
    secret, _ = new_key(tmp_path / "key")
    with pytest.raises(InputError, match=r"manifest\.json"):
        sign(tmp_path, secret)
