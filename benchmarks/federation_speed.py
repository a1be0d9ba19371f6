"""How fast a federation is simulated: beside Flower, beside a bare training loop, by size.

    python benchmarks/federation_speed.py --flower-python ENV/bin/python
    python benchmarks/federation_speed.py --parts device --device cuda

Whatever is compared takes turns in one run; of each there are all seconds, and medians of ratios.

- idle: clients that return what they were given; ours, and Flower's simulation in a Python of its
  own that has `flwr[simulation]`; its start, Ray's, and its first round are left out
- work: a round of a Conv1d net of 60,229 weights on inputs of 3 x 100, 650 records x 5 epochs in
  batches of 64 for each client, against a loop of plain PyTorch that takes as many steps
- engines: seconds of a client, one after another and side by side, by network and batch
- events: rounds of clients that do nothing and have one weight, by how many there are
- device: client updates a second side by side on a CNN of 1.2 million weights, one batch of 20, and
  226 records

Writes benchmarks/results/federation_speed_DEVICE.json; parts that are not asked for stay as they
are there.
"""

import copy
import io
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from privet.federation import (
    Capped,
    Coordinator,
    LocalWork,
    Material,
    Teacher,
    UserPrivacy,
    rule_named,
)
from privet.federation.flat import flat
from privet.federation.one_by_one import OneByOne
from privet.federation.simulator import Idle, Simulator, Weather
from privet.federation.together import Together
from privet.federation.traces import always
from privet.privacy.randomness import Randomness

RESULTS = Path(__file__).parent / "results"
FLOWER = Path(__file__).with_name("federation_flower.py")
HAR_WEIGHTS = 60_229
PARTS = ("idle", "work", "engines", "events")
QUIET = Weather(late=0.0)


class HarWild(nn.Module):
    """Two convolving branches with means over time, and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Sequential(nn.Conv1d(3, 64, 5), nn.ReLU(), nn.Conv1d(64, 64, 10), nn.ReLU())
        self.low = nn.Sequential(nn.Conv1d(3, 64, 5), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of windows (n, 3, 100)."""
        return self.top(torch.cat([self.deep(x).mean(2), self.low(x).mean(2)], dim=1))


def large_cnn() -> nn.Module:
    """About 1.2 million weights, as in LEAF's experiments on written characters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Linear(128, 62),
    )


def dense(inputs: int, width: int, classes: int) -> nn.Module:
    """A hidden layer."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, classes)
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "har-wild-64 (Conv1d)": (HarWild, (3, 100)),
    "dense, 4,901 weights": (lambda: dense(300, 16, 5), (3, 100)),
    "dense, 159,010 weights": (lambda: dense(784, 200, 10), (1, 28, 28)),
    "small CNN": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
            nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
        ),
        (1, 28, 28),
    ),
}  # fmt: skip


def material(
    clients: int, records: int, shape: tuple[int, ...], *, classes: int = 5, device: str = "cpu"
) -> Material:
    """So many made-up records of each client."""
    n, generator = clients * records, torch.Generator().manual_seed(0)
    return Material(
        x=torch.randn(n, *shape, generator=generator),
        y=torch.randint(0, classes, (n,), generator=generator),
        clients=np.split(np.arange(n), clients),
        pool=np.zeros(0, dtype=np.int64),
        classes=classes,
    ).on(torch.device(device))


def simulator(
    weights: Tensor, engine, teacher: Teacher, *, rule: str = "flsys", private: bool = False, **how
) -> Simulator:
    """Of phones that are always there and take no time."""
    privacy = None
    if private:
        cap = Capped(times=10_000)
        privacy = UserPrivacy(clip=1.0, multiplier=1.0, participation=cap, divisor=100.0)
        how["quorum"] = 0
    stream = Randomness.seeded(0).noise if private else None
    coordinator = Coordinator(
        weights, rule_named(rule, **how), rounds=10_000, privacy=privacy, stream=stream
    )
    return Simulator(coordinator, engine, teacher, always(teacher.clients), seed=0, weather=QUIET)


def taken(turn: Callable[[], object], device: str = "cpu") -> dict[str, float]:
    """Seconds by the clock, and of this process."""
    if device == "cuda":
        torch.cuda.synchronize()
    started, busy = time.perf_counter(), time.process_time()
    turn()
    if device == "cuda":
        torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - started, "cpu": time.process_time() - busy}


def in_turn(turns: dict[str, Callable[[], object]], repeats: int) -> dict[str, dict]:
    """Every one once, not counted; then all in rotating order, so often."""
    for turn in turns.values():
        turn()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in turns}
    names = list(turns)
    for number in range(repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(taken(turns[name]))
    return {name: summary(values) for name, values in found.items()}


def summary(values: list[dict[str, float]]) -> dict:
    """Median and spread, and every turn."""
    return {
        key: {
            "median": statistics.median(one[key] for one in values),
            "least": min(one[key] for one in values),
            "most": max(one[key] for one in values),
            "all": [one[key] for one in values],
        }
        for key in values[0]
    }


def ratios(above: dict, below: dict, key: str) -> dict[str, float]:
    """Of what was measured one after the other."""
    each = [a / b for a, b in zip(above[key]["all"], below[key]["all"], strict=True)]
    return {"median": statistics.median(each), "least": min(each), "most": max(each)}


def idle(asked: Namespace) -> dict:
    """Ours, in one thread, beside Flower's, which has all cores."""
    torch.set_num_threads(1)
    found = []
    for clients in asked.clients:
        teacher = Teacher(material(clients, 1, (1,)), LocalWork(epochs=1), seed=0)
        ours = simulator(torch.zeros(HAR_WEIGHTS), Idle(HAR_WEIGHTS), teacher)
        private = simulator(torch.zeros(HAR_WEIGHTS), Idle(HAR_WEIGHTS), teacher, private=True)
        peers = {api: Flower(asked, clients, api) for api in asked.apis}
        turns = {"ours": ours.next_round, "ours, private": private.next_round} | {
            f"flower, {api}": peer.round for api, peer in peers.items()
        }
        times = in_turn(turns, asked.repeats)
        for peer in peers.values():
            peer.close()
        row = {"clients": clients, "weights": HAR_WEIGHTS, "times": times}
        row["updates_a_second"] = {n: clients / t["seconds"]["median"] for n, t in times.items()}
        row["times_as_fast"] = {
            name: ratios(times[name], times["ours"], "seconds")
            for name in times
            if name.startswith("flower")
        }
        row["versions"] = {api: peer.versions for api, peer in peers.items()}
        found.append(row)
        print(clients, row["updates_a_second"], row["times_as_fast"], flush=True)
    return {"rows": found, "peer": "measured" if asked.flower_python else "no --flower-python"}


class Flower:
    """A worker with one interface of Flower, which does a round when it is told to."""

    def __init__(self, asked: Namespace, clients: int, api: str) -> None:
        rounds = asked.repeats + 1
        arguments = [FLOWER, clients, rounds, HAR_WEIGHTS, api]
        self.clients = clients
        self._process = subprocess.Popen(
            [asked.flower_python, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/tmp",
            text=True,
        )
        self.versions = self._heard()["versions"]

    def round(self) -> None:
        """One more; fails where an answer of a client is missing."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        assert self._heard()["answers"] == self.clients

    def _heard(self) -> dict:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """It has done all its rounds, or ends without them."""
        self._process.communicate(timeout=60)


def work(asked: Namespace) -> dict:
    """A round of two clients against as many steps of plain PyTorch."""
    made = material(2, 650, (3, 100))
    plan = LocalWork(epochs=5, batch=64, learning_rate=0.005)
    found = {}
    for threads in asked.threads:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        net = HarWild()
        assert flat(net).numel() == HAR_WEIGHTS
        turns = {"bare loop": bare_loop(copy.deepcopy(net), made, plan)}
        for name, private in (("ours", False), ("ours, private", True)):
            engine = OneByOne(copy.deepcopy(net), made, plan)
            teacher = Teacher(made, plan, seed=0)
            turns[name] = simulator(flat(net), engine, teacher, private=private).next_round
        times = in_turn(turns, asked.repeats)
        share = {
            name: {key: ratios(times["bare loop"], times[name], key) for key in ("seconds", "cpu")}
            for name in ("ours", "ours, private")
        }
        found[f"{threads} threads"] = {"times": times, "throughput_of_the_bare_loop": share}
        print(threads, share, flush=True)
    torch.set_num_threads(1)
    return {"steps_of_a_client": 55, "clients": 2, **found}


def bare_loop(net: nn.Module, made: Material, plan: LocalWork) -> Callable[[], None]:
    """One model and one optimiser for everybody, no rounds, no clients."""
    optimizer = torch.optim.SGD(net.parameters(), lr=plan.learning_rate)
    net.train()

    def turn() -> None:
        for rows in made.clients:
            for _ in range(plan.epochs):
                order = torch.from_numpy(rows)[torch.randperm(len(rows))]
                for batch in torch.split(order, plan.batch):
                    loss = cross_entropy(net(made.x[batch]), made.y[batch])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

    return turn


def engines(asked: Namespace) -> dict:
    """Which of both is faster on a CPU, where nothing but the work of clients is timed."""
    torch.set_num_threads(1)
    rows = []
    for name, (make, shape) in NETWORKS.items():
        for batch in (4, 16, 64):
            clients = 16
            made = material(clients, 2 * batch, shape)
            plan = LocalWork(epochs=1, batch=batch, learning_rate=0.05)
            teacher = Teacher(made, plan, seed=0)
            lessons = [teacher.lesson(client, 0) for client in range(clients)]
            torch.manual_seed(0)
            net = make()
            kinds = {
                "one by one": OneByOne(copy.deepcopy(net), made, plan),
                "together": Together(copy.deepcopy(net), made, plan),
            }
            start = flat(net)
            turns = {n: partial(e.changes, start, lessons) for n, e in kinds.items()}
            times = in_turn(turns, asked.repeats)
            gain = ratios(times["one by one"], times["together"], "cpu")
            row = {"network": name, "weights": start.numel(), "batch": batch, "clients": clients}
            rows.append(row | {"times": times, "together_is_faster_by": gain})
            print(name, batch, gain, flush=True)
    return {"threads": 1, "rows": rows}


def events(asked: Namespace) -> dict:
    """Rounds of clients that do nothing; an update should cost the same, however many there are."""
    rows = []
    for clients in asked.populations:
        teacher = Teacher(material(clients, 1, (1,)), LocalWork(epochs=1), seed=0)
        for rule, how in (
            ("flsys", {}),
            ("fedavg", {"cohort": 100}),
            ("fedbuff", {"buffer": max(10, clients // 10)}),
        ):
            whole = simulator(torch.zeros(1), Idle(1), teacher, rule=rule, **how)
            whole.next_round()
            before = whole.tally.jobs["taken"]
            seconds = [taken(whole.next_round) for _ in range(asked.rounds)]
            updates = (whole.tally.jobs["taken"] - before) / asked.rounds
            kept = io.BytesIO()
            torch.save(whole.state(), kept)
            row = {"clients": clients, "rule": rule, **how, "updates_a_round": updates}
            row |= {"times": summary(seconds), "state_bytes": kept.tell()}
            row["microseconds_an_update"] = 1e6 * row["times"]["cpu"]["median"] / updates
            rows.append(row)
            print({k: v for k, v in row.items() if k != "times"}, flush=True)
    return {"rows": rows}


def device(asked: Namespace) -> dict:
    """Client updates a second, side by side; lessons, training and the round itself apart."""
    rows = []
    for records, precision in itertools.product(asked.records, asked.precisions):
        made = material(asked.side_by_side, records, (1, 28, 28), classes=62, device=asked.device)
        plan = LocalWork(epochs=1, batch=20, learning_rate=0.05, precision=precision)
        teacher = Teacher(made, plan, seed=0)
        torch.manual_seed(0)
        net = large_cnn().to(asked.device)
        start = flat(net)
        row = {"records": records, "precision": precision, "weights": start.numel()}
        row |= {"clients": asked.side_by_side, "bound": bound(records, precision, asked.device)}
        lessons = [teacher.lesson(client, 0) for client in range(asked.side_by_side)]
        stages: dict[str, Callable[[], object]] = {}
        for at_once in asked.at_once:
            engine = Together(copy.deepcopy(net), made, plan, at_once=at_once)
            stages[f"training, {engine.at_once} at once"] = partial(engine.changes, start, lessons)
        stages["lessons"] = lambda teacher=teacher: [
            teacher.lesson(client, 0) for client in range(asked.side_by_side)
        ]
        stages["a round"] = simulator(start, Together(net, made, plan), teacher).next_round
        for name, stage in stages.items():
            stage()
            times = summary([taken(stage, asked.device) for _ in range(asked.repeats)])
            row[name] = times | {
                "clients_a_second": asked.side_by_side / times["seconds"]["median"]
            }
            print(records, precision, name, row[name]["clients_a_second"], flush=True)
        rows.append(row)
    return {"batch": 20, "rows": rows}


def bound(records: int, precision: str, device: str) -> dict[str, float]:
    """What this device could do at most, by a large product and a large copy that it really does.

    Of weights no more is counted than that a step reads and writes how far a client has moved,
    writes its gradient and reads it.
    """
    net, steps = large_cnn(), -(-records // 20)
    with FlopCounterMode(display=False) as counted:
        net(torch.zeros(20, 1, 28, 28)).sum().backward()
    operations, moved = counted.get_total_flops() * records / 20, 16 * flat(net).numel() * steps
    a = torch.randn(*(2 * [8192 if device == "cuda" else 512]), device=device)
    with LocalWork(precision=precision).products(torch.device(device)):
        products = min(taken(lambda: a @ a, device)["seconds"] for _ in range(10))
    long = torch.empty(2**30 if device == "cuda" else 2**24, device=device)
    copies = min(taken(lambda: long.copy_(long * 1), device)["seconds"] for _ in range(5))
    a_second, bytes_a_second = 2 * len(a) ** 3 / products, 16 * len(long) / copies
    return {
        "operations_of_a_client": operations,
        "operations_a_second_in_a_large_product": a_second,
        "clients_a_second_by_operations": a_second / operations,
        "bytes_of_weights_of_a_client": moved,
        "bytes_a_second_in_a_large_copy": bytes_a_second,
        "clients_a_second_by_weights": bytes_a_second / moved,
    }


def machine(asked: Namespace) -> dict:
    """What it was measured on, and how busy it was."""
    name = platform.machine()
    if asked.device == "cuda":
        name = torch.cuda.get_device_name()
    elif Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((x.split(": ")[1] for x in lines if x.startswith("model name")), name)
    return {
        "command": "python benchmarks/federation_speed.py " + shown(sys.argv[1:]),
        "hardware": f"{name}, {os.cpu_count()} cores",
        "load_average_before": list(os.getloadavg()),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }


def shown(arguments: list[str]) -> str:
    """Without folders of this machine."""
    return " ".join("ENV/bin/python" if "/" in argument else argument for argument in arguments)


def options() -> Namespace:
    """From the command line."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=(*PARTS, "device"), default=PARTS)
    parser.add_argument("--flower-python", type=Path, help="of an environment with Flower and Ray")
    parser.add_argument("--apis", nargs="*", default=["message", "numpy"])
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--populations", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--records", type=int, nargs="+", default=[20, 226])
    parser.add_argument("--side-by-side", type=int, default=2048)
    parser.add_argument("--at-once", type=int, nargs="+", default=[None])
    parser.add_argument("--precisions", nargs="+", default=["float32"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.flower_python is None:
        asked.apis = []
    return asked


def main() -> None:
    """Measure and write the record."""
    asked = options()
    place = asked.out / f"federation_speed_{asked.device}.json"
    record = json.loads(place.read_text()) if place.exists() else {}
    record["what"] = "speed of simulated federations"
    for part in asked.parts:
        measure = {"idle": idle, "work": work, "engines": engines, "events": events}
        about = machine(asked)
        record[part] = about | (device if part == "device" else measure[part])(asked)
        asked.out.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
