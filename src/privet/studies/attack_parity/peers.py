"""A peer at work in a Python of its own: started, asked, stopped when it takes too long."""

import contextlib
import json
import select
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from privet.errors import InputError
from privet.studies.attack_parity.network import Subject

WORKER: Final = Path(__file__).with_name("worker.py")
PEERS: Final = ("torchattacks", "foolbox", "art")
START_SECONDS: Final = 120.0  # to import PyTorch and a peer, on a slow disk


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """Perturbed inputs and seconds, by the clock and of the processor; or why there are none."""

    found: Any = None
    seconds: float | None = None
    cpu_seconds: float = 0.0
    why: str = ""


@final
class Peer:
    """One peer: its process lives from the first question on, and again after a stop."""

    def __init__(self, name: str, python: Path, subject: Subject, threads: int) -> None:
        self.name, self.versions = name, dict[str, str]()
        self._python, self._subject, self._threads = python, subject, threads
        self._folder = tempfile.TemporaryDirectory(prefix="privet-peer-")
        self._process: subprocess.Popen[str] | None = None
        self._why = ""  # why it cannot be asked at all

    def ask(self, contest: dict[str, Any], seconds: float) -> Answer:
        """Its inputs for this contest, within so many seconds."""
        if self._process is None and not self._why:
            self._start()
        if self._process is None:
            return Answer(why=self._why)
        self._say(contest)
        said = self._heard(seconds)
        if said is None:
            return Answer(why=self._stopped(seconds))
        if "why" in said:
            return Answer(why=said["why"])
        found = np.load(Path(self._folder.name) / "found.npy")
        return Answer(found, said["seconds"], said["cpu_seconds"])

    def _start(self) -> None:
        folder = Path(self._folder.name)
        self._subject.save(folder)
        arguments = [folder, self.name, self._threads, self._subject.x.device.type]
        with (folder / "stderr").open("w") as errors:
            self._process = subprocess.Popen(
                [self._python, WORKER, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,  # not where a folder of ours could be taken for a package
                text=True,
            )
        said = self._heard(START_SECONDS)
        if said is None or "why" in said:
            self._why = said["why"] if said else self._stopped(START_SECONDS)
            self.close()
            return
        self.versions = {self.name: said["version"], "torch": said["torch"]}
        self._say(self._subject.layers)

    def _say(self, what: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: `_heard` finds out
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()

    def _heard(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None if it is late or has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else ""
        return json.loads(line) if line else None

    def _stopped(self, seconds: float) -> str:
        assert self._process is not None
        # A process that has closed its end is ending: its code is worth a moment.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=1)
            lines = (Path(self._folder.name) / "stderr").read_text().splitlines() or [""]
            self._halt()
            return f"failed: it ended with code {code}: {lines[-1][:160]}"
        self._halt()
        return f"skipped: longer than {seconds:g} s"

    def _halt(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """End it and remove its folder."""
        self._halt()
        self._folder.cleanup()


@contextlib.contextmanager
def peers(python: Path | None, subject: Subject, threads: int) -> Iterator[list[Peer]]:
    """All of them, ended afterwards; none without a Python."""
    if python is not None and not python.is_file():
        raise InputError(
            "no such Python", got=python, expected="the program of an environment with the peers"
        )
    made = [Peer(name, python, subject, threads) for name in PEERS] if python else []
    try:
        yield made
    finally:
        for peer in made:
            peer.close()
