"""What a phone is given: sizes of files, time of a step by ExecuTorch beside PyTorch, agreement.

    python benchmarks/on_device.py

For each network and batch: the bytes of the files, the memory that a step has planned, and twenty
steps of SGD by ExecuTorch and by PyTorch in turn, from the same weights, on the same records and
draws of dropout, at two rates and on five draws of records. Times are of the processor, medians
over steps, gradients and optimiser together; what counts is their ratio. Then the smallest network
once more with its convolutions as they are, and as convolutions over two axes, whose backward
ExecuTorch has. One JSON under benchmarks/results/.
"""

import copy
import itertools
import json
import platform
import statistics
import time
from argparse import ArgumentParser
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from privet.data.dataset import Bounds
from privet.federation.flat import flat
from privet.federation.local_work import LocalWork
from privet.federation.on_device.handed import Handed
from privet.federation.on_device.programs import (
    drawn_kept,
    made_up_batch,
    quiet,
    training_program,
)
from privet.federation.on_device.running import OnPhone
from privet.federation.on_device.writing import made, parameters_of
from privet.models import create

RESULTS = Path(__file__).parent / "results"
SHAPES = {
    "har-wild-32": (3, 100),
    "har-wild-64": (3, 100),
    "har-wild-128": (3, 100),
    "sentiment-head": (768,),
}
CLASSES, STEPS, SEEDS = 5, 20, 5
RATES = (0.005, 0.05)  # that of FLSys's clients, and ten times as much


class OverTwoAxes(nn.Module):
    """A convolution over time as one over two axes, the first of length one."""

    def __init__(self, layer: nn.Conv1d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, T) -> (n, N, T - K + 1)."""
        return F.conv2d(x[:, :, None], self.weight[:, :, None], self.bias)[:, :, 0]


class AsItIs(nn.Module):
    """A network and its loss with nothing rewritten."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor, y: torch.Tensor, share: torch.Tensor) -> tuple:
        """As `Learner` has it."""
        scores = self.network(x)
        return (F.cross_entropy(scores, y, reduction="none") * share).sum(), scores.detach()


def measured(name: str, batch: int) -> dict:
    """One network at one batch."""
    network = create(name, SHAPES[name], CLASSES, init_seed=0)
    phone, manifest = made_for(network, name, batch)
    row = {
        "network": name,
        "batch": batch,
        "weights": manifest["weights"],
        "bytes": {file: said["bytes"] for file, said in manifest["files"].items()},
        "working_bytes": manifest["working_bytes"],
        **compared(network, phone, batch),
    }
    print({k: v for k, v in row.items() if k not in ("bytes", "runs")}, flush=True)
    return row


def made_for(network: nn.Module, name: str, batch: int) -> tuple:
    """A network at work as on a phone, and the manifest of its files."""
    handed = Handed(
        model=name,
        network=network,
        shape=SHAPES[name],
        classes=tuple(map(str, range(CLASSES))),
        bounds=Bounds(low=(0.0,), high=(1.0,)),
        work=None,
        source="made up",
    )
    files, manifest = made(handed, formats="both", batch=batch)
    phone = OnPhone(
        files["training.pte"],
        parameters_of(network),
        batch=batch,
        shape=SHAPES[name],
        rates=tuple(drop["rate"] for drop in manifest["dropouts"]),
        kept=tuple(tuple(drop["shape"]) for drop in manifest["dropouts"]),
    )
    return phone, manifest


def compared(network: nn.Module, phone: OnPhone, batch: int) -> dict:
    """Several runs: what is typical of their times, and the worst of their differences by rate."""
    runs = [
        side_by_side(network, phone, batch, rate=rate, seed=seed)
        for rate in RATES
        for seed in range(SEEDS)
    ]
    times = {
        f"{who}_seconds": statistics.median(run[f"{who}_seconds"] for run in runs)
        for who in ("executorch", "pytorch")
    }
    return {
        **times,
        "ratio": times["executorch_seconds"] / times["pytorch_seconds"],
        "largest_difference": {
            str(rate): max(run["largest_difference"] for run in runs if run["rate"] == rate)
            for rate in RATES
        },
        "runs": runs,
    }


def side_by_side(
    network: nn.Module, phone: OnPhone, batch: int, *, rate: float, seed: int = 0
) -> dict:
    """Twenty steps of both, in turn; then each step once more, from PyTorch's weights before it."""
    learner = copy.deepcopy(network).train()
    optimizer = torch.optim.SGD(learner.parameters(), lr=rate)
    times: dict[str, list[float]] = {"pytorch": [], "executorch": []}
    start = flat(network)
    phone.set_weights(start)
    phone.begin(LocalWork(batch=batch, learning_rate=rate))
    versions = [start]
    for step in range(STEPS):
        x, y, kept = drawn(phone, batch, seed, step)
        began = time.process_time()
        phone.step(x, y, kept)
        times["executorch"].append(time.process_time() - began)
        torch.manual_seed(STEPS * seed + step)
        began = time.process_time()
        optimizer.zero_grad()
        F.cross_entropy(learner(x), y).backward()
        optimizer.step()
        times["pytorch"].append(time.process_time() - began)
        versions.append(flat(learner))
    apart = float((phone.weights() - versions[-1]).abs().max())
    of_steps = []
    for step, (before, after) in enumerate(itertools.pairwise(versions)):
        phone.set_weights(before)
        phone.step(*drawn(phone, batch, seed, step))
        of_steps.append(float((phone.weights() - after).abs().max()))
    return {
        "rate": rate,
        "seed": seed,
        **{f"{who}_seconds": statistics.median(took) for who, took in times.items()},
        "largest_change": float((versions[-1] - start).abs().max()),
        "largest_difference": apart,
        "largest_difference_of_a_step": max(of_steps),
    }


def drawn(phone: OnPhone, batch: int, seed: int, step: int) -> tuple:
    """Records, labels and dropout of a step; PyTorch's layer draws the same by this seed."""
    number = STEPS * seed + step
    x, y, _ = made_up_batch(phone.shape, CLASSES, batch, seed=number)
    torch.manual_seed(number)
    return x, y, drawn_kept(phone.rates, phone.kept)


def in_another_form(form: str, batch: int) -> dict:
    """`har-wild-32` with its convolutions in another form, and nothing else rewritten."""
    network = create("har-wild-32", SHAPES["har-wild-32"], CLASSES, init_seed=0)
    network[2].p = 0.0
    plain = nn.Sequential(*network)
    if form == "over two axes":
        for branch in network[1].parts.values():
            for place, layer in enumerate(branch):
                if isinstance(layer, nn.Conv1d):
                    branch[place] = OverTwoAxes(layer)
    x, y, share = made_up_batch(SHAPES["har-wild-32"], CLASSES, batch)
    try:
        program = training_program(AsItIs(plain.eval()), (x, y, share))
        parameters = parameters_of(plain)
        with quiet():
            phone = OnPhone(program.content, parameters, batch=batch, shape=SHAPES["har-wild-32"])
        return {"form": form, "batch": batch, **compared(plain, phone, batch)}
    except Exception as error:
        return {"form": form, "batch": batch, "refused": str(error).splitlines()[0]}


def main() -> None:
    """All networks, all batches."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", default=list(SHAPES))
    parser.add_argument("--batches", type=int, nargs="+", default=[20, 64])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    record = {
        "what": "files for phones, and twenty steps by ExecuTorch and by PyTorch in turn",
        "command": "python benchmarks/on_device.py",
        "shapes": SHAPES,
        "classes": CLASSES,
        "steps": STEPS,
        "seeds": SEEDS,
        "rows": [measured(n, b) for n in arguments.networks for b in arguments.batches],
        "other_forms": [in_another_form(form, 20) for form in ("as they are", "over two axes")],
        "versions": {p: version(p) for p in ("torch", "executorch", "onnx")}
        | {"python": platform.python_version()},
        "hardware": f"{platform.machine()}, one thread, shared with other work",
    }
    print(record["other_forms"])
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "on_device.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
