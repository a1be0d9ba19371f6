"""What attacks and certificates are tried on: test examples of a release, on a device."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet.errors import FaultyEnvironment, InputError

if TYPE_CHECKING:
    from privet.data.dataset import Dataset
    from privet.release import Release


def data_of(
    release: "Release", named: str | None, folder: Path | None, *, at: Path | None = None
) -> "Dataset":
    """The data set that is named, or else the one that the release names.

    `at` is where the release lies: a version within its stream is tried on its own task, which
    has no name that could be given.
    """
    from privet.data import load

    require_classifier(release)
    if named is not None:
        return load(named, folder)
    name = (release.trust.get("data") or {}).get("name")
    if not isinstance(name, str):
        raise InputError("incomplete trust.json", got="no 'data.name'", fix="restore the file")
    if at is not None and (task := _task_of_version(at, name, folder)) is not None:
        return task
    try:
        return load(name, folder)
    except InputError as error:
        raise InputError(f"{error}; or say which data: --data") from None


def _task_of_version(version: Path, name: str, folder: Path | None) -> "Dataset | None":
    """The task that a version of a stream was learned from; None elsewhere."""
    from privet.lifelong.fitting import JOINT, all_at_once
    from privet.lifelong.life import record_in, stream_around
    from privet.lifelong.tasks import load_stream

    whole = stream_around(version)
    place = version.absolute().name
    record = {} if whole is None else record_in(whole)
    if not place.isdecimal() or "name" not in record.get("stream", {}):
        return None
    number, reference = int(place), dict(record["stream"])
    if reference.get("n_tasks") is not None:  # tasks may have come since
        reference["n_tasks"] = max(reference["n_tasks"], number)
    if folder is not None:
        reference["data_dir"] = folder
    stream = load_stream(**reference)
    tasks = (all_at_once(stream) if record["method"] == JOINT else stream).tasks
    fits = number <= len(tasks) and tasks[number - 1].name == name.rpartition("/")[2]
    return tasks[number - 1].data if fits else None


def require_classifier(release: "Release", fix: str = "") -> None:
    """Refuse a generator of records, which takes no inputs and gives no classes."""
    if "schema" not in release.config:
        return
    raise InputError(
        "the release makes records",
        got=f"method '{release.trust.get('method')}'",
        expected="a classifier",
        fix=fix or "compare its records with real ones: privet synthesize evaluate",
    )


def warn_if_changed(release: Path) -> None:
    """One line on stderr where the files at hand are not those that were released."""
    from privet.commands.screen import err
    from privet.release import require_unchanged

    try:
        require_unchanged(release)
    except InputError:
        err.print(
            "privet: the release's files are not those of its manifest:"
            f" privet verify {release} says which",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def reference_to(data: str, data_dir: Path | None) -> dict[str, str | None]:
    """How a resumed run, perhaps started from another folder, finds the data again."""
    name = str(Path(data).resolve()) if data.endswith(".toml") else data
    return {"name": name, "data_dir": None if data_dir is None else str(data_dir.resolve())}


def require_own_folder(folder: Path | None) -> None:
    """Results go beside a release, not into it, and not into a file."""
    from privet.release import MANIFEST

    if folder is None:
        return
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        raise InputError("not a folder", got=nearest, fix="choose another --out")
    if (folder / MANIFEST).exists():
        raise InputError("a release is in that folder", got=folder, fix="choose another --out")


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
    named = tuple(release.config.get("features") or ())
    if data.features and named and data.features != named:
        raise InputError(
            "the columns of the data are not the release's",
            got=", ".join(data.features),
            expected=", ".join(named),
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
    except (RuntimeError, AssertionError) as error:
        if name.partition(":")[0] in ("cuda", "mps", "xpu"):
            raise FaultyEnvironment("no such device here", got=name, fix="--device cpu") from None
        raise InputError("no such device", got=name, expected="cpu, cuda, ...") from error
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
