"""The machine: what a benchmark sets, measures and writes down about it."""

import contextlib
import gc
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from privet.errors import FaultyEnvironment, InputError
from privet.privacy.precision import find_precision

MOST_THREADS: Final = 16  # for each core: more would only wait, and at some number none starts
SHARE: Final = 0.9  # of the free memory that a benchmark may take
MEMORY: Final = {
    "cpu": "peak of tensor memory taken in one step, by torch's profiler; libraries' own buffers"
    " and NumPy arrays are not seen",
    "cuda": "what a contestant keeps between its steps (weights, buffers, recorded work; not the"
    " data set), by torch.cuda.memory_reserved, and the peak of tensor memory taken in one step on"
    " top, by torch.cuda.max_memory_allocated",
}


def find_device(name: str) -> torch.device:
    """The CPU, or the GPU if there is one."""
    if name not in MEMORY:
        raise InputError("unknown device", got=f"'{name}'", expected=" or ".join(MEMORY))
    if name == "cuda" and not torch.cuda.is_available():
        raise FaultyEnvironment("no CUDA device here", fix="--device cpu")
    return torch.device(name)


@contextlib.contextmanager
def set_up(device: torch.device, threads: int | None, precision: str) -> Iterator[None]:
    """So many threads (None: as they are), a precision, an error instead of a full machine."""
    chosen = find_precision(precision, device)
    before = torch.get_num_threads()
    most = MOST_THREADS * (os.cpu_count() or 1)
    if threads is not None and not 1 <= threads <= most:
        raise InputError("bad number of threads", got=threads, expected=f"from 1 to {most}")
    torch.set_num_threads(threads or before)
    try:
        with chosen.products(device), _bounded_memory(device):
            yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _bounded_memory(device: torch.device) -> Iterator[None]:
    """On Linux, let an allocation fail before the system kills the process for it."""
    free, held = (
        _kilobytes("/proc/meminfo", "MemAvailable"),
        _kilobytes("/proc/self/status", "VmSize"),
    )
    if device.type != "cpu" or free is None or held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = int(1024 * (held + SHARE * free))
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _kilobytes(file: str, entry: str) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(file).read_text().splitlines():
            if line.startswith(f"{entry}:"):
                return int(line.split()[1])
    return None


def timed(step: Callable[[], object], device: torch.device) -> float:
    """Seconds, with nothing left in the queue of a GPU."""
    _finish(device)
    started = time.perf_counter()
    step()
    _finish(device)
    return time.perf_counter() - started


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def kept_memory(device: torch.device) -> int:
    """Bytes that cannot be given back now; 0 on a CPU, where nobody keeps any."""
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved(device))


def peak_memory(step: Callable[[], object], device: torch.device) -> int:
    """Bytes of tensors that a step holds at its worst, beyond what was held before; see MEMORY."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes to stderr otherwise
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def reason(error: Exception) -> str:
    """Why a cell is empty, in one line."""
    first = next(iter(str(error).splitlines()), "")
    if isinstance(error, ModuleNotFoundError):
        return f"skipped: {(error.name or first).partition('.')[0]} is not installed"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in first:
        return "out of memory"
    return f"failed: {type(error).__name__}: {first[:160]}"


def describe(device: torch.device) -> dict[str, Any]:
    """Hardware, threads and versions, for the record."""
    return {
        "hardware": _hardware(device),
        "threads": torch.get_num_threads(),
        "load_average_before": list(os.getloadavg()),
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in ("privet", "torch", "opacus")},
    }


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name}, {os.cpu_count()} cores"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
