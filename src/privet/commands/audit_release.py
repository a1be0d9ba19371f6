"""`privet audit RELEASE`: by one twin with canaries, or by many without and with a record."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privet.commands.audit_telling import fail_if, tell_bounds
from privet.commands.bench import progress_bar
from privet.commands.screen import out, print_json
from privet.commands.subjects import require_classifier, require_own_folder
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.audits.canary_run import RunAudit
    from privet.release import Release

Search = Callable[["Release"], "RunAudit"]

AUDITED_BY_ITSELF: Final = (
    "audit such a run by canaries of its own: privet synthesize fit --canaries 5000"
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every audit of a release is told; `how` has the options that decide what is trained."""

    folder: Path
    how: Mapping[str, object]
    confidence: float
    seed: int | None
    device: str | None
    out_folder: Path | None
    record: bool
    as_json: bool

    @property
    def command(self) -> str:
        """By which the audit is repeated."""
        given = [word for name, v in self.how.items() if v is not None for word in (name, str(v))]
        level = ["--confidence", f"{self.confidence:g}"]
        return shlex.join(["privet", "audit", str(self.folder), *given, *level])


def by_one_twin(asked: Asked, canaries: int | None) -> Search:
    """Dirac canaries, seen in every step of one twin."""

    def search(release: "Release") -> "RunAudit":
        from privet.audits.twin import audit, plan_of

        with progress_bar(plan_of(release.trust).steps, quiet=asked.as_json) as tell:
            return audit(
                release,
                canaries=canaries,
                confidence=asked.confidence,
                seed=asked.seed,
                device=asked.device,
                watch=lambda trainer: tell(f"twin, step {trainer.next_step}"),
            )

    return search


def by_twins(asked: Asked, runs: int, records: int) -> Search:
    """One record, seen in the answers of many twins."""

    def search(release: "Release") -> "RunAudit":
        from privet.audits.twins import TwinWorlds
        from privet.files import make_folder

        worlds = TwinWorlds.of(release.trust, records=records, device=asked.device)
        kept = None
        if asked.out_folder is not None:
            make_folder(asked.out_folder)
            kept = asked.out_folder / "scores.json"
        with progress_bar(2 * runs, quiet=asked.as_json) as tell:
            scores = worlds.scores(
                runs, seed=asked.seed, kept=kept,
                watch=lambda done, of: tell(f"twin {done} of {of}"),
            )  # fmt: skip
        return worlds.judged(*scores, confidence=asked.confidence)

    return search


def audited(asked: Asked, search: Search) -> None:
    """Check, search, keep, record, print; exit code 1 if the plan's curve is refuted."""
    import torch

    from privet.audits.evidence import check_confidence
    from privet.release import Release, add_measured, require_addable, require_finished
    from privet.studies.private_step.machine import describe

    require_own_folder(asked.out_folder)
    require_finished(asked.folder)
    measured = require_addable(asked.folder) if asked.record else None
    check_confidence(asked.confidence)
    _require_consistent(asked.folder)
    loaded = Release.load(asked.folder)
    require_classifier(loaded, fix=AUDITED_BY_ITSELF)
    found = search(loaded)
    rows = [row | _seeded(row, asked.seed) for row in found.rows()]
    kept = {
        "release": str(asked.folder),
        "command": asked.command,
        **describe(torch.device(asked.device or loaded.trust["provenance"]["config"]["device"])),
        "settings": loaded.trust["provenance"]["config"],
        "mechanism": loaded.trust["mechanism"],
        "proved": [row for row in loaded.trust["privacy"] if row["basis"] == "proved"],
        "audit": rows,
    }
    if asked.out_folder is not None:
        _keep(found, kept, asked.out_folder)
    if asked.record:
        add_measured(asked.folder, "audit", rows, of=measured)
    if asked.as_json:
        print_json(kept)
    else:
        _tell(found, kept, asked.out_folder)
        if asked.record:
            out.print(f"recorded in {asked.folder}: card and report", soft_wrap=True)
    fail_if(found.refuted, "the plan's trade-off curve")


def _seeded(row: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """Whoever chooses the seed may choose the result."""
    if seed is None:
        return {}
    known = f"noise and coins follow from the seed {seed}, which was not chosen for what it gives"
    return {"assumptions": [*row["assumptions"], known]}


def _require_consistent(folder: Path) -> None:
    """What the card states must follow from the plan that is audited."""
    from privet.verification import verify

    wrong = [finding for finding in verify(folder).findings if not finding.ok]
    if any(not finding.check.startswith("audit against") for finding in wrong):
        raise InputError(
            "the release does not verify, so an audit of its plan would say nothing about it",
            got=f"{wrong[0].check}: {wrong[0].detail}",
            fix=f"privet verify {folder}",
        )


def _keep(found: "RunAudit", kept: dict[str, Any], folder: Path) -> None:
    from privet.audits.plot import audit_plot
    from privet.audits.two_worlds import region
    from privet.files import make_folder, write_atomically, write_json
    from privet.guarantee import Basis

    make_folder(folder)
    inside, outside = found.scores[found.included], found.scores[~found.included]
    measured = region(outside, inside, confidence=found.evidence[0].confidence)
    write_json(folder / "audit.json", kept)
    write_atomically(folder / "audit.svg", audit_plot({Basis.PROVED: found.curve}, measured))


def _tell(found: "RunAudit", kept: dict[str, Any], folder: Path | None) -> None:
    first = found.evidence[0]
    proved = [row for row in kept["proved"] if row["adjacency"] == first.adjacency.value]
    for row in proved:
        out.print(f"proved   ε = {row['epsilon']:.4g} at δ = {row['delta']:g}", highlight=False)
    tell_bounds(found.evidence, f"{first.subject}; {_how_many(first.canaries, first.runs)}")
    said = "REFUTED" if found.refuted else "not refuted"
    out.print(f"curve    {said} at confidence 0.999", highlight=False)
    if folder is not None:
        out.print(f"\nkept in {folder}", highlight=False, soft_wrap=True)


def _how_many(canaries: int, runs: int) -> str:
    return f"{canaries} canaries" if runs == 1 else f"{runs} trainings, half of them with a canary"
