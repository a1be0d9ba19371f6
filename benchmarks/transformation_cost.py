"""What TransDenoiser's transformation costs: its step against a plain one, and memory by batch.

    python benchmarks/transformation_cost.py --denoiser conv --device cpu

Steps of one batch, medians of alternating rounds, on made-up images:

- ordinary: gradient of the mean, no clipping, no noise
- plain: clipped image by image, noise in full (ablation 'sepdp')
- transformed: one image in 32 makes M, as by default; short cuts where the rule allows them
- formed: the same without short cuts, M of both slices formed to the end: the most it can take
- whole batch: that, with all images (with --thorough)

Memory is the peak of a fresh process after one transformed step (on CUDA, what was allocated), over
that of a plain one. Writes benchmarks/results/transformation_cost_DENOISER_DEVICE.json.
"""

import json
import multiprocessing
import platform
import statistics
import time
from argparse import ArgumentParser, Namespace
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from privet.engine.examples import Examples
from privet.engine.plain import Course
from privet.models.denoisers import create_denoiser, slices
from privet.privacy.clipping import make_clipper
from privet.privacy.randomness import Randomness
from privet.privacy.sampling import sampler_for
from privet.training.published.transdenoiser_trainer import StepNoise, TransDenoiserTrainer
from privet.training.published.transformation import NoiseRule, squared_errors

RESULTS = Path(__file__).parent / "results"
SHAPES = {"28": (1, 28, 28), "32": (3, 32, 32)}
SIGMA, XI_UP, STEPS = 0.25, 2.0, 200_000  # the paper's; T of the public program
TO_THE_END = {"xi_low": 0.0, "xi_up": 1e30}  # nothing is too little, nothing enough


def noise(images: int, xi_low: float = 0.05 * XI_UP, xi_up: float = XI_UP) -> StepNoise:
    """Of a step that transforms so many images."""
    rule = NoiseRule(sigma=SIGMA, steps=STEPS, clip_norm=1.0, xi_low=xi_low, xi_up=xi_up)
    return StepNoise(xi_up=XI_UP, rule=rule if images else None, images=images, clipped=True)


def trainer(asked: Namespace, batch: int, step_noise: StepNoise) -> TransDenoiserTrainer:
    """On made-up images; every step takes `batch` of them."""
    shape, device = SHAPES[asked.side], torch.device(asked.device)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(4 * batch, *shape, generator=generator)
    denoiser = create_denoiser(asked.denoiser, shape).to(device)
    probe = x[:4].to(device)
    return TransDenoiserTrainer(
        denoiser,
        torch.optim.Adam(denoiser.parameters(), lr=1e-6),
        Examples(x, torch.zeros(len(x), dtype=torch.int64), None, device),
        make_clipper(denoiser, squared_errors, 1.0, probe=(probe, probe.flip(0))),
        released=denoiser,
        plan=Course(steps=10**6, sampler=sampler_for("shuffled", batch=batch, nominal_size=len(x))),
        batch=batch,
        sigma=SIGMA,
        noise=step_noise,
        randomness=Randomness.seeded(0, 0),
    )


def ordinary(asked: Namespace, batch: int):
    """A step without privacy on the same network."""
    shape, device = SHAPES[asked.side], torch.device(asked.device)
    denoiser = create_denoiser(asked.denoiser, shape).to(device)
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-6)
    x = torch.rand(batch, *shape, generator=torch.Generator().manual_seed(0)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        squared_errors(denoiser(x + SIGMA * torch.randn_like(x)), x).mean().backward()
        optimizer.step()

    return step


def seconds(step, device: str) -> float:
    """Of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def timed(asked: Namespace, batch: int) -> dict:
    """Median seconds of each kind of step, and their ratios to the plain one."""
    default = max(1, batch // 32)
    steps = {
        "ordinary": ordinary(asked, batch),
        "plain": trainer(asked, batch, noise(0)).step,
        "transformed": trainer(asked, batch, noise(default)).step,
        "formed": trainer(asked, batch, noise(default, **TO_THE_END)).step,
    }
    if asked.thorough:
        steps["whole batch"] = trainer(asked, batch, noise(batch, **TO_THE_END)).step
    found: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()  # tables, caches, kernels
    for _ in range(asked.rounds):
        for name, step in steps.items():
            found[name].append(seconds(step, asked.device))
    medians = {name: statistics.median(values) for name, values in found.items()}
    over = {name: value / medians["plain"] for name, value in medians.items()}
    return {"batch": batch, "median_seconds": medians, "over_plain": over}


def peak(asked: Namespace, batch: int, images: int) -> float:
    """MiB at most, in a process of its own."""
    torch.set_num_threads(asked.threads)
    trainer(asked, batch, noise(images, **TO_THE_END) if images else noise(0)).step()
    if asked.device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    # Not ru_maxrss: a child begins with its parent's.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def peaks(asked: Namespace, batch: int) -> dict:
    """Of a plain and of a transformed step whose M is formed of two images to the end."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as pool:
        plain, transformed = (pool.submit(peak, asked, batch, images).result() for images in (0, 2))
    return {"batch": batch, "plain_mib": plain, "transformed_mib": transformed}


def main() -> None:
    """Measure and write the record."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--denoiser", default="conv")
    parser.add_argument("--side", choices=SHAPES, default="28")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--memory", type=int, nargs="*", default=[32, 128, 512])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--thorough", action="store_true", help="M of whole batches, too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    denoiser = create_denoiser(asked.denoiser, SHAPES[asked.side])
    sizes = {k: sum(p.numel() for p in part) for k, part in slices(denoiser).items()}
    steps = []
    for batch in asked.batches:
        steps.append(timed(asked, batch))
        print(steps[-1], flush=True)
    memory = []
    for batch in asked.memory:
        memory.append(peaks(asked, batch))
        print(memory[-1], flush=True)
    name = f"transformation_cost_{asked.denoiser}_{asked.side}_{asked.device}"
    cuda = asked.device == "cuda"
    record = {
        "what": "a step of TransDenoiser as published against a plain step, and memory by batch",
        "command": f"python benchmarks/transformation_cost.py --denoiser {asked.denoiser}"
        f" --side {asked.side} --device {asked.device} --rounds {asked.rounds} --batches "
        + " ".join(map(str, asked.batches))
        + " --memory "
        + " ".join(map(str, asked.memory))
        + (" --thorough" if asked.thorough else ""),
        "images": "made up",
        "slices": sizes,
        "steps": steps,
        "memory": memory,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "hardware": torch.cuda.get_device_name()
        if cuda
        else f"{platform.machine()}, {asked.threads} thread(s)",
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
