"""`privet audit mechanism` and `privet audit mutants`: mechanisms by name, run many times."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet.commands.screen import out, print_listing

if TYPE_CHECKING:
    from privet.audits.mechanism import Subject


def mechanism_row(
    subject: "Subject", runs: int | None, confidence: float, seed: int, folder: Path | None
) -> dict[str, Any]:
    """Audit one; what was found, as a record, and kept in a folder if there is one."""
    from privet.audits.mechanism import audit_mechanism, refutes

    evidence = audit_mechanism(subject, runs=runs, confidence=confidence, seed=seed)
    row = {
        "mechanism": subject.name,
        "flaw": subject.flaw,
        "claimed": subject.epsilon,
        **evidence.to_json(),
        "refuted": refutes(evidence, subject),
    }
    if folder is not None:
        _keep_mechanism(subject, row, seed, folder)
    return row


def _keep_mechanism(subject: "Subject", row: dict[str, Any], seed: int, folder: Path) -> None:
    from privet.audits.mechanism import scores_of
    from privet.audits.plot import audit_plot
    from privet.audits.two_worlds import region
    from privet.files import make_folder, write_atomically, write_json
    from privet.guarantee import Basis

    make_folder(folder)
    scores = scores_of(subject, row["runs"] // 2, seed)
    measured = region(scores.without, scores.with_, confidence=row["confidence"])
    write_json(folder / "audit.json", row)
    write_atomically(folder / "audit.svg", audit_plot({Basis.CLAIMED: subject.claim}, measured))


def tell_mechanism(subject: "Subject", row: dict[str, Any]) -> None:
    """What is claimed, what was found, of which pair."""
    from privet.reports.figures import at_least

    lines = [
        ("claimed", f"ε = {subject.epsilon:.4g} at δ = {subject.delta:g}"),
        ("audited", f"ε ≥ {at_least(row['epsilon'])}, confidence {row['confidence']:g}"),
        ("pair", subject.pair),
        ("runs", f"{row['runs']:,} in all"),
    ]
    if subject.flaw:
        lines.append(("flaw", subject.flaw))
    lines.append(("claim", "REFUTED" if row["refuted"] else "not refuted"))
    print_listing(lines)


def tell_all(rows: list[dict[str, Any]]) -> None:
    """One line for each mechanism."""
    from rich.table import Table

    from privet.reports.figures import at_least

    table = Table(box=None)
    for column in ("mechanism", "claimed ε", "audited ε ≥", "claim"):
        table.add_column(column)
    for row in rows:
        said = "REFUTED" if row["refuted"] else "not refuted"
        table.add_row(row["mechanism"], f"{row['claimed']:.3g}", at_least(row["epsilon"]), said)
    out.print(table)
