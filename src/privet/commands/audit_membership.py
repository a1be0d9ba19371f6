"""`privet audit RELEASE --membership`: whether its model tells training records from others."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet.commands.audit_telling import PRIVATE, tell_curves
from privet.commands.bench import progress_bar
from privet.commands.screen import opened_ledger, out, print_json
from privet.commands.subjects import data_of
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.audits.membership import Roc


def told_apart(
    folder: Path,
    data: str | None,
    data_dir: Path | None,
    *,
    shadows: int,
    seed: int | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Attack the released model; what is found stays in the run's `internal/`."""
    from privet.audits.released_membership import membership, require_trained_on
    from privet.ledger import default_ledger_path
    from privet.release import Release, require_finished
    from privet.training.run_folder import RunFolder

    require_finished(folder)
    release, internal = Release.load(folder), RunFolder(folder).internal
    if not internal.is_dir():
        raise InputError(
            "figures of training records have no place here",
            got=f"{folder}, a release without its {internal.name}/",
            fix="name the folder that the run itself made",
        )
    if shadows < 0:
        raise InputError("bad number of shadow models", got=shadows, expected="0 or more")
    records = data_of(release, data, data_dir)
    checked = False
    if default_ledger_path().exists():
        with opened_ledger() as ledger:
            checked = require_trained_on(release.trust, records, ledger)
    with progress_bar(shadows, quiet=as_json or not shadows) as tell:
        curves = membership(
            release, records, shadows=shadows, seed=seed, device=device,
            watch=lambda done, of: tell(f"shadow model {done} of {of}"),
        )  # fmt: skip
    figures = {attack: curve.to_json() for attack, curve in curves.items()}
    members, others = len(records.train), len(records.test)
    counts = {"members": members, "others": others, "shadows": shadows, "records_checked": checked}
    _keep(curves, {**figures, **counts, "private": PRIVATE}, internal)
    if as_json:
        print_json({**figures, **counts, "private": PRIVATE})
        return
    out.print(f"{members} training records, {others} others", highlight=False)
    if not checked:
        out.print("no ledger here knows the run: nobody checked that these are its records")
    tell_curves(figures)
    out.print(f"kept in {internal}", highlight=False, soft_wrap=True)


def _keep(curves: "dict[str, Roc]", found: dict[str, Any], internal: Path) -> None:
    from privet.audits.roc_plot import roc_plot
    from privet.files import write_atomically, write_json

    write_json(internal / "membership.json", found, private=True)
    write_atomically(internal / "membership.svg", roc_plot(curves), private=True)
