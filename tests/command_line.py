"""The real command line, in a process of its own, with a home of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path


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
