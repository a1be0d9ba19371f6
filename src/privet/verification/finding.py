"""What a check says."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was checked."""

    check: str
    ok: bool
    detail: str

    @classmethod
    def of(cls, check: str, contradictions: Iterable[str], *, otherwise: str) -> Self:
        """Fails where there is a contradiction, and names them all; `otherwise` says why not."""
        found = list(dict.fromkeys(contradictions))
        return cls(check=check, ok=not found, detail="; ".join(found) or otherwise)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Everything `verify` found, and what no offline check can know."""

    findings: tuple[Finding, ...]
    unproven: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts anything."""
        return all(finding.ok for finding in self.findings)
