"""`--record`: figures of attacks and certificates onto the trust card of what was measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from privet.errors import InputError

if TYPE_CHECKING:
    from privet.data.dataset import Dataset

Record = Annotated[bool, Parameter(name="--record", negative="")]

_NOT_TERMS: Final = ("release", "certified_accuracy", "abstained", "samples", "private")


def require_recordable(release: Path, data: "Dataset", *, record: bool) -> str:
    """Before the work begins: refuse what could not be recorded in the end.

    What is computed from private records stays off the card. The answer names the release as it is
    now; figures of another one are refused when they come to be recorded.
    """
    from privet.release import require_addable

    if not record:
        return ""
    if not data.test_is_public:
        raise InputError(
            "figures on private test records are not for a card",
            got=f"'{data.name}'",
            expected="test records that are public",
            fix="leave --record out, and keep the figures inside: --out",
        )
    return require_addable(release)


def record_certificates(release: Path, found: dict[str, Any], *, of: str) -> None:
    """One row for each radius, from the summary of a run, with all that it was asked for."""
    from privet.release import add_measured

    terms = {name: value for name, value in found.items() if name not in _NOT_TERMS}
    terms["classifier"] = "smoothed by this noise, not the bare model"
    rows = [
        terms | {"radius": row["radius"], "certified_accuracy": row["accuracy"]}
        for row in found["certified_accuracy"]
    ]
    add_measured(release, "robustness", rows, of=of)


def record_attacks(release: Path, found: dict[str, Any], *, of: str) -> None:
    """One row for each attack and size, the worst case over several, and every warning."""
    from privet.release import add_measured

    named = ("data", "norm", "examples", "clean_accuracy", "input_noise", "target")
    common = {name: found[name] for name in named if name in found}
    by_attack = {entry["attack"]: entry["accuracy"] for entry in found["attacks"]}
    settings = {entry["attack"]: entry["settings"] for entry in found["attacks"]}
    worst = {"worst case": found["robust_accuracy"]} if len(by_attack) > 1 else {}
    rows = [
        common
        | {"attack": name, "size": size, "accuracy": accuracy}
        | {"settings": settings.get(name, f"over {', '.join(by_attack)}")}
        | {"warnings": found["warnings"]}
        for name, accuracies in (by_attack | worst).items()
        for size, accuracy in zip(found["sizes"], accuracies, strict=True)
    ]
    add_measured(release, "attacks", rows, of=of)
