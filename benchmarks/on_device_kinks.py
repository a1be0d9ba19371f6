"""Why some steps by ExecuTorch are further from PyTorch's than rounding: a ReLU at its kink.

    python benchmarks/on_device_kinks.py

The runs of `on_device.py` at its higher rate, step by step from PyTorch's weights. Where a gradient
is more than 1e-6 apart, it is computed in double precision, too: as it is, and with that one unit
of a ReLU on the other side of zero whose input is nearest to it. If ExecuTorch's gradient is the
latter to rounding, the unit is the reason. One JSON under benchmarks/results/.
"""

import copy
import json
import platform
from argparse import ArgumentParser
from importlib.metadata import version
from pathlib import Path

import torch
from on_device import CLASSES, RATES, RESULTS, SEEDS, SHAPES, STEPS, drawn, made_for
from torch import nn
from torch.nn import functional as F

from privet.federation.flat import flat, load_flat
from privet.federation.on_device.running import OnPhone
from privet.federation.on_device.writing import parameters_of
from privet.models import create

APART = 1e-6


class Turned(nn.Module):
    """ReLU; `turned`, with the unit nearest to zero on the other side."""

    def __init__(self) -> None:
        super().__init__()
        self.turned, self.nearest = False, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Numbers times their sides."""
        sides, near = (x > 0).flatten(), x.detach().abs().flatten()
        self.nearest = float(near.min())
        if self.turned:
            sides[near.argmin()] ^= True
        return x * sides.reshape(x.shape)


class Factors(nn.Module):
    """Dropout by factors that are given."""

    def __init__(self, kept: torch.Tensor) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each number times its factor."""
        return x * self.kept


def in_double(network: nn.Module, weights, x, y, kept, turned: int | None = None):
    """The gradient in double precision, and each ReLU's input nearest to zero."""
    model = copy.deepcopy(network)
    load_flat(model, weights)
    relus = []
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.ReLU):
                relus.append(Turned())
                setattr(parent, name, relus[-1])
            if isinstance(child, nn.Dropout):
                setattr(parent, name, Factors(kept[0].double()))
    model.double()
    if turned is not None:
        relus[turned].turned = True
    loss = F.cross_entropy(model(x.double()), y)
    found = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([g.reshape(-1) for g in found]), [relu.nearest for relu in relus]


def kinks(name: str, batch: int, seed: int) -> list[dict]:
    """Of one run."""
    network = create(name, SHAPES[name], CLASSES, init_seed=0)
    phone = made_for(network, name, batch)[0]
    learner = copy.deepcopy(network).train()
    optimizer = torch.optim.SGD(learner.parameters(), lr=max(RATES))
    found = []
    for step in range(STEPS):
        x, y, kept = drawn(phone, batch, seed, step)
        weights = flat(learner)
        ours = by_executorch(phone, network, weights, x, y, kept)
        torch.manual_seed(STEPS * seed + step)
        optimizer.zero_grad()
        F.cross_entropy(learner(x), y).backward()
        theirs = torch.cat([p.grad.reshape(-1) for p in learner.parameters()])
        optimizer.step()
        if float((ours - theirs).abs().max()) > APART:
            found.append(explained(network, weights, (x, y, kept), ours, theirs))
            found[-1] |= {"network": name, "batch": batch, "seed": seed, "step": step}
            print(found[-1], flush=True)
    return found


def by_executorch(phone: OnPhone, network: nn.Module, weights, x, y, kept) -> torch.Tensor:
    """The gradient as one vector."""
    phone.set_weights(weights)
    _, _, gradients = phone.gradients(x, y, kept)
    return torch.cat([gradients[p.name].reshape(-1) for p in parameters_of(network)])


def explained(network: nn.Module, weights, batch: tuple, ours, theirs) -> dict:
    """How far both are from double precision, with no unit turned, and with the best one."""
    plain, nearest = in_double(network, weights, *batch)
    turned = [in_double(network, weights, *batch, turned=i)[0] for i in range(len(nearest))]

    def apart(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a.double() - b.double()).abs().max())

    best = {who: min(range(len(turned)), key=lambda i: apart(g, turned[i]))
            for who, g in (("executorch", ours), ("pytorch", theirs))}  # fmt: skip
    return {
        "apart": apart(ours, theirs),
        "executorch_to_double": apart(ours, plain),
        "pytorch_to_double": apart(theirs, plain),
        "executorch_to_turned": apart(ours, turned[best["executorch"]]),
        "pytorch_to_turned": apart(theirs, turned[best["pytorch"]]),
        "input_of_the_unit": nearest[best["executorch"]],
    }


def main() -> None:
    """The networks and batches whose runs were further apart than 1e-4."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", nargs="+", default=["har-wild-32:20", "har-wild-64:64"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    asked = [(run.split(":")[0], int(run.split(":")[1])) for run in arguments.runs]
    record = {
        "what": "steps whose gradient is further from PyTorch's than rounding, and the unit behind",
        "command": "python benchmarks/on_device_kinks.py",
        "steps": len(asked) * SEEDS * STEPS,
        "kinks": [
            row for name, b in asked for seed in range(SEEDS) for row in kinks(name, b, seed)
        ],
        "versions": {p: version(p) for p in ("torch", "executorch")}
        | {"python": platform.python_version()},
        "hardware": platform.machine(),
    }
    (arguments.out / "on_device_kinks.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
