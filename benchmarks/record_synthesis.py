"""Synthetic records against real ones: fidelity, usefulness, speed, with and without privacy.

    python benchmarks/record_synthesis.py --data physionet2012 --data-dir DIR --epsilons none,1.5

Fits the default generator on four fifths of the patients at each budget ("none": without privacy),
draws as many synthetic stays, and compares both with the fifth set aside by `privet synthesize
evaluate`'s measures: among them outcomes predicted by a model trained on synthetic and on real
records, and missing rates. Sampling is timed by itself, on stays of full length too. Runs that are
there are used again, rows that are there are kept.
"""

import json
import platform
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import torch

import privet
from privet.data.records.joining import joined
from privet.data.records.parts import parted
from privet.data.records.sources import load_records
from privet.release import Release
from privet.synthesis import evaluate, fit
from privet.synthesis.sampling import Sampler, sample

RESULTS = Path(__file__).parent / "results"
HOLDOUT = 0.2


def main():
    """Every budget, one row each."""
    asked = arguments()
    torch.set_num_threads(asked.threads)
    asked.runs.mkdir(parents=True, exist_ok=True)
    record = json.loads(asked.out.read_text()) if asked.out.exists() else new_record(asked)
    records = load_records(asked.data, asked.data_dir)
    for budget in asked.epsilons.split(","):
        if any(row["epsilon"] == budget for row in record["rows"]):
            continue
        record["rows"].append(row_of(asked, budget, records))
        asked.out.write_text(json.dumps(record, indent=1) + "\n")


def new_record(asked):
    """What a record begins with."""
    return {
        "what": "synthetic patient records against real ones",
        "command": "python benchmarks/record_synthesis.py " + " ".join(sys.argv[1:]),
        "data": asked.data,
        "holdout": HOLDOUT,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": f"cpu, {asked.threads} threads",
        "rows": [],
    }


def row_of(asked, budget, records):
    """One fit, its figures and its speed."""
    release, seconds = fitted(asked, budget, records)
    train, aside = parted(records, HOLDOUT)
    began = time.perf_counter()
    synthetic = joined(list(sample(release, len(train), seed=1)))
    spent = time.perf_counter() - began
    result = evaluate(train, aside, synthetic, measures=asked.measures).to_json()
    print(f"{budget}: {spent:.0f} s for {len(synthetic)} stays", flush=True)
    return {
        "epsilon": budget,
        "privacy": release.trust["privacy"],
        "mechanism": release.trust["mechanism"],
        "fit_seconds": seconds,
        "stays": len(synthetic),
        "sampled_a_second": len(synthetic) / spent,
        "rows_a_second": len(synthetic.times) / spent,
        "full_length_stays_a_second": full_length_speed(release),
        "fidelity": result,
    }


def fitted(asked, budget, records):
    """A release by default settings, and the seconds it took; None for one that was there."""
    folder = asked.runs / f"{asked.data}-{budget}"
    how = {"analysis": "none"} if budget == "none" else {"epsilon": float(budget)}
    began, used = time.perf_counter(), (folder / "manifest.json").exists()
    if not used:
        ledger = privet.Ledger(asked.runs / "ledger.db")
        fit(
            "autoregressive", records, holdout=HOLDOUT, out=folder, ledger=ledger, watch=told,
            **how, **asked.settings,
        )  # fmt: skip
        ledger.close()
    return Release.load(folder), None if used else time.perf_counter() - began


def told(trainer):
    """A line now and then."""
    if trainer.next_step % 20 == 0:
        print(f"step {trainer.next_step} of {trainer.plan.steps}", flush=True)


def full_length_speed(release):
    """Stays of as many rows as the schema allows: an end is made impossible. Best of three."""
    sampler = Sampler.of(release, where=(), seed=1)
    kept = sampler.network.gap_own.bias.detach().clone()
    with torch.no_grad():
        sampler.network.gap_own.bias[0] = -1e4
    sampler.network.sizes.__dict__["horizon"] = float("inf")
    speeds = []
    for _ in range(3):
        began = time.perf_counter()
        records = sampler.drawn(2000)
        speeds.append(2000 / (time.perf_counter() - began))
    assert records.lengths.max() <= sampler.schema.max_steps
    with torch.no_grad():
        sampler.network.gap_own.bias.copy_(kept)
    return {"stays_a_second": max(speeds), "rows_each": float(records.lengths.mean())}


def arguments():
    """Of the command line."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="simulator")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--epsilons", default="none,1.5")
    parser.add_argument("--settings", type=json.loads, default={}, help="of the fit, as JSON")
    parser.add_argument("--measures", type=lambda text: text.split(","))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/record-synthesis"))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    asked.out = asked.out or RESULTS / f"record_synthesis_{asked.data}.json"
    return asked


if __name__ == "__main__":
    main()
