"""What a card states about privacy: each figure with its accountant, assumptions and basis."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from privet.engine.assumptions import SERVED, assumptions_of
from privet.errors import InputError
from privet.guarantee import Basis, Privacy
from privet.privacy.accounting import DpEvent, total_accountant, total_epsilon
from privet.privacy.events import from_json
from privet.privacy.participation import FEDERATION
from privet.reports.card import statements
from privet.verification.finding import Finding

# Two versions of the accountant may differ in the last digits of a rounded grid, not by more.
TOLERANCE: Final = 1e-3


def events_of(trust: Mapping[str, Any]) -> list[DpEvent]:
    """What happened to the data, as recorded."""
    try:
        return [from_json(entry["event"]) for entry in trust["events"]]
    except (KeyError, TypeError) as error:
        raise InputError("malformed events in trust.json", got=repr(error)) from None


def ended(trust: Mapping[str, Any], planned: int) -> int:
    """Steps that a card must state: all; of a model on a server those over when it was exported."""
    served = trust.get(FEDERATION, {}).get(SERVED, {"rounds_run": planned})
    return int(served["rounds_run"])


def proved(trust: Mapping[str, Any]) -> list[Privacy]:
    """The statements that follow from the events."""
    return [g for g in _stated(trust) if g.basis is Basis.PROVED]


def check_epsilons(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Every proved epsilon is recomputed from the events."""
    if trust["withheld"]:
        return
    events = events_of(trust)
    for guarantee in proved(trust):
        check = f"epsilon ({guarantee.adjacency}, delta={guarantee.delta:g})"
        exact = _recomputed(events, guarantee)
        same = math.isclose(exact, guarantee.epsilon, rel_tol=TOLERANCE)
        detail = f"stated {guarantee.epsilon:.6g}, the events give {exact:.6g}"
        yield Finding(check=check, ok=same, detail=detail)


def check_grounds(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """A figure is worth what it rests on: the accountant named, no assumption left out."""
    if not proved(trust):
        return
    counted, least = total_accountant(events_of(trust)), assumptions_of(trust)
    yield Finding.of(
        "accountant",
        (f"'{g.accountant}' is named" for g in proved(trust) if g.accountant != counted),
        otherwise=counted,
    )
    yield Finding.of(
        "assumptions",
        (f"not stated: '{a}'" for g in proved(trust) for a in least if a not in g.assumptions),
        otherwise="all that the card's own facts ask for",
    )


def check_basis(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """A claim is a paper's, and says what its proof misses; a sound analysis makes none."""
    claims = [g for g in _stated(trust) if g.basis is Basis.CLAIMED]
    contradictions = [f"claimed without its gaps: {c.epsilon:g}" for c in claims if not c.gaps]
    if claims and trust["analysis"] == "sound":
        contradictions.append("a sound analysis claims nothing, and yet a claim is stated")
    target = trust["provenance"]["config"].get("epsilon")
    if not claims and trust["analysis"] == "paper" and target is not None:
        contradictions.append("a paper's analysis, and yet nothing is claimed")
    if contradictions:
        yield Finding.of("basis of the figures", contradictions, otherwise="")


def check_withheld(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """A figure, or a reason why there is none; not both. A paper's claim is no such figure."""
    withholds = {Basis.AUDITED, Basis.CLAIMED} if trust["analysis"] == "paper" else {Basis.AUDITED}
    stated = [g for g in _stated(trust) if g.basis not in withholds]
    if trust["withheld"]:
        yield Finding(
            check="epsilon withheld",
            ok=not stated,
            detail="; ".join(trust["withheld"]) + (" - yet one is stated" if stated else ""),
        )
    elif not any(g.basis is Basis.PROVED for g in stated):
        yield Finding(
            check="guarantee", ok=False, detail="nothing is proved and no reason is given"
        )


def check_audits(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """A measured lower bound above a stated epsilon refutes the statement."""
    for stated in statements(trust):
        if stated.contradicted:
            yield Finding(
                check=f"audit against the {stated.basis} epsilon",
                ok=False,
                detail=f"{stated.against}; stated {stated.epsilon:.4g}",
            )


def check_leaks(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Figures on private records must not be in the card."""
    leak = bool(trust.get("utility")) and not trust["data"]["test_is_public"]
    yield Finding(
        check="no uncharged figures",
        ok=not leak,
        detail="utility was measured on private records" if leak else "none found",
    )


def _stated(trust: Mapping[str, Any]) -> list[Privacy]:
    return [Privacy.from_json(record) for record in trust["privacy"]]


def _recomputed(events: list[DpEvent], guarantee: Privacy) -> float:
    """What the events prove; nothing, where no accountant covers them."""
    try:
        return total_epsilon(events, guarantee.delta, guarantee.adjacency)
    except InputError:
        return math.inf
