"""Ed25519 signatures over a release's manifest: who released this, unchanged."""

import base64
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privet.errors import InputError
from privet.files import read_json, write_atomically, write_json
from privet.release import MANIFEST, SIGNATURE, require_whole


def new_key(path: str | Path) -> tuple[Path, Path]:
    """Make a key pair: PATH (secret, the owner's alone) and PATH.pub (to publish)."""
    secret, public = Path(path), Path(f"{path}.pub")
    for file in (secret, public):
        if file.exists():
            raise InputError("key file exists", got=file, fix="name another file")
    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    write_atomically(
        secret,
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        private=True,
    )
    public_form = serialization.PublicFormat.SubjectPublicKeyInfo
    write_atomically(public, key.public_key().public_bytes(pem, public_form))
    return secret, public


def sign(folder: str | Path, key_file: str | Path) -> None:
    """Sign the manifest of a release as it stands."""
    folder = Path(folder)
    require_whole(folder)
    read_json(folder / MANIFEST)
    key = _read_key(Path(key_file), secret=True)
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    write_json(
        folder / SIGNATURE,
        {
            "algorithm": "ed25519",
            "public_key": _encode(key.public_key().public_bytes(*raw)),
            "signature": _encode(key.sign((folder / MANIFEST).read_bytes())),
        },
    )


def signature_problem(folder: Path, key_file: str | Path | None) -> str | None:
    """Why the signature does not hold, or None. With `key_file` it must be by that key."""
    record = read_json(folder / SIGNATURE)
    try:
        embedded = base64.b64decode(record["public_key"], validate=True)
        signature = base64.b64decode(record["signature"], validate=True)
        signer = Ed25519PublicKey.from_public_bytes(embedded)
    except (KeyError, TypeError, ValueError):
        return "signature.json is malformed"
    if key_file is not None:
        trusted = _read_key(Path(key_file), secret=False)
        if trusted != signer:
            return "signed by another key than the one given"
    try:
        signer.verify(signature, (folder / MANIFEST).read_bytes())
    except InvalidSignature:
        return "the manifest was changed after it was signed"
    return None


def _read_key(path: Path, *, secret: bool) -> Any:
    kind = "private" if secret else "public"
    try:
        content = path.read_bytes()
        key: Any = (
            serialization.load_pem_private_key(content, password=None)
            if secret
            else serialization.load_pem_public_key(content)
        )
    except FileNotFoundError:
        raise InputError("key file not found", got=path) from None
    except (ValueError, TypeError) as error:
        raise InputError(
            f"not a usable {kind} key",
            got=f"{path}: {error}",
            fix="make a pair: privet keygen FILE",
        ) from None
    if not isinstance(key, Ed25519PrivateKey if secret else Ed25519PublicKey):
        raise InputError(f"not an Ed25519 {kind} key", got=path, fix="make one: privet keygen FILE")
    return key


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()
