"""How long a user waits: `privet --help` against Python alone and against importing torch.

    python benchmarks/startup.py

Medians of alternating runs, and one `privet demo`; writes benchmarks/results/startup.json.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "startup.json"
COMMANDS = {
    "python alone": ["-c", "pass"],
    "privet --help": ["-m", "privet.cli", "--help"],
    "import torch": ["-c", "import torch"],
}
ROUNDS = 9


def seconds(arguments: list[str], **options) -> float:
    """Wall time of one run."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, **options)
    return time.perf_counter() - started


def main() -> None:
    """Measure and write the record."""
    times = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    medians = {name: statistics.median(values) for name, values in times.items()}
    with tempfile.TemporaryDirectory() as folder:
        home = os.environ | {"PRIVET_HOME": f"{folder}/home"}
        demo = seconds(["-m", "privet.cli", "demo", "--out", f"{folder}/demo"], env=home)
    record = {
        "what": "start-up time and the demo",
        "command": "python benchmarks/startup.py",
        "median_seconds": medians,
        "help_over_import_torch": medians["privet --help"] / medians["import torch"],
        "demo_seconds": demo,
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version()},
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
