"""Accuracy and time of `privet train dpsgd`, as records.

    python benchmarks/dpsgd_accuracy.py --data mnist --epsilon 3 --device cuda

Trains once for each seed of the first weights (sampling and noise are always secret and fresh),
and writes one JSON under benchmarks/results/. Settings are the method's defaults unless given, for
example `--settings '{"recipe": "mnist"}'`; none was tuned on the test set.
"""

import json
import platform
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import torch

import privet

RESULTS = Path(__file__).parent / "results"


def measure(data, *, epsilon, delta, seed, **settings):
    """One run: accuracy, guarantee, seconds."""
    with tempfile.TemporaryDirectory() as home:
        ledger = privet.Ledger(Path(home) / "ledger.db")
        started = time.perf_counter()
        release = privet.train(
            "dpsgd", data, epsilon=epsilon, delta=delta, init_seed=seed, ledger=ledger, **settings
        )
        seconds = time.perf_counter() - started
        ledger.close()
    return {
        "init_seed": seed,
        "test_accuracy": release.trust["utility"]["test_accuracy"],
        "privacy": release.trust["privacy"],
        "mechanism": release.trust["mechanism"],
        "tuning": release.trust["tuning"]["kind"],
        "seconds": seconds,
    }


def main() -> None:
    """Measure and write the record."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON of method settings")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data = privet.data.load(arguments.data, arguments.data_dir)
    runs = [
        measure(
            data,
            epsilon=arguments.epsilon,
            delta=arguments.delta,
            seed=seed,
            device=arguments.device,
            **arguments.settings,
        )
        for seed in range(arguments.seeds)
    ]
    accuracies = [run["test_accuracy"] for run in runs]
    record = {
        "what": "test accuracy of privet train dpsgd",
        "command": _command(arguments),
        "data": data.name,
        "settings": arguments.settings,
        "mean_test_accuracy": statistics.mean(accuracies),
        "runs": runs,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": _hardware(arguments.device),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = f"dpsgd_accuracy_{data.name}_eps{arguments.epsilon:g}_{arguments.device}.json"
    (arguments.out / name).write_text(json.dumps(record, indent=2) + "\n")
    print(data.name, arguments.epsilon, accuracies, [round(r["seconds"], 1) for r in runs])


def _command(arguments: Namespace) -> str:
    """How to get this record again; where the files lie is the reader's affair."""
    names = ("data", "epsilon", "delta", "seeds", "device")
    given = [f"--{name} {getattr(arguments, name)}" for name in names]
    if arguments.settings:
        given.append(f"--settings '{json.dumps(arguments.settings)}'")
    return " ".join(["python benchmarks/dpsgd_accuracy.py", *given])


def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
