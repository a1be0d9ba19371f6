"""Where the files of a named data set may lie, in the order in which they are looked for."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from platformdirs import user_cache_dir

from privet.errors import InputError

ENVIRONMENT_VARIABLE = "PRIVET_DATA_DIR"

# The folder names under which the public distributions unpack, ours first.
FOLDER_NAMES: dict[str, tuple[str, ...]] = {
    "mnist": ("mnist", "MNIST/raw", "MNIST"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
    "cifar10": (
        "cifar10",
        "cifar-10-batches-bin",
        "cifar-10-batches-py",
        "cifar10/cifar-10-batches-bin",
        "cifar10/cifar-10-batches-py",
    ),
    "hapt": ("hapt", "HAPT", "HAPT Data Set"),
    "watch": ("watch_seglearn", "watch"),
    "wisdm": ("wisdm_v1.1", "WISDM_ar_v1.1"),
    "tweets": ("tweeteval", "tweeteval/datasets"),
    "word-vectors": ("word_vectors", "glove.6B", "glove"),
    "physionet2012": ("physionet2012",),
    "mimic-iv-ed": ("mimic_iv_ed", "mimic-iv-ed", "mimic-iv-ed-2.2"),
    "mimic-iv-ed-demo": ("mimic_iv_ed_demo", "mimic-iv-ed-demo", "mimic-iv-ed-demo-2.2"),
    "eicu-demo": ("eicu_demo", "eicu-demo", "eicu-collaborative-research-database-demo-2.0.1"),
}

# Where Debian's data packages (dataset-fashion-mnist) install.
SYSTEM_ROOT = Path("/usr/share/datasets")

Holds = Callable[[Path], bool]


def locate(name: str, holds: Holds, data_dir: str | Path | None = None) -> Path:
    """Return the first folder that holds the files of `name`, or say where we looked."""
    folder = find_folder(name, holds, data_dir)
    if folder is None:
        raise InputError(
            f"the files of data set '{name}' were not found: searched "
            + ", ".join(searched_places(data_dir)),
            fix=f"name their folder with --data-dir DIR or {ENVIRONMENT_VARIABLE}",
        )
    return folder


def find_folder(name: str, holds: Holds, data_dir: str | Path | None = None) -> Path | None:
    """Return the first candidate folder for which `holds` is true, or None."""
    for folder in candidate_folders(name, data_dir):
        try:
            if holds(folder):
                return folder
        except OSError:  # a folder we may not read is a folder without our files
            continue
    return None


def candidate_folders(name: str, data_dir: str | Path | None = None) -> Iterator[Path]:
    """Yield every folder in which `name` may lie: named by the user first, then the usual."""
    names = FOLDER_NAMES[name]
    for root in _named_roots(data_dir):
        yield from (root / folder for folder in names)
        if not _belongs_to_another(root, name):
            yield from (root, root / "raw")
    for root in (*_shared_roots(), *_usual_roots()):
        yield from (root / folder for folder in names)


def searched_places(data_dir: str | Path | None = None) -> list[str]:
    """Name the searched roots for a person; the walk up to the file system's root is one."""
    named = [str(root) for root in _named_roots(data_dir)]
    usual = [str(root) for root in _usual_roots()]
    return [*named, f"shared/data in {Path.cwd()} or above", *usual]


def _named_roots(data_dir: str | Path | None) -> list[Path]:
    """Return the roots the user named; a named folder that does not exist is a slip to report."""
    roots = []
    if data_dir is not None:
        root = Path(data_dir).expanduser()
        if not root.is_dir():
            raise InputError(
                "the data folder does not exist",
                got=root,
                expected="a folder",
                fix="give an existing folder as --data-dir",
            )
        roots.append(root)
    listed = os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)
    return roots + [Path(entry).expanduser() for entry in listed if entry.strip()]


def _shared_roots() -> list[Path]:
    here = Path.cwd()
    return [folder / "shared" / "data" for folder in (here, *here.parents)]


def _usual_roots() -> list[Path]:
    """Return the customary caches: ours, torchvision's `data` folders, Debian's packages."""
    return [
        Path(user_cache_dir("privet")) / "data",
        Path.cwd() / "data",
        Path.home() / "data",
        Path.home() / ".cache" / "torchvision",
        SYSTEM_ROOT,
    ]


def _belongs_to_another(root: Path, name: str) -> bool:
    # MNIST and Fashion-MNIST name their files alike: a folder called `fashion-mnist` must
    # never be read as `mnist` only because it was named as the data folder.
    path = root.resolve().as_posix()
    others = (folders for other, folders in FOLDER_NAMES.items() if other != name)
    return any(path.endswith(f"/{folder}") for folders in others for folder in folders)
