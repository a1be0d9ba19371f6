"""A canary in a stream of tasks: sound lifetimes, planted mistakes, the project's own code.

    python benchmarks/lifelong_audits.py

Every mechanism of `privet.audits.lifetimes` and `privet.audits.whole_lives`, at 99.9 %, at the
delta of its claim and at larger ones, where fewer runs show more.
"""

import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

from privet.audits.lifetimes import LIFETIMES
from privet.audits.mechanism import audit_mechanism, refutes
from privet.audits.whole_lives import WHOLE

OUT = Path(__file__).parent / "results" / "lifelong_audits.json"
DELTAS = (1e-5, 1e-2)
CONFIDENCE = 0.999


def main():
    """One row for each mechanism and delta."""
    rows = [row for name, entry in {**LIFETIMES, **WHOLE}.items() for row in rows_of(name, entry)]
    record = {
        "what": "lower bounds of epsilon for a canary in a stream of tasks",
        "command": "python benchmarks/lifelong_audits.py",
        "confidence": CONFIDENCE,
        "seed": 0,
        "versions": {
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "privet": version("privet"),
        },
        "hardware": f"cpu, {platform.machine()}",
        "rows": rows,
    }
    OUT.write_text(json.dumps(record, indent=1) + "\n")


def rows_of(name, entry):
    """What is claimed and found, at its own delta and at the others."""
    subject = entry.make()
    for delta in sorted({subject.delta, *DELTAS}):
        began = time.perf_counter()
        found = audit_mechanism(subject, delta=delta, confidence=CONFIDENCE, seed=0)
        row = {
            "mechanism": name,
            "flaw": subject.flaw,
            "delta": delta,
            "claimed": subject.claim.epsilon(delta),
            "found": found.epsilon,
            "refuted": refutes(found, subject),
            "runs": found.runs,
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(row, flush=True)
        yield row


if __name__ == "__main__":
    main()
