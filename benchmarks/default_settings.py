"""Where the default settings of `privet train dpsgd` come from.

    python benchmarks/default_settings.py

A small grid at epsilon 3, trained on four fifths of the digits training part and scored on the
rest of it; the test part is not touched. Writes benchmarks/results/default_settings.json.
"""

import itertools
import json
import platform
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import privet
from privet.data.dataset import Dataset, Split

RESULT = Path(__file__).parent / "results" / "default_settings.json"
GRID = {
    "model": ["cnn-tiny", "mlp"],
    "epochs": [20, 30],
    "learning_rate": [0.125, 0.25, 0.5],
    "clip_norm": [0.1, 1.0],
}
SEEDS = 3


def training_part() -> Dataset:
    """Four fifths of the training records to train on, one fifth to score on."""
    data = privet.data.load("digits")
    scored = np.arange(len(data.train)) % 5 == 0
    return replace(
        data,
        name="digits-training-part",
        train=Split(x=data.train.x[~scored], y=data.train.y[~scored]),
        test=Split(x=data.train.x[scored], y=data.train.y[scored]),
        nominal_size=1150,
    )


def main() -> None:
    """Run the grid and write the record, best first."""
    data, rows = training_part(), []
    with tempfile.TemporaryDirectory() as home:
        ledger = privet.Ledger(Path(home) / "ledger.db")
        for values in itertools.product(*GRID.values()):
            settings = dict(zip(GRID, values, strict=True))
            scores = [
                privet.train(
                    "dpsgd", data, epsilon=3.0, init_seed=seed, ledger=ledger, **settings
                ).trust["utility"]["test_accuracy"]
                for seed in range(SEEDS)
            ]
            rows.append(settings | {"accuracy": statistics.mean(scores), "scores": scores})
            print(rows[-1], flush=True)
        ledger.close()
    record = {
        "what": "grid over settings of dpsgd on a part of the digits training data, epsilon 3",
        "command": "python benchmarks/default_settings.py",
        "rows": sorted(rows, key=lambda row: -row["accuracy"]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
