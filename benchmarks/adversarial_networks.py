"""Networks that attack in one pass beside attacks that search: success at equal size, and time.

    python benchmarks/adversarial_networks.py --data mnist --target 8 --device cuda \
        --variants all --choose-at 0.2 --workers 8

Trains an undefended classifier, then AIN, ATN and AdvGAN against it, a network for each size, and
attacks the test images that it classifies rightly (with a target: those of other classes). Success
is the share that reaches the goal, with its exact 95 % interval; `seconds_each` is of whole attacks
in batches of `--batch`. i-FGSM takes 50 steps of a fiftieth of the size, as AIN's authors do.

`--variants` trains several settings of AIN at one size and goes on with the one that fools most
validation images, which are a tenth of the training records; test images choose nothing. Another
record takes over its choice with `--like`. `--kinds` may name ablations: another decay (none,
exponential), a bound that is cut off at (cut), the authors' network (published), the weights of
their objective (weights).

`seconds ... of N` rows are of one and the same batch of N images, for AIN, i-FGSM and C&W in turn,
the least of three; C&W once with this package's 9 x 200 iterations and once with the 1,000 for each
step of its authors' program. Let nothing else run beside them. `--hard` also trains classifiers
with partners by AIN and judges them by AIN as it was, by AIN trained anew, by PGD and by APGD; of
an attack without a target, `accuracy` is the share of all test images that stay right.

Networks are trained by `--workers` processes at a time. Rows are written as they come, and a record
that is there is completed.
"""

import json
import multiprocessing
import platform
import sys
import time
import traceback
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import binomtest

import privet
from privet.attacks import create
from privet.attacks.attack import only_within
from privet.attacks.generated import Generated
from privet.attacks.ifgsm import IFGSM
from privet.classifiers import open_classifier
from privet.files import write_json

RESULTS = Path(__file__).parent / "results"
PUBLISHED_STEPS = 50
PUBLISHED_ITERATIONS = 1000  # of C&W's own program, for each of its steps
ROUNDS = 3
PLACES = ("classifier", "attacker")  # settings that are folders: records have their names alone
FOLDERS = ("--data-dir", "--runs", "--out", "--classifier", "--like")

VARIANTS = {
    "margin": {},
    "entropy": {"fooling": "entropy"},
    "entropy-fixed": {"fooling": "entropy", "decay": "none"},
    "alone": {
        "fooling": "entropy", "decay": "none", "distance": 0.0, "pixels": 0.0, "logits": 0.0,
    },
}  # fmt: skip

# Of the authors' program, for MNIST and a target; its margin wins up to 50 to 500.
PUBLISHED_WEIGHTS = {
    "distance": 5.0, "pixels": 5.0, "logits": 60.0, "margin": 20.0, "confidence": 50.0,
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A release to train: its name, by which method, with which settings."""

    name: str
    method: str
    settings: dict
    data: str | None = None  # other than the one that is asked for
    private: dict = field(default_factory=dict)  # epsilon, delta


class Bench:
    """One data set, one goal, one record."""

    def __init__(self, asked):
        self.asked, self.ends_at = asked, time.time() + asked.seconds
        self.data = privet.data.load(asked.data, asked.data_dir)
        self.runs = asked.runs or asked.out.with_suffix("")
        self.runs.mkdir(parents=True, exist_ok=True)
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

    def row(self, key):
        """The row of this key, if it is there."""
        return next((row for row in self.record["rows"] if row["key"] == key), None)

    def has(self, key):
        """Whether this row is there, or time is over."""
        return time.time() > self.ends_at or self.row(key) is not None

    def add(self, key, **row):
        """A row, written at once."""
        self.record["rows"].append({"key": key, **row})
        write_json(self.asked.out, self.record)  # whole or not at all: another run may read it
        print(f"{time.strftime('%H:%M:%S')} {key} {json.dumps(row)[:240]}", flush=True)

    def train(self, jobs, meanwhile=None):
        """Releases of these names, several processes at a time; those that are there are used."""
        jobs = [job for job in jobs if not (self.runs / job.name / "manifest.json").exists()]
        if self.asked.workers < 2:
            for job in jobs:
                self.trained(job, lambda job=job: trained(self.asked, self.runs, job))
            return meanwhile() if meanwhile else None
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.asked.workers, mp_context=context) as pool:
            begun = [(job, pool.submit(trained, self.asked, self.runs, job)) for job in jobs]
            if meanwhile:
                meanwhile()
            for job, future in begun:
                self.trained(job, future.result)
        return None

    def trained(self, job, result):
        """What came of a job; others go on where one failed."""
        try:
            spent, validated = result()
        except Exception:  # whatever it was: the others are worth their rows
            traceback.print_exc()
            return
        card = privet.load(self.runs / job.name).trust
        settings = {k: Path(v).name if k in PLACES else v for k, v in job.settings.items()}
        self.add(
            f"trained {job.name}", method=job.method, settings=settings | job.private,
            test_accuracy=card["utility"].get("test_accuracy"), seconds=spent, validated=validated,
        )  # fmt: skip

    def network(self, name):
        """The attack by a network of this name; None if its training failed."""
        folder = self.runs / name
        return Generated(source=str(folder)) if (folder / "manifest.json").exists() else None

    def attacked(self, name, attack, classifier, sizes, most=None):
        """Success and seconds of one attack on one classifier."""
        if attack is None or all(self.has(f"{name} {size:g}") for size in sizes):
            return
        victim = open_classifier(str(classifier), device=self.asked.device)
        x, y, aim, clean = self.images(victim, most)
        closest, spent = None, 0.0
        for size in sizes:
            if self.has(f"{name} {size:g}"):
                continue
            started = self.now()
            if attack.minimal:  # one search serves all sizes
                closest = self.found(x, y, aim, closest, attack.closest, victim)
                found = only_within(closest, x, size, attack.norm)
                spent = spent or (self.now() - started) / len(x)
            else:
                found = self.found(x, y, aim, None, attack, victim, size=size)
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

    def found(self, x, y, aim, known, attack, victim, **size):
        """What an attack finds, in batches, if it is not known."""
        if known is not None:
            return known
        parts = self.batches(x, y, aim)
        return torch.cat(
            [attack(victim, rows, true, target=goal, **size) for rows, true, goal in parts]
        )

    def timed(self, name, attack, classifier, size, images, rounds=ROUNDS):
        """Seconds for an image of one batch, which is the same for all attacks.

        By the clock, and of the processor alone: where others compute too, only that one compares.
        """
        key = f"seconds {name} {size:g} of {images}"
        if attack is None or self.has(key):
            return
        victim = open_classifier(str(classifier), device=self.asked.device)
        x, y, aim, _ = self.images(victim, images)
        seconds, busy = [], []
        for _ in range(rounds):
            started, began = self.now(), time.process_time()
            attack(victim, x, y, size=size, target=aim)
            seconds.append((self.now() - started) / len(x))
            busy.append((time.process_time() - began) / len(x))
        self.add(
            key, seconds_each=min(seconds), processor_each=min(busy), images=len(x), rounds=rounds
        )

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


def trained(asked, runs, job):
    """Train one release, in a process of its own; seconds, and success on validation images."""
    if asked.threads:
        torch.set_num_threads(asked.threads)
    data = privet.data.load(job.data or asked.data, asked.data_dir)
    few = _first(data, asked.records) if job.method in ("ain", "atn", "advgan") else data
    last, started = {}, time.monotonic()
    privet.train(
        job.method, few, device=asked.device, out=runs / job.name, watch=lambda t: last.update(t=t),
        ledger=privet.Ledger(runs / f"{job.name}.db"), **job.private, **job.settings,
    )  # fmt: skip
    best = getattr(last["t"], "best", {})
    return time.monotonic() - started, {f"{bound:g}": found for bound, found in best.items()}


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
    for images in map(int, bench.asked.timed.split(",")):
        bench.timed("ain", bench.network(f"ain-{size:g}"), classifier, size, images)
        bench.timed("ifgsm", published_ifgsm(), classifier, size, images)
        bench.timed("cw", create("cw", norm="linf"), classifier, size, images, rounds=1)
        longer = create("cw", norm="linf", iterations=PUBLISHED_ITERATIONS)
        bench.timed("cw-published", longer, classifier, size, images, rounds=1)


def networks(bench, classifier, sizes):
    """AIN with its variants and ablations, ATN, AdvGAN."""
    kinds, jobs = bench.asked.kinds.split(","), []
    tried = _variants(bench.asked)
    at = bench.asked.choose_at
    jobs += [
        imitating(bench, f"variant-{name}", classifier, at, own) for name, own in tried.items()
    ]
    for kind in kinds:
        if kind.startswith("ain-"):
            under = _ablated(bench.asked, kind.split("-")[1:])
            jobs += [
                imitating(bench, f"{kind}-{size:g}", classifier, size, under) for size in sizes
            ]
    jobs += rivals(bench, classifier, sizes, kinds)
    bench.train(jobs, lambda: searching(bench, classifier, sizes))
    chosen = choose(bench, tried, at)
    if "ain" in kinds:
        bench.train([imitating(bench, f"ain-{s:g}", classifier, s, chosen) for s in sizes])
    for kind in kinds:
        for size in sizes:
            whole = kind if kind == "atn-free" else f"{kind}-{size:g}"
            if kind != "none":
                bench.attacked(kind, bench.network(whole), classifier, [size])


def imitating(bench, name, classifier, size, settings):
    """AIN for this bound."""
    asked = bench.asked
    return against(
        bench, name, "ain", classifier, bounds=f"{size:g}",
        **{
            "epochs": asked.epochs, "first_bound": asked.first_bound, "perturber": asked.perturber,
            "learning_rate": asked.learning_rate, "imitation_steps": asked.imitation_steps,
        } | settings,
    )  # fmt: skip


def against(bench, name, method, classifier, **settings):
    """A network that attacks this classifier; `target` as asked."""
    asked = bench.asked
    aim = {} if asked.target is None else {"target": asked.target}
    common = {
        "classifier": str(classifier), "batch": asked.train_batch, "warmup": asked.warmup,
    }  # fmt: skip
    return Job(name, method, common | {"precision": asked.precision} | aim | settings)


def rivals(bench, classifier, sizes, kinds):
    """ATN, where there is a target, and AdvGAN, for each size.

    ATN knows no bound: `atn-free` is the published one, cut off when it attacks. `atn` is cut off
    while it learns, too, which makes it far stronger.
    """
    asked, jobs = bench.asked, []
    usual = {"epochs": asked.rival_epochs or asked.epochs, "learning_rate": asked.learning_rate}
    plain = {"perturber": f"atn-{asked.perturber.split('-')[1]}"} | usual
    if asked.target is not None and "atn-free" in kinds:
        jobs.append(against(bench, "atn-free", "atn", classifier, **plain))
    if asked.target is not None and "atn" in kinds:
        jobs += [
            against(
                bench, f"atn-{s:g}", "atn", classifier, bounds=f"{s:g}", distance=0.02, **plain
            )
            for s in sizes
        ]  # fmt: skip
    if "advgan" in kinds:
        jobs += [
            against(bench, f"advgan-{s:g}", "advgan", classifier, bounds=f"{s:g}", **usual)
            for s in sizes
        ]
    return jobs


def choose(bench, tried, at):
    """The variant that fools most validation images, or the choice of another record."""
    if not tried:
        if bench.asked.like is None:
            return {}
        return _awaited(bench.asked.like)
    found = {}
    for name in tried:
        row = bench.row(f"trained variant-{name}")
        if row is not None:
            found[name] = row["validated"].get(f"{at:g}", 0.0)  # none: the bound was not reached
    best = max(found, key=found.get)
    if not bench.has("chosen"):
        bench.add("chosen", variant=best, at=at, validated=found, settings=tried[best])
    made = bench.runs / f"ain-{at:g}"  # it is there already: trained at this size
    if not made.exists():
        made.symlink_to((bench.runs / f"variant-{best}").resolve())
    return tried[best]


def _awaited(record):
    """The choice of another record, which may still be at work on it."""
    while True:
        rows = json.loads(record.read_text())["rows"] if record.exists() else []
        found = [row["settings"] for row in rows if row["key"] == "chosen"]
        if found:
            return found[0]
        time.sleep(1.0)


def _variants(asked):
    names = list(VARIANTS) if asked.variants == "all" else asked.variants.split(",")
    return {name: VARIANTS[name] for name in names if name != "none"}


def _ablated(asked, words):
    """Settings of an ablation, its words in any order: the docstring of this file has them."""
    settings = {}
    for word in words:
        if word in ("none", "exponential", "step", "time", "adaptive"):
            settings["decay"] = word
        elif word == "cut":
            parts = "-smooth" if "-without-" in asked.perturber else "-without-smooth"
            settings["perturber"] = asked.perturber + parts
        elif word == "published":
            settings["perturber"] = "ain-published"
        elif word == "weights":
            settings |= PUBLISHED_WEIGHTS
    return settings


def hardened(bench, classifier, size):
    """Classifiers that learned from partners, judged by AIN as it was and anew, PGD and APGD."""
    asked, names = bench.asked, bench.asked.hard.split(",")
    attacker = bench.runs / f"ain-{size:g}"
    usual = {"model": asked.model, "augment": asked.augment}
    bench.train(
        [
            Job(
                f"classifier-{name}", "plain",
                usual | {
                    "epochs": asked.hard_epochs or asked.classifier_epochs, "adversarial": name,
                    "adversarial_size": size, "batch": asked.classifier_batch,
                    "learning_rate": asked.classifier_rate,
                } | ({"attacker": str(attacker)} if name.startswith("ain") else {}),
            )
            for name in names
        ]
    )  # fmt: skip
    victims = {name: bench.runs / f"classifier-{name}" for name in names}
    judged(bench, {"plain": classifier} | victims, size, f"ain-{size:g}")


def private(bench, size):
    """Classifiers with a proof on one half of the records; the other, public half has the attacker.

    One learns from clean images alone, the others from partners by the attacker, too.
    """
    asked, halves = bench.asked, (f"{bench.asked.data}/first", f"{bench.asked.data}/second")
    usual = {"model": asked.model, "epochs": asked.classifier_epochs, "augment": asked.augment}
    bench.train([Job("classifier-first", "plain", usual, halves[0])])
    attacker = imitating(bench, "ain-first", bench.runs / "classifier-first", size, _chosen(bench))
    bench.train([replace(attacker, data=halves[0])])
    partners = {
        "attacker": str(bench.runs / "ain-first"), "adversarial_size": size,
        "public_attacker": f"trained on {halves[0]}, which is public",
    }  # fmt: skip
    ways = {"none": {}} | {
        name: partners | {"adversarial": name} for name in asked.private_hard.split(",")
    }
    spent = {"epsilon": asked.epsilon, "delta": 1e-5}
    bench.train(
        [
            Job(
                f"private-{name}", "dpsgd", own | {"epochs": asked.private_epochs}, halves[1], spent
            )
            for name, own in ways.items()
        ]
    )
    victims = {f"private-{name}": bench.runs / f"private-{name}" for name in ways}
    judged(bench, victims, size, "ain-first")


def _chosen(bench):
    """The variant that was chosen, here or by another record."""
    row = bench.row("chosen")
    return choose(bench, {}, 0.0) if row is None else row["settings"]


def judged(bench, victims, size, attacker):
    """How these classifiers hold against four attackers."""
    chosen = _chosen(bench)
    anew = [n for n, folder in victims.items() if n != "plain" and folder.exists()]
    bench.train([imitating(bench, f"ain-on-{n}", victims[n], size, chosen) for n in anew])
    for name, folder in victims.items():
        if not Path(folder).exists():
            continue
        judges = {
            "ain": bench.network(attacker),
            "ain-anew": bench.network(attacker if name == "plain" else f"ain-on-{name}"),
            "pgd": create("pgd"),
            "apgd-ce": create("apgd-ce"),
        }
        for judge, attack in judges.items():
            bench.attacked(f"{judge} on {name}", attack, folder, [size], most=bench.asked.judged)


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


def asked_for():
    """The options."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="processes that train")
    parser.add_argument("--target")
    parser.add_argument("--sizes", default="0.3,0.2,0.1")
    parser.add_argument("--records", type=int, help="of the data, for networks; default: all")
    parser.add_argument("--train-batch", type=int, help="of networks")
    parser.add_argument("--precision", default="float32", help="of networks, while they learn")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of networks")
    parser.add_argument("--warmup", type=float, default=0.05, help="share of a network's steps")
    parser.add_argument("--first-bound", type=float, default=0.8)
    parser.add_argument("--imitation-steps", type=int, default=PUBLISHED_STEPS)
    parser.add_argument("--augment", default="none", help="of classifiers")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--attacked", type=int, help="images, where no other number is said")
    parser.add_argument("--searches", default="fgsm,ifgsm,pgd,cw")
    parser.add_argument("--cw-images", type=int)
    parser.add_argument("--judged", type=int, help="images that judge hardened classifiers")
    parser.add_argument("--classifier", type=Path, help="one that is there; default: train it")
    parser.add_argument("--model", default="cnn-gn")
    parser.add_argument("--classifier-epochs", type=float, default=15)
    parser.add_argument("--classifier-batch", type=int, default=128)
    parser.add_argument("--classifier-rate", type=float, default=0.05)
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--rival-epochs", type=float, help="of ATN and AdvGAN; default: as AIN")
    parser.add_argument("--perturber", default="ain-12", help="of AIN")
    parser.add_argument("--variants", default="none", help=f"all, or of {', '.join(VARIANTS)}")
    parser.add_argument("--choose-at", type=float, default=0.2, help="size at which they compete")
    parser.add_argument("--like", type=Path, help="a record whose chosen variant is used")
    parser.add_argument(
        "--kinds",
        default="ain,atn,atn-free,advgan",
        help="and ain-none, ain-cut-none, ain-published, ...",
    )
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--timed", default="1000,1", help="images at once; 0: no timing")
    parser.add_argument("--timed-size", type=float, default=0.2)
    parser.add_argument("--hard", default="", help="adversarial training: ain, ain-madry, madry")
    parser.add_argument("--hard-size", type=float, default=0.2)
    parser.add_argument("--hard-epochs", type=float, help="of those; default: as the classifier")
    parser.add_argument("--private-hard", default="", help="the same with a proof: ain, ain-madry")
    parser.add_argument("--private-epochs", type=float, default=20)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "adversarial_networks.json")
    return parser.parse_args()


def main() -> None:
    """Measure what the record lacks."""
    asked = asked_for()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    bench = Bench(asked)
    sizes = sorted(map(float, bench.asked.sizes.split(",")), reverse=True)
    classifier = asked.classifier or bench.runs / "classifier"
    if asked.classifier is None:
        usual = {"model": asked.model, "epochs": asked.classifier_epochs, "augment": asked.augment}
        rate = {"batch": asked.classifier_batch, "learning_rate": asked.classifier_rate}
        bench.train([Job("classifier", "plain", usual | rate)])
    elif not bench.has("classifier"):
        accuracy = privet.load(classifier).trust["utility"]["test_accuracy"]
        bench.add("classifier", test_accuracy=accuracy)
    networks(bench, classifier, sizes)
    if asked.timed != "0":
        timing(bench, classifier, asked.timed_size)
    if asked.hard:
        hardened(bench, classifier, asked.hard_size)
    if asked.private_hard:
        private(bench, asked.hard_size)


if __name__ == "__main__":
    main()
