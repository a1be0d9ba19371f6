"""`privet check`: known mistakes in training code, found without running it."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from privet.commands.screen import Json, out, print_json

if TYPE_CHECKING:
    from privet.audits.static import Finding, Report


def check(target: str, /, *, json: Json = False) -> int:
    """Look for mistakes in training code that make its epsilon wrong. The code is not run.

    Exit code 1 if anything found is wrong; doubts alone leave it at 0.

    Example: privet check train.py

    Example: privet check my.module:train

    Parameters
    ----------
    target
        A file (train.py), a module (my.module), or a function in either (train.py:main).
    json
        Print the findings as JSON, nothing else.
    """
    from privet.audits.static import check as look

    report = look(target)
    if json:
        print_json({"ok": report.ok, **asdict(report)})
    else:
        _print(report)
    return 0 if report.ok else 1


def _print(report: "Report") -> None:
    for finding in report.findings:
        _print_finding(finding)
    for allowed in report.allowed:
        place = f"{allowed.finding.file}:{allowed.finding.line}"
        _line(f"{place}: allowed {allowed.finding.rule}, because {allowed.reason}")
    counts = {
        severity: sum(finding.severity == severity for finding in report.findings)
        for severity in ("wrong", "doubt")
    }
    verdict = f"{counts['wrong']} wrong, {counts['doubt']} in doubt, {len(report.allowed)} allowed"
    found = "nothing found" if not (report.findings or report.allowed) else verdict
    _line(f"{report.target}: {found}. This is no proof: only known mistakes are looked for.")


def _print_finding(finding: "Finding") -> None:
    style = "bold red" if finding.severity == "wrong" else "yellow"
    out.print(f"[{style}]{finding.severity}[/] {finding.rule} ", end="", highlight=False)
    _line(f"{finding.file}:{finding.line}")
    for sentence in (finding.what, finding.why, f"Mend it: {finding.fix}"):
        _line(f"      {sentence}")


def _line(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
