"""How the settings of `privet study transdenoiser` were found: on the public half alone.

    python benchmarks/denoiser_search.py --data mnist --grid grid.json --epsilon 2.5 --device cuda

The study trains on DATA/second and judges by the test images; this search opens neither. It plays
the study on DATA/first: its first 50 % are public (the classifier and the first denoiser learn
from them), the next 40 % are taken for private, the last 10 % judge, by certified accuracy. There
are fewer private records than in the study, so take a larger epsilon, at which a step of the same
batch has the same noise: what is found then carries over. `grid.json` holds a list of settings of
`privet train transdenoiser`; "start": true begins with the public denoiser. Writes one JSON with
every try, the classifier alone and the public denoiser among them.
"""

import json
import multiprocessing
import os
import tempfile
import time
from argparse import ArgumentParser, Namespace
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import privet
from privet.certification import Gaussian
from privet.studies.private_step.machine import describe
from privet.studies.robust_private.working import follow_parent

RESULTS = Path(__file__).parent / "results"
SHARES = {"public": 0.5, "private": 0.9}  # of the public half: where each part ends
STATED = "trained on another part of the public half"


def part_of(asked: Namespace, name: str) -> privet.data.Dataset:
    """The records of one part; the test images are those that judge."""
    data = privet.data.load(f"{asked.data}/first", asked.data_dir)
    place = np.arange(len(data.train)) / len(data.train)
    low, high = {"public": (0.0, 0.5), "private": (0.5, 0.9)}[name]
    chosen, judging = (place >= low) & (place < high), place >= SHARES["private"]
    return replace(
        data,
        name=f"{asked.data}-search-{name}",
        train=data.train.part(chosen),
        test=data.train.part(judging),
        nominal_size=round((high - low) * data.nominal_size),
    )


def judged(folder: Path | str, asked: Namespace) -> dict:
    """Certified accuracy of a release on the judging images."""
    data = part_of(asked, "private")
    rows = np.linspace(0, len(data.test) - 1, asked.examples).astype(int)
    x = torch.as_tensor(data.bounds.clamp_and_scale(data.test.x[rows]))
    found = privet.certify(
        privet.classifiers.open_classifier(privet.load(folder), device=torch.device(asked.device)),
        x, torch.as_tensor(data.test.y[rows]),
        noise=Gaussian(asked.sigma), n=asked.n, reference=True, batch=asked.pass_size, seed=0,
    )  # fmt: skip
    radii = [0.0, *asked.radii]
    shares = [float(share) for share in found.certified_accuracy(radii)]
    return {
        "certified": dict(zip(map(str, radii), shares, strict=True)),
        "mean_radius": float(np.where(found.correct, found.radius, 0.0).mean()),
    }


def public_ones(asked: Namespace, home: Path) -> list[dict]:
    """The classifier and the public denoiser."""
    data = part_of(asked, "public")
    ledger = privet.Ledger(home / "ledger.db")
    shared = {"ledger": ledger, "device": asked.device}
    privet.train("plain", data, out=home / "h", **json.loads(asked.classifier), **shared)
    privet.train(
        "transdenoiser", data, analysis="paper", ablation="nodp", out=home / "g",
        classifier=home / "h", private_classifier=True, sigma=asked.sigma,
        **json.loads(asked.public), **shared,
    )  # fmt: skip
    return [{"settings": name, **judged(home / name, asked)} for name in ("h", "g")]


def tried(settings: dict, place: int, asked: Namespace, home: Path) -> dict:
    """One try, in a process and with a ledger of its own."""
    torch.set_num_threads(asked.threads)
    started, given = time.perf_counter(), dict(settings)
    if given.pop("start", False):
        given |= {"start": str(home / "g"), "public_start": STATED}
    folder = home / f"try{place}"
    release = privet.train(
        "transdenoiser", part_of(asked, "private"), device=asked.device, sigma=asked.sigma,
        classifier=home / "h", public_classifier=STATED, out=folder,
        ledger=privet.Ledger(home / f"ledger{place}.db"), **{"epsilon": asked.epsilon} | given,
    )  # fmt: skip
    trained = time.perf_counter() - started
    facts = {k: release.trust["mechanism"][k] for k in ("noise_multiplier", "steps")}
    seconds = {"training": round(trained, 1)}
    return {"settings": settings, **facts, **judged(folder, asked), "seconds": seconds}


def arguments() -> Namespace:
    """What was asked for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, default=2.5)
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--classifier", default='{"model": "cnn", "epochs": 20}')
    parser.add_argument("--public", default='{"denoiser": "unet-16", "epochs": 20, "batch": 256}')
    parser.add_argument("--radii", type=float, nargs="*", default=[0.25, 0.5, 0.75])
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--n", type=int, default=6000)
    parser.add_argument("--pass-size", type=int, default=4000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--name", default="")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    asked.threads = max(1, (os.cpu_count() or 1) // asked.workers)
    return asked


def main() -> None:
    """Every entry of the grid, several at once."""
    asked = arguments()
    grid = json.loads(asked.grid.read_text())
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        tries = public_ones(asked, home)
        for one in tries:
            print(json.dumps(one), flush=True)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            asked.workers, mp_context=context, initializer=follow_parent
        ) as pool:
            rest = [pool.submit(tried, s, i, asked, home) for i, s in enumerate(grid)]
            for future in rest:
                tries.append(future.result())
                print(json.dumps(tries[-1]), flush=True)
    record = {
        "what": "settings of denoisers, tried on parts of the public half",
        "asked": {k: str(v) for k, v in vars(asked).items() if k not in ("data_dir", "out")},
        "machine": describe(torch.device(asked.device)),
        "tries": tries,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    name = f"denoiser_search_{asked.data}{asked.name and '_' + asked.name}.json"
    (asked.out / name).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
