"""The whole story on embedded data, in one screen."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console


def run_demo(out: Path, console: Console, watch: Callable[[Any], None] | None) -> int:
    """Train on digits, print the card, save, verify; returns the exit code."""
    import privet
    from privet.release import INTERNAL, MANIFEST
    from privet.reports import print_card

    def taken(folder: Path) -> bool:
        return (folder / MANIFEST).exists() or (folder / INTERNAL).exists()

    folders = itertools.chain([out], (out.with_name(f"{out.name}-{i}") for i in itertools.count(2)))
    folder = next(f for f in folders if not taken(f))
    data = privet.data.load("digits")
    say = console.print
    say("Training a classifier of handwritten digits with epsilon = 3 ...", highlight=False)
    release = privet.train(
        "dpsgd",
        data,
        epsilon=3.0,
        delta=1e-5,
        out=folder,
        watch=watch,
        reference={"name": "digits", "data_dir": None},
    )
    print_card(release.trust, console, report=folder / "report.html")
    result = privet.verify(folder)
    failed = [finding.check for finding in result.findings if not finding.ok]
    verdict = "verified" if result.ok else f"CONTRADICTED: {', '.join(failed)}"
    say(f"privet verify {folder}: {verdict} ({len(result.findings)} checks)", highlight=False)
    say(f"Open {folder / 'report.html'} in a browser.", highlight=False)
    return 0 if result.ok else 1
