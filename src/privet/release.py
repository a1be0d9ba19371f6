"""What is handed over: weights, configuration, trust card, report, and a manifest of them.

weights.safetensors   the released parameters (never a pickle)
config.json           how to build the model and scale its inputs
trust.json            the trust card: guarantees, events, utility, provenance
report.html           the same for people
manifest.json         SHA-256 of each of the above
signature.json        optional: Ed25519 over the manifest
internal/             NOT part of the release: keys, checkpoints, private figures
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from privet.data.dataset import Bounds
from privet.errors import InputError
from privet.files import make_folder, read_json, write_atomically, write_json
from privet.guarantee import Privacy, strongest_proved
from privet.models import create
from privet.models.generators import create_generator
from privet.models.own_classifier import has_own_classifier, with_own_classifier

CUSTOM: Final = "custom"
RELEASED_FILES: Final = ("weights.safetensors", "config.json", "trust.json", "report.html")
CARD_FILES: Final = ("trust.json", "report.html")
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "signature.json"
INTERNAL: Final = "internal"
NEXT_CARD: Final = f"{INTERNAL}/next_card.json"  # there while a card is being exchanged
MEASURED: Final = ("robustness", "attacks", "audit")  # parts of a card that are added later


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """A trained model with its trust card."""

    model: nn.Module
    config: Mapping[str, Any]
    trust: Mapping[str, Any]

    @property
    def guarantees(self) -> tuple[Privacy, ...]:
        """All privacy statements, each with its basis."""
        return tuple(Privacy.from_json(record) for record in self.trust["privacy"])

    @property
    def privacy(self) -> Privacy | None:
        """The strongest proved statement; None where epsilon is withheld."""
        return strongest_proved(self.guarantees)

    def scores(self, x: ArrayLike) -> Tensor:
        """Class scores for examples in the data's own units, unscaled; columns as in training."""
        x = np.asarray(x)
        bounds = Bounds(
            low=tuple(self.config["bounds"]["low"]), high=tuple(self.config["bounds"]["high"])
        )
        expected = tuple(self.config["shape"])
        if x.shape[1:] != expected:
            raise InputError(
                "examples of the wrong shape", got=f"{x.shape[1:]}", expected=f"{expected} each"
            )
        if x.dtype.kind not in "uif" or not np.isfinite(x).all():
            raise InputError(
                "examples with missing or non-numeric values",
                got=x.dtype if x.dtype.kind not in "uif" else "NaN or infinity",
                expected="finite numbers",
                fix="fill missing values as for training",
            )
        device = next(self.model.parameters()).device
        inputs = torch.from_numpy(bounds.clamp_and_scale(x)).to(device)
        self.model.eval()
        with torch.no_grad():
            return torch.cat([self.model(part) for part in torch.split(inputs, 1024)]).cpu()

    def predict(self, x: ArrayLike) -> NDArray[np.int64]:
        """The class index of each example, into `config["classes"]`."""
        return np.asarray(self.scores(x).argmax(1).numpy(), dtype=np.int64)

    def save(self, folder: str | Path) -> Path:
        """Write the release; refuses to overwrite one."""
        folder = Path(folder)
        if (folder / MANIFEST).exists():
            raise InputError("a release is already there", got=folder, fix="choose another folder")
        make_folder(folder)
        weights = {k: v.detach().cpu().contiguous() for k, v in named_once(self.model).items()}
        write_atomically(folder / "weights.safetensors", safetensors.torch.save(weights))
        write_json(folder / "config.json", self.config)
        _write_card(folder, self.trust)
        return folder

    @classmethod
    def load(cls, folder: str | Path, model: nn.Module | None = None) -> Self:
        """Read a release; `model` is needed only for one that was trained on a user's own.

        Of a network in front of a user's own classifier it is the classifier.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise InputError("no such release", got=folder, expected="a folder made by privet")
        _require_one(folder)
        config, trust = read_json(folder / "config.json"), read_json(folder / "trust.json")
        built = _build(config, folder, model)
        weights = read_weights(folder / "weights.safetensors")
        try:
            missing, unexpected = built.load_state_dict(weights, strict=False)
        except RuntimeError as error:
            raise InputError(
                "weights do not fit the model", got=str(error).splitlines()[-1].strip()
            ) from None
        shared = set(built.state_dict()) - set(named_once(built))
        if unexpected or set(missing) - shared:
            raise InputError("weights do not fit the model", got=f"{(unexpected or missing)[0]}")
        return cls(model=built, config=config, trust=trust)


def require_addable(folder: str | Path) -> str:
    """Refuse a release that figures cannot be added to; the answer names it as it is.

    One whose files are not those of its manifest is refused, or this would bless a change; so is a
    signed one, whose signature would break. A card that a killed process left half written is
    finished first.
    """
    folder = Path(folder)
    require_finished(folder)
    if (folder / SIGNATURE).exists():
        raise InputError(
            "the release is signed as it is",
            got=folder,
            fix=f"remove its {SIGNATURE}, add the figures, sign it again",
        )
    _finish_card(folder)
    return require_unchanged(folder)


def require_unchanged(folder: Path) -> str:
    """Refuse a release whose files are not those of its manifest; the answer names its weights."""
    if not folder.is_dir():
        raise InputError("no such release", got=folder, expected="a folder made by privet")
    require_finished(folder)
    digests = read_json(folder / MANIFEST).get("files") or {}
    changed = [
        name
        for name in RELEASED_FILES
        if not (folder / name).is_file() or sha256(folder / name) != digests.get(name)
    ]
    if changed:
        raise _changed(changed)
    return str(digests["weights.safetensors"])


def add_measured(
    folder: str | Path, part: str, rows: Sequence[Mapping[str, Any]], *, of: str | None = None
) -> None:
    """Add figures to the card of a release, and with it to its report and manifest.

    Nothing that stands there is replaced: whoever measures twice shows both. `run` counts the
    measurements.

    Args:
        folder: of the release.
        part: "robustness", "attacks" or "audit".
        rows: one record for each figure; measured on records that are public.
        of: what `require_addable` said before they were measured; other weights are refused.
    """
    folder = Path(folder)
    if part not in MEASURED:
        raise InputError("no such part of a card", got=part, expected=", ".join(MEASURED))
    with _locked(folder):
        now = require_addable(folder)
        if of is not None and of != now:
            raise InputError(
                "the release was exchanged while it was measured",
                got=folder,
                expected="the weights that the figures are of",
                fix="measure it again",
            )
        trust = read_json(folder / "trust.json")
        earlier = list(trust.get(part) or ())
        run = 1 + max((int(row.get("run", 0)) for row in earlier), default=0)
        _replace_card(folder, {**trust, part: [*earlier, *({"run": run, **row} for row in rows)]})


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time exchanges a card; others wait."""
    if not folder.is_dir():
        raise InputError("no such release", got=folder, expected="a folder made by privet")
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _finish_card(folder: Path) -> None:
    """What a killed process began: nothing but measured parts may differ from what is there."""
    if not (folder / NEXT_CARD).exists():
        return
    wanted, there = read_json(folder / NEXT_CARD), read_json(folder / "trust.json")
    for card in (wanted, there):
        for part in MEASURED:
            card.pop(part, None)
    if wanted != there:
        raise _changed([NEXT_CARD])
    _replace_card(folder, read_json(folder / NEXT_CARD))


def require_whole(folder: Path) -> None:
    """Refuse a release whose card is being exchanged."""
    if (folder / NEXT_CARD).exists():
        raise InputError(
            "a killed process left the card half written",
            got=folder,
            fix="repeat its command with --record, which finishes the card",
        )


def _replace_card(folder: Path, trust: Mapping[str, Any]) -> None:
    """Exchange the card of a release; if the process is killed on the way, the next one goes on."""
    named = read_json(folder / MANIFEST).get("files") or {}
    kept = [name for name in RELEASED_FILES if name not in CARD_FILES]
    changed = [name for name in kept if sha256(folder / name) != named.get(name)]
    if changed:
        raise _changed(changed)
    (folder / INTERNAL).mkdir(exist_ok=True)
    write_json(folder / NEXT_CARD, trust)
    _write_card(folder, trust)
    (folder / NEXT_CARD).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # an exported release had none
        (folder / INTERNAL).rmdir()


def _changed(names: Sequence[str]) -> InputError:
    return InputError(
        "the release was changed after it was made",
        got=", ".join(names),
        expected="files as in the manifest",
        fix="restore them",
    )


def _write_card(folder: Path, trust: Mapping[str, Any]) -> None:
    """The card, its report, and the manifest of all that is released."""
    from privet.reports import render_report
    from privet.reports.recomputing import curves_of

    report = render_report(trust, curves_of(trust))
    kept = {n: sha256(folder / n) for n in RELEASED_FILES if n not in CARD_FILES}
    # Nothing slow from here on: between these files a release that had a card has none that fits.
    write_json(folder / "trust.json", trust)
    write_atomically(folder / "report.html", report.encode())
    # The manifest goes last: a folder without one is an unfinished release.
    digests = {name: kept.get(name) or sha256(folder / name) for name in RELEASED_FILES}
    write_json(folder / MANIFEST, {"format": "privet-manifest/1", "files": digests})


def require_finished(folder: Path) -> None:
    """Tell an unfinished run from a broken release."""
    begun = folder / INTERNAL
    _require_one(folder)
    if (begun / "run.json").exists() and not (folder / MANIFEST).exists():
        # The last checkpoint goes once the manifest stands and the run is settled.
        written = all((folder / name).exists() for name in RELEASED_FILES)
        if written and not (begun / "checkpoint.pt").exists():
            raise InputError(
                "the run is finished, and its manifest is gone",
                got=folder,
                fix=f"restore {MANIFEST} from a copy; training again would be charged again",
            )
        raise InputError(
            "the run is unfinished", got=folder, fix=f"finish it: privet resume {folder}"
        )


def _require_one(folder: Path) -> None:
    """Tell a stream of tasks, which holds many releases, from a broken one."""
    if (folder / INTERNAL / "life.json").exists() and not (folder / MANIFEST).exists():
        raise InputError(
            "a stream of tasks, of which every version is a release",
            got=folder,
            fix=f"name one of {folder}/versions",
        )


def export(folder: str | Path, destination: str | Path) -> Path:
    """Copy what may leave, and nothing of `internal/`, to a new folder."""
    folder, destination = Path(folder), Path(destination)
    if not folder.is_dir():
        raise InputError("no such release", got=folder, expected="a folder made by privet")
    require_finished(folder)
    require_whole(folder)
    read_json(folder / MANIFEST)
    if destination.exists():
        raise InputError("destination exists", got=destination, fix="name a new folder")
    make_folder(destination)
    for name in [*RELEASED_FILES, MANIFEST, SIGNATURE]:
        if (folder / name).exists():
            shutil.copyfile(folder / name, destination / name)
    return destination


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def named_once(model: nn.Module) -> dict[str, Tensor]:
    """State without the second names of shared tensors, which safetensors would refuse."""
    seen: dict[int, str] = {}
    return {
        name: value
        for name, value in model.state_dict(keep_vars=True).items()
        if seen.setdefault(id(value), name) == name
    }


def build_model(config: Mapping[str, Any]) -> nn.Module:
    """The network that a `config.json` names, for weights that will be loaded."""
    if "schema" in config:
        return create_generator(config["model"], config["schema"])
    return create(config["model"], tuple(config["shape"]), len(config["classes"]))


def _build(config: Mapping[str, Any], folder: Path, given: nn.Module | None) -> nn.Module:
    try:
        name, shape, n_classes = config["model"], tuple(config["shape"]), len(config["classes"])
    except (KeyError, TypeError):
        raise InputError(
            "corrupt config.json", got=folder, expected="model, shape, classes"
        ) from None
    if given is not None:
        inside = has_own_classifier(name)
        return with_own_classifier(name, shape, n_classes, given) if inside else given
    if name == CUSTOM:
        raise InputError(
            "this release was trained on a user's own model",
            fix="pass it: privet.load(folder, model=MyModel())",
        )
    return build_model(config)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The released tensors; a broken file is bad input."""
    try:
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise InputError("file not found", got=path) from None
    except safetensors.SafetensorError as error:
        raise InputError(
            "corrupt weights", got=f"{path}: {error}", fix="restore the file"
        ) from None
