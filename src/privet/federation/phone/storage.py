"""Files of a phone: whole or absent, the owner's alone, no code in them; one process a folder."""

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from privet.errors import InputError
from privet.files import make_folder, write_atomically

BLOCK: Final = 2**20


def own_folder(folder: Path) -> Path:
    """Made if it is not there, and closed to others."""
    make_folder(folder)
    folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time."""
    path = own_folder(folder) / "lock"
    path.touch(mode=0o600)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                "another phone runs in this folder", got=folder, fix="give each one its own"
            ) from None
        yield


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Written beside it, flushed to disk, renamed: never half of it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside)
        beside.chmod(0o600)
        put_in_place(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def put_in_place(beside: Path, path: Path) -> None:
    """A finished file takes its name, and both outlive a loss of power."""
    _flush(beside)
    beside.replace(path)
    _flush(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Whole, the owner's alone, and there also after a loss of power, once this returns."""
    write_atomically(path, content, private=True)
    _flush(path.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, line: bytes) -> None:
    """One more line of a file that only grows."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """What a file has, mapped and not read."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError("corrupt file of tensors", got=f"{path}: {error}") from None


def vector_in(path: Path, name: str, size: int) -> Tensor:
    """The one vector of a file: single precision, of this length."""
    found = load_tensors(path)
    vector = found.get(name)
    if set(found) != {name} or vector is None or vector.dtype is not torch.float32:
        raise InputError("not the expected tensor", got=f"{path}", expected=f"F32 '{name}' alone")
    if vector.shape != (size,):
        raise InputError(
            f"'{name}' does not fit the model", got=tuple(vector.shape), expected=f"({size},)"
        )
    return vector


def digest_of_file(path: Path) -> str:
    """SHA-256, a block at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
