"""How the recipes of `privet train dpsgd --recipe` were found: settings tried on a holdout.

    python benchmarks/recipe_search.py --data mnist --epsilon 3 --grid grid.json --device cuda

`grid.json` holds a list of settings. Each is trained on the training records without `--holdout` of
them, spread evenly over the file, and scored on those; the test set is not opened. Nothing of the
search is charged to a ledger that matters: recipes found so say `tuning: uncharged` on the data
they were found on. Writes one JSON with every try.
"""

import json
import tempfile
import time
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import privet

RESULTS = Path(__file__).parent / "results"


def without_holdout(data: privet.data.Dataset, size: int) -> privet.data.Dataset:
    """The training records less `size` of them, which take the place of the test set."""
    held = np.zeros(len(data.train), dtype=bool)
    held[np.linspace(0, len(data.train) - 1, size).astype(int)] = True
    return replace(
        data,
        name=f"{data.name}-search",
        train=data.train.part(~held),
        test=data.train.part(held),
        test_is_public=True,
        nominal_size=data.nominal_size - size,
    )


def tried(data, ledger, *, epsilon: float, device: str, settings: dict) -> dict:
    """One try: accuracy on the holdout, seconds."""
    started = time.perf_counter()
    release = privet.train("dpsgd", data, epsilon=epsilon, device=device, ledger=ledger, **settings)
    return {
        "settings": settings,
        "holdout_accuracy": release.trust["utility"]["test_accuracy"],
        "noise_multiplier": release.trust["mechanism"]["noise_multiplier"],
        "steps": release.trust["mechanism"]["steps"],
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    """Try every entry of the grid while there is time."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--holdout", type=int, default=5000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then stop")
    parser.add_argument("--name", default="search")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data = without_holdout(privet.data.load(arguments.data, arguments.data_dir), arguments.holdout)
    tries, started = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        ledger = privet.Ledger(Path(home) / "ledger.db")
        for settings in json.loads(arguments.grid.read_text()):
            if time.perf_counter() - started > arguments.seconds:
                break
            tries.append(
                tried(
                    data,
                    ledger,
                    epsilon=arguments.epsilon,
                    device=arguments.device,
                    settings=settings,
                )
            )
            print(json.dumps(tries[-1]), flush=True)
            write(arguments, tries)
        ledger.close()


def write(arguments, tries: list[dict]) -> None:
    """After every try, so that an interrupted search is not lost."""
    record = {
        "what": "accuracy on a holdout of the training records, by settings of dpsgd",
        "data": arguments.data,
        "epsilon": arguments.epsilon,
        "holdout": arguments.holdout,
        "hardware": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "tries": tries,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = f"recipe_{arguments.name}_{arguments.data}_eps{arguments.epsilon:g}.json"
    (arguments.out / name).write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
