"""The noise that the options of `privet certify` ask for; refuses what does not go together."""

import math
from typing import TYPE_CHECKING

from privet.errors import InputError

if TYPE_CHECKING:
    from privet.certification import SmoothingNoise
    from privet.release import Release

OWN = "own"


def noise_asked(
    name: str,
    scale: float,
    grid: int | None,
    hidden_scale: float | None,
    layer: int | None,
    *,
    of: "Release",
) -> "SmoothingNoise":
    """The noise of `--noise`, `--scale`, `--grid`, `--hidden-scale` and `--layer`."""
    from privet.certification import GridGaussian, HiddenGaussian, HiddenLaplace, make_noise

    _require_name(name)
    if name == OWN:
        from privet.training.own_noise import own_noise

        _require_bare(scale, grid, hidden_scale, layer)
        return own_noise(of)
    _require_scales(scale, hidden_scale)
    _require_together(name, scale, grid, hidden_scale, layer)
    if hidden_scale is not None:
        at = 1 if layer is None else layer
        if name == "laplace":
            return HiddenLaplace(hidden_scale, at)
        return HiddenGaussian(hidden_scale, at, input_scale=scale)
    return make_noise(name, scale) if grid is None else GridGaussian(scale, grid)


def _require_name(name: str) -> None:
    from privet.certification.smoothing_noise import NOISES

    if name not in (OWN, *NOISES):
        raise InputError(
            "unknown smoothing noise",
            got=f"'{name}'",
            expected=f"one of {', '.join(NOISES)}, {OWN}",
        )


def _require_bare(
    scale: float, grid: int | None, hidden_scale: float | None, layer: int | None
) -> None:
    if scale or not (grid is hidden_scale is layer is None):
        raise InputError(
            "noise of the release's own, and details of another",
            got="--noise own with --scale, --grid, --hidden-scale or --layer",
            fix="leave those out: the release knows them",
        )


def _require_scales(scale: float, hidden_scale: float | None) -> None:
    if not 0.0 <= scale < math.inf:
        raise InputError(
            "bad --scale", got=f"{scale:g}", expected="a positive, finite number", fix="try 0.25"
        )
    if hidden_scale is not None and not 0.0 < hidden_scale < math.inf:
        raise InputError(
            "bad --hidden-scale",
            got=f"{hidden_scale:g}",
            expected="a positive, finite number",
            fix="try 0.25, or leave it out",
        )


def _require_together(
    name: str, scale: float, grid: int | None, hidden_scale: float | None, layer: int | None
) -> None:
    if layer is not None and hidden_scale is None:
        raise InputError(
            "a layer without noise for it",
            got=f"--layer {layer} and no --hidden-scale",
            expected="both or neither",
            fix="say --hidden-scale, the noise after that layer",
        )
    if not scale and hidden_scale is None:
        raise InputError(
            "no noise to certify with",
            got="--scale 0 and no --hidden-scale",
            expected="one of them above 0",
            fix="try --noise own, the noise that the model was trained with, or --scale 0.25",
        )
    grids = grid is None or (name == "gaussian" and hidden_scale is None)
    layers = hidden_scale is None or name == "gaussian" or (name == "laplace" and not scale)
    if not (grids and layers):
        given = {"--scale": scale or None, "--grid": grid, "--hidden-scale": hidden_scale}
        options = " ".join(f"{option} {v:g}" for option, v in given.items() if v is not None)
        raise InputError(
            "noise that has no certificate",
            got=f"--noise {name} {options}",
            expected="--grid or --hidden-scale with gaussian; laplace with --hidden-scale alone",
            fix="leave one of them out",
        )
