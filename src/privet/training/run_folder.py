"""A run's folder: the release in it, and `internal/`, which never leaves."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from privet.errors import InputError
from privet.files import make_folder, read_json, write_atomically, write_json
from privet.release import INTERNAL, MANIFEST

WARNING: Final = b"""This folder is NOT part of the release. It holds secret keys, checkpoints and
figures computed on private records without charge. Whoever has it can undo the privacy.
Hand over a copy made by `privet export`, which leaves this folder out.
"""


class RunFolder:
    """Paths of one run; made by `create`, found again by `open`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.internal = folder / INTERNAL
        self.settings = self.internal / "run.json"
        self.checkpoint = self.internal / "checkpoint.pt"
        self.journal = self.internal / "steps.log"
        self.figures = self.internal / "figures.json"
        self.audit = self.internal / "audit.json"

    @classmethod
    def create(cls, folder: str | Path, settings: dict[str, Any]) -> Self:
        """Start a run in an empty or new folder."""
        run = cls(Path(folder))
        run.require_free()
        make_folder(run.internal)
        run.internal.chmod(0o700)
        write_atomically(run.internal / "README", WARNING)
        write_atomically(run.internal / ".gitignore", b"*\n")
        write_json(run.settings, settings, private=True)
        return run

    @classmethod
    def open(cls, folder: str | Path) -> tuple[Self, dict[str, Any]]:
        """An unfinished run and its settings."""
        run = cls(Path(folder))
        if run.is_saved and not run.checkpoint.exists():
            raise InputError(
                "the run is finished", got=folder, fix=f"see it: privet verify {folder}"
            )
        if not run.settings.exists():
            raise InputError(
                "no run to resume", got=folder, expected="a folder with an unfinished run"
            )
        return run, read_json(run.settings)

    @property
    def is_saved(self) -> bool:
        """Whether the release is written: its manifest is the last file."""
        return (self.folder / MANIFEST).exists()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time in a run's folder."""
        with (self.internal / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    "another process is running in this folder", got=self.folder
                ) from None
            yield

    def forget_keys(self) -> None:
        """The keys have done their work; what does not exist cannot leak."""
        self.journal.unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)
        for leftover in self.internal.glob(f".{self.checkpoint.name}.*"):  # killed while writing
            leftover.unlink()

    def require_free(self) -> None:
        """Nothing already made is overwritten."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError("not a folder", got=self.folder, fix="choose another --out")
        if self.is_saved:
            raise InputError(
                "a release is already there", got=self.folder, fix="choose another --out"
            )
        if self.settings.exists():
            raise InputError(
                "an unfinished run is there",
                got=self.folder,
                fix=f"continue it: privet resume {self.folder}; or choose another --out",
            )

        if self.folder.exists() and any(self.folder.iterdir()):
            raise InputError(
                "the folder is not empty",
                got=self.folder,
                expected="a new or empty folder, which becomes the release",
                fix="choose another --out",
            )

    def discard(self) -> None:
        """Take back a run that did not begin."""
        shutil.rmtree(self.internal)
        with contextlib.suppress(OSError):  # the folder was there before, with something in it
            self.folder.rmdir()
