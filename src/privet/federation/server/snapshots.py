"""A model's whole state as bytes that only the server can read or make.

Tensors as safetensors, the rest as JSON: no code comes out of a snapshot. Under privacy the state
holds sums without noise and what later noise takes back; so it is encrypted and authenticated
(AES-256-GCM) under a key of the server's own, for one model and one place of its journal.
"""

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

import safetensors.torch
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from torch import Tensor

from privet.errors import InputError

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_TENSOR: Final = "tensor:"
_PLAIN: Final = "plain"


def sealed(state: Mapping[str, Any], *, key: bytes, name: str) -> bytes:
    """The state, encrypted for this name: the model, and the number of its last event."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, _packed(state), name.encode())


def unsealed(content: bytes, *, key: bytes, name: str) -> dict[str, Any]:
    """The state again; one that was changed, or is another's, is refused."""
    nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
    try:
        return _unpacked(AESGCM(key).decrypt(nonce, rest, name.encode()))
    except (InvalidTag, ValueError):
        raise InputError(
            "a snapshot that this server did not make",
            got=name,
            expected="the keys and the store that the model began with",
            fix="restore both from one backup",
        ) from None


def _packed(state: Mapping[str, Any]) -> bytes:
    tensors: dict[str, Tensor] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors[str(len(tensors))] = value.detach().cpu().contiguous().clone()
            return f"{_TENSOR}{len(tensors) - 1}"
        if isinstance(value, Mapping):
            return {str(name): plain(part) for name, part in value.items()}
        return [plain(part) for part in value] if isinstance(value, list | tuple) else value

    text = json.dumps(plain(state))
    tensors[_PLAIN] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    return safetensors.torch.save(tensors)


def _unpacked(content: bytes) -> dict[str, Any]:
    tensors = safetensors.torch.load(content)

    def full(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_TENSOR):
            return tensors[value.removeprefix(_TENSOR)]
        if isinstance(value, dict):
            return {name: full(part) for name, part in value.items()}
        return [full(part) for part in value] if isinstance(value, list) else value

    state: dict[str, Any] = full(json.loads(bytes(tensors.pop(_PLAIN).numpy())))
    return state
