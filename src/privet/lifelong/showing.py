"""What a folder of versions says: accuracies, forgetting, what a lifetime costs."""

from pathlib import Path
from typing import Any, Final

from privet.errors import InputError
from privet.files import read_json, write_atomically
from privet.lifelong.life import SCORES, VERSIONS, record_in
from privet.lifelong.plot import accuracy_plot
from privet.release import INTERNAL, MANIFEST
from privet.reports.card import Statement, statements

READ: Final = ("accuracy", "average_accuracy", "average_forgetting")


def told(folder: str | Path) -> dict[str, Any]:
    """All of it as plain values; draws `accuracy.svg` beside the scores."""
    folder, record = Path(folder), record_in(folder)
    latest = sorted((folder / VERSIONS).glob(f"*/{MANIFEST}"))
    if not latest:
        raise InputError(
            "no task was learned yet", got=folder, fix=f"privet lifelong extend {folder}"
        )
    places = [path for path in (folder / SCORES, folder / INTERNAL / SCORES) if path.exists()]
    scores = read_json(places[0], fields=READ) if places else {"accuracy": []}
    if places:
        write_atomically(places[0].with_name("accuracy.svg"), accuracy_plot(scores["accuracy"]))
    trust = read_json(latest[-1].parent / "trust.json")
    return {
        "folder": str(folder),
        "method": record["method"],
        "analysis": record["analysis"],
        "stream": trust["data"]["name"].rpartition("/")[0],
        "versions": [path.parent.name for path in latest],
        **scores,
        "privacy": [_line(one) for one in statements(trust)],
    }


def _line(one: Statement) -> str:
    """A figure, and what a claim is worth."""
    said = f"{one.basis} {one.terms}, {one.neighbours}, for its whole lifetime"
    if one.refuted:
        return f"{said}; refuted: {one.against}"
    return f"{said}; its proof has {len(one.gaps)} gaps" if one.gaps else said
