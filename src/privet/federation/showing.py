"""What a finished simulation tells those who may see its records, and what the rules are."""

from pathlib import Path
from typing import Any, Final

from privet.errors import InputError
from privet.federation.fitting import PICTURE, ROUNDS
from privet.federation.gathering import Kept
from privet.federation.pacing import Buffer, Cohort
from privet.federation.rule import Rule
from privet.federation.rules import RULES
from privet.files import read_json
from privet.release import require_finished
from privet.training.run_folder import RunFolder

COURSE: Final = ("rounds",)
FIGURES: Final = ("jobs", "wasted_share", "clients_that_took_part", "most_steps_of_a_client")


def told(folder: str | Path) -> dict[str, Any]:
    """The course of the accuracy, and what became of whose work; not for release."""
    run = RunFolder(Path(folder))
    place = run.internal / ROUNDS
    if not place.exists() and run.settings.exists():
        require_finished(run.folder)
    if not place.exists():
        raise InputError(
            "no simulation is there",
            got=folder,
            expected="the --out folder of `privet federate simulate`, with its internal/",
        )
    course, figures = read_json(place, fields=COURSE), read_json(run.figures, fields=FIGURES)
    return {**course, **figures, "picture": str(run.internal / PICTURE)}


def described_rules() -> list[dict[str, str]]:
    """Every rule: name, summary, and what it can be combined with."""
    return [
        {"name": name, "summary": _summary(name), "allows": _allows(make())}
        for name, make in RULES.items()
    ]


def _summary(name: str) -> str:
    return (RULES[name].__doc__ or "").strip().splitlines()[0].rstrip(".")


def _allows(rule: Rule) -> str:
    """In words: who chooses, whether it can be private, whether it holds one sum or all updates."""
    pacing = rule.pacing
    chooses = "the server asks" if isinstance(pacing, Cohort) else "clients select themselves"
    gathering = rule.gathering(1)
    if isinstance(gathering, Kept):
        return f"{chooses}; keeps every update; neither --epsilon nor secure aggregation"
    one_version = not isinstance(pacing, Buffer) and not rule.stale
    secure = "--epsilon and secure aggregation" if one_version else "--epsilon"
    return f"{chooses}; keeps one sum; {secure}"
