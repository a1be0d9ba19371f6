"""What was certified: one row for each image, and the curve of certified accuracy."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from privet.certification.smoothing_noise import SmoothingNoise

ABSTAIN: Final = -1

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Certificates:
    """Certified predictions of a smoothed classifier.

    Guarantee: for each image, with probability at least 1 - alpha over the noise of this run, the
    smoothed classifier gives `prediction` on the whole ball of `radius` around the image, or the
    run abstained. Of m images at most alpha * m are expected to be wrong. It is about the smoothed
    classifier, the most probable class; a vote of finitely many draws may still differ from it.

    Attributes:
        label: the true class of each image.
        prediction: the certified class, or -1 (abstained).
        radius: in the norm of the noise; 0 where abstained.
        p_lower: the lower bound of the class's probability.
        samples: evaluations of the classifier, those of the selection included.
        noise: what smoothed.
        dimension: of one input, for other norms.
        terms: alpha, n0, n, mode and all else that was asked for.
    """

    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    radius: Floats
    p_lower: Floats
    samples: NDArray[np.int64]
    noise: SmoothingNoise
    dimension: int
    terms: dict[str, Any]

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the certified class is the true one; an abstention is an error."""
        return np.asarray(self.prediction == self.label)

    def radii(self, norm: str | None = None) -> Floats:
        """Radii, in another norm if asked for: l2/sqrt(d) and l1/d for linf."""
        if norm is None or norm == self.noise.norm:
            return self.radius
        convert = self.noise.in_norm
        return np.array([convert(norm, float(r), self.dimension) for r in self.radius])

    def certified_accuracy(self, radii: Sequence[float], norm: str | None = None) -> Floats:
        """The part of images that are right, certified at each of these radii."""
        reached = np.where(self.correct, self.radii(norm), -1.0)
        return np.array([float((reached >= r).sum()) / max(1, len(reached)) for r in radii])

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary for each image."""
        for i in range(len(self.label)):
            yield {
                "image": i,
                "label": int(self.label[i]),
                "prediction": int(self.prediction[i]),
                "correct": bool(self.correct[i]),
                "radius": float(self.radius[i]),
                "p_lower": float(self.p_lower[i]),
                "samples": int(self.samples[i]),
            }

    def to_csv(self, path: str | Path) -> None:
        """Write the rows."""
        names = ["image", "label", "prediction", "correct", "radius", "p_lower", "samples"]
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(self.rows())

    def summary(self, radii: Sequence[float], norm: str | None = None) -> dict[str, Any]:
        """What a trust card or a table needs; JSON values only."""
        images = len(self.label)
        curve = self.certified_accuracy(radii, norm)
        return {
            "noise": self.noise.name,
            "scale": self.noise.scale,
            **self.noise.details,
            "norm": norm or self.noise.norm,
            "images": images,
            "abstained": int((self.prediction == ABSTAIN).sum()),
            "certified_accuracy": [
                {"radius": float(r), "accuracy": float(a)}
                for r, a in zip(radii, curve, strict=True)
            ],
            "samples": int(self.samples.sum()),
            **self.terms,
        }
