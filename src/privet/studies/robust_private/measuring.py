"""What is measured on a release: attacks, certificates, a paper's own certificate, an audit.

Each measurement answers with a record, and with arrays that have one entry for each image, from
which the record can be computed again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from privet.attacks import attack
from privet.audits.registry import subjects
from privet.audits.twin import audit
from privet.certification import Certificates, certify
from privet.classifiers import Classifier, open_classifier
from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.privacy.precision import FULL
from privet.release import Release, add_measured, require_addable
from privet.studies.robust_private.protocol import Protocol, chosen_examples
from privet.studies.robust_private.published import published_certificate

CONFIDENCE: Final = 0.95
POINTS: Final = 41  # of a curve

Watch = Callable[[float], None]
Arrays = dict[str, NDArray[Any]]
Measured = tuple[dict[str, Any], Arrays]
Stages = Mapping[str, tuple[dict[str, Any], Callable[[Path, Watch], Measured]]]


@final
@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """One data set, one protocol, one device for all; `canaries` are those of audits."""

    data: Dataset
    protocol: Protocol
    device: torch.device
    auditing: bool = False
    canaries: int | None = None

    def stages(self) -> Stages:
        """Each measurement by name: what decides on it, and how it is taken of a folder."""
        protocol = self.protocol
        found: dict[str, tuple[dict[str, Any], Callable[[Path, Watch], Measured]]] = {
            "attacks": (protocol.attacking, self.attacked),
            "certificates": (protocol.certifying, self.certified),
            "published_certificate": (
                {"sizes": list(protocol.sizes), **protocol.certifying},
                self.as_published,
            ),
        }
        if self.auditing:
            asked = {"canaries": self.canaries, "confidence": CONFIDENCE}
            found["audit"] = (asked, self.audited)
        return found

    def attacked(self, folder: Path, watch: Watch) -> Measured:
        """Which images hold, against each attack and against all of them."""
        return under_attack(self._opened(folder), self.data, self.protocol, watch)

    def certified(self, folder: Path, watch: Watch) -> Measured:
        """Certificates by Gaussian smoothing; a reason where the network mixes its inputs."""
        return by_smoothing(self._opened(folder), self.data, self.protocol, watch)

    def as_published(self, folder: Path, watch: Watch) -> Measured:
        """The method's own certificate, where it has one."""
        p = self.protocol
        x, y = chosen_examples(self.data, p.certified_examples or p.examples)
        release = Release.load(folder)
        release.model.to(self.device)
        found = published_certificate(release, x, y, sizes=p.sizes, draws=p.n)
        watch(1.0)
        return {"why": "the method has none"} if found is None else found, {}

    def audited(self, folder: Path, watch: Watch) -> Measured:
        """Lower bounds onto the card, unless they are there; a reason where there are none."""
        release = Release.load(folder)
        if not release.trust.get("audit"):
            try:
                measured = require_addable(folder)
                found = audit(
                    release,
                    canaries=self.canaries,
                    confidence=CONFIDENCE,
                    device=str(self.device),
                    watch=lambda trainer: watch(trainer.next_step / trainer.plan.steps),
                )
            except InputError as error:
                reason = str(error).partition(", expected")[0]  # how to mend it is not the study's
                return {"why": f"{reason}{_by_name(release.trust)}"}, {}
            add_measured(folder, "audit", found.rows(), of=measured)
        return {"rows": list(Release.load(folder).trust["audit"])}, {}

    def _opened(self, folder: Path) -> Classifier:
        return open_classifier(Release.load(folder), device=self.device)


def under_attack(
    classifier: Classifier, data: Dataset, protocol: Protocol, watch: Watch
) -> Measured:
    """Which test images hold, against each attack and against all of them."""
    x, y = chosen_examples(data, protocol.examples)
    attacks = protocol.configured

    def progress(name: str, done: int, of: int) -> None:
        watch((protocol.attacks.index(name) + done / of) / len(attacks))

    result = attack(
        attacks, classifier, x, y,
        norm=protocol.norm, sizes=protocol.sizes, batch=protocol.batch, watch=progress,
    )  # fmt: skip
    record = {**result.to_json(), "random_classifier": classifier.random}
    holds = np.stack([result.holds[name].numpy() for name in result.attacks])
    return record, {"right": result.right.numpy(), "holds": holds}


def by_smoothing(
    classifier: Classifier, data: Dataset, protocol: Protocol, watch: Watch
) -> Measured:
    """Certificates of test images; a reason where the network mixes its inputs."""
    p = protocol
    x, y = chosen_examples(data, p.certified_examples or p.examples)
    try:
        found = certify(
            classifier, x, y,
            noise=p.noise, alpha=p.alpha, n0=p.n0, n=p.n, reference=True, batch=p.batch,
            precision=p.precision, channels_last=p.precision != FULL.name,  # as tensor cores want
            watch=lambda tally: watch(float(tally.done.mean())),
        )  # fmt: skip
    except InputError as error:
        return {"why": str(error)}, {}
    record = found.summary(list(p.radii)) | {"curve": _curve(found, p.reach)}
    return record, {"radius": found.radius, "correct": found.correct}


def _by_name(trust: Mapping[str, Any]) -> str:
    """Where the flaws of a paper's mechanism are shown instead."""
    shown = trust["analysis"] == "paper" and trust["method"] in subjects()
    return f"; or its mechanism: privet audit mechanism {trust['method']}" if shown else ""


def _curve(found: Certificates, reach: float) -> list[dict[str, float]]:
    """Certified accuracy at even radii, up to what the votes can prove."""
    radii = [float(r) for r in np.linspace(0.0, reach, POINTS)]
    shares = found.certified_accuracy(radii)
    return [{"radius": r, "accuracy": float(a)} for r, a in zip(radii, shares, strict=True)]
