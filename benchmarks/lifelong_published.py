"""Why L2DP-ML as published is not near A-GEM: one part of it after another taken away.

    python benchmarks/lifelong_published.py

Three tasks of permuted digits, three seeds. Along the claimed epsilon, from 1 to 10,000 and none;
with one of the three draws of noise alone; without noise, without the unconditional projection,
without the reconstruction loss (the first layer stays as it was drawn: nothing else moves it);
without the latter two along the claimed epsilon. Nothing here is private.
"""

import json
import platform
import statistics
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import final

import numpy as np
import torch

from privet.engine.examples import Examples
from privet.lifelong.metrics import score
from privet.lifelong.published.settings import PublishedSettings
from privet.lifelong.published.trainer import PublishedLearner
from privet.lifelong.tasks import load_stream

OUT = Path(__file__).parent / "results" / "lifelong_published.json"
TASKS, SEEDS, EPSILON = 3, (0, 1, 2), 3.0
DRAWS = {"inputs": "chi1", "hidden": "chi2", "labels": "chi3"}
CLAIMS = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, 10000.0)
RATES = (0.003, 0.03, 0.1)


@final
class Held(PublishedLearner):
    """Without the reconstruction loss: the first layer stays as it was drawn."""

    def _gradient(self, batch):
        gradient = super()._gradient(batch).clone()
        gradient[: self.network.first.weight.numel()] = 0.0
        return gradient


def arms():
    """Name, settings, the draws of noise that are kept, the learner."""
    for arm in of_the_method():
        yield (*arm, PublishedLearner)
    everything, conditional = tuple(DRAWS), {"projection": "conditional"}
    yield "no noise, first layer held", {"epsilon": EPSILON}, (), Held
    both = "first layer held, conditional projection"
    yield f"no noise, {both}", {"epsilon": EPSILON, **conditional}, (), Held
    for epsilon in CLAIMS:
        asked = {"epsilon": epsilon, **conditional}
        yield f"claimed {epsilon:g}, {both}", asked, everything, Held


def of_the_method():
    """Settings, and draws of noise."""
    everything = tuple(DRAWS)
    for epsilon in CLAIMS:
        yield f"published, claimed {epsilon:g}", {"epsilon": epsilon}, everything
    for draw, symbol in DRAWS.items():
        yield f"{symbol} alone, of claimed {EPSILON:g}", {"epsilon": EPSILON}, (draw,)
    yield "no noise", {"epsilon": EPSILON}, ()
    conditional = {"epsilon": EPSILON, "projection": "conditional"}
    yield "no noise, conditional projection", conditional, ()
    yield "conditional projection", conditional, everything
    for rate in RATES:
        asked = {"epsilon": EPSILON, "learning_rate": rate}
        yield f"published, claimed {EPSILON:g}, rate {rate:g}", asked, everything
    yield "twin", {"variant": "agem"}, everything
    yield "twin, projection as printed", {"variant": "agem", "projection": "always"}, everything


def learned(settings, kept, make, seed):
    """Accuracies on all tasks so far, after each; scale of the noise on a mean over a batch."""
    stream = load_stream("permuted-digits", n_tasks=TASKS, seed=seed)
    asked = PublishedSettings(init_seed=seed, **settings)
    learner = make(stream, asked)
    if len(kept) < len(DRAWS):
        gone = {name: torch.zeros_like(getattr(learner.drawn, name)) for name in DRAWS}
        gone = {name: value for name, value in gone.items() if name not in kept}
        learner = make(stream, asked, replace(learner.drawn, **gone))
    rows = []
    for number in range(TASKS):
        learner.learn(number)
        rows.append([accuracy(learner, stream.tasks[i].data) for i in range(number + 1)])
    return rows, learner


def accuracy(learner, data):
    """On the test records of a task."""
    examples = Examples.of(data.test, data.bounds, torch.device("cpu"))
    rows = examples.rows(torch.arange(len(data.test)), torch.Generator())
    with torch.no_grad():
        return float((learner.network(rows.x).argmax(1) == rows.y).double().mean())


def row_of(name, settings, kept, make):
    """Over the seeds."""
    began, found = time.perf_counter(), []
    for seed in SEEDS:
        rows, learner = learned(settings, kept, make, seed)
        found.append(score(rows))
    noise = learner.drawn.over(learner.settings.batch)
    last = [one.average_accuracy[-1] for one in found]
    return {
        "arm": name,
        "settings": settings,
        "noise": [DRAWS[draw] for draw in kept] if settings.get("variant") != "agem" else [],
        "deviation": {s: float(getattr(noise, d).std()) for d, s in DRAWS.items()},
        "steps": learner.steps(0),
        "batch": learner.settings.batch,
        "learning_rate": learner.settings.learning_rate,
        "seeds": list(SEEDS),
        "average_accuracy": [[one.average_accuracy[i] for one in found] for i in range(TASKS)],
        "accuracy": {"mean": statistics.fmean(last), "low": min(last), "high": max(last)},
        "forgetting": float(np.mean([one.average_forgetting[-1] for one in found])),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main():
    """One row for each arm, written as they come; those that are there are kept."""
    record = {
        "what": "L2DP-ML as published, one part after another taken away; permuted digits",
        "command": "python benchmarks/lifelong_published.py",
        "versions": {"python": platform.python_version(), "torch": version("torch"),
                     "privet": version("privet")},
        "hardware": f"cpu, {platform.machine()}",
        "rows": [],
    }  # fmt: skip
    there = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    kept = {row["arm"]: row for row in there}
    for arm in arms():
        record["rows"].append(kept.get(arm[0]) or row_of(*arm))
        found = record["rows"][-1]
        print(found["arm"], found["accuracy"], found["deviation"], found["seconds"], flush=True)
        OUT.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
