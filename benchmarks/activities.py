"""HAR-Wild against what FLSys compares it with, centrally and without privacy (its Table 4.4).

    python benchmarks/activities.py --data hapt
    python benchmarks/activities.py --data tweets

Settings are those of FLSys's Table 4.3: Adam, learning rate 0.0005, dropout of each network's own,
batches by class distribution. Its batch of 1,024 makes 162 steps an epoch of its 165,740 windows
and 12 of HAPT's, so a batch is 64 here. Every network is trained for the same number of epochs,
which was fixed beforehand; no number of epochs is chosen by test records. (How HAR-Wild begins was,
see docs/methods/har-wild.md.) The sentiment head, for which FLSys states nothing, gets the same.
Every network is trained with a seed before any is with the next; the JSON under benchmarks/results/
is written after each run, and a command that was interrupted goes on where it stopped.
"""

import json
import platform
import statistics
import time
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import precision_recall_fscore_support
from torch.nn.functional import cross_entropy

import privet
from privet.models import create

RESULTS = Path(__file__).parent / "results"
NETWORKS = (
    *("har-wild-64-bn", "har-wild-64", "bilstm", "cnn-ig", "cnn-ig-featureless"),
    *("har-wild-32", "har-wild-128"),
)
HEADS = ("sentiment-head", "linear")
RATE = 0.0005


def tensors(data, split):
    """Inputs scaled by the public bounds, and labels."""
    return torch.from_numpy(data.bounds.clamp_and_scale(split.x)), torch.from_numpy(split.y)


def by_class_distribution(y, draw):
    """All places in an order in which every stretch has about the mix of the whole."""
    when = np.empty(len(y))
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        when[draw.permutation(own)] = (np.arange(len(own)) + draw.random()) / len(own)
    return np.argsort(when, kind="stable")


def trained(name, data, *, epochs: int, batch: int, seed: int):
    """The network after so many epochs of Adam."""
    x, y = tensors(data, data.train)
    draw = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = create(name, data.shape, len(data.classes), init_seed=seed).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    for _ in range(epochs):
        order = by_class_distribution(data.train.y, draw)
        for rows in torch.from_numpy(order).split(batch):
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def scored(model, data) -> dict:
    """Accuracy, and precision, recall and F1 of each class and their means over classes."""
    x, y = tensors(data, data.test)
    with torch.no_grad():
        guesses = torch.cat([model(part).argmax(1) for part in x.split(512)]).numpy()
    labels = range(len(data.classes))
    found = precision_recall_fscore_support(y, guesses, labels=labels, zero_division=0.0)
    macro = {
        name: float(values.mean())
        for name, values in zip(("precision", "recall", "f1"), found[:3], strict=True)
    }
    classes = {
        name: dict(zip(("precision", "recall", "f1", "support"), map(float, row), strict=True))
        for name, *row in zip(data.classes, *found, strict=True)
    }
    return {"accuracy": float((guesses == y.numpy()).mean()), **macro, "classes": classes}


def summary(runs: list[dict]) -> dict:
    """Means over seeds, and the standard error of the accuracy."""
    means = {
        name: statistics.mean(run[name] for run in runs)
        for name in ("accuracy", "precision", "recall", "f1")
    }
    accuracies = [run["accuracy"] for run in runs]
    if len(runs) > 1:
        means["standard_error"] = statistics.stdev(accuracies) / len(runs) ** 0.5
    return means


def networks_there(path: Path, settings: dict) -> dict[str, dict]:
    """What an interrupted command left behind, by network; nothing of other settings."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text())
    return kept["networks"] if kept["settings"] == settings else {}


def main() -> None:
    """All networks with one seed, then with the next."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="hapt")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--from-seed", type=int, default=0)
    parser.add_argument("--networks", nargs="+", default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data = privet.data.load(arguments.data, arguments.data_dir)
    names = arguments.networks or (HEADS if len(data.shape) == 1 else NETWORKS)
    path = arguments.out / f"activities_{arguments.data.replace('/', '_')}.json"
    settings = {
        "optimizer": "adam",
        "learning_rate": RATE,
        "epochs": arguments.epochs,
        "batch": arguments.batch,
        "train": len(data.train),
        "test": len(data.test),
    }
    there = networks_there(path, settings)
    record = {
        "what": "accuracy of networks trained centrally, without privacy; test records of the data",
        "command": f"python benchmarks/activities.py --data {arguments.data}"
        f" --epochs {arguments.epochs} --batch {arguments.batch} --seeds {arguments.seeds}",
        "settings": settings,
        "networks": there | {name: {"runs": []} for name in names if name not in there},
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)",
    }
    for seed in range(arguments.from_seed, arguments.seeds):
        for name in names:
            kept = record["networks"][name]
            if seed in {run["seed"] for run in kept["runs"]}:
                continue
            started = time.process_time()
            model = trained(name, data, epochs=arguments.epochs, batch=arguments.batch, seed=seed)
            spent = round(time.process_time() - started, 1)
            kept["parameters"] = sum(p.numel() for p in model.parameters())
            kept["runs"].append({"seed": seed, "cpu_seconds": spent, **scored(model, data)})
            kept["mean"] = summary(kept["runs"])
            print(arguments.data, name, seed, spent, kept["mean"], flush=True)
            path.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
