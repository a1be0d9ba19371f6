"""A phone's own key, and whose word it takes: the server key that it saw when it registered."""

import base64
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privet.errors import CheckFailed, InputError
from privet.federation import wire
from privet.files import write_atomically


def own_key(path: Path) -> Ed25519PrivateKey:
    """The phone's, made the first time; it never leaves the phone."""
    raw = serialization.Encoding.Raw, serialization.PrivateFormat.Raw
    if not path.exists():
        made = Ed25519PrivateKey.generate()
        write_atomically(path, made.private_bytes(*raw, serialization.NoEncryption()), private=True)
    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except ValueError as error:
        raise InputError("a phone's key cannot be read", got=f"{path}: {error}") from None


def public_text(key: Ed25519PrivateKey) -> str:
    """The public half, as it is sent."""
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return base64.b64encode(key.public_key().public_bytes(*raw)).decode()


def signed(key: Ed25519PrivateKey, text: bytes) -> str:
    """A signature, as it is sent."""
    return base64.b64encode(key.sign(text)).decode()


def fresh_nonce() -> str:
    """New each time: what was heard once is of no use again."""
    return secrets.token_urlsafe(24)


def require_signed(said: wire.SignedManifest, server_key: str, *, model: str, version: int) -> None:
    """The manifest is the server's, and of what was asked for."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(server_key, validate=True))
        key.verify(base64.b64decode(said.signature, validate=True), said.manifest.signed_text())
    except (InvalidSignature, ValueError):
        raise CheckFailed(
            f"the manifest of '{model}' is not signed by the server that this phone knows",
            fix="if the server has a new key, register again in a new --folder",
        ) from None
    if (said.manifest.model, said.manifest.version) != (model, version):
        raise CheckFailed(
            "a manifest of something else",
            got=f"{said.manifest.model} {said.manifest.version}",
            expected=f"{model} {version}",
        )
