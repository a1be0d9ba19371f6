"""Scores of twins in a file, so that an audit that was killed goes on where it was."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self, final

from privet.errors import InputError
from privet.files import read_json, write_json

SECONDS: Final = 5.0  # between two writings: what a killed audit loses at most


@final
class KeptScores:
    """Of one audit, without and with the canary; with no path they are kept nowhere.

    A file of other trainings is refused: mixed scores are no draws of anything, and runs that are
    added until a bound pleases are not what its confidence speaks of.
    """

    def __init__(self, path: Path | None, of: Mapping[str, Any]) -> None:
        self._path, self._of = path, dict(of)
        self.known: tuple[list[float], list[float]] = ([], [])
        self._written = time.monotonic()
        if path is not None and path.exists():
            found = read_json(path)
            if found.get("of") != self._of:
                raise InputError(
                    "scores of another audit are there",
                    got=path,
                    expected="those of the same release, runs, records, device and seed",
                    fix="choose another --out",
                )
            self.known = (found["without"], found["with"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, world: int, score: float) -> None:
        """One more run of a world: 1 with the canary, 0 without."""
        self.known[world].append(score)
        if time.monotonic() - self._written > SECONDS:
            self._write()

    def _write(self) -> None:
        if self._path is not None:
            without, with_ = self.known
            write_json(self._path, {"of": self._of, "without": without, "with": with_})
            self._written = time.monotonic()
