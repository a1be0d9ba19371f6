"""Networks that attack in one pass beside attacks that search: success at equal size, and time.

    python benchmarks/adversarial_networks.py --data mnist --target 8 --device cuda --hard ain

Trains an undefended classifier, then AIN (each decay, smooth and cut off), ATN and AdvGAN against
it, and attacks the test images that it classifies rightly (with a target: those of other classes).
Success is the share that reaches the goal, with its exact 95 % interval. Seconds for an image are
those of whole attacks in batches of `--batch` on the same device, the least of three; i-FGSM takes
50 steps of a fiftieth of the size, as AIN's authors do. `seconds ...` rows are of one and the same
batch of `--timed` images, for AIN, i-FGSM and C&W in turn. `--hard` also trains classifiers with
partners by AIN and judges them by AIN as it was, by AIN trained anew, by PGD and by APGD; of an
attack without a target, `accuracy` is the share of all test images that stay right.
Rows are written as they come, and a record that is there is completed.
"""

import json
import platform
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
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
PLACES = ("classifier", "attacker")  # settings that are folders: records have their names alone
FOLDERS = ("--data-dir", "--runs", "--out")


class Bench:
    """One data set, one goal, one record."""

    def __init__(self, asked):
        self.asked, self.ends_at = asked, time.time() + asked.seconds
        self.data = privet.data.load(asked.data, asked.data_dir)
        self.few = _first(self.data, asked.records)
        self.runs = asked.runs or asked.out.with_suffix("")
        self.runs.mkdir(parents=True, exist_ok=True)
        self.ledger = privet.Ledger(self.runs / "ledger.db")
        self.record = json.loads(asked.out.read_text()) if asked.out.exists() else self.new_record()
        self.record["commands"] = [*dict.fromkeys([*self.record["commands"], _command()])]

    def new_record(self):
        """What a record begins with."""
        asked = self.asked
        return {
            "what": "attacks by trained networks beside attacks that search",
            "commands": [],
            "data": asked.data,
            "target": asked.target,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "hardware": torch.cuda.get_device_name() if asked.device != "cpu" else "cpu",
            "threads": torch.get_num_threads(),
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

    def train(self, name, method, data=None, **settings):
        """A release of this name; one that is there is used."""
        folder, started = self.runs / name, time.monotonic()
        made = not (folder / "manifest.json").exists()
        if made:
            privet.train(
                method, data or self.data, device=self.asked.device, out=folder,
                ledger=self.ledger, **settings,
            )  # fmt: skip
        if not self.has(f"trained {name}"):
            accuracy = privet.load(folder).trust["utility"]["test_accuracy"]
            spent = time.monotonic() - started if made else None
            settings |= {key: Path(settings[key]).name for key in PLACES if key in settings}
            self.add(f"trained {name}", settings=settings, test_accuracy=accuracy, seconds=spent)
        return folder

    def perturber(self, name, method, classifier, **settings):
        """A network that attacks, trained on the first records; `target` as asked."""
        aim = {} if self.asked.target is None else {"target": self.asked.target}
        return self.train(
            name, method, self.few, classifier=str(classifier), batch=self.asked.train_batch,
            **aim, **settings,
        )  # fmt: skip

    def attacked(self, name, attack, classifier, sizes, most=None):
        """Success and seconds of one attack on one classifier."""
        victim = open_classifier(str(classifier), device=self.asked.device)
        x, y, aim, clean = self.images(victim, most)
        for size in sizes:
            if self.has(f"{name} {size:g}"):
                continue
            started = self.now()
            found = torch.cat(
                [
                    attack(victim, rows, true, size=size, target=goal)
                    for rows, true, goal in self.batches(x, y, aim)
                ]
            )
            spent = (self.now() - started) / len(x)
            said = torch.cat([victim.labels(part) for part in torch.split(found, 1000)])
            reached = (said != y) if aim is None else (said == aim)
            hits = int(reached.sum())
            interval = binomtest(hits, len(x)).proportion_ci(0.95, method="exact")
            row = {"accuracy": clean * (1 - hits / len(x))} if aim is None else {}
            self.add(
                f"{name} {size:g}", success=hits / len(x), interval=[interval.low, interval.high],
                images=len(x), seconds_each=spent, largest=float((found - x).abs().max()), **row,
            )  # fmt: skip

    def timed(self, name, attack, classifier, size, rounds=ROUNDS):
        """Seconds for an image of one batch, which is the same for all attacks.

        By the clock, and of the processor alone: where others compute too, only that one compares.
        """
        victim = open_classifier(str(classifier), device=self.asked.device)
        x, y, aim, _ = self.images(victim, self.asked.timed)
        if self.has(f"seconds {name} {size:g}"):
            return
        seconds, busy = [], []
        for _ in range(rounds):
            started, began = self.now(), time.process_time()
            attack(victim, x, y, size=size, target=aim)
            seconds.append((self.now() - started) / len(x))
            busy.append((time.process_time() - began) / len(x))
        self.add(
            f"seconds {name} {size:g}", seconds_each=min(seconds), processor_each=min(busy),
            images=len(x), rounds=rounds,
        )  # fmt: skip

    def images(self, victim, most=None):
        """The first test images that are right, without those of the target; the accuracy."""
        x = torch.from_numpy(self.data.bounds.clamp_and_scale(self.data.test.x)).to(victim.device)
        y = torch.from_numpy(self.data.test.y).to(victim.device)
        said = torch.cat([victim.labels(part) for part in torch.split(x, 1000)])
        keep, aim, most = said == y, None, most or self.asked.attacked
        clean = float(keep.float().mean())
        if self.asked.target is not None:
            place = list(self.data.classes).index(self.asked.target)
            keep &= y != place
            aim = torch.full_like(y[keep], place)
        return x[keep][:most], y[keep][:most], None if aim is None else aim[:most], clean

    def batches(self, x, y, aim):
        """So many images at a time."""
        for rows in torch.split(torch.arange(len(x)), self.asked.batch):
            yield x[rows], y[rows], None if aim is None else aim[rows]

    def now(self):
        """Seconds, once the device has done its work."""
        if self.asked.device != "cpu":
            torch.cuda.synchronize()
        return time.monotonic()


def published_ifgsm():
    """As AIN's authors run it."""
    return IFGSM(steps=PUBLISHED_STEPS, step=1.0 / PUBLISHED_STEPS)


def searching(bench, classifier, sizes):
    """Attacks that need no network."""
    attacks = {"fgsm": create("fgsm"), "ifgsm": published_ifgsm(), "pgd": create("pgd")}
    for name, attack in attacks.items():
        if name in bench.asked.searches.split(","):
            bench.attacked(name, attack, classifier, sizes)
    if "cw" in bench.asked.searches.split(","):
        cw = create("cw", norm="linf")
        bench.attacked("cw", cw, classifier, sizes, most=bench.asked.cw_images)


def timing(bench, classifier, size):
    """AIN, i-FGSM and C&W on the same batch, one after another."""
    bench.timed("ain", Generated(source=str(bench.runs / "ain")), classifier, size)
    bench.timed("ifgsm", published_ifgsm(), classifier, size)
    bench.timed("cw", create("cw", norm="linf"), classifier, size, rounds=1)


def networks(bench, classifier, sizes):
    """AIN with its ablations, ATN, AdvGAN."""
    smooth = bench.asked.perturber
    cut = smooth + ("-smooth" if "-without-" in smooth else "-without-smooth")
    kinds = {
        "ain": {"perturber": smooth},
        "ain-none": {"perturber": smooth, "decay": "none"},
        "ain-exponential": {"perturber": smooth, "decay": "exponential"},
        "ain-cut": {"perturber": cut},
        "ain-cut-none": {"perturber": cut, "decay": "none"},
    }
    chosen = bench.asked.kinds.split(",")
    for name, settings in kinds.items():
        under = sizes[-1:] if settings.get("decay") == "none" else sizes
        if name in chosen and not bench.has(f"{name} {under[-1]:g}"):
            folder = imitating(bench, name, classifier, under, **settings)
            bench.attacked(name, Generated(source=str(folder)), classifier, under)
    rivals(bench, classifier, sizes, chosen)


def imitating(bench, name, classifier, sizes, **settings):
    """AIN for these bounds."""
    bounds, asked = ",".join(f"{size:g}" for size in sizes), bench.asked
    return bench.perturber(
        name, "ain", classifier, bounds=bounds, epochs=asked.epochs, first_bound=asked.first_bound,
        learning_rate=asked.learning_rate, imitation_steps=asked.imitation_steps, **settings,
    )  # fmt: skip


def rivals(bench, classifier, sizes, chosen):
    """ATN, where there is a target, and AdvGAN for each size."""
    epochs = bench.asked.rival_epochs or bench.asked.epochs
    if bench.asked.target is not None and "atn" in chosen:
        folder = bench.perturber("atn", "atn", classifier, epochs=epochs)
        bench.attacked("atn", Generated(source=str(folder)), classifier, sizes)
    if "advgan" in chosen:
        for size in sizes:
            name = f"advgan-{size:g}"
            folder = bench.perturber(name, "advgan", classifier, bounds=f"{size:g}", epochs=epochs)
            bench.attacked(name, Generated(source=str(folder)), classifier, [size])


def hardened(bench, classifier, size):
    """Classifiers that learned from partners, judged by AIN as it was and anew, PGD and APGD."""
    attacker, asked = str(bench.runs / "ain"), bench.asked
    for name in ("plain", *asked.hard.split(",")):
        folder, anew = classifier, attacker
        if name != "plain":
            folder = bench.train(
                f"classifier-{name}", "plain", model=asked.model, augment=asked.augment,
                epochs=asked.hard_epochs or asked.classifier_epochs, adversarial=name,
                attacker=attacker, adversarial_size=size,
            )  # fmt: skip
            network = {"perturber": asked.perturber}
            anew = imitating(bench, f"ain-on-{name}", folder, [size], **network)
        judges = {
            "ain": Generated(source=attacker),
            "ain-anew": Generated(source=str(anew)),
            "pgd": create("pgd"),
            "apgd-ce": create("apgd-ce"),
        }
        for judge, attack in judges.items():
            bench.attacked(f"{judge} on {name}", attack, folder, [size], most=asked.judged)


def _command():
    """As it was called, without folders, which are nobody else's."""
    words, said = sys.argv[1:], ["python benchmarks/adversarial_networks.py"]
    for before, word in zip(["", *words], words, strict=False):
        if word not in FOLDERS and before not in FOLDERS:
            said.append(word)
    return " ".join(said)


def _first(data, records):
    """The data, of which the first records train; all, if no number was given."""
    if records is None:
        return data
    part = data.train.part(np.arange(len(data.train)) < records)
    return data.training_on(part, nominal_size=records)


def main() -> None:
    """Measure what the record lacks."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target")
    parser.add_argument("--sizes", default="0.3,0.2,0.1")
    parser.add_argument("--records", type=int, help="of the data, for networks; default: all")
    parser.add_argument("--train-batch", type=int, help="of networks")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of AIN")
    parser.add_argument("--first-bound", type=float, default=0.8)
    parser.add_argument("--imitation-steps", type=int, default=PUBLISHED_STEPS)
    parser.add_argument("--augment", default="none", help="of classifiers")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--attacked", type=int, help="images, where no other number is said")
    parser.add_argument("--searches", default="fgsm,ifgsm,pgd,cw")
    parser.add_argument("--cw-images", type=int)
    parser.add_argument("--judged", type=int, help="images that judge hardened classifiers")
    parser.add_argument("--model", default="cnn-gn")
    parser.add_argument("--classifier-epochs", type=float, default=15)
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--rival-epochs", type=float, help="of ATN and AdvGAN; default: as AIN")
    parser.add_argument("--perturber", default="ain-12", help="of AIN")
    kinds = "ain,ain-none,ain-exponential,ain-cut,ain-cut-none,atn,advgan"
    parser.add_argument("--kinds", default=kinds)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--timed", type=int, default=1000, help="images; 0: no timing")
    parser.add_argument("--hard", default="", help="adversarial training: ain, ain-madry")
    parser.add_argument("--hard-epochs", type=float, help="of those; default: as the classifier")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "adversarial_networks.json")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    bench = Bench(asked)
    sizes = sorted(map(float, bench.asked.sizes.split(",")), reverse=True)
    classifier = bench.train(
        "classifier", "plain", model=asked.model, epochs=asked.classifier_epochs,
        augment=asked.augment,
    )  # fmt: skip
    networks(bench, classifier, sizes)
    searching(bench, classifier, sizes)
    if asked.timed:
        timing(bench, classifier, sizes[-1])
    if asked.hard:
        hardened(bench, classifier, sizes[-1])


if __name__ == "__main__":
    main()
