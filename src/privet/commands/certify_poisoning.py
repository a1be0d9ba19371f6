"""`privet certify --threat poisoning`: least mean accuracy after training records were changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet.commands.screen import err, out, print_json
from privet.commands.subjects import require_classifier, warn_if_changed
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.certification.poisoned_release import PoisoningTable


def poisoned(
    releases: Sequence[Path],
    records: Sequence[float],
    accuracy: float | None,
    alpha: float,
    *,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Read the cards, make the table, keep and print it."""
    from privet.certification.poisoned_release import poisoning_table
    from privet.classifiers.opening import require_not_attacking
    from privet.release import Release, require_finished

    if not records or not all(k >= 0 and k.is_integer() for k in records):
        raise InputError(
            "bad --records",
            got=", ".join(f"{k:g}" for k in records) or "none",
            expected="whole numbers, 0 or more: 1,2,5",
        )
    for release in releases:
        require_finished(release)
    loaded = [Release.load(release) for release in releases]
    for classifier in loaded:
        require_classifier(classifier)
        require_not_attacking(classifier.model, classifier.trust.get("method"))
    for release in releases:
        warn_if_changed(release)
    cards = [classifier.trust for classifier in loaded]
    table = poisoning_table(cards, [int(k) for k in records], accuracy=accuracy, alpha=alpha)
    record = {"release": [str(release) for release in releases], **table.summary()}
    if folder is not None:
        _keep(table, record, folder)
    if as_json:
        print_json(record)
        return
    out.print(_screen_table(table))
    out.print(f"mean accuracy: {table.basis}; curve: {table.curve}", highlight=False)
    for caution in filter(None, (table.caution, record["says_not"])):
        err.print(caution, style="yellow", soft_wrap=True)
    if folder is not None:
        out.print(f"\nkept in {folder}", highlight=False, soft_wrap=True)


def _screen_table(table: "PoisoningTable") -> Any:
    from rich.table import Table

    shown = Table(f"records ({table.unit})", *(str(row.records) for row in table.rows))
    shown.title = f"least mean accuracy, {100 * table.accuracy:.1f} % before"
    shown.add_row("changed", *(_percent(row.changed) for row in table.rows))
    shown.add_row("added or removed", *(_percent(row.added_or_removed) for row in table.rows))
    for column in shown.columns[1:]:
        column.justify = "right"
    return shown


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{int(1000 * value) / 10:.1f} %"  # rounded down


def _keep(table: "PoisoningTable", record: dict[str, Any], folder: Path) -> None:
    from privet.certification.plot import poisoning_plot
    from privet.files import make_folder, write_atomically, write_json

    make_folder(folder)
    table.to_csv(folder / "certify.csv")
    write_atomically(folder / "certify.svg", poisoning_plot(table))
    write_json(folder / "certify.json", record)
