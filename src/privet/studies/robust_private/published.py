"""A paper's own certificate of its own network: the curve that it claims, and the correct one.

DPAL and StoBatch certify by the noise that they were trained with (`verified_inference`). Both
curves are of clean inputs: a certificate at an attacked input says nothing about attacks.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from privet.certification.verified_inference import Verified, verified
from privet.models.published_noised import Noised
from privet.release import Release
from privet.studies.robust_private.protocol import PAPERS_SCALE


def published_certificate(
    release: Release,
    x: Tensor,
    y: Tensor,
    *,
    sizes: Sequence[float],
    draws: int,
    seed: int | None = None,
) -> dict[str, Any] | None:
    """Certified accuracy by l-infinity size, as claimed and as it is; None without a claim.

    Args:
        release: of a method as published.
        x: inputs in [0, 1].
        y: their classes.
        sizes: for inputs in [0, 1].
        draws: of either noise for each input.
        seed: of the noise, for tests.
    """
    if not isinstance(release.model, Noised):
        return None
    by_draws = partial(verified, release, x, draws=draws, seed=seed)
    claims = [by_draws(attack=PAPERS_SCALE * size, analysis="paper") for size in sizes]
    sound = by_draws(attack=PAPERS_SCALE * sizes[0], analysis="sound")
    labels = y.numpy()
    return {
        "norm": "linf",
        "sizes": list(sizes),
        "images": len(labels),
        "draws": draws,
        "claimed": [_share(one, labels, size) for one, size in zip(claims, sizes, strict=True)],
        "correct": [_share(sound, labels, size) for size in sizes],
        "largest_correct_size": float(sound.unit_sizes.max(initial=0.0)),
        "gaps": list(dict.fromkeys(gap for one in claims for gap in one.gaps)),
    }


def _share(found: Verified, labels: Any, size: float) -> float:
    """Of inputs that are right and certified at this size, in [0, 1]."""
    return float(np.mean((found.labels == labels) & (found.unit_sizes >= size)))
