"""The cells of the study: (contender, epsilon, seed), and what each is trained with.

There is one classifier for all of them, as in the paper: seeds tell contenders apart, not
classifiers. A denoiser that starts from the public one starts from that of its own seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from privet.data.dataset import Dataset
from privet.models.denoisers import create_denoiser, default_denoiser
from privet.studies.robust_private.cells import (
    folder_of,
    kept_settings,
    require_budgets,
    target_of,
    title_of,
)
from privet.studies.robust_private.choices import RESERVED, Choices
from privet.studies.robust_private.study import CELLS, RELEASE
from privet.studies.transdenoiser.contenders import (
    CLASSIFIER,
    CONTENDERS,
    PUBLIC_DENOISER,
    PUBLIC_HALF,
    Contender,
)
from privet.training.recipes import settings_of

CLASSIFIER_SEED: Final = 0
OWN: Final = {
    **RESERVED,
    "sigma": "--sigma",
    "input_noise": "--sigma",
    "ablation": "--contenders paper-nodp, ...",
    "slices": "--contenders td-sliced",
    "classifier": "it is trained by the study: --set classifier.model=cnn",
    "classifier_weights": "",
    "public_classifier": "",
    "private_classifier": "",
    "start": "--contenders td-start",
    "public_start": "",
}


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training; `settings` is an object of the variant's own class."""

    contender: Contender
    epsilon: float | None
    seed: int
    settings: Any

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_of(self.contender.name, self)

    @property
    def title(self) -> str:
        """For a progress bar."""
        return title_of(self)

    @property
    def needs(self) -> tuple[str, ...]:
        """The classifier behind it, and what it starts from."""
        return tuple(self._others.values())

    @property
    def _others(self) -> dict[str, str]:
        """Names of cells, by the settings that hold their folders."""
        folders = {name: getattr(self.settings, name, None) for name in ("classifier", "start")}
        return {name: Path(one).parent.name for name, one in folders.items() if one is not None}

    def asked(self, data: Dataset) -> dict[str, Any]:
        """What decides on the training; where it runs, and where other cells lie, does not."""
        settings = kept_settings(self.settings) | self._others
        who = {"method": self.contender.method, "analysis": self.contender.analysis}
        return {"data": data.name, **who, "settings": settings}


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What holds for all cells; `folder` is that of the study."""

    folder: Path
    data: str
    choices: Choices
    epsilons: Sequence[float]
    delta: float
    seeds: Sequence[int]
    sigma: float
    device: str


def all_cells(
    taking_part: Sequence[Contender], terms: Terms, halves: dict[str, Dataset]
) -> list[Cell]:
    """Every cell, those first that others need; their settings are checked, as far as can be."""
    require_budgets(terms.epsilons, terms.delta, terms.seeds)
    named = {one.name: one.options for one in taking_part}
    terms.choices.require_known(named, set(CONTENDERS) - set(named), OWN)
    cells = [
        Cell(
            contender=one,
            epsilon=epsilon,
            seed=seed,
            settings=_settings(one, epsilon, seed, terms, halves[one.half]),
        )
        for one in taking_part
        for epsilon in (terms.epsilons if one.target else (None,))
        for seed in (terms.seeds if one.name != CLASSIFIER else (CLASSIFIER_SEED,))
    ]
    for cell in cells:
        _require_buildable(cell, halves[cell.contender.half])
    return cells


def _settings(one: Contender, epsilon: float | None, seed: int, terms: Terms, data: Dataset) -> Any:
    given = {**one.usual, **terms.choices.of(one.name, epsilon, one.options)}
    given = settings_of(given.get("recipe"), given, data.nominal_size) | given
    target = target_of(one.variant, epsilon, terms.delta)
    ours = {"init_seed": seed, "device": terms.device, **_noise(one, terms)}
    return one.variant.settings(
        **{**given, **one.own, **target, **ours, **_others(one, seed, terms)}
    )


def _noise(one: Contender, terms: Terms) -> dict[str, float]:
    """The noise that it is trained under."""
    if one.name == "dpcert":
        return {"input_noise": terms.sigma}
    if one.behind and one.own.get("ablation") != "inp_0.1":
        return {"sigma": terms.sigma}
    return {}


def _others(one: Contender, seed: int, terms: Terms) -> dict[str, str]:
    """The cells that it needs: the classifier behind it, and the denoiser that it starts from."""
    if not one.behind:
        return {}
    public = f"trained on {terms.data}/{PUBLIC_HALF}, which this study declares public"
    found = {"classifier": _release_of(CLASSIFIER, CLASSIFIER_SEED, terms)}
    if not one.own.get("private_classifier"):
        found["public_classifier"] = public
    if one.starts:
        found |= {"start": _release_of(PUBLIC_DENOISER, seed, terms), "public_start": public}
    return found


def _release_of(contender: str, seed: int, terms: Terms) -> str:
    return str(terms.folder.resolve() / CELLS / f"{contender}-seed{seed}" / RELEASE)


def _require_buildable(cell: Cell, data: Dataset) -> None:
    """Refuse networks that cannot be; the classifier is not there yet, so denoisers by name."""
    if not cell.contender.behind:
        cell.settings.filled_for(data).network(data)
    else:
        create_denoiser(cell.settings.denoiser or default_denoiser(data.shape), data.shape)
