"""What a static check says: findings, and those that the author of the code has accepted."""

import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ALLOWANCE: Final = re.compile(r"#\s*privet:\s*allow\s+([\w-]+)(?:\s+because\s+(\S.*))?")


class Severity(StrEnum):
    """How sure a finding is that the guarantee breaks."""

    WRONG = "wrong"  # the stated epsilon does not hold for this code
    DOUBT = "doubt"  # it may not hold; a person has to look


@dataclass(frozen=True)
class Finding:
    """One mistake, or one doubt: where, what, why it matters, how to mend it."""

    file: str
    line: int
    rule: str
    severity: Severity
    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class Allowed:
    """A finding that a comment in the code accepts, and the reason given there."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class Report:
    """All that was found, and what was accepted."""

    target: str
    findings: tuple[Finding, ...]
    allowed: tuple[Allowed, ...]

    @property
    def ok(self) -> bool:
        """Nothing is known to break the guarantee; doubts may remain."""
        return all(finding.severity is not Severity.WRONG for finding in self.findings)


def settled(
    target: str, file: str, text: str, found: Iterable[Finding], rules: Iterable[str]
) -> Report:
    """Set apart what `# privet: allow RULE because ...` accepts, on its line or the one above."""
    known = frozenset(rules)
    lines = text.split("\n")  # as Python counts them: a form feed does not end a line
    allowances = {
        token.start[0]: match
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and (match := ALLOWANCE.match(token.string))
    }
    kept: list[Finding] = [
        finding
        for number, match in allowances.items()
        if (finding := _unusable(file, number, match, known)) is not None
    ]
    allowed = []
    for finding in found:
        reason = _reason(allowances, lines, finding)
        if reason is None:
            kept.append(finding)
        else:
            allowed.append(Allowed(finding, reason))
    kept.sort(key=lambda finding: (finding.line, finding.rule))
    return Report(target, tuple(kept), tuple(allowed))


def _reason(
    allowances: dict[int, "re.Match[str]"], lines: list[str], finding: Finding
) -> str | None:
    above = finding.line - 1
    places = [finding.line]
    if above >= 1 and lines[above - 1].lstrip().startswith("#"):
        places.append(above)
    for place in places:
        match = allowances.get(place)
        if match is not None and match[1] == finding.rule and match[2]:
            return match[2].strip()
    return None


def _unusable(
    file: str, line: int, match: "re.Match[str]", known: frozenset[str]
) -> Finding | None:
    """An allowance without a reason, or for a rule that does not exist."""
    if match[1] in known and match[2]:
        return None
    what = "gives no reason" if match[1] in known else "names no rule"
    return Finding(
        file=file,
        line=line,
        rule="allowance",
        severity=Severity.DOUBT,
        what=f"The comment `{match[0].strip()}` {what}.",
        why="It accepts nothing.",
        fix="Write `# privet: allow RULE because REASON`.",
    )
