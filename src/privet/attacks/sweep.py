"""Many attacks, many sizes, one call: `privet.attack(["fgsm", "pgd"], release, x, y, sizes=...)`.

Sizes run in ascending order. An image that an attack has fooled is not attacked by it again at
larger sizes, whose balls contain what was found; attacks for the smallest perturbation run once
for all sizes. A random classifier's successes may be luck, so there every size is attacked anew,
and what was found is judged by fresh draws until it is decided (`judging`); an image that stays
undecided counts as fallen.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from privet.attacks.attack import Attack, MinimumNorm, only_within
from privet.attacks.geometry import Norm
from privet.attacks.judging import ABOVE, BELOW, decided
from privet.attacks.masking import disagreements, iterative, survivors, unaveraged, vanished
from privet.attacks.registry import create, find_attack, settings_of
from privet.attacks.result import AttackResult
from privet.classifiers import Classifier, open_classifier
from privet.errors import InputError
from privet.release import Release

NO_CLASS: Final = -1  # of scores with a NaN
Watch = Callable[[str, int, int], None]


def attack(
    names: str | Attack | Sequence[str | Attack],
    source: Classifier | Release | str | Path,
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    *,
    norm: Norm = "linf",
    sizes: float | Sequence[float],
    target: ArrayLike | Tensor | None = None,
    steps: int | None = None,
    eot: int = 1,
    seed: int = 0,
    batch: int = 512,
    keep: bool = False,
    check: bool = True,
    watch: Watch | None = None,
) -> AttackResult:
    """Attack a classifier and say which images hold.

    Args:
        names: attacks by name (fgsm, ifgsm, mim, pgd, apgd-ce, apgd-dlr, cw, deepfool, square,
            autoattack), or configured ones; their norm must be the one below.
        source: a classifier, or a release or its folder.
        x: inputs in [0, 1]; those of a data set are `data.bounds.clamp_and_scale(data.test.x)`.
        y: true classes.
        norm: linf, l2 or l1.
        sizes: largest norms of perturbations, in units of x.
        target: classes to reach, one for each input or one for all; an image then holds unless it
            is taken for its target.
        steps: of ifgsm, mim, pgd and apgd; default: each one's own.
        eot: draws of a random classifier averaged in each gradient and check.
        seed: of random starts and moves.
        batch: images at a time.
        keep: whether to return the adversarial inputs, too.
        check: whether to look for masked gradients, which costs one more attack on 64 images.
        watch: called with the attack's name, how many images it has done, counted once for each
            size, and how many there are.
    """
    classifier = open_classifier(source)
    x, y = classifier.require(torch.as_tensor(x), _classes(y))
    chosen, ordered = _attacks(names, norm, steps, eot, seed), _ordered(sizes)
    if not len(x):
        raise InputError("nothing to attack", got="0 inputs", expected="at least one")
    goal = None if target is None else classifier.require(x, _for_all(_classes(target), x))[1]
    sweep = _Sweep(classifier, x, y, goal, ordered, batch, watch or (lambda *_: None))
    right = sweep.right(x)
    holds: dict[str, Tensor] = {}
    found: dict[str, Tensor | None] = {}
    for name, one in chosen.items():
        holds[name], found[name] = sweep.run(one, right, keep=keep)
    warnings = list(unaveraged(classifier, chosen))
    if check and target is None:
        warnings += _warnings(chosen, sweep, right, holds)
    return AttackResult(
        classifier=classifier.name,
        norm=norm,
        sizes=ordered,
        right=right.cpu(),
        holds={name: held.cpu() for name, held in holds.items()},
        settings={name: asdict(one) for name, one in chosen.items()},
        warnings=tuple(warnings),
        adversarials={k: v.cpu() for k, v in found.items() if v is not None} if keep else None,
    )


@dataclass(frozen=True, eq=False)
class _Sweep:
    """One classifier, one set of images, all sizes."""

    classifier: Classifier
    x: Tensor
    y: Tensor
    target: Tensor | None
    sizes: tuple[float, ...]
    batch: int
    watch: Watch

    def run(self, one: Attack, right: Tensor, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Which images hold at each size, and the inputs found."""
        held, now, found, inputs = [], right.clone(), [], self.x.clone()
        all_right = right.nonzero()[:, 0]
        if isinstance(one, MinimumNorm):
            nearest = self._batched(one, all_right, 0, one.closest)
        for place, size in enumerate(self.sizes):
            # Where success may be luck, those that have fallen are attacked again.
            rows = all_right if one.minimal or self.classifier.random else now.nonzero()[:, 0]
            inputs[rows] = (
                only_within(nearest, self.x[rows], size, one.norm)
                if one.minimal
                else self._batched(one, rows, place, partial(one, size=size))
            )
            now = now & ~self._fooled(inputs)
            held.append(now)
            found += [inputs.clone()] if keep else []
            self.watch(one.name, (place + 1) * len(self.x), len(self.sizes) * len(self.x))
        return torch.stack(held), torch.stack(found) if keep else None

    def _batched(
        self, one: Attack, rows: Tensor, place: int, call: Callable[..., Tensor]
    ) -> Tensor:
        made, done = [self.x[:0]], place * len(self.x)
        for part in torch.split(rows, self.batch):
            target = None if self.target is None else self.target[part]
            made.append(call(self.classifier, self.x[part], self.y[part], target=target))
            done += len(part)
            self.watch(one.name, done, len(self.sizes) * len(self.x))
        return torch.cat(made)

    def right(self, x: Tensor) -> Tensor:
        """Which are classified rightly: in most draws for certain, where they are random."""
        return self._verdicts(x, self.y) == ABOVE

    def _fooled(self, x: Tensor) -> Tensor:
        """Which are not right, or are at the target; what is undecided is."""
        if self.target is None:
            return ~self.right(x)
        return self._verdicts(x, self.target) != BELOW

    def _verdicts(self, x: Tensor, wanted: Tensor) -> Tensor:
        """Whether inputs are taken for a class, more often than not."""

        def draw(rows: Tensor) -> Tensor:
            parts = torch.split(rows.to(x.device), self.batch)
            scores = torch.cat([self._scores(x[part]) for part in parts])
            named = torch.where(scores.isnan().any(1), NO_CLASS, scores.argmax(1))
            return named == wanted[rows.to(x.device)]

        if self.classifier.random:
            return decided(draw, len(x)).to(x.device)
        return torch.where(draw(torch.arange(len(x))), ABOVE, BELOW)

    def _scores(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.classifier.scores(x)


def _warnings(
    chosen: dict[str, Attack], sweep: _Sweep, right: Tensor, holds: dict[str, Tensor]
) -> Iterator[str]:
    """Signs of masked gradients, where any attack followed gradients."""
    yield from disagreements(chosen, holds, sweep.sizes)
    if any(one.needs_gradient for one in chosen.values()):
        yield from vanished(sweep.classifier, sweep.x, sweep.y, right)
    climbing = [chosen[name] for name in iterative(chosen)]
    if climbing:
        yield from survivors(climbing[-1], sweep.classifier, sweep.x, sweep.y, right)


def _classes(y: ArrayLike | Tensor) -> Tensor:
    labels = torch.as_tensor(y)
    return labels if labels.is_floating_point() else labels.long()


def _for_all(target: Tensor, x: Tensor) -> Tensor:
    """One target for every input, where only one is given."""
    return target.expand(len(x)) if target.dim() == 0 else target


def _ordered(sizes: float | Sequence[float]) -> tuple[float, ...]:
    listed = [sizes] if isinstance(sizes, int | float) else list(sizes)
    if not listed or not all(math.isfinite(size) and size > 0 for size in listed):
        raise InputError("bad sizes of attacks", got=sizes, expected="finite numbers above 0")
    return tuple(sorted({float(size) for size in listed}))


def _attacks(
    names: str | Attack | Sequence[str | Attack],
    norm: Norm,
    steps: int | None,
    eot: int,
    seed: int,
) -> dict[str, Attack]:
    """Configured attacks by name, in the order given."""
    listed = [names] if isinstance(names, str | Attack) else list(names)
    common = {"norm": norm, "eot": eot, "seed": seed}
    made = [
        one if isinstance(one, Attack) else create(one, **common, **_steps(one, steps))
        for one in listed
    ]
    if not made or len({one.name for one in made}) < len(made):
        given = ", ".join(one if isinstance(one, str) else one.name for one in listed)
        raise InputError(
            "bad list of attacks",
            got=given or "none",
            expected="each one once, and of networks by the same method one alone",
        )
    wrong = [one for one in made if one.norm != norm]
    if wrong:
        raise InputError(
            f"{wrong[0].name} is configured for another norm", got=wrong[0].norm, expected=norm
        )
    return {one.name: one for one in made}


def _steps(name: str, steps: int | None) -> dict[str, int]:
    has = steps is not None and "steps" in settings_of(find_attack(name))
    return {"steps": steps} if has and steps is not None else {}
