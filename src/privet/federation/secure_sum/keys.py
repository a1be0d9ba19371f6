"""Keys of a round: agreed by X25519, derived by HKDF, sealed by AES-GCM, vouched for by Ed25519."""

import secrets
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from privet.federation.secure_sum.refusals import Refused

Sign = Callable[[bytes], bytes]
"""Signs with the device's key, which may lie in a key store and never leave it."""

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_NONCE_BYTES: Final = 12


def new_secret() -> bytes:
    """A secret key for one round, or a seed."""
    return secrets.token_bytes(KEY_BYTES)


def public_of(secret: bytes) -> bytes:
    """The public half of a secret key."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def derived(key: bytes, *, salt: bytes, purpose: str) -> bytes:
    """A key for one purpose alone, from one that has more than one."""
    return HKDF(SHA256(), length=KEY_BYTES, salt=salt, info=purpose.encode()).derive(key)


def agreed(secret: bytes, peer: bytes, *, salt: bytes, purpose: str) -> bytes:
    """What only the owners of two keys can know, for one purpose."""
    try:
        shared = X25519PrivateKey.from_private_bytes(secret).exchange(
            X25519PublicKey.from_public_bytes(peer)
        )
    except ValueError:  # a point of low order: its 'secret' would be known to all
        raise Refused("a public key with which nothing secret can be agreed") from None
    return derived(shared, salt=salt, purpose=purpose)


def sealed(key: bytes, text: bytes, *, about: bytes) -> bytes:
    """Encrypted and authenticated, together with what it is about; a nonce, then the rest."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, text, about)


def unsealed(key: bytes, box: bytes, *, about: bytes) -> bytes:
    """What was sealed under this key about this; anything else is refused."""
    try:
        return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise Refused("shares that were changed, or that are not for this client") from None


def holds(public_key: bytes, signature: bytes, text: bytes) -> bool:
    """Whether the owner of the key has signed this text."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
