"""Certificates of a release by the noise that it was trained with.

The card of such a release names the settings of its noise; so whoever certifies it need not say
them again.

    privet.certify(release, x, y, noise=own_noise(release))      the most that holds
    published_sizes(release, x)                                  the rule of PixelDP's paper

Redistributed noise (SecureSGD) is certified at its least deviation s, the same in every feature,
which is what `own_noise` draws. Where someone predicts with the redistributed noise itself, of
deviations s_i >= s, the certificate by s holds for that classifier, too: N(0, s_i^2) is the sum of
independent N(0, s^2) and N(0, s_i^2 - s^2), and to add the latter is post-processing of the former.
"""

from dataclasses import dataclass, fields
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from privet.certification import (
    Gaussian,
    HiddenGaussian,
    HiddenLaplace,
    Laplace,
    PublishedSize,
    SmoothingNoise,
    pixeldp_gaussian,
    pixeldp_laplace,
    predict,
)
from privet.certification.hidden import takes_hidden_noise
from privet.errors import InputError
from privet.models.published_noised import Noised
from privet.privacy.confidence import lower_bound, upper_bound
from privet.release import Release
from privet.training.noise_layer import NoiseLayerSettings
from privet.training.pixeldp import PixelDPSettings
from privet.training.published.securesgd import PublishedSecureSGD
from privet.training.securesgd import SecureSGDSettings

SETTINGS: Final[dict[tuple[str, str], type[Any]]] = {
    ("pixeldp", "none"): PixelDPSettings,
    ("securesgd", "sound"): SecureSGDSettings,
    ("securesgd", "paper"): PublishedSecureSGD,
}


@final
@dataclass(frozen=True, kw_only=True)
class PublishedCertificate:
    """Of one input: the class with most votes, and what PixelDP's rule says of it."""

    prediction: int
    size: PublishedSize


def own_noise(release: Release) -> SmoothingNoise:
    """The noise that the release was trained with, as `certify` and `predict` want it.

    That of a noise layer, or of the settings `input_noise` and `hidden_noise` of any method, or the
    `sigma` of a denoiser: on the input, also where it was trained with noise in a layer.
    """
    if _kind_of(release) is None:
        return _by_settings(release)
    settings = _noise_settings(release)
    gaussian, scale = settings.noise_kind == "gaussian", settings.noise_scale
    if not settings.noise_place:
        return Gaussian(scale) if gaussian else Laplace(scale)
    if gaussian:
        return HiddenGaussian(scale, input_scale=settings.input_noise)
    if settings.input_noise:
        raise InputError(
            "noise that has no certificate",
            got=f"Laplace noise inside, Gaussian noise {settings.input_noise:g} on the input",
            fix="--noise laplace --hidden-scale for the first alone",
        )
    return HiddenLaplace(scale)


def _by_settings(release: Release) -> SmoothingNoise:
    if isinstance(release.model, Noised):
        raise InputError(
            "noise that was drawn once and is a part of the network",
            got=f"'{release.trust['method']}' as published",
            fix="privet.certification.verified_inference has its certificate; or say --scale",
        )
    config = release.trust["provenance"]["config"]
    on_input = float(config.get("sigma") or config.get("input_noise") or 0.0)
    hidden = float(config.get("hidden_noise") or 0.0)
    if hidden:
        return HiddenGaussian(hidden, input_scale=on_input)
    if on_input:
        return Gaussian(on_input)
    inside = takes_hidden_noise(release.model, tuple(release.config["shape"]))
    raise InputError(
        "a release that was trained without noise on its inputs",
        got=f"'{release.trust['method']}', input_noise 0",
        fix=f"say the noise: --scale S{', or --hidden-scale S' if inside else ''};"
        " its radii will be small",
    )


def published_sizes(
    release: Release,
    x: Tensor | ArrayLike,
    *,
    alpha: float = 0.001,
    n: int = 10_000,
    batch: int = 1000,
    seed: int | None = None,
) -> list[PublishedCertificate]:
    """The sizes that PixelDP's rule certifies, in the norm of the noise; 0 for none.

    Guarantee: for each input, the size is wrong with probability at most alpha. Proof: bounds of
    the probabilities of all K classes hold together (2 K of them, each at alpha / 2K), whichever
    class has the most votes; `certification.published` has the rest. The layer's sensitivity is
    bounded anew, from the released weights.

    Args:
        release: trained by `pixeldp` or `securesgd`.
        x: inputs in [0, 1].
        alpha: chance that an input's size is wrong.
        n: votes for each input.
        batch: noisy copies in a forward batch.
        seed: of the noise, for tests.
    """
    settings = _noise_settings(release)
    noise = own_noise(release)
    found = predict(release, x, noise=noise, alpha=alpha, n=n, batch=batch, seed=seed)
    votes = found.votes[:, :-1]
    level = alpha / (2 * votes.shape[1])
    change = float(found.noise.details.get("sensitivity", 1.0))

    def certified(counts: NDArray[np.int64]) -> PublishedCertificate:
        top = int(counts.argmax())
        lower = float(lower_bound(counts[top], n, level))
        upper = float(upper_bound(np.delete(counts, top).max(), n, level))
        scale = settings.noise_scale
        if settings.noise_kind == "laplace":
            size = pixeldp_laplace(lower, upper, scale=scale, change=change)
        else:
            delta = settings.robust_delta
            size = pixeldp_gaussian(lower, upper, sigma=scale, change=change, delta=delta)
        return PublishedCertificate(prediction=top, size=size)

    return [certified(counts) for counts in votes]


def _noise_settings(release: Release) -> NoiseLayerSettings:
    """What the card says that the run was asked for."""
    kind = _kind_of(release)
    if kind is None:
        raise InputError(
            "a release that was trained without a layer of noise",
            got=f"'{release.trust['method']}'",
            expected="one of pixeldp or securesgd",
            fix="privet.certify, by any noise",
        )
    names = {field.name for field in fields(kind)}
    config = release.trust["provenance"]["config"]
    settings: NoiseLayerSettings = kind(**{k: v for k, v in config.items() if k in names})
    return settings


def _kind_of(release: Release) -> type[Any] | None:
    return SETTINGS.get((release.trust["method"], release.trust["analysis"]))
