"""`--record`: figures of attacks and certificates onto the trust card of what was measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from privet.errors import InputError

if TYPE_CHECKING:
    from privet.data.dataset import Dataset

Record = Annotated[bool, Parameter(name="--record", negative="")]

_TERMS: Final = ("data", "noise", "scale", "norm", "images", "alpha", "n0", "n", "mode")


def require_recordable(data: "Dataset", *, record: bool) -> None:
    """Before the work begins: what is computed from private records stays off the card."""
    if record and not data.test_is_public:
        raise InputError(
            "figures on private test records are not for a card",
            got=f"'{data.name}'",
            expected="test records that are public",
            fix="leave --record out, and keep the figures inside: --out",
        )


def record_certificates(release: Path, found: dict[str, Any]) -> None:
    """One row for each radius, from the summary of a run."""
    from privet.release import add_measured

    terms = {name: found[name] for name in _TERMS if name in found}
    rows = [
        terms | {"radius": row["radius"], "certified_accuracy": row["accuracy"]}
        for row in found["certified_accuracy"]
    ]
    add_measured(release, "robustness", rows)


def record_attacks(release: Path, found: dict[str, Any]) -> None:
    """One row for each attack and size, the worst case over all of them, and every warning."""
    from privet.release import add_measured

    common = {name: found[name] for name in ("data", "norm", "examples", "clean_accuracy")}
    by_attack = {entry["attack"]: entry["accuracy"] for entry in found["attacks"]}
    settings = {entry["attack"]: entry["settings"] for entry in found["attacks"]}
    worst = {"worst case": found["robust_accuracy"]}
    rows = [
        common
        | {"attack": name, "size": size, "accuracy": accuracy}
        | ({"settings": settings[name]} if name in settings else {"warnings": found["warnings"]})
        for name, accuracies in (by_attack | worst).items()
        for size, accuracy in zip(found["sizes"], accuracies, strict=True)
    ]
    add_measured(release, "attacks", rows)
