"""Perturbations by a network that was trained for it: one pass for each input (AIN, ATN, AdvGAN).

| here   | meaning                                                                     |
|--------|-----------------------------------------------------------------------------|
| source | folder of a release of `privet train ain`, `atn` or `advgan`                |
| draws  | passes for an input that still holds; noise inside makes them differ        |

What a network makes obeys the bound by construction, and is projected like that of every other
attack. It was trained against one classifier; on another one it is an attack by transfer.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final, final

from torch import Tensor

from privet.attacks.attack import WithinBall
from privet.attacks.geometry import Norm, moved, project
from privet.attacks.keeping import Best
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.errors import InputError
from privet.files import read_json
from privet.models.attacked import Attacked
from privet.models.own_classifier import Absent, has_own_classifier
from privet.release import INTERNAL, Release, require_unchanged

METHODS: Final = ("ain", "atn", "advgan")
ANY: Final = "any wrong class"  # what a card says of one without a target


@final
@dataclass(frozen=True, kw_only=True)
class Generated(WithinBall):
    """One pass of a trained network.

    Attributes:
        source: folder of its release.
        draws: passes, each with noise of its own.
    """

    source: str
    draws: int = 1

    summary: ClassVar[str] = "one pass of a network that was trained for it"
    norms: ClassVar[tuple[Norm, ...]] = ("linf",)
    needs_gradient: ClassVar[bool] = False

    @property
    def name(self) -> str:  # type: ignore[override]  # each has that of its folder
        """For tables."""
        return Path(self.source).resolve().name

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("draws")
        object.__setattr__(self, "source", str(self.source))
        self._release  # noqa: B018 - refuses what does not attack

    @cached_property
    def _release(self) -> Release:
        return _attacking(self.source)

    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        _require_same(self._release, victim, x, goal)
        network = _network(self._release).to(x.device)
        generator, rows = self._generator(x), best.open()
        labels = victim.scores(x[rows]).argmax(1)
        for _ in range(self.draws):
            made = network.perturbed(x[rows].float(), labels, size, generator).to(x)
            tried = moved(x[rows], project(made - x[rows], x[rows], size, self.norm))
            best.offer(rows, tried, victim.scores(tried))
            keep = best.among(rows)
            rows, labels = rows[keep], labels[keep]
            if not len(rows):
                return


def is_generated(name: object) -> bool:
    """Whether it is the folder of a release, or of a run that may become one."""
    parts = ("config.json", INTERNAL)
    return isinstance(name, str) and any((Path(name) / part).exists() for part in parts)


def opened(source: str) -> tuple[Attacked, int | None]:
    """The network, and the place of the class that it is to reach."""
    release = _attacking(source)
    return _network(release), _target(release)


def _attacking(source: str) -> Release:
    """A release that attacks, as it was made; its classifier may be one that nobody can build."""
    require_unchanged(Path(source))
    own = has_own_classifier(str(read_json(Path(source) / "config.json").get("model")))
    kind = str(read_json(Path(source) / "trust.json").get("method"))
    if kind not in METHODS:
        raise InputError(
            "a release that does not attack",
            got=f"{source}, by '{kind}'",
            expected=f"one by {', '.join(METHODS)}",
            fix="privet train ain --classifier RELEASE ...",
        )
    release = Release.load(source, model=Absent() if own else None)
    _require_numbers(release, source)
    return release


def _require_numbers(release: Release, source: str) -> None:
    """Refuse a network that would change nothing, and so pass its victim off as robust."""
    if not all(bool(w.isfinite().all()) for w in _network(release).perturbers.parameters()):
        raise InputError(
            "a network that attacks with weights that are no numbers",
            got=source,
            fix="train it anew, with a lower --learning-rate",
        )


def _network(release: Release) -> Attacked:
    assert isinstance(release.model, Attacked)
    return release.model.eval()


def _target(release: Release) -> int | None:
    target = release.trust["provenance"]["config"].get("target")
    classes = [str(name) for name in release.config["classes"]]
    return None if target is None else classes.index(str(target))


def _require_same(release: Release, victim: Victim, x: Tensor, goal: Goal) -> None:
    """Refuse what the network was not trained for."""
    ours = (tuple(x.shape[1:]), victim.classifier.classes)
    its = (tuple(release.config["shape"]), len(release.config["classes"]))
    if ours != its:
        raise InputError(
            "a network that attacks other inputs",
            got=f"shape {ours[0]}, {ours[1]} classes",
            expected=f"shape {its[0]}, {its[1]} classes",
        )
    _require_target(release, goal)


def _require_target(release: Release, goal: Goal) -> None:
    target, classes = _target(release), list(map(str, release.config["classes"]))
    if goal.targeted and (target is None or bool((goal.labels != target).any())):
        asked = ", ".join(classes[place] for place in sorted(set(goal.labels.tolist())))
        raise InputError(
            "a network that was trained for another target",
            got=f"class {asked} to reach",
            expected="none: it is for any wrong class"
            if target is None
            else f"class {classes[target]}, the network's",
            fix="train one with --target, or attack without",
        )
