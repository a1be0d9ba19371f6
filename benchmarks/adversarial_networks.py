"""Networks that attack in one pass beside attacks that search: success at equal size, and time.

    python benchmarks/adversarial_networks.py --data mnist --target 8 --device cuda --hard

Trains an undefended classifier, then AIN (each decay, smooth and cut off), ATN and AdvGAN against
it, and attacks the test images that it classifies rightly (with a target: those of other classes).
Success is the share that reaches the goal, with its exact 95 % interval. Seconds for an image are
those of whole attacks in batches of `--batch` on the same device, the least of three; i-FGSM takes
50 steps of a fiftieth of the size, as AIN's authors do. `--hard` also trains classifiers with
partners by AIN and judges them by AIN as it was, by AIN trained anew, by PGD and by APGD.
Rows are written as they come, and a record that is there is completed.
"""

import json
import platform
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import torch
from scipy.stats import binomtest

import privet
from privet.attacks import create
from privet.attacks.generated import Generated
from privet.attacks.ifgsm import IFGSM
from privet.classifiers import open_classifier

RESULTS = Path(__file__).parent / "results"
PUBLISHED_STEPS = 50
ROUNDS = 3


class Bench:
    """One data set, one goal, one record."""

    def __init__(self, asked):
        self.asked, self.ends_at = asked, time.time() + asked.seconds
        self.data = privet.data.load(asked.data, asked.data_dir)
        self.runs = asked.runs or asked.out.with_suffix("")
        self.runs.mkdir(parents=True, exist_ok=True)
        self.ledger = privet.Ledger(self.runs / "ledger.db")
        self.record = json.loads(asked.out.read_text()) if asked.out.exists() else self.new_record()

    def new_record(self):
        """What a record begins with."""
        asked = self.asked
        return {
            "what": "attacks by trained networks beside attacks that search",
            "command": "python benchmarks/adversarial_networks.py " + " ".join(sys.argv[1:]),
            "data": asked.data,
            "target": asked.target,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "hardware": torch.cuda.get_device_name() if asked.device != "cpu" else "cpu",
            "rows": [],
        }

    def has(self, key):
        """Whether this row is there, or time is over."""
        return time.time() > self.ends_at or any(row["key"] == key for row in self.record["rows"])

    def add(self, key, **row):
        """A row, written at once."""
        self.record["rows"].append({"key": key, **row})
        self.asked.out.write_text(json.dumps(self.record, indent=1) + "\n")
        print(key, json.dumps(row)[:200], flush=True)

    def train(self, name, method, **settings):
        """A release of this name; one that is there is used."""
        folder, started = self.runs / name, time.monotonic()
        if not (folder / "manifest.json").exists():
            release = privet.train(
                method, self.data, device=self.asked.device, out=folder, ledger=self.ledger,
                **settings,
            )  # fmt: skip
            accuracy = release.trust["utility"]["test_accuracy"]
            spent = time.monotonic() - started
            self.add(f"trained {name}", settings=settings, test_accuracy=accuracy, seconds=spent)
        return folder

    def perturber(self, name, method, classifier, **settings):
        """A network that attacks; `target` as asked."""
        aim = {} if self.asked.target is None else {"target": self.asked.target}
        return self.train(name, method, classifier=str(classifier), **aim, **settings)

    def attacked(self, name, attack, classifier, sizes):
        """Success and seconds of one attack on one classifier."""
        victim = open_classifier(str(classifier), device=self.asked.device)
        x, y, aim = self.images(victim)
        for size in sizes:
            if self.has(f"{name} {size:g}"):
                continue
            seconds, reached = [], None
            for _ in range(ROUNDS if len(x) <= self.asked.timed else 1):
                started = self.now()
                found = torch.cat(
                    [
                        attack(victim, rows, true, size=size, target=goal)
                        for rows, true, goal in self.batches(x, y, aim)
                    ]
                )
                seconds.append((self.now() - started) / len(x))
                said = torch.cat([victim.labels(part) for part in torch.split(found, 1000)])
                reached = (said != y) if aim is None else (said == aim)
            hits = int(reached.sum())
            interval = binomtest(hits, len(x)).proportion_ci(0.95, method="exact")
            self.add(
                f"{name} {size:g}", success=hits / len(x), interval=[interval.low, interval.high],
                images=len(x), seconds_each=min(seconds), largest=float((found - x).abs().max()),
            )  # fmt: skip

    def images(self, victim):
        """Test images that are right, without those of the target class."""
        x = torch.from_numpy(self.data.bounds.clamp_and_scale(self.data.test.x)).to(victim.device)
        y = torch.from_numpy(self.data.test.y).to(victim.device)
        said = torch.cat([victim.labels(part) for part in torch.split(x, 1000)])
        keep, aim = said == y, None
        if self.asked.target is not None:
            place = list(self.data.classes).index(self.asked.target)
            keep &= y != place
            aim = torch.full_like(y[keep], place)
        return x[keep], y[keep], aim

    def batches(self, x, y, aim):
        """So many images at a time."""
        for rows in torch.split(torch.arange(len(x)), self.asked.batch):
            yield x[rows], y[rows], None if aim is None else aim[rows]

    def now(self):
        """Seconds, once the device has done its work."""
        if self.asked.device != "cpu":
            torch.cuda.synchronize()
        return time.monotonic()


def searching(bench, classifier, sizes):
    """Attacks that need no network."""
    steps = IFGSM(steps=PUBLISHED_STEPS, step=1.0 / PUBLISHED_STEPS)
    for name, attack in {"fgsm": create("fgsm"), "ifgsm": steps, "pgd": create("pgd")}.items():
        bench.attacked(name, attack, classifier, sizes)
    bench.attacked("cw", create("cw", norm="linf"), classifier, sizes)


def networks(bench, classifier, sizes):
    """AIN with its ablations, ATN, AdvGAN."""
    bounds, epochs = ",".join(f"{size:g}" for size in sizes), bench.asked.epochs
    own = {"bounds": bounds, "epochs": epochs}
    wide = f"ain-{bench.asked.width}"
    kinds = {
        "ain": {"perturber": wide},
        "ain-none": {"perturber": wide, "decay": "none"},
        "ain-exponential": {"perturber": wide, "decay": "exponential"},
        "ain-cut": {"perturber": f"{wide}-without-smooth"},
        "ain-cut-none": {"perturber": f"{wide}-without-smooth", "decay": "none"},
    }
    chosen = bench.asked.kinds.split(",")
    for name, settings in kinds.items():
        if name in chosen and not bench.has(f"{name} {sizes[-1]:g}"):
            folder = bench.perturber(name, "ain", classifier, **own, **settings)
            bench.attacked(name, Generated(source=str(folder)), classifier, sizes)
    if bench.asked.target is not None and "atn" in chosen:
        folder = bench.perturber("atn", "atn", classifier, epochs=epochs)
        bench.attacked("atn", Generated(source=str(folder)), classifier, sizes)
    if "advgan" in chosen:
        for size in sizes:
            name = f"advgan-{size:g}"
            folder = bench.perturber(name, "advgan", classifier, bounds=f"{size:g}", epochs=epochs)
            bench.attacked(name, Generated(source=str(folder)), classifier, [size])


def hardened(bench, size):
    """Classifiers that learned from partners, judged by AIN as it was and anew, PGD and APGD."""
    attacker = str(bench.runs / "ain")
    plans = {
        "plain": {},
        "with-ain": {"adversarial": "ain", "attacker": attacker, "adversarial_size": size},
        "with-both": {"adversarial": "ain-madry", "attacker": attacker, "adversarial_size": size},
    }
    for name, settings in plans.items():
        common = {"model": bench.asked.model, "epochs": bench.asked.classifier_epochs}
        folder = bench.train(f"classifier-{name}", "plain", init_seed=1, **common, **settings)
        anew = bench.perturber(
            f"ain-on-{name}", "ain", folder, bounds=f"{size:g}", epochs=bench.asked.epochs,
            perturber=f"ain-{bench.asked.width}",
        )  # fmt: skip
        judges = {
            "ain": Generated(source=attacker),
            "ain-anew": Generated(source=str(anew)),
            "pgd": create("pgd"),
            "apgd-ce": create("apgd-ce"),
        }
        for judge, attack in judges.items():
            bench.attacked(f"{judge} on {name}", attack, folder, [size])


def main() -> None:
    """Measure what the record lacks."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target")
    parser.add_argument("--sizes", default="0.3,0.2,0.1")
    parser.add_argument("--model", default="cnn-gn")
    parser.add_argument("--classifier-epochs", type=float, default=15)
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--width", type=int, default=12)
    kinds = "ain,ain-none,ain-exponential,ain-cut,ain-cut-none,atn,advgan"
    parser.add_argument("--kinds", default=kinds)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--timed", type=int, default=10_000)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "adversarial_networks.json")
    bench = Bench(parser.parse_args())
    sizes = sorted(map(float, bench.asked.sizes.split(",")), reverse=True)
    classifier = bench.train(
        "classifier", "plain", model=bench.asked.model, epochs=bench.asked.classifier_epochs
    )
    networks(bench, classifier, sizes)
    searching(bench, classifier, sizes)
    if bench.asked.hard:
        hardened(bench, sizes[-1])


if __name__ == "__main__":
    main()
