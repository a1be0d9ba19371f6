"""AutoAttack: the customary yardstick of reports (Croce and Hein, ICML 2020), by `pyautoattack`.

| classifier | what runs, one after the other on what still holds |
|---|---|
| deterministic | APGD on cross entropy, targeted APGD on logits' ratio, targeted FAB, Square |
| the same, of fewer than four classes | APGD on cross entropy, targeted FAB, Square |
| random | APGD on cross entropy and on the ratio of logits, averaged over `eot` draws |

The package is not a part of Privet (`pip install privet[autoattack]`), and its own count of
successes is not used: what it returns is projected onto ball and box, scored by our code, and
judged like the inputs of any other attack.

Deviations: targets are the other classes where there are fewer than nine (five in l1); inputs that
are no images go in as strips of height one, and without Square, which needs five pixels each way;
draws of a random classifier are `eot`, not always 20.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import torch
from torch import Tensor

from privet.attacks.attack import WithinBall
from privet.attacks.geometry import Norm, moved, project
from privet.attacks.keeping import Best
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.errors import FaultyEnvironment, InputError

NAMES: Final[dict[Norm, str]] = {"linf": "Linf", "l2": "L2", "l1": "L1"}
TARGETS: Final[dict[Norm, int]] = {"linf": 9, "l2": 9, "l1": 5}
RATIO_NEEDS: Final = 4  # classes, for the targeted ratio of logits
SQUARE_NEEDS: Final = 5  # pixels, for its tiles


@final
@dataclass(frozen=True, kw_only=True)
class AutoAttack(WithinBall):
    """Four attacks without settings; slow, strong, and comparable with other people's reports.

    Attributes:
        queries: of Square, for each image.
    """

    queries: int = 5000

    name: ClassVar[str] = "autoattack"
    summary: ClassVar[str] = "the customary ensemble, by pyautoattack"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("queries")

    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        if goal.targeted:
            raise InputError("autoattack takes no targets", fix="use apgd-ce or apgd-dlr")
        rows = best.open()
        shape = x.shape[1:] if x.dim() == 4 else (1, 1, x[0].numel())
        images = x[rows].view(-1, *shape)
        with _own_draws(x.device):
            ensemble = self._ensemble(victim, x, size)
            found, _ = ensemble.run_standard_evaluation(
                images, goal.at(rows).labels, batch_size=len(rows)
            )
        tried = found.detach().nan_to_num(0.5).view(-1, *x.shape[1:]).to(x.dtype)
        tried = moved(x[rows], project(tried - x[rows], x[rows], size, self.norm))
        best.offer(rows, tried, victim.scores(tried))

    def _ensemble(self, victim: Victim, x: Tensor, size: float) -> Any:
        """The package's object, with attacks that fit the number of classes."""
        classes = victim.classifier.classes
        scores = _as_images(victim.classifier.scores, x.shape[1:])
        made = _package().AutoAttack(
            scores, norm=NAMES[self.norm], eps=size, seed=self.seed, device=x.device,
            version="rand" if victim.random else "standard",
        )  # fmt: skip
        made.apgd_targeted.n_target_classes = min(TARGETS[self.norm], classes - 1)
        made.fab.n_target_classes = min(9, classes - 1)
        made.square.n_queries = self.queries
        made.apgd.eot_iter = victim.draws
        unfit = {
            "apgd-t": classes < RATIO_NEEDS,
            "apgd-dlr": classes < RATIO_NEEDS - 1,
            "square": x.dim() != 4 or min(x.shape[2:]) < SQUARE_NEEDS,
        }
        made.attacks_to_run = [name for name in made.attacks_to_run if not unfit.get(name)]
        return made


def _package() -> Any:
    try:
        found = importlib.import_module("pyautoattack")
    except ModuleNotFoundError:
        raise FaultyEnvironment(
            "autoattack needs a package of its own", fix="pip install privet[autoattack]"
        ) from None
    # It tells its log what our table says better; its checks are ours (`masking`).
    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    return found


def _as_images(scores: Callable[[Tensor], Tensor], shape: torch.Size) -> Callable[[Tensor], Tensor]:
    # A copy: the package writes into the scores that it gets.
    return lambda images: scores(images.view(-1, *shape)).clone()


def _own_draws(device: torch.device) -> Any:
    """The package seeds PyTorch's own generators: they are put back."""
    devices = [device] if device.type == "cuda" else []
    return torch.random.fork_rng(devices=devices)
