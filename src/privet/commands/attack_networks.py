"""Networks that are trained for an attack: `privet attack RELEASE --attacks ain --out OUT`.

A network is kept as a release in OUT/ain. One that is there already is used again, one that was
killed on the way goes on; one for something else is refused.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from privet.errors import InputError

if TYPE_CHECKING:
    from privet.data.dataset import Dataset
    from privet.training.run_folder import RunFolder

Watch = Callable[[Any], None]


@final
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a network is trained for.

    Attributes:
        classifier: folder of the release that is attacked.
        norm, sizes: of the attack.
        target: class to reach, if any.
        epochs: None for the method's own.
        device: where to train.
    """

    classifier: Path
    norm: str
    sizes: Sequence[float]
    target: str | None
    epochs: float | None
    device: str

    def settings(self, method: str) -> dict[str, Any]:
        """Of `privet.train`."""
        bounds = {
            "ain": ",".join(map(str, self.sizes)),
            "advgan": str(max(self.sizes)),  # it learns one, and is cut off at others
        }
        asked = {"bounds": bounds.get(method), "target": self.target, "epochs": self.epochs}
        given = {name: value for name, value in asked.items() if value is not None}
        return given | {"classifier": str(self.classifier.resolve()), "device": self.device}


def with_networks(
    names: Sequence[str],
    wanted: Wanted,
    data: "Dataset",
    reference: dict[str, str | None],
    folder: Path | None,
    watch: Watch | None,
) -> list[str]:
    """The attacks, with a folder in the place of each that needs a network."""
    from privet.attacks.generated import METHODS

    needed = [name for name in names if name in METHODS]
    for name in needed:
        _require_trainable(name, wanted, folder)
    made = {
        name: str(_trained(name, wanted, data, reference, (folder or Path()) / name, watch))
        for name in needed
    }
    return [made.get(name, name) for name in names]


def _require_trainable(name: str, wanted: Wanted, folder: Path | None) -> None:
    """Before anything is trained: refuse what could not be used in the end."""
    from privet.attacks.generated import Generated

    if folder is None:
        raise InputError(
            f"{name} needs a network, which is kept",
            got="no --out",
            fix=f"--out FOLDER; or name one that is there: --attacks runs/{name}",
        )
    if wanted.norm not in Generated.norms:
        expected = f"one of {', '.join(Generated.norms)}"
        raise InputError(f"{name} does not work in this norm", got=wanted.norm, expected=expected)
    if not wanted.sizes or not all(0 < size < math.inf for size in wanted.sizes):
        given = ",".join(map(str, wanted.sizes))
        raise InputError("bad sizes of attacks", got=f"'{given}'", expected="finite, above 0")


def _trained(
    method: str,
    wanted: Wanted,
    data: "Dataset",
    reference: dict[str, str | None],
    folder: Path,
    watch: Watch | None,
) -> Path:
    import privet
    from privet.training.registry import find_method
    from privet.training.run_folder import RunFolder

    run = RunFolder(folder)
    if run.is_saved or run.settings.exists():
        _require_same(method, wanted, data, run)
    if run.settings.exists() and (run.checkpoint.exists() or not run.is_saved):
        find_method(method).under(None).resume(folder, data, watch=watch)
    elif not run.is_saved:
        settings = wanted.settings(method)
        privet.train(method, data, out=folder, watch=watch, reference=reference, **settings)
    return folder


def _require_same(method: str, wanted: Wanted, data: "Dataset", run: "RunFolder") -> None:
    """Refuse a network that is there already, or half, and was trained for something else."""
    then, now = _settings_of(run), wanted.settings(method)
    same = {
        "method": then.get("method") == method,
        "data": then.get("data", data.name) == data.name,
        "classifier": then.get("classifier_digest") == _digest(wanted.classifier),
        "sizes": "bounds" not in now or _numbers(then.get("bounds")) == _numbers(now["bounds"]),
        "target": then.get("target") == wanted.target,
        "epochs": wanted.epochs in (None, then.get("epochs")),
    }
    differing = [what for what, is_same in same.items() if not is_same]
    if differing:
        raise InputError(
            f"the network that is there differs in its {differing[0]}",
            got=run.folder,
            fix=f"choose another --out, or name it: --attacks {run.folder}",
        )


def _settings_of(run: "RunFolder") -> Mapping[str, Any]:
    """What a finished run was trained with, or an unfinished one, which checks its data itself."""
    from privet.files import read_json

    if not run.is_saved:
        begun = read_json(run.settings)
        return {**(begun.get("settings") or {}), "method": begun.get("method")}
    card = read_json(run.folder / "trust.json")
    facts = {"method": card["method"], "data": card["data"]["name"]}
    return {**card["provenance"]["config"], **facts}


def _digest(classifier: Path) -> str:
    from privet.engine.fixed_parts import digest_of
    from privet.models.fixed_classifier import FixedClassifier
    from privet.release import Release, named_once

    return digest_of(named_once(FixedClassifier(Release.load(classifier).model)))


def _numbers(bounds: str | None) -> set[float]:
    return {float(bound) for bound in (bounds or "").split(",") if bound}
