"""Settings that were found to work well, by name, and what they were tuned on.

The recipes were tuned on a part of the training records of the data set that each one names, and
that search was not charged to anyone: on that data set a release says `tuning: uncharged`. On any
other data they are as good as public knowledge.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from privet.data.catalogue import share_records
from privet.engine.tuned import DECLARED, Tuning
from privet.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of `dpsgd` and of what runs on its engine, and where they come from."""

    name: str
    summary: str
    tuned_on: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_SCATTERED: Final = {
    "model": "scatter-linear",
    "batch": 4096,
    "epochs": 40,
    "clip_norm": 0.1,
    "ema": 0.98,
}

_NATURAL: Final = _SCATTERED | {"model": "scatter-natural", "batch": 8192, "learning_rate": 1.0}

_ROBUST: Final = {"batch": 4096, "clip_norm": 0.1, "ema": 0.98, "adversarial": "none"}

RECIPES: Final[Mapping[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="mnist",
            summary="linear on scattering features, tuned on MNIST at epsilon 3",
            tuned_on="mnist",
            settings=_SCATTERED | {"batch": 8192, "epochs": 100, "learning_rate": 1.5},
        ),
        Recipe(
            name="mnist-small-epsilon",
            summary="the same, tuned at epsilon 1",
            tuned_on="mnist",
            settings=_SCATTERED | {"learning_rate": 0.25},
        ),
        Recipe(
            name="fashion-mnist",
            summary="linear on scattering features, tuned on Fashion-MNIST at epsilon 3",
            tuned_on="fashion-mnist",
            settings=_SCATTERED | {"learning_rate": 2.0},
        ),
        Recipe(
            name="cifar10",
            summary="two convolutions on scattering features, tuned on CIFAR-10 at epsilon 3",
            tuned_on="cifar10",
            settings=_NATURAL | {"epochs": 100},
        ),
        Recipe(
            name="cifar10-large-epsilon",
            summary="the same, tuned at epsilon 8",
            tuned_on="cifar10",
            settings=_NATURAL | {"epochs": 200},
        ),
        Recipe(
            name="mnist-robust",
            summary="against linf attacks of size 0.1, tuned on MNIST at epsilon 1 and 2",
            tuned_on="mnist",
            settings=_ROBUST
            | {
                "model": "contrast-cnn",
                "epochs": 60,
                "learning_rate": 0.3,
                "adversarial": "madry",
                "adversarial_size": 0.1,
                "adversarial_steps": 5,
            },
        ),
        Recipe(
            name="mnist-robust-small-epsilon",
            summary="the same, tuned at epsilon 0.2",
            tuned_on="mnist",
            settings=_ROBUST | {"model": "contrast-scatter", "epochs": 20, "learning_rate": 0.1},
        ),
        Recipe(
            name="mnist-certified",
            summary="for certificates at noise 0.25 and l2 radius 0.5, tuned on MNIST at epsilon 1",
            tuned_on="mnist",
            settings=_ROBUST
            | {
                "model": "still-scatter",
                "epochs": 40,
                "learning_rate": 0.25,
                "input_noise": 0.25,
                "views": 8,
            },
        ),
    )
}


# Networks of which a part (a front, the law of first weights) was chosen on records of a data set.
TUNED_NETWORKS: Final = {
    "contrast-cnn": "mnist",
    "contrast-scatter": "mnist",
    "still-scatter": "mnist",
    "still-cnn": "mnist",
    **{f"har-wild-{width}": "hapt" for width in (32, 64, 128)},
}


def find_recipe(name: str) -> Recipe:
    """A recipe by name; an unknown one is bad input."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(name, RECIPES, n=1)
    raise InputError(
        "unknown recipe",
        got=f"'{name}'",
        expected=f"one of {', '.join(RECIPES)}",
        fix=f"did you mean '{near[0]}'?" if near else "see `privet recipes`",
    )


def settings_of(name: str | None, given: Collection[str], nominal_size: int) -> dict[str, Any]:
    """The settings of the recipe `name`, if any, that the user has not `given`."""
    if name is None:
        return {}
    recipe = find_recipe(name)
    left = {key: value for key, value in recipe.settings.items() if key not in given}
    if left.get("batch", 0) > nominal_size:
        raise InputError(
            f"the batch of recipe '{name}' is larger than the data",
            got=f"batch {left['batch']}, which was tuned on '{recipe.tuned_on}'",
            expected=f"1 to the nominal size {nominal_size}",
            fix=f"give a batch of your own, as in --batch {max(1, nominal_size // 5)}",
        )
    return left


def _overridden(recipe: Recipe, used: Mapping[str, Any]) -> str:
    """Which settings of the recipe the run did not take, and what it took."""
    changed = [
        f"{name} {used[name]}"
        for name, value in recipe.settings.items()
        if name in used and used[name] != value
    ]
    return f"; overridden: {', '.join(changed)}" if changed else ""


def tuning_of(recipe: str | None, data: str, used: Mapping[str, Any]) -> Tuning:
    """What a release of a run on `data` with the settings `used` says about their choice."""
    if recipe is None:
        return _tuning_of_network(str(used.get("model")), data)
    source, overridden = find_recipe(recipe).tuned_on, _overridden(find_recipe(recipe), used)
    if share_records(source, data):
        return Tuning(
            kind="uncharged",
            detail=f"recipe '{recipe}' was tuned on a part of these training records, at no charge"
            f"{overridden}",
        )
    return Tuning(kind="public", detail=f"recipe '{recipe}' was tuned on '{source}'{overridden}")


def _tuning_of_network(model: str, data: str) -> Tuning:
    if not share_records(TUNED_NETWORKS.get(model, ""), data):
        return DECLARED
    return Tuning(
        kind="uncharged",
        detail=f"a part of the network '{model}' was chosen on some of these records, at no charge",
    )
