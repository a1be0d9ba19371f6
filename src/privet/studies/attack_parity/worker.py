"""Runs the attacks of one peer; a script for a Python that has the peer and needs no Privet.

    python worker.py FOLDER PEER THREADS DEVICE

reads `weights.npz` and `images.npz` in the folder and the layers from the first line of stdin; then
each line is a contest, and each answer a line: {"seconds": ..., "cpu_seconds": ...} with the inputs
in `found.npy`, or {"why": ...}. Only the attack is timed: the model, the images and the attack's
object are ready.

Where a peer lacks a setting:

| peer | attack | what it gets |
|---|---|---|
| torchattacks | cw | no search for c: c = 1, and as many steps as all searches have |
| torchattacks | deepfool | all classes are candidates |
| art | apgd | steps begin at twice the size, as in the paper (`eps_step`) |
| art | cw | its line search: several scores for each gradient |
| foolbox | cw | no early end, so that it uses its budget |
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Run = Callable[[Tensor, Tensor], Any]
"""From a batch of images and labels to perturbed inputs."""


class Absent(Exception):  # noqa: N818 - a fact about the peer, not a fault
    """The peer does not have this attack in this norm."""


def torchattacks(model: nn.Module, contest: dict[str, Any], x: Tensor, classes: int) -> Run:
    """Attacks take a batch as it is."""
    ta, b, size = importlib.import_module("torchattacks"), contest["budget"], contest["size"]
    length = size * b.get("step", 0.0)
    norm = {"linf": "Linf", "l2": "L2"}[contest["norm"]]
    steps = b.get("iterations", 0) * b.get("searches", 0)
    table: dict[tuple[str, str], Callable[[], Any]] = {
        ("fgsm", "linf"): lambda: ta.FGSM(model, eps=size),
        ("ifgsm", "linf"): lambda: ta.BIM(model, eps=size, alpha=length, steps=b["steps"]),
        ("mim", "linf"): lambda: ta.MIFGSM(
            model, eps=size, alpha=length, steps=b["steps"], decay=b["decay"]
        ),
        ("pgd", "linf"): lambda: ta.PGD(model, eps=size, alpha=length, steps=b["steps"]),
        ("pgd", "l2"): lambda: ta.PGDL2(model, eps=size, alpha=length, steps=b["steps"]),
        ("cw", "l2"): lambda: ta.CW(model, c=1, steps=steps, lr=b["rate"]),
        ("deepfool", "l2"): lambda: ta.DeepFool(
            model, steps=b["iterations"], overshoot=b["overshoot"]
        ),
    }
    for loss in ("ce", "dlr"):
        table[f"apgd-{loss}", contest["norm"]] = lambda loss=loss: ta.APGD(  # type: ignore[misc]
            model,
            norm=norm,
            eps=size,
            steps=b["steps"],
            n_restarts=b["restarts"],
            loss=loss,
            seed=contest["seed"],
        )
    table["square", contest["norm"]] = lambda: ta.Square(
        model, norm=norm, eps=size, n_queries=b["queries"], p_init=b["share"], seed=contest["seed"]
    )
    attack: Run = _chosen(table, contest)
    return attack


def foolbox(model: nn.Module, contest: dict[str, Any], x: Tensor, classes: int) -> Run:
    """Attacks of fixed size return clipped inputs; the others the nearest that they found."""
    fb, b = importlib.import_module("foolbox"), contest["budget"]
    climb = {"rel_stepsize": b.get("step"), "steps": b.get("steps")}
    table: dict[tuple[str, str], Callable[[], Any]] = {
        ("cw", "l2"): lambda: fb.attacks.L2CarliniWagnerAttack(
            binary_search_steps=b["searches"],
            steps=b["iterations"],
            stepsize=b["rate"],
            initial_const=b["first_c"],
            abort_early=False,
        ),
    }
    for norm, name in (("linf", "Linf"), ("l2", "L2")):
        kinds = {
            "fgsm": ("FastGradientAttack", {}),
            "ifgsm": ("BasicIterativeAttack", climb),
            "mim": (
                "MomentumIterativeFastGradientMethod",
                {**climb, "momentum": b.get("decay")},
            ),
            "pgd": ("ProjectedGradientDescentAttack", climb),
            "deepfool": (
                "DeepFoolAttack",
                {
                    "steps": b.get("iterations"),
                    "candidates": b.get("candidates"),
                    "overshoot": b.get("overshoot"),
                },
            ),
        }
        for attack, (kind, settings) in kinds.items():
            table[attack, norm] = lambda kind=name + kind, settings=settings: getattr(  # type: ignore[misc]
                fb.attacks, kind
            )(**settings)
    made = _chosen(table, contest)
    wrapped = fb.PyTorchModel(model, bounds=(0, 1), device=x.device)
    size = None if contest["minimal"] else contest["size"]
    return lambda images, labels: made(wrapped, images, labels, epsilons=size)[1]


def art(model: nn.Module, contest: dict[str, Any], x: Tensor, classes: int) -> Run:
    """Attacks take and return NumPy arrays."""
    evasion = importlib.import_module("art.attacks.evasion")
    estimators = importlib.import_module("art.estimators.classification")
    b, size, norm = contest["budget"], contest["size"], contest["norm"]
    subject = estimators.PyTorchClassifier(
        model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(x.shape[1:]),
        nb_classes=classes,
        clip_values=(0.0, 1.0),
        device_type="gpu" if x.is_cuda else "cpu",
    )
    ball = {"norm": {"linf": np.inf, "l2": 2}[norm], "eps": size, "batch_size": contest["batch"]}
    quiet = {**ball, "verbose": False}
    climb = {**quiet, "eps_step": size * b.get("step", 0.0), "max_iter": b.get("steps")}
    table: dict[tuple[str, str], Callable[[], Any]] = {
        ("fgsm", norm): lambda: evasion.FastGradientMethod(subject, **ball),
        ("ifgsm", norm): lambda: evasion.ProjectedGradientDescent(
            subject, **climb, num_random_init=0
        ),
        ("mim", norm): lambda: evasion.MomentumIterativeMethod(subject, **climb, decay=b["decay"]),
        ("pgd", norm): lambda: evasion.ProjectedGradientDescent(
            subject, **climb, num_random_init=b["restarts"]
        ),
        ("square", norm): lambda: evasion.SquareAttack(
            subject, **quiet, max_iter=b["queries"], p_init=b["share"]
        ),
        ("cw", "l2"): lambda: evasion.CarliniL2Method(
            subject,
            binary_search_steps=b["searches"],
            max_iter=b["iterations"],
            learning_rate=b["rate"],
            initial_const=b["first_c"],
            batch_size=contest["batch"],
            verbose=False,
        ),
        ("deepfool", "l2"): lambda: evasion.DeepFool(
            subject,
            max_iter=b["iterations"],
            epsilon=b["overshoot"],
            nb_grads=b["candidates"],
            batch_size=contest["batch"],
            verbose=False,
        ),
    }
    for name, loss in (("apgd-ce", "cross_entropy"), ("apgd-dlr", "difference_logits_ratio")):
        table[name, norm] = lambda loss=loss: evasion.AutoProjectedGradientDescent(  # type: ignore[misc]
            subject,
            **quiet,
            eps_step=2 * size,
            max_iter=b["steps"],
            nb_random_init=b["restarts"],
            loss_type=loss,
        )
    made = _chosen(table, contest)
    return lambda images, labels: made.generate(images.cpu().numpy(), labels.cpu().numpy())


def _chosen(table: dict[tuple[str, str], Callable[[], Any]], contest: dict[str, Any]) -> Any:
    key = (contest["attack"], contest["norm"])
    if key not in table:
        raise Absent
    return table[key]()


PEERS = {"torchattacks": torchattacks, "foolbox": foolbox, "art": art}


def timed(contest: dict[str, Any], peer: str, model: nn.Module, x: Tensor, y: Tensor) -> Any:
    """Perturbed inputs, seconds by the clock and seconds of the processor."""
    classes = model(x[:1]).shape[1]
    run = PEERS[peer](model, contest, x, classes)
    rows = contest["rows"]
    torch.manual_seed(contest["seed"])
    np.random.seed(contest["seed"])  # what ART draws from
    parts = (torch.split(values[:rows], contest["batch"]) for values in (x, y))
    batches = list(zip(*parts, strict=True))
    _finish(x)
    started, busy = time.perf_counter(), time.process_time()
    found = [run(images, labels) for images, labels in batches]
    _finish(x)
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    arrays = [f if isinstance(f, np.ndarray) else f.detach().cpu().numpy() for f in found]
    return np.concatenate(arrays), seconds, busy


def _finish(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _loaded(folder: Path, layers: list[Any], device: str) -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(*(getattr(nn, kind)(*settings) for kind, settings in layers))
    with np.load(folder / "weights.npz") as weights:
        model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights})
    with np.load(folder / "images.npz") as images:
        x, y = torch.from_numpy(images["x"]), torch.from_numpy(images["y"])
    model = model.to(device).eval().requires_grad_(False)  # nobody needs gradients of weights
    return model, x.to(device), y.to(device)


def main() -> None:
    """Answer until stdin ends."""
    folder, peer, threads, device = Path(sys.argv[1]), *sys.argv[2:5]
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers

    def answer(said: dict[str, Any]) -> None:
        channel.write(json.dumps(said) + "\n")
        channel.flush()

    try:
        version = importlib.import_module(peer).__version__
    except ModuleNotFoundError as error:
        answer({"why": f"skipped: {error.name} is not installed"})
        return
    torch.set_num_threads(int(threads))
    answer({"version": version, "torch": torch.__version__})
    model, x, y = _loaded(folder, json.loads(sys.stdin.readline()), device)
    for line in sys.stdin:
        try:
            found, seconds, busy = timed(json.loads(line), peer, model, x, y)
            np.save(folder / "found.npy", found)
            answer({"seconds": seconds, "cpu_seconds": busy})
        except Absent:
            answer({"why": "skipped: it has no such attack"})
        except Exception as error:  # whatever a peer raises leaves a cell with the reason
            answer({"why": f"failed: {type(error).__name__}: {str(error)[:160]}"})


if __name__ == "__main__":
    main()
