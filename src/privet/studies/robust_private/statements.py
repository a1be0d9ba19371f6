"""What a card says about privacy, as figures: claimed, proved, audited; nothing else is printed."""

from collections.abc import Mapping
from typing import Any

from privet.reports import card
from privet.reports.card import Statement


def privacy_figures(trust: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest epsilon of each basis and kind of neighbours; of audits the largest bound."""
    said = card.statements(trust)
    proved = [s for s in said if s.basis == "proved"]
    return {
        "claimed": _least([s for s in said if s.basis == "claimed"]),
        "proved": {
            adjacency: _least([s for s in proved if s.adjacency == adjacency])
            for adjacency in dict.fromkeys(s.adjacency for s in proved)
        },
        "audited": _audited(trust),
        "contradicted": any(s.contradicted for s in said),
        "withheld": list(card.withheld(trust)),
    }


def basis_of(figures: Mapping[str, Any]) -> str:
    """Of a release: proved, claimed, or none."""
    if figures["proved"]:
        return "proved"
    return "claimed" if figures["claimed"] is not None else "none"


def _least(statements: list[Statement]) -> dict[str, Any] | None:
    if not statements:
        return None
    best = min(statements, key=lambda s: s.epsilon)
    return {
        "epsilon": best.epsilon,
        "delta": best.delta,
        "adjacency": best.adjacency,
        "gaps": list(best.gaps),
    }


def _audited(trust: Mapping[str, Any]) -> dict[str, Any] | None:
    """The best bound among those that assume least."""
    rows = card.audits(trust)
    if not rows:
        return None
    least = min(len(row.assumptions) for row in rows)
    best = max((r for r in rows if len(r.assumptions) == least), key=lambda r: r.epsilon)
    return {
        "epsilon": best.epsilon,
        "delta": best.delta,
        "adjacency": best.adjacency,
        "confidence": best.confidence,
        "refutes": any(row.refutes is True for row in rows),
    }
