"""Reading a trust card: what it states, on which basis, and the one sentence that sums it up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from privet.guarantee import BEYOND_DOUBT, REFUTED
from privet.reports import figures

BASES = ("proved", "claimed", "audited")

# Above 10, epsilon is commonly held to promise little on its own (Ponomareva et al. 2023,
# "How to DP-fy ML", tier 3); up to 3 the wording "nearly the same" is still defensible.
MU_GDP = "mu-GDP"  # in the words of an assumption about the kind of mechanism
_NEARLY_THE_SAME = 3.0
_WEAK = 10.0


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One privacy figure of a card, with what it rests on."""

    epsilon: float
    delta: float
    unit: str
    adjacency: str
    basis: str
    accountant: str
    sampler: str
    assumptions: tuple[str, ...]
    gaps: tuple[str, ...]
    refutes: bool | None = None  # of an audit: whether it says that the claimed curve is broken
    confidence: float | None = None  # of an audit
    contradicted_by: float | None = None

    @property
    def contradicted(self) -> bool:
        """Whether an audit found more leakage than this statement allows."""
        return self.contradicted_by is not None

    @property
    def refuted(self) -> bool:
        """Whether a counter-example of this claim is known, whatever was measured here."""
        return any(gap.startswith(REFUTED) for gap in self.gaps)

    @property
    def against(self) -> str:
        """What the audit says that contradicts this, in words."""
        if not self.contradicted:
            return "its mechanism is known to break it"
        measured = self.contradicted_by or 0.0
        if measured > self.epsilon:
            return f"an audit measured ε ≥ {figures.at_least(measured)}"
        return "an audit refutes its trade-off curve"

    @property
    def assumes_gdp(self) -> bool:
        """Whether an audit's figure rests on the kind of mechanism."""
        return any(MU_GDP in text for text in self.assumptions)

    @property
    def epsilon_text(self) -> str:
        """Epsilon, rounded up; for an audit, which bounds from below, rounded down."""
        if self.basis == "audited":
            return f"≥ {figures.at_least(self.epsilon)}"
        return figures.at_most(self.epsilon)

    @property
    def delta_text(self) -> str:
        """Delta, rounded up."""
        return figures.at_most(self.delta)

    @property
    def terms(self) -> str:
        """The figure as an expert writes it: (ε = 2.98, δ = 1e-05); audits say ≥."""
        relation = "" if self.basis == "audited" else "= "
        return f"(ε {relation}{self.epsilon_text}, δ = {self.delta_text})"

    @property
    def neighbours(self) -> str:
        """Which two data sets are told apart, in words."""
        words = {
            "add-remove": "adding or removing one",
            "replace-one": "replacing one",
            "zero-out": "blanking out one",
        }
        verb = words.get(self.adjacency)
        return f"{verb} {self.unit}" if verb else f"{self.adjacency}, one {self.unit}"


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the settings were chosen, in words, and what a private search chose."""

    kind: str
    detail: str
    chosen: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The kind, and what it means here."""
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The sentence on top of a card, and the statement it speaks about (none when withheld)."""

    verdict: str
    sentence: str
    statement: Statement | None = None


def withheld(trust: Mapping[str, Any]) -> tuple[str, ...]:
    """The reasons why no guarantee is given; empty when one is."""
    return tuple(str(reason) for reason in trust.get("withheld") or ())


def statements(trust: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Every privacy figure of the card, each checked against the audits beside it.

    A card that withholds its guarantee states nothing as proved, whatever its list says.
    """
    entries = [_statement(entry) for entry in trust.get("privacy") or ()]
    if withheld(trust):
        entries = [entry for entry in entries if entry.basis != "proved"]
    beside = [entry for entry in entries if entry.basis == "audited"]
    return tuple(_checked(entry, [*beside, *audits(trust)]) for entry in entries)


def audits(trust: Mapping[str, Any]) -> list[Statement]:
    """Every lower bound in the card's own list of audits."""
    return [_statement(entry) for entry in trust.get("audit") or () if _is_audited_epsilon(entry)]


def tuning(trust: Mapping[str, Any]) -> Tuning:
    """What the card says about the choice of its settings."""
    entry = trust.get("tuning") or {}
    config = (trust.get("provenance") or {}).get("config") or {}
    return Tuning(
        kind=str(entry.get("kind") or "not stated"),
        detail=str(entry.get("detail") or ""),
        chosen={name: config.get(name) for name in config.get("search") or ()},
    )


def under_attack(trust: Mapping[str, Any]) -> str:
    """Whose accuracy the card of a network that attacks states; nothing for other cards."""
    config = (trust.get("provenance") or {}).get("config") or {}
    if config.get("perturber") is None:
        return ""
    smallest = min(str(config.get("bounds")).split(","), key=float)
    return f", of the classifier under this attack within {smallest}"


def fixed_parts(trust: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parts that the run did not learn, each with where it is from and what was said of it."""
    parts = [part for part in trust.get("fixed_parts") or () if isinstance(part, Mapping)]
    return [(str(part.get("part", "part")), _as_it_came(part)) for part in parts]


def _as_it_came(part: Mapping[str, Any]) -> str:
    unknown = "private" if part.get("spent") else "NOT public"
    known = "public" if part.get("public") is True else unknown
    digest = str(part.get("digest", "none stated"))[:12]
    return f"{known}: {part.get('statement')} ({part.get('source')}, digest {digest})"


def headline(trust: Mapping[str, Any]) -> Headline:
    """Sum the card up in one sentence that is plain and exactly true."""
    if withheld(trust) and trust.get("analysis") != "paper":
        return Headline(
            verdict="withheld", sentence="No privacy guarantee is given for this model."
        )
    for basis in BASES:
        of_basis = [s for s in statements(trust) if s.basis == basis and math.isfinite(s.epsilon)]
        broken = [s for s in of_basis if s.contradicted or s.refuted]
        if broken:
            return _contradiction(broken[0])
        if of_basis:
            return _sentence(min(of_basis, key=lambda s: s.epsilon))
    return Headline(verdict="withheld", sentence="This card states no privacy guarantee.")


def _statement(entry: Mapping[str, Any]) -> Statement:
    basis, gaps = entry.get("basis"), [str(gap) for gap in entry.get("gaps") or ()]
    if basis not in BASES:  # whoever wrote it, it is not one of our proofs
        gaps.append(f"unknown basis: {basis}")
        basis = "claimed"
    return Statement(
        epsilon=_number(entry.get("epsilon"), missing=math.inf),
        delta=_number(entry.get("delta"), missing=0.0),
        unit=str(entry.get("unit", "example")),
        adjacency=str(entry.get("adjacency", "adjacency not stated")),
        basis=basis,
        accountant=figures.value_text(entry.get("accountant")),
        sampler=figures.value_text(entry.get("sampler")),
        assumptions=tuple(str(text) for text in entry.get("assumptions") or ()),
        gaps=tuple(gaps),
        refutes=entry.get("refutes"),
        confidence=entry.get("confidence"),
    )


def _number(value: Any, *, missing: float) -> float:
    return float(value) if isinstance(value, int | float) else missing


def _is_audited_epsilon(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and entry.get("basis") == "audited"
        and isinstance(entry.get("epsilon"), int | float)
    )


def _checked(entry: Statement, audits: list[Statement]) -> Statement:
    """Mark a statement that an audit of the same neighbours refutes."""
    found = [
        audit.epsilon
        for audit in audits
        if (audit.adjacency, audit.unit) == (entry.adjacency, entry.unit) and _refutes(audit, entry)
    ]
    if entry.basis == "audited" or not found:
        return entry
    return replace(entry, contradicted_by=max(found))


def _refutes(audit: Statement, entry: Statement) -> bool:
    """By what the audit says of itself, or by its figure where that is beyond doubt.

    A bound at 95 % is above the truth once in twenty audits, and one that assumes a kind of
    mechanism may be; a bare figure has no such excuse. A guarantee at delta also holds at every
    larger delta, so a figure at a larger one refutes it too; one at a smaller delta speaks about a
    different, larger epsilon.
    """
    above = audit.delta >= entry.delta and audit.epsilon > entry.epsilon
    if audit.refutes is True:
        return True
    sure = audit.confidence is None or audit.confidence >= BEYOND_DOUBT
    return above and sure and not audit.assumes_gdp


def _contradiction(s: Statement) -> Headline:
    sentence = (
        f"Do not rely on this model's privacy: {s.terms}, {s.neighbours}, is {s.basis}, "
        f"but {s.against}."
    )
    return Headline(verdict="contradicted", sentence=sentence, statement=s)


def _sentence(s: Statement) -> Headline:
    terms = f"{s.terms}, {s.neighbours}"
    if s.basis == "audited":
        sentence = (
            f"No upper limit is known on what this model reveals about any one {s.unit}; "
            f"an attack on it measured {terms}, audited."
        )
    elif s.basis == "claimed":
        sentence = (
            f"The method's authors claim a limit on what this model reveals about any one "
            f"{s.unit}, but it is not proved: {terms}, claimed."
        )
    else:
        sentence = f"{_proved_words(s)}: {terms}, proved."
    return Headline(verdict=s.basis, sentence=sentence, statement=s)


def _proved_words(s: Statement) -> str:
    """As strong as the figure allows, and no stronger."""
    otherwise = {"replace-one": "been another", "zero-out": "been blanked out"}.get(
        s.adjacency, "not been in the data"
    )
    if s.epsilon <= _NEARLY_THE_SAME:
        return (
            f"Whoever sees this model learns nearly the same about any one {s.unit} "
            f"as if that {s.unit} had {otherwise}"
        )
    if s.epsilon <= _WEAK:
        return (
            f"What this model reveals about any one {s.unit}, compared with a model trained as if "
            f"that {s.unit} had {otherwise}, is limited"
        )
    return f"What this model reveals about any one {s.unit} is limited only weakly"
