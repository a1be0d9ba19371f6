"""FLSys's questions on activities: skew and a shared pool, drop-out, three clocks, privacy.

    python benchmarks/federation.py augmentation --data hapt
    python benchmarks/federation.py dropout --data hapt
    python benchmarks/federation.py clock --data hapt
    python benchmarks/federation.py sentiment --data tweets
    python benchmarks/federation.py privacy --data mnist --rounds 100

Every row is one run of `privet federate simulate`, in a ledger of its own. Rows that are there are
kept, so a run that was stopped goes on. Records are dealt out to clients with skewed labels; for
`privacy` five to each, so that more clients have more records in all, and each as many.
"""

import contextlib
import json
import platform
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score

import privet
from privet.federation.fitting import simulate
from privet.ledger import Ledger

RESULTS = Path(__file__).parent / "results"

# FLSys, Table 4.3, where it can be had: 50 to 100 records of each class and 15 to 30 of the pool in
# a round, Adam at 0.005 begun anew by every client, five passes, batches of 64.
FLSYS = {
    "model": "har-wild-64",
    "sample": True,
    "local_epochs": 5,
    "batch": 64,
    "client_rate": 0.005,
    "optimizer": "adam",
}
QUICKER = FLSYS | {"model": "har-wild-32"}
SKEWED = {"clients": 40, "skew": 0.2, "lacking": 3}
POOL = {"pool": 100}


def main():
    """All rows of one question."""
    asked = arguments()
    torch.set_num_threads(asked.threads)
    record = json.loads(asked.out.read_text()) if asked.out.exists() else new_record(asked)
    for row in QUESTIONS[asked.question](asked):
        if asked.only and row["name"] not in asked.only:
            continue
        named = {name: row[name] for name in ("name", "seed")}
        if any(named.items() <= there.items() for there in record["rows"]):
            continue
        record["rows"].append(measured(asked, row))
        asked.out.write_text(json.dumps(record, indent=1) + "\n")


def augmentation(asked):
    """Clients of few classes, with and without the pool; clients of all classes beside them."""
    even = {"clients": SKEWED["clients"]}
    for seed in seeds(asked):
        common = {"rounds": asked.rounds, "init_seed": seed} | FLSYS
        yield row("stock", seed, common | SKEWED)
        yield row("pool", seed, common | SKEWED | POOL)
        yield row("even", seed, common | even)


def dropout(asked):
    """The share of clients that begin a round and are never heard of again."""
    for seed in seeds(asked):
        for share in (0.0, 0.25, 0.5):
            common = {"rounds": asked.rounds, "init_seed": seed, "dropout": share}
            yield row(f"dropout {share:g}", seed, common | QUICKER | SKEWED | POOL)


def clock(asked):
    """Three ways of waiting, on phones that charge at night, for the same days."""
    rules = {
        "flsys": {"seconds": 6 * 3600.0, "rounds": 4 * asked.days},
        "fedbuff": {"buffer": 10, "rounds": 10_000, "looks": 2_500},
        "fedavg": {"cohort": 20, "seconds": 24 * 3600.0, "rounds": 1_000, "looks": 500},
    }
    for seed in seeds(asked):
        for name, own in rules.items():
            common = {"init_seed": seed, "traces": "phones", "dropout": 0.1, "rule": name}
            yield row(name, seed, common | QUICKER | SKEWED | POOL | own)


def sentiment(asked):
    """Tweets, dealt out to keyboards: evenly, skewed, and skewed with a pool."""
    head = {"model": "sentiment-head", "local_epochs": 5, "batch": 20}
    head |= {"optimizer": "adam", "client_rate": 0.001}
    for seed in seeds(asked):
        common = head | {"clients": 200, "rounds": asked.rounds, "init_seed": seed}
        yield row("even", seed, common)
        yield row("skewed", seed, common | {"skew": 0.2})
        yield row("skewed, pool", seed, common | {"skew": 0.2, "pool": 150})


def privacy(asked):
    """Accuracy by population and epsilon: a server that samples 200 clients, and phones without."""
    for seed in seeds(asked):
        for users in asked.populations:
            common = PRIVATE | {"init_seed": seed, "clients": users, "rounds": asked.rounds}
            sampled = common | {"rule": "fedavg", "rate": min(1.0, COHORT / users)}
            yield row(f"{users} users, epsilon none", seed, sampled)
            for epsilon in (8.0, 4.0, 2.0):
                target = {"epsilon": epsilon, "delta": 1 / (10 * users), "clip": CLIP}
                yield row(f"{users} users, epsilon {epsilon:g}", seed, sampled | target)
            alone = common | {"rule": "flsys"} | caps(users, asked.rounds)
            target = {"epsilon": 8.0, "delta": 1 / (10 * users), "clip": CLIP}
            yield row(f"{users} users, epsilon 8, self-selected", seed, alone | target)


def caps(users, rounds):
    """As many updates in all as with sampling: a client is in so many steps, far apart."""
    times = max(1, round(COHORT * rounds / users))
    apart = max(1, rounds // times)
    return {"times": times, "apart": apart, "bands": min(apart, 8)}


COHORT, EACH, CLIP = 200, 5, 0.5  # clients of a step; records of a client; norm of an update
PRIVATE = {
    "model": "linear",
    "skew": 0.3,
    "local_epochs": 5,
    "batch": 5,
    "client_rate": 0.1,
    "looks": 10,
}
QUESTIONS = {
    "augmentation": augmentation,
    "dropout": dropout,
    "clock": clock,
    "sentiment": sentiment,
    "privacy": privacy,
}


def seeds(asked):
    """Which; a seed's rows stand together, so that a run that ends early has whole comparisons."""
    return range(asked.from_seed, asked.seeds)


def row(name, seed, settings):
    """What is to be run."""
    return {"name": name, "seed": seed, "settings": settings}


def measured(asked, wanted):
    """One run: accuracy, macro F1, the course, and what became of whose work."""
    settings = dict(wanted["settings"])
    data = data_for(asked, settings["clients"])
    began = time.perf_counter()
    kept = {}

    def watch(federation):
        kept["federation"] = federation
        say(wanted, federation)
        if asked.question == "clock" and federation.simulator.now > asked.days * 86400.0:
            raise TimeOverError
        if time.perf_counter() - began > 60.0 * asked.minutes:
            raise TimeOverError

    release = None
    with tempfile.TemporaryDirectory() as folder:
        book = Ledger(Path(folder) / "ledger.db")
        with contextlib.suppress(TimeOverError), contextlib.closing(book):
            release = simulate(data, ledger=book, watch=watch, **settings)
    federation = kept["federation"]
    guesses = predictions(federation)
    tally = federation.simulator.tally
    return wanted | {
        "accuracy": float((guesses == federation.data.test.y).mean()),
        "macro_f1": float(f1_score(federation.data.test.y, guesses, average="macro")),
        "course": federation.history,
        "rounds_run": federation.next_step,
        "versions": federation.simulator.coordinator.version,
        "hours": federation.simulator.now / 3600,
        "jobs": dict(tally.jobs),
        "wasted_share": tally.wasted,
        "clients": len(federation.simulator.phones),
        "train_examples": len(federation.data.train),
        "test_examples": len(federation.data.test),
        "noise_multiplier": release and release.trust["mechanism"].get("noise_multiplier"),
        "stated_epsilon": release and release.privacy and release.privacy.epsilon,
        "seconds": time.perf_counter() - began,
    }


class TimeOverError(Exception):
    """The days of a comparison by the clock are over, or this machine's minutes."""


def predictions(federation):
    """Of the test records, by the model as it is."""
    model, test = federation.released_model(), federation.data.test
    x = torch.from_numpy(federation.data.bounds.clamp_and_scale(test.x))
    with torch.no_grad():
        return torch.cat([model(part).argmax(1) for part in torch.split(x, 1024)]).numpy()


def data_for(asked, clients):
    """Named data; of a population that grows, as many records as its clients have."""
    data = privet.data.load(asked.data, asked.data_dir)
    if asked.question != "privacy":
        return data
    count = EACH * clients
    part = np.arange(len(data.train)) < count
    return data.training_on(data.train.part(part), nominal_size=count)


def say(wanted, federation):
    """A line on stderr for every round."""
    last = federation.history[-1]["test_accuracy"] if federation.history else float("nan")
    told = f"{wanted['name']} (seed {wanted['seed']}): round {federation.next_step}, {last:.3f}"
    print(told, end="   \r", file=sys.stderr)


def new_record(asked):
    """What a record begins with."""
    return {
        "what": f"federated learning of activities: {asked.question}",
        "command": "python benchmarks/federation.py " + " ".join(sys.argv[1:]),
        "data": asked.data,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "hardware": f"cpu, {asked.threads} threads",
        "rows": [],
    }


def arguments():
    """What was asked for."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", choices=list(QUESTIONS))
    parser.add_argument("--data", default="hapt")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--days", type=int, default=10, help="of the virtual clock")
    parser.add_argument("--populations", type=int, nargs="+", default=[1000, 3000, 12000])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--from-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="rows of these names")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="a row ends then, as far as it has come"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    asked.out = asked.out or RESULTS / f"federation_{asked.question}_{asked.data}.json"
    return asked


if __name__ == "__main__":
    main()
