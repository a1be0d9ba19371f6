"""What private tuning costs, and what it brings on digits.

    python benchmarks/tuning_worth.py

Cost: the noise that keeps a target, for one run, for the best of a random number of runs, and for a
fixed number of runs that are all paid for. Worth: accuracy on the public test part of settings
taken at random from a grid, of the best of them in hindsight (which nobody may pick for free), and
of `privet tune` over the same grid, all under the same target. Writes
benchmarks/results/tuning_worth.json.
"""

import itertools
import json
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

import privet
from privet.privacy.accounting import Selection, calibrate, epsilon_of, sampled_gaussian

RESULT = Path(__file__).parent / "results" / "tuning_worth.json"
DELTA = 1e-5
GRID = {"learning_rate": [0.01, 0.05, 0.25, 1.0], "clip_norm": [0.1, 1.0]}
FIXED = {"model": "mlp", "epochs": 15}
REPEATS = 5


def cost(epsilon: float, *, rate: float, steps: int) -> list[dict[str, float]]:
    """Noise relative to that of one run, and what is left for one run."""

    def noise(event_of: Any) -> float:
        return calibrate(epsilon, DELTA, event_of)

    alone = noise(lambda z: sampled_gaussian(z, rate, steps))
    rows = []
    for trials in (2, 3, 5, 10, 30, 100):
        best = noise(lambda z, k=trials: Selection(sampled_gaussian(z, rate, steps), k, 1.0))
        each = noise(lambda z, k=trials: sampled_gaussian(z, rate, k * steps))
        rows.append(
            {
                "trials": trials,
                "epsilon": epsilon,
                "noise_tuned": best / alone,
                "noise_all_paid": each / alone,
                "epsilon_of_one_run": epsilon_of(sampled_gaussian(best, rate, steps), DELTA),
            }
        )
    return rows


def worth(epsilon: float, ledger: privet.Ledger) -> dict[str, Any]:
    """Accuracies on the public test part."""
    data = privet.data.load("digits")

    def accuracy(release: privet.Release) -> float:
        return float(release.trust["utility"]["test_accuracy"])

    options: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "ledger": ledger, **FIXED}
    by_candidate = {}
    for values in itertools.product(*GRID.values()):
        chosen = dict(zip(GRID, values, strict=True))
        runs = [accuracy(privet.train("dpsgd", data, **options, **chosen)) for _ in range(2)]
        by_candidate[json.dumps(chosen)] = statistics.mean(runs)
    tuned = {}
    for trials in (3, 10):
        scores = [
            accuracy(privet.tune("dpsgd", data, **options, search=GRID, trials=trials))
            for _ in range(REPEATS)
        ]
        tuned[trials] = {"mean": statistics.mean(scores), "scores": scores}
    return {
        "epsilon": epsilon,
        "at_random": statistics.mean(by_candidate.values()),
        "worst": min(by_candidate.values()),
        "best_in_hindsight": max(by_candidate.values()),
        "candidates": by_candidate,
        "tuned": tuned,
    }


def main() -> None:
    """Both tables, one record."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        ledger = privet.Ledger(Path(home) / "ledger.db")
        measured = [worth(epsilon, ledger) for epsilon in (3.0, 8.0)]
        ledger.close()
    record = {
        "what": "noise of tuning (30 epochs of MNIST in batches of 2048); accuracy on digits",
        "command": "python benchmarks/tuning_worth.py",
        "cost": [
            row
            for epsilon in (1.0, 3.0, 8.0)
            for row in cost(epsilon, rate=2048 / 54_000, steps=791)
        ],
        "worth": measured,
        "grid": GRID | FIXED,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": f"{platform.machine()} CPU, one thread",
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
