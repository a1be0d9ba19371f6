"""Three streams of randomness that must never be mixed.

| stream         | feeds                         | may be published          |
|----------------|-------------------------------|---------------------------|
| initialisation | first weights                 | yes: a seed               |
| sampling       | which examples a step sees    | no: amplification needs it secret |
| noise          | what hides an example         | no: subtract it, and it is gone   |

The two secret streams come from a 256-bit key of the operating system, expanded by AES-256 in
counter mode, or by ChaCha20 where noise is drawn on a GPU, which has no AES instructions. Each draw
is *addressed*: it depends on the key, its purpose, the step, and a binding context, through keyed
BLAKE2b. So a draw can be repeated exactly (resuming after a crash) and can never be repeated by
mistake: noise is bound to the very sum that it hides, as a deterministic signature binds its nonce
to the message. Another sum gets independent noise. The two ciphers have addresses of their own: no
subkey serves both.

Guarantee: to anyone without the key the draws are indistinguishable from independent uniform bits,
if AES-256, keyed BLAKE2b and, for draws on a GPU, ChaCha20 are pseudo-random functions.
"""

import hashlib
import secrets
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from privet.privacy import chacha

KEY_BYTES = 32
UNIFORM_BITS = chacha.UNIFORM_BITS


class SecretStream:
    """Addressed cryptographic randomness under one secret key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a stream key has {KEY_BYTES} bytes, got {len(key)}")
        self.key = key

    def __repr__(self) -> str:
        return "SecretStream(key=<secret>)"

    def branch(self, *, purpose: str, step: int) -> "SecretStream":
        """A stream of its own for a part of a run; nothing else is drawn at this address."""
        return SecretStream(self._subkey(purpose, step, b""))

    def _subkey(self, purpose: str, step: int, context: bytes) -> bytes:
        name = purpose.encode()  # its length goes first: no two addresses read alike
        address = b"%d|%s|%d|" % (len(name), name, step) + context
        return hashlib.blake2b(address, key=self.key, digest_size=KEY_BYTES).digest()

    def digest(self, data: bytes, *, purpose: str) -> bytes:
        """32 bytes that stand for `data` and tell nothing about it without the key."""
        return self._subkey(purpose, 0, data)

    def words(self, n: int, *, purpose: str, step: int, context: bytes = b"") -> NDArray[np.uint64]:
        """`n` uniform 64-bit words at the address (purpose, step, context)."""
        subkey = self._subkey(purpose, step, context)
        # A fresh subkey for every address, so the counter may start at zero each time.
        cipher = Cipher(algorithms.AES256(subkey), modes.CTR(bytes(16))).encryptor()
        return np.frombuffer(cipher.update(bytes(8 * n)), dtype="<u8")

    def seed(self, *, purpose: str, step: int) -> int:
        """A seed for a library's own generator."""
        return int(self.words(1, purpose=purpose, step=step)[0] >> np.uint64(1))

    def uniform(
        self, n: int, *, purpose: str, step: int, context: bytes = b""
    ) -> NDArray[np.float64]:
        """`n` uniform doubles in [0, 1), multiples of 2**-53."""
        words = self.words(n, purpose=purpose, step=step, context=context)
        u = (words >> np.uint64(64 - UNIFORM_BITS)).astype(np.float64)
        u *= 2.0**-UNIFORM_BITS
        return u

    def normal(
        self, n: int, *, purpose: str, step: int, context: bytes = b""
    ) -> NDArray[np.float64]:
        """`n` standard normal doubles (Box-Muller on 53-bit uniforms, |z| <= 8.6)."""
        u = self.uniform(n + n % 2, purpose=purpose, step=step, context=context)
        # By torch, which has these functions vectorised and threaded: four times as fast as numpy.
        z: NDArray[np.float64] = chacha.box_muller(torch.from_numpy(u)).numpy()
        return z[:n]

    def normal_on(
        self, device: torch.device, n: int, *, purpose: str, step: int, context: bytes = b""
    ) -> torch.Tensor:
        """The same, drawn on a device by ChaCha20: other draws than `normal` at this address."""
        subkey = self._subkey(f"{purpose} by ChaCha20", step, context)
        return chacha.normal(chacha.initial_state(subkey, device), n)


@dataclass(frozen=True, kw_only=True)
class Randomness:
    """The three streams of one run.

    `init_seed` is None where the first weights are the user's own. `secret` is False only where a
    test fixed the secret keys by a seed: anyone who knows the seed can undo the noise, so such a
    run gets no epsilon.
    """

    init_seed: int | None
    sampling: SecretStream
    noise: SecretStream
    secret: bool

    @classmethod
    def fresh(cls, init_seed: int | None = None) -> Self:
        """Secret keys from the operating system: what every real run uses."""
        return cls(
            init_seed=init_seed,
            sampling=SecretStream(secrets.token_bytes(KEY_BYTES)),
            noise=SecretStream(secrets.token_bytes(KEY_BYTES)),
            secret=True,
        )

    def renewed(self) -> Self:
        """Fresh secret keys, for steps that must not repeat what was drawn before."""
        return replace(type(self).fresh(self.init_seed), secret=self.secret)

    @classmethod
    def seeded(cls, seed: int, init_seed: int | None = None) -> Self:
        """Repeatable keys for tests; a release made with them carries no epsilon."""

        def key(stream: str) -> bytes:
            return hashlib.blake2b(f"{stream}|{seed}".encode(), digest_size=KEY_BYTES).digest()

        return cls(
            init_seed=init_seed,
            sampling=SecretStream(key("sampling")),
            noise=SecretStream(key("noise")),
            secret=False,
        )
