"""The real command line: in a process and with a home of its own, or in this process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from privet import cli


def environment(home):
    return os.environ | {
        "PRIVET_HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }


def start(arguments, home, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "privet.cli", *map(str, arguments)],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


class Outcome:
    def __init__(self, process):
        self.out, self.err = process.communicate(timeout=300)
        self.code = process.returncode

    @property
    def json(self):
        return json.loads(self.out)


def privet(*arguments, home: Path, **options) -> Outcome:
    return Outcome(start(arguments, home, **options))


def run(*arguments) -> int:
    """In this process: the exit code."""
    with pytest.raises(SystemExit) as end:
        cli.main([*map(str, arguments)])
    return end.value.code


def card(folder):
    """The trust card of a release."""
    return json.loads((folder / "trust.json").read_text())
