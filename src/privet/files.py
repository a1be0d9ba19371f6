"""Writing so that nothing is lost: a file appears whole or not at all."""

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privet.errors import FaultyEnvironment, InputError


def make_folder(folder: Path, *, fix: str = "choose another folder") -> None:
    """Make it, and those above it; where it cannot be, that is the environment's fault."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FaultyEnvironment(
            "cannot make a folder", got=f"{folder} ({error.strerror})", fix=fix
        ) from None


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write beside `path`, flush to disk, then rename; `private` files are the owner's alone."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(
            beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def flush_folder(folder: Path) -> None:
    """Which files are in it survives a power cut once this returns."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, record: Any, *, private: bool = False) -> None:
    """A record as readable JSON."""
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(path, text.encode(), private=private)


def read_json(path: Path, *, fields: Sequence[str] = ()) -> dict[str, Any]:
    """A JSON object; one that is missing, cut off, without these fields or else is bad input."""
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError("file not found", got=path) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError("corrupt JSON", got=f"{path}: {error}", fix="restore the file") from None
    if not isinstance(record, dict):
        raise InputError("corrupt JSON", got=f"{path}: not an object")
    for name in fields:
        if name not in record:
            raise InputError("incomplete JSON", got=f"{path}: no '{name}'", fix="restore the file")
    return record
