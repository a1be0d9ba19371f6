"""One judge for all: nobody's own count of successes is used.

A perturbed input counts if it lies in ball and box, up to `SLACK`. An image holds if it is
classified rightly as it is (every ball contains it) and its perturbed input either does not count
or is classified rightly, too.
"""

from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor

from privet.attacks.geometry import norms
from privet.studies.attack_parity.contests import Contest
from privet.studies.attack_parity.network import Subject

SLACK: Final = 1e-5  # of the norm and of the box: rounding


@final
@dataclass(frozen=True, eq=False)
class Verdict:
    """On the inputs that one contestant returned.

    Attributes:
        holds: which images stay right at the contest's size.
        fooled: which are wrong, in the box, however far.
        distance: of each input from its image.
        outside: inputs that leave the box, or the ball that they were asked to stay in.
    """

    holds: Tensor
    fooled: Tensor
    distance: Tensor
    outside: int

    @property
    def robust_accuracy(self) -> float:
        """The share that holds."""
        return float(self.holds.double().mean())


def judge(subject: Subject, contest: Contest, found: Any) -> Verdict:
    """What these inputs are worth; `found` is an array or a tensor."""
    found = torch.as_tensor(found, dtype=subject.x.dtype).to(subject.x.device)
    if found.shape != subject.x.shape:
        raise ValueError(f"inputs of shape {tuple(found.shape)}, not {tuple(subject.x.shape)}")
    boxed = ((found >= -SLACK) & (found <= 1 + SLACK)).flatten(1).all(1)  # NaN is outside
    distance = norms(found - subject.x, contest.norm)
    near = distance <= contest.size + SLACK
    with torch.no_grad():
        right = subject.model(subject.x).argmax(1) == subject.y
        wrong_now = subject.model(found).argmax(1) != subject.y
    fooled = right & wrong_now & boxed
    allowed = boxed if contest.minimal else boxed & near
    return Verdict(right & ~(fooled & near), fooled, distance, int((~allowed).sum()))


def mean_norms(verdicts: dict[str, Verdict]) -> dict[str, float | None]:
    """Mean distance, over the images that all of them fooled: else who fails would look near."""
    if not verdicts:
        return {}
    common = torch.stack([verdict.fooled for verdict in verdicts.values()]).all(0)
    some = bool(common.any())
    return {
        name: float(verdict.distance[common].mean()) if some else None
        for name, verdict in verdicts.items()
    }
