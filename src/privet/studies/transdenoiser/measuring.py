"""What is measured on a release, all of it on the public test images.

| stage          | whom the attacker knows               | what is judged                         |
|----------------|---------------------------------------|----------------------------------------|
| `crafted`      | the classifier alone, as in the paper;| one pass of the whole, with fresh noise|
|                | of others, the whole without noise    | on the image                           |
| `attacks`      | the whole and its noise: gradients are| the majority of fresh passes, which is |
|                | means of `eot` draws                  | what smoothing predicts                |
| `certificates` | nobody: they hold for all             | the smoothed classifier                |

The noise is Gaussian, the same for all, but for who was trained under another (`paper-inp_0.1`).
The attackers of `crafted` take all their steps, each a tenth of the norm by default, and do not
stop where the classifier gives in: a denoiser in front of it might undo a small perturbation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import torch
from torch import Tensor

from privet.attacks.attack import Attack
from privet.attacks.registry import create
from privet.classifiers import Classifier, open_classifier
from privet.classifiers.noisy import noisy
from privet.data.dataset import Dataset
from privet.models.denoised import Denoised
from privet.release import Release
from privet.studies.robust_private.measuring import (
    Measured,
    Stages,
    Watch,
    by_smoothing,
    under_attack,
)
from privet.studies.robust_private.protocol import Protocol, chosen_examples, that_it_has

STEPS: Final = 10


@final
@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """One data set, one protocol, one device for all."""

    data: Dataset
    protocol: Protocol
    device: torch.device

    def stages(self) -> Stages:
        """Each measurement by name: what decides on it, and how it is taken of a folder."""
        p = self.protocol
        attacking = {**p.attacking, "scale": p.scale}
        alone = {k: v for k, v in attacking.items() if k not in ("eot", "restarts")}
        return {
            "crafted": (alone, self.crafted),
            "attacks": (attacking, self.attacked),
            "certificates": (p.certifying, self.certified),
        }

    def crafted(self, folder: Path, watch: Watch) -> Measured:
        """Which images are right in one noisy pass, after attacks on the classifier alone."""
        release, p = Release.load(folder), self._protocol(folder)
        whole = open_classifier(release, device=self.device)
        x, y = whole.require(*chosen_examples(self.data, p.examples))
        judge = self._in_parts(noisy(whole, p.scale).labels)
        aimed_at = replace(
            _known_to_attacker(release, whole), random=True
        )  # so all steps are taken
        holds = torch.zeros(len(p.attacks), len(p.sizes), len(x), dtype=torch.bool)
        for i, one in enumerate(self._fixed_steps()):
            for j, size in enumerate(p.sizes):
                attacker = _batched(one, aimed_at, size, p.batch)
                holds[i, j] = (judge(attacker(x, y)) == y).cpu()
                watch((i + (j + 1) / len(p.sizes)) / len(p.attacks))
        right = (judge(x) == y).cpu()
        record = {
            "sizes": list(p.sizes),
            "scale": p.scale,
            "quiet_accuracy": float((self._in_parts(whole.labels)(x) == y).float().mean()),
            "clean_accuracy": float(right.float().mean()),
            "attacks": [
                {"attack": name, "accuracy": held.float().mean(1).tolist()}
                for name, held in zip(p.attacks, holds, strict=True)
            ],
            "robust_accuracy": holds.all(0).float().mean(1).tolist(),
            "alone": aimed_at.name != whole.name,
        }
        return record, {"right": right.numpy(), "holds": holds.numpy()}

    def attacked(self, folder: Path, watch: Watch) -> Measured:
        """Which images the smoothed classifier holds, attacked through denoiser and noise."""
        p = self._protocol(folder)
        whole = open_classifier(Release.load(folder), device=self.device)
        return under_attack(noisy(whole, p.scale), self.data, p, watch)

    def certified(self, folder: Path, watch: Watch) -> Measured:
        """Certificates by Gaussian smoothing."""
        p = self._protocol(folder)
        whole = open_classifier(Release.load(folder), device=self.device)
        return by_smoothing(whole, self.data, p, watch)

    def _protocol(self, folder: Path) -> Protocol:
        """With the noise that a denoiser was trained for."""
        own = Release.load(folder).trust["provenance"]["config"].get("sigma")
        return self.protocol if own is None else replace(self.protocol, scale=own)

    def _fixed_steps(self) -> list[Attack]:
        steps = self.protocol.steps or STEPS
        given = {"steps": steps, "step": 1 / steps}
        norm = self.protocol.norm
        return [
            create(name, norm=norm, **that_it_has(name, given)) for name in self.protocol.attacks
        ]

    def _in_parts(self, labels: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.cat([labels(part) for part in torch.split(x, self.protocol.batch)])


def _known_to_attacker(release: Release, whole: Classifier) -> Classifier:
    """The classifier behind the denoiser; the whole where there is none."""
    if not isinstance(release.model, Denoised):
        return whole
    return open_classifier(release.model.classifier, shape=whole.shape, device=whole.device)


def _batched(
    one: Attack, victim: Classifier, size: float, batch: int
) -> Callable[[Tensor, Tensor], Tensor]:
    def attacker(x: Tensor, y: Tensor) -> Tensor:
        parts = zip(torch.split(x, batch), torch.split(y, batch), strict=True)
        return torch.cat([one(victim, images, labels, size=size) for images, labels in parts])

    return attacker
