"""What adversarial training does on the digits, with privacy and without.

    python benchmarks/adversarial_digits.py

`mlp`, PGD with 20 steps and linf size 0.1 on all test images, three seeds of the first weights; the
private runs have epsilon 3 and secret noise, so a repetition differs a little. One thread, a
minute. Writes benchmarks/results/adversarial_digits.json.
"""

import json
import platform
import tempfile
import time
from pathlib import Path

import torch

import privet
from privet.attacks import create
from privet.data.dataset import Dataset

RESULT = Path(__file__).parent / "results" / "adversarial_digits.json"
SEEDS = (0, 1, 2)
SIZE, STEPS = 0.1, 20
PLAIN = {"model": "mlp", "epochs": 12, "learning_rate": 0.1}
PRIVATE = {"model": "mlp", "epsilon": 3.0, "delta": 1e-5}
RUNS = [
    ("plain", "usual", PLAIN),
    ("plain", "kurakin", PLAIN | {"adversarial": "kurakin"}),
    ("plain", "madry", PLAIN | {"adversarial": "madry"}),
    ("dpsgd", "usual", PRIVATE),
    ("dpsgd", "kurakin", PRIVATE | {"adversarial": "kurakin"}),
    ("dpsgd", "madry", PRIVATE | {"adversarial": "madry"}),
]


def measured(method: str, data: Dataset, settings: dict, ledger: privet.Ledger) -> dict:
    """Train once; accuracy as it is and under attack."""
    started = time.perf_counter()
    release = privet.train(method, data, ledger=ledger, **settings)
    trained = time.perf_counter() - started
    x = data.bounds.clamp_and_scale(data.test.x)
    found = privet.attack(
        [create("pgd", steps=STEPS)], release, x, data.test.y, norm="linf", sizes=[SIZE], seed=0
    )
    return {
        "init_seed": settings["init_seed"],
        "clean": found.clean_accuracy,
        "attacked": found.robust_accuracy[SIZE],
        "train_seconds": trained,
    }


def main() -> None:
    """All runs, then the record."""
    torch.set_num_threads(1)
    data, rows = privet.data.load("digits"), []
    with tempfile.TemporaryDirectory() as home:
        ledger = privet.Ledger(Path(home) / "ledger.db")
        for method, kind, settings in RUNS:
            seen = [measured(method, data, settings | {"init_seed": s}, ledger) for s in SEEDS]
            rows.append({"method": method, "training": kind, "settings": settings, "seeds": seen})
            print(rows[-1], flush=True)
    record = {
        "what": f"accuracy under PGD, {STEPS} steps, linf {SIZE}, {len(data.test)} test images",
        "command": "python benchmarks/adversarial_digits.py",
        "data": "digits",
        "rows": rows,
        "hardware": f"{platform.machine()}, 1 thread",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
