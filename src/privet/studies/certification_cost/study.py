"""The study: how many votes each mode needs for the same certificates, and how fast votes come."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor

from privet.certification import Certificates, Gaussian, certify
from privet.certification.stopping import TOLERANCE, make_rule
from privet.classifiers import Classifier
from privet.studies.certification_cost.cohen import COUNTERS, certify_one

GRID: Final = 0.05  # of radii at which certified accuracies are compared, in sigma
OURS: Final = "privet"

Watch = Callable[[str], None]


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is certified, and how.

    Attributes:
        sigma: of the Gaussian noise.
        alpha: of each certificate.
        n0: votes that choose the class.
        n: most votes that estimate its probability.
        batch: noisy copies in a forward batch; `cohen_batch` for the yardstick.
        precision: of Privet's forward passes; the yardstick runs in float32.
    """

    sigma: float
    alpha: float = 0.001
    n0: int = 200
    n: int = 100_000
    batch: int = 1000
    cohen_batch: int = 1000
    precision: str = "float32"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """One classifier, its images and true classes, and the terms."""

    classifier: Classifier
    x: Tensor
    y: Tensor
    terms: Terms
    watch: Watch = lambda _: None

    def votes(self, radii: list[float]) -> dict[str, Any]:
        """Votes and certified accuracy of each mode against the reference; radii in sigma."""
        self._require_provable(radii)
        self.watch("reference")
        reference, seconds = self._timed(reference=True)
        rows = []
        for radius in radii:
            for mode in ("decision", "curve"):
                self.watch(f"{mode}, radius {radius:g} sigma")
                found, took = self._timed(mode=mode, radius=radius * self.terms.sigma)
                rows.append({
                    "mode": mode,
                    "radius_in_sigma": radius,
                    "votes": int(found.samples.sum()),
                    "times_fewer": float(reference.samples.sum() / found.samples.sum()),
                    "points_lost": 100 * self._lost(reference, found, radius, mode),
                    "certified_accuracy": self._accuracy(found, radius),
                    "reference_accuracy": self._accuracy(reference, radius),
                    "seconds": took,
                })  # fmt: skip
        images = len(self.x)
        return {
            "images": images,
            "reference_votes": int(reference.samples.sum()),
            "reference_seconds": seconds,
            "modes": rows,
            "curve": [
                {"radius": float(r), "accuracy": self._accuracy(reference, r / self.terms.sigma)}
                for r in np.arange(0, 4 * self.terms.sigma, self.terms.sigma / 4)
            ],
        }

    def pace(self, images: int, rounds: int) -> list[dict[str, Any]]:
        """Images in a minute at equal n: Privet on all of them at once, the yardstick on a few."""
        terms = self.terms
        few = max(1, images // 10)
        contestants: dict[str, Callable[[], int]] = {OURS: partial(self._all_at_once, images)}
        for name in COUNTERS:
            contestants[f"Cohen's loop, counted {name}"] = partial(
                self._one_after_another, few, name
            )
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(rounds + 1):  # the first round warms up
            for name, go in contestants.items():
                self.watch(f"pace: {name}")
                seconds, done = _clock(go, self.classifier.device)
                if turn:
                    taken[name].append(60.0 * done / seconds)
        ours = float(np.median(taken[OURS]))
        return [
            {
                "contestant": name,
                "images_per_minute": float(np.median(paces)),
                "rounds": paces,
                "privet_times_faster": ours / float(np.median(paces)),
                "batch": terms.batch if name == OURS else terms.cohen_batch,
                "precision": terms.precision if name == OURS else "float32",
            }
            for name, paces in taken.items()
        ]

    def _require_provable(self, radii: list[float]) -> None:
        """Refuse a radius that a decision cannot prove now, not after the reference."""
        noise = Gaussian(self.terms.sigma)
        for radius in radii:
            make_rule(
                "decision", noise, n=self.terms.n, alpha=self.terms.alpha,
                radius=radius * noise.sigma, tolerance=TOLERANCE, reference=False,
            )  # fmt: skip

    def _all_at_once(self, images: int) -> int:
        self._certify(images, reference=True)
        return min(images, len(self.x))

    def _one_after_another(self, images: int, counter: str) -> int:
        t = self.terms
        for x in self.x[:images]:
            certify_one(
                self.classifier, x, sigma=t.sigma, alpha=t.alpha, n0=t.n0, n=t.n,
                batch=t.cohen_batch, count=COUNTERS[counter],
            )  # fmt: skip
        return min(images, len(self.x))

    def _certify(self, images: int | None = None, **how: Any) -> Certificates:
        t = self.terms
        return certify(
            self.classifier, self.x[:images], self.y[:images], noise=Gaussian(t.sigma),
            alpha=t.alpha, n0=t.n0, n=t.n, batch=t.batch, precision=t.precision, **how,
        )  # fmt: skip

    def _timed(self, **how: Any) -> tuple[Certificates, float]:
        started = time.perf_counter()
        found = self._certify(**how)
        return found, time.perf_counter() - started

    def _accuracy(self, found: Certificates, radius: float) -> float:
        return float(found.certified_accuracy([radius * self.terms.sigma])[0])

    def _lost(
        self, reference: Certificates, found: Certificates, radius: float, mode: str
    ) -> float:
        """The most certified accuracy lost: at the radius, or up to it where a curve is asked."""
        radii = np.arange(0.0, radius + GRID / 2, GRID) if mode == "curve" else np.array([radius])
        at = list(radii * self.terms.sigma)
        return float((reference.certified_accuracy(at) - found.certified_accuracy(at)).max())


def _clock(go: Callable[[], int], device: torch.device) -> tuple[float, int]:
    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finish()
    started = time.perf_counter()
    done = go()
    finish()
    return time.perf_counter() - started, done
