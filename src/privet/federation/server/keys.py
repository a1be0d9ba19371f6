"""The server's own keys: what it signs with, what it recognises its tokens and URLs by.

All lie in one folder, readable by its owner alone, and never in the database or the store:

| file            | for                                                                          |
|-----------------|-------------------------------------------------------------------------------|
| `server.key`    | Ed25519: signs the manifest of every version; phones pin the public half      |
| `token.key`     | 32 bytes: authenticates the tokens of devices (HMAC-SHA256, in a JWT)         |
| `upload.key`    | 32 bytes: authenticates the URLs at which updates may be put                  |
| `admin.key`     | what an operator shows: url-safe text                                         |
"""

import base64
import hmac
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final
from urllib.parse import quote

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privet.errors import FaultyEnvironment
from privet.federation.server.errors import FORBIDDEN, Refused
from privet.federation.wire import Manifest, SignedManifest
from privet.files import make_folder, write_atomically

SECRET_BYTES: Final = 32
OTHERS: Final = 0o077  # permissions of anybody but the owner
UPLOADS: Final = "/v1/uploads"


@final
@dataclass(frozen=True, repr=False)
class ServerKeys:
    """All keys of a server; made at the first start and kept."""

    signing: Ed25519PrivateKey
    token: bytes
    upload: bytes
    admin: str

    @classmethod
    def kept_in(cls, folder: Path) -> Self:
        """Read them, or make those that are not there yet."""
        make_folder(folder)
        folder.chmod(0o700)
        return cls(
            signing=Ed25519PrivateKey.from_private_bytes(_secret(folder / "server.key")),
            token=_secret(folder / "token.key"),
            upload=_secret(folder / "upload.key"),
            admin=base64.urlsafe_b64encode(_secret(folder / "admin.key")).decode().rstrip("="),
        )

    @property
    def public_key(self) -> str:
        """The public half of the signing key, as phones pin it."""
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return base64.b64encode(self.signing.public_key().public_bytes(*raw)).decode()

    def signed(self, manifest: Manifest) -> SignedManifest:
        """A manifest that whoever has pinned the public key can check."""
        signature = base64.b64encode(self.signing.sign(manifest.signed_text())).decode()
        return SignedManifest(manifest=manifest, signature=signature)

    def is_admin(self, key: str) -> bool:
        """Whether this is the operator's key."""
        return hmac.compare_digest(key.encode(), self.admin.encode())

    def upload_url(self, key: str, *, seconds: float, most_bytes: int) -> str:
        """Where the object of this key may be put, how long from now, and how large it may be."""
        expires = int(time.time() + seconds) + 1
        signature = self._of_upload(key, expires, most_bytes)
        asked = f"expires={expires}&most={most_bytes}&signature={signature}"
        return f"{UPLOADS}/{quote(key)}?{asked}"

    def check_upload(self, key: str, expires: int, most: int, signature: str) -> None:
        """Whether this server has made that URL, and it is not over."""
        if not hmac.compare_digest(
            signature.encode(), self._of_upload(key, expires, most).encode()
        ):
            raise Refused(
                FORBIDDEN, "bad-url", "the URL was not made by this server", fix="say ready again"
            )
        if time.time() > expires:
            raise Refused(FORBIDDEN, "url-expired", "the URL is over", fix="say ready again")

    def _of_upload(self, key: str, expires: int, most: int) -> str:
        said = f"upload\n{key}\n{expires}\n{most}".encode()
        return hmac.digest(self.upload, said, "sha256").hex()


def _secret(file: Path) -> bytes:
    """32 secret bytes that nobody else may read."""
    if not file.exists():
        write_atomically(file, secrets.token_bytes(SECRET_BYTES), private=True)
    if file.stat().st_mode & OTHERS:
        raise FaultyEnvironment("a key may be read by others", got=file, fix=f"chmod 600 {file}")
    content = file.read_bytes()
    if len(content) != SECRET_BYTES:
        raise FaultyEnvironment(
            "a key is damaged", got=file, expected=f"{SECRET_BYTES} bytes", fix="restore the file"
        )
    return content
