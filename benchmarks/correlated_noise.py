"""Correlated against independent noise at equal epsilon: one pass, many small steps.

    python benchmarks/correlated_noise.py --data mnist --epsilon 8

All arms train the same model for the same steps on the same (epsilon, delta). Each arm chooses its
own learning rate on a holdout of the training records, from one run (one seed) for each rate. Then
nothing is chosen any more: every arm is run with several seeds, and the test set is scored once for
each of these runs (3 arms with 5 seeds: 15 times). Alternating runs, one JSON under
benchmarks/results/.
"""

import json
import platform
import statistics
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

import torch
from recipe_search import without_holdout

import privet
from privet.privacy.factorisation import Workload, expected_error
from privet.training.settings import Settings

RESULTS = Path(__file__).parent / "results"
ARMS = {
    "independent, poisson": {},
    "16 bands, cyclic-poisson": {"sampler": "cyclic-poisson", "bands": 16},
    "64 bands, cyclic-poisson": {"sampler": "cyclic-poisson", "bands": 64},
}
RATES = (0.03, 0.06, 0.12, 0.25, 0.5)


def accuracy(data, ledger, settings: dict, seed: int) -> dict:
    """One run."""
    started = time.perf_counter()
    trust = privet.train("dpsgd", data, ledger=ledger, init_seed=seed, **settings).trust
    return {
        "seed": seed,
        "accuracy": trust["utility"]["test_accuracy"],
        "epsilon": trust["privacy"][0]["epsilon"],
        "noise_multiplier": trust["mechanism"]["noise_multiplier"],
        "seconds": round(time.perf_counter() - started, 1),
    }


def predicted(data, settings: dict) -> float:
    """What theory says: root mean square error of an iterate, noise multiplier included."""
    chosen = {k: v for k, v in settings.items() if k not in ("epsilon", "delta")}
    plan = Settings(epsilon=settings["epsilon"], delta=settings["delta"], **chosen).plan_for(data)
    workload = Workload(steps=plan.steps, momentum=settings["momentum"], last_rate=0.0)
    return plan.noise_multiplier * expected_error(plan.bands or (1.0,), workload)


def main() -> None:
    """Choose a rate for each arm, then compare."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--model", default="linear")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--holdout", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data = privet.data.load(arguments.data, arguments.data_dir)
    search = without_holdout(data, arguments.holdout)
    common = {
        "epsilon": arguments.epsilon,
        "delta": 1e-5,
        "model": arguments.model,
        "batch": arguments.batch,
        "epochs": arguments.epochs,
        "momentum": 0.9,
    }
    with tempfile.TemporaryDirectory() as home:
        ledger = privet.Ledger(Path(home) / "ledger.db")
        arms = {}
        for name, arm in ARMS.items():
            tries = {
                rate: accuracy(search, ledger, common | arm | {"learning_rate": rate}, 100)
                for rate in RATES
            }
            best = max(RATES, key=lambda rate: tries[rate]["accuracy"])
            arms[name] = {
                "settings": common | arm | {"learning_rate": best},
                "holdout": {str(rate): tried["accuracy"] for rate, tried in tries.items()},
                "predicted_error": predicted(data, common | arm),
                "runs": [],
            }
            print(name, best, arms[name]["holdout"], arms[name]["predicted_error"], flush=True)
        for seed in range(arguments.seeds):
            for arm in arms.values():
                arm["runs"].append(accuracy(data, ledger, arm["settings"], seed))
        ledger.close()
    for name, arm in arms.items():
        found = [run["accuracy"] for run in arm["runs"]]
        arm["mean_test_accuracy"] = statistics.mean(found)
        arm["standard_error"] = statistics.stdev(found) / len(found) ** 0.5
        print(name, arm["mean_test_accuracy"], arm["standard_error"], flush=True)
    record = {
        "what": "test accuracy with correlated and with independent noise at equal epsilon",
        "command": f"python benchmarks/correlated_noise.py --data {arguments.data}"
        f" --epsilon {arguments.epsilon:g} --model {arguments.model}"
        f" --epochs {arguments.epochs:g} --batch {arguments.batch} --seeds {arguments.seeds}",
        "arms": arms,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = f"correlated_noise_{arguments.data}_eps{arguments.epsilon:g}.json"
    (arguments.out / name).write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
