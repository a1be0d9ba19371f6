"""What attacks and certificates are tried on: test examples of a release, on a device."""

from typing import TYPE_CHECKING, Any

from privet.errors import InputError

if TYPE_CHECKING:
    from privet.data.dataset import Dataset
    from privet.release import Release


def chosen_examples(release: "Release", data: "Dataset", examples: int) -> tuple[Any, Any]:
    """Evenly spread test examples, scaled by the release's own bounds."""
    import numpy as np

    from privet.data.dataset import Bounds

    ours = (tuple(release.config["shape"]), list(release.config["classes"]))
    if (data.shape, list(data.classes)) != ours:
        raise InputError(
            "the data do not fit the release",
            got=f"'{data.name}': shape {data.shape}, {len(data.classes)} classes",
            expected=f"shape {ours[0]}, {len(ours[1])} classes of the same names",
        )
    if examples < 1:
        raise InputError("bad number of examples", got=examples, expected="1 or more")
    count = min(examples, len(data.test))
    chosen = np.linspace(0, len(data.test) - 1, count).round().astype(int)
    ends = release.config["bounds"]
    bounds = Bounds(low=tuple(ends["low"]), high=tuple(ends["high"]))
    return bounds.clamp_and_scale(data.test.x[chosen]), data.test.y[chosen]


def device_named(name: str) -> Any:
    """A device that works."""
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError):
        raise InputError("no such device", got=name, expected="cpu, cuda, ...") from None
    return torch.device(name)


def listed(text: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str, what: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in listed(text)]
    except ValueError:
        raise InputError(
            f"bad {what}", got=f"'{text}'", expected="numbers, separated by commas: 0.05,0.1"
        ) from None
