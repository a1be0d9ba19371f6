"""Artefacts in a folder; uploads arrive at the server itself."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

from privet.errors import InputError
from privet.federation.server.store import Bytes, Missing, Store, checked
from privet.files import flush_folder, make_folder


@final
class FolderStore(Store):
    """Objects are files under `path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        make_folder(self.path)

    def put(self, key: str, content: Bytes | Sequence[Bytes]) -> None:
        """Beside it, flushed to disk, renamed; then the folder's entry is flushed."""
        path = self._path(key)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        file, changed = _opened(beside, os.O_EXCL)
        try:
            try:
                for part in [content] if isinstance(content, Bytes) else content:
                    _write(file, part)
                os.fsync(file)
            finally:
                os.close(file)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        for folder in changed:
            flush_folder(folder)

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of the file."""
        try:
            with self._path(key).open("rb", buffering=0) as file:
                if start:
                    file.seek(start)
                return file.readall() if length is None else _read(file.fileno(), length)
        except (FileNotFoundError, NotADirectoryError):
            raise Missing("no such object", got=key) from None

    def size(self, key: str) -> int | None:
        """As the file system has it."""
        try:
            return self._path(key).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def delete(self, key: str) -> None:
        """And its folder, if that is empty then."""
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        with contextlib.suppress(OSError):
            path.parent.rmdir()

    def list(self, prefix: str) -> Iterator[str]:
        """All files below; those that are being written are hidden."""
        root = self._path(prefix.rstrip("/"))
        found = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
        keys = (str(path.relative_to(self.path)) for path in found if path.name[0] != ".")
        yield from sorted(keys)

    def upload_url(self, key: str, *, seconds: float) -> str | None:
        """At the server."""
        return None

    def download_url(self, key: str, *, seconds: float) -> str | None:
        """At the server."""
        return None

    def append(self, key: str, offset: int, content: Bytes) -> int:
        """Write at the offset, and cut off what was behind."""
        file, _ = _opened(self._path(key), 0)
        try:
            there = os.fstat(file).st_size
            if not 0 <= offset <= there:
                raise InputError("a piece behind the end", got=offset, expected=f"0..{there}")
            os.lseek(file, offset, os.SEEK_SET)
            _write(file, content)
            os.ftruncate(file, offset + len(content))
            return offset + len(content)
        finally:
            os.close(file)

    def _path(self, key: str) -> Path:
        return self.path / checked(key)


def _write(file: int, content: Bytes) -> None:
    rest = memoryview(content).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]


def _read(file: int, length: int) -> bytes:
    parts = []
    while length > 0 and (part := os.read(file, length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _opened(path: Path, flags: int) -> tuple[int, list[Path]]:
    """A file to write, and the folders in which an entry is new."""
    while True:
        missing = [above for above in path.parents if not above.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
        except FileNotFoundError:  # the last file beside it went, and the folder with it
            continue
        return file, [path.parent, *(above.parent for above in missing)]
