"""Robust and certified accuracy of private classifiers, as one record.

    python benchmarks/robust_accuracy.py lists/mnist_proved.json --data mnist --device cuda

`lists/` holds such lists of what to train and how to judge it, for example

    {"method": "stobatch", "epsilon": 1, "settings": {"recipe": "mnist-robust"}, "seeds": [0, 1, 2],
     "norm": "linf", "sizes": [0.1], "steps": 40, "restarts": 5,
     "attacks": ["pgd", "ifgsm", "mim", "apgd-ce", "autoattack"], "at_once": 10000,
     "scale": 0, "eot": 1, "certify": [{"scale": 0.25, "radii": [0.25, 0.5], "n": 10000}]}

`replace_one: true` makes epsilon the target under replace-one neighbours; `analysis` may be given,
`autoattack_sizes` where it is not to run at all sizes, and a `note` for the reader. With
`compiled: true` scattering is compiled for the attacks, on CUDA, if that gives the same scores.
Attacks run one after the other, each on the test images that still hold: the worst case per image.
Several runs share the device; each is written as soon as it is done, and a record that is there
already is completed. After `--seconds` no further run is begun, nor an attack on the next `at_once`
images; nor after the run's own `attack_seconds`. A row says which attacks did not see all images
that were left to them; those they saw were chosen by chance.
"""

import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
import warnings
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import torch

import privet
from privet.attacks.pgd import PGD
from privet.certification import Gaussian
from privet.classifiers import open_classifier
from privet.classifiers.noisy import noisy
from privet.errors import PrivetError
from privet.models.scattering import Scattering2d
from privet.privacy.accounting import total_epsilon

RESULTS = Path(__file__).parent / "results"
ATTACKED_AT_ONCE = 10_000
CERTIFIED_AT_ONCE = 10_000
FOREVER = 1e9
SAME = 1e-4  # largest difference of scores by compiled code
NARROWINGS = 12  # of the search for an add/remove target


def measure(run, seed, arguments, ends_at):
    """One training, attacked and certified as far as time allows."""
    torch.set_num_threads(1)
    data = privet.data.load(arguments["data"], arguments["data_dir"])
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        ledger = privet.Ledger(Path(home) / "ledger.db")
        release = privet.train(
            run["method"], data, epsilon=target_of(run, data), analysis=run.get("analysis"),
            init_seed=seed, device=arguments["device"], ledger=ledger, **run.get("settings", {}),
        )  # fmt: skip
        ledger.close()
    record = {
        "run": run, "init_seed": seed, "privacy": release.trust["privacy"],
        "test_accuracy": release.trust["utility"].get("test_accuracy"),
        "mechanism": release.trust["mechanism"], "train_seconds": time.monotonic() - started,
        "left_out": [],
    }  # fmt: skip
    print(
        f"trained: {run['method']} {run.get('epsilon')} {record['train_seconds']:.0f} s", flush=True
    )
    x, y = chosen(data, run.get("examples", arguments["examples"]))
    classifier = open_classifier(release, device=arguments["device"])
    if run.get("certify") and time.time() < ends_at:
        try:
            record["certified"] = [certified(classifier, x, y, **how) for how in run["certify"]]
        except PrivetError as error:  # the rest of the run is worth keeping
            record["left_out"].append(f"certificates: {error}")
    before = time.monotonic()
    if run.get("attacks"):
        if run.get("compiled") and arguments["device"] != "cpu":
            record["compiled"] = quickened(classifier)
        until = min(ends_at, time.time() + run.get("attack_seconds", FOREVER))
        record["attacked"] = [
            attacked(classifier, x, y, run, size, record["left_out"], until)
            for size in run["sizes"]
        ]
    record["attack_seconds"] = time.monotonic() - before
    record["seconds"] = time.monotonic() - started
    return record


def quickened(classifier):
    """Compile the scattering of a classifier; or say why it was left as it was."""
    parts = [part for part in classifier.module.modules() if isinstance(part, Scattering2d)]
    probe = torch.rand(64, *classifier.shape, generator=torch.Generator().manual_seed(0))
    probe = probe.to(classifier.device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a compiler's advice
            expected = slopes_and_scores(classifier, probe)
            for part in parts:
                part.compile_it()
            found = slopes_and_scores(classifier, probe)
        far = max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
        note = "" if far < SAME else f"scores or slopes differ by {far:.1e}"
    except Exception as error:  # compilers fail in many ways
        note = f"{type(error).__name__}: {str(error)[:200]}"
    if note:
        for part in parts:
            part.compile_it(lambda scatter: None)
    return note or f"{len(parts)} scatterings"


def slopes_and_scores(classifier, x):
    """What attacks ask for: slopes with respect to inputs, and scores with and without them."""
    inputs = x.clone().requires_grad_()
    scores = classifier.scores(inputs)
    slopes = torch.autograd.grad(scores[:, 0].sum(), inputs)[0]
    with torch.no_grad():
        return slopes, scores.detach(), classifier.scores(x)


def attack_named(name, run):
    """By name, or PGD with its restarts."""
    if name != "pgd" or "restarts" not in run:
        return name
    return PGD(
        norm=run["norm"], steps=run["steps"], restarts=run["restarts"], eot=run.get("eot", 1)
    )


def target_of(run, data):
    """Epsilon under add/remove; where `replace_one`, the one whose replace-one figure was asked."""
    if run.get("epsilon") is None or not run.get("replace_one"):
        return run.get("epsilon")
    low, high = 0.3 * run["epsilon"], run["epsilon"]
    for _ in range(NARROWINGS):
        middle = (low + high) / 2
        within = replace_one(run, data, middle) <= run["epsilon"]
        low, high = (middle, high) if within else (low, middle)
    return low


def replace_one(run, data, epsilon):
    """What a plan for this add/remove target costs under replace-one neighbours."""
    from privet.training.recipes import settings_of
    from privet.training.registry import find_method

    variant, given = find_method(run["method"]).under(None), run.get("settings", {})
    settings = settings_of(given.get("recipe"), given, data.nominal_size) | given
    plan = variant.settings(epsilon=epsilon, **settings).plan_for(data)
    return total_epsilon([plan.event()], plan.delta, privet.guarantee.Adjacency.REPLACE_ONE)


def chosen(data, examples):
    """So many test images, evenly spread; scaled to [0, 1]."""
    at = np.unique(
        np.linspace(0, len(data.test.y) - 1, min(examples, len(data.test.y))).astype(int)
    )
    return data.bounds.clamp_and_scale(data.test.x[at]), data.test.y[at]


def attacked(classifier, x, y, run, size, left_out, ends_at):
    """The share of images that holds after each attack, on those that held before."""
    scale = run.get("scale", 0)
    victim = noisy(classifier, scale) if scale else classifier
    holds, after = np.ones(len(y), dtype=bool), {}
    for name in run["attacks"]:
        if name == "autoattack" and size not in run.get("autoattack_sizes", run["sizes"]):
            continue
        rows = np.random.default_rng(0).permutation(np.flatnonzero(holds))
        for first in range(0, len(rows), run.get("at_once", ATTACKED_AT_ONCE)):
            if time.time() >= ends_at:
                left_out.append(f"{name} {size}: {first} of {len(rows)} images")
                break
            some = rows[first : first + run.get("at_once", ATTACKED_AT_ONCE)]
            found = privet.attack(
                attack_named(name, run), victim, x[some], y[some], norm=run["norm"], sizes=[size],
                steps=run.get("steps"), eot=run.get("eot", 1), batch=len(some), check=False,
            )  # fmt: skip
            holds[some] = found.holds[name][0].numpy()
        if f"{name} {size}: 0 of {len(rows)} images" not in left_out:  # nothing seen, nothing said
            after[name] = float(holds.mean())
    return {"examples": len(y), "norm": run["norm"], "size": size, "after": after}


def certified(classifier, x, y, *, scale, radii, n, images=None):
    """Certified accuracy at each radius, decided radius by radius."""
    rows = slice(None) if images is None else slice(0, images)
    shares = {}
    for radius in radii:
        found = privet.certify(
            classifier, x[rows], y[rows], noise=Gaussian(scale), n=n, mode="decision",
            radius=radius, batch=CERTIFIED_AT_ONCE,
        )  # fmt: skip
        right = (found.prediction == y[rows]) & (found.radius >= radius)
        shares[str(radius)] = float(right.mean())
    return {"scale": scale, "n": n, "images": len(y[rows]), "accuracy": shares}


def work(task):
    """In a process of its own; an error is a record, too."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # such a process may have no children
    run, seed, arguments, ends_at = task
    if time.time() >= ends_at:
        return {"run": run, "init_seed": seed, "left_out": ["all"]}
    try:
        return measure(run, seed, arguments, ends_at)
    except Exception as error:  # whatever it was, the other runs go on
        return {"run": run, "init_seed": seed, "error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Measure what the record lacks, and write it run by run."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=FOREVER)
    parser.add_argument("--out", type=Path, default=RESULTS / "robust_accuracy.json")
    arguments = parser.parse_args()
    record = {
        "what": "robust and certified accuracy of private classifiers",
        "command": "python benchmarks/robust_accuracy.py " + " ".join(sys.argv[1:]),
        "data": arguments.data,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": torch.cuda.get_device_name() if arguments.device != "cpu" else "cpu",
        "rows": [],
    }
    if arguments.out.exists():
        rows = json.loads(arguments.out.read_text())["rows"]
        record["rows"] = [row for row in rows if "privacy" in row and not row["left_out"]]
    done = [(row["run"], row["init_seed"]) for row in record["rows"]]
    given = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(arguments).items()
    }
    ends_at = time.time() + arguments.seconds
    tasks = [
        (run, seed, given, ends_at)
        for run in json.loads(arguments.runs.read_text())
        for seed in run["seeds"]
        if (run, seed) not in done
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        for row in pool.imap_unordered(work, tasks):
            record["rows"].append(row)
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")
            print(json.dumps(row)[:400], flush=True)


if __name__ == "__main__":
    main()
