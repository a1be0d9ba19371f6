"""The terminal card of a release: one screen, readable without colour and when piped."""

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privet.guarantee import REFUTED
from privet.reports import card, figures, records
from privet.reports.mechanism import sampler_note, unusual

# What one screen of 24 lines has room for; the report holds the rest.
_MOST_REASONS = 3
_MOST_REASONS_AND_STATEMENTS = 5
_LONGEST_VALUE = 130
_ONE_LINE = 66
_MEASURED = ("robustness", "attacks", "audit")

_STYLES = {
    "proved": "bold green",
    "claimed": "bold yellow",
    "audited": "bold blue",
    "withheld": "bold",
    "contradicted": "bold white on red",
}
_WITHOUT_UNICODE = {"ε": "epsilon", "δ": "delta", "∞": "infinite", "≥": ">="}

Words = list[tuple[str, str]]  # pieces of a line, each with its style


def print_card(
    trust: Mapping[str, Any], console: Console, *, report: str | PathLike[str] | None = None
) -> None:
    """Print the card on one screen (24 lines of 80 columns); `report` is where the HTML lies."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    rows = [*_rows(trust), *([("report", [(fspath(report), "")])] if report is not None else [])]
    for name, words in rows:
        legible = [(_legible(text, console.encoding), style) for text, style in words]
        grid.add_row(name, Text.assemble(*legible))
    console.print(grid)


def _rows(trust: Mapping[str, Any]) -> Iterator[tuple[str, Words]]:
    data = trust.get("data") or {}
    analysed = trust.get("analysis") not in (None, "", "none")
    analysis = f" ({trust['analysis']} analysis)" if analysed else ""
    yield "model", _plain(f"{trust.get('method')}{analysis} on {data.get('name')}")
    yield from _worth_rows(trust)
    notes = [note for note in (sampler_note(trust), ", ".join(unusual(trust))) if note]
    yield from _privacy_rows(trust, taken=len(notes))
    yield from _caution_row(trust)
    yield "mechanism", _plain(_mechanism(trust.get("mechanism") or {}, "federation" in trust))
    yield from (("", _plain(note)) for note in notes)
    yield from ((part, _plain(text, _ONE_LINE)) for part, text in card.fixed_parts(trust))
    tuning = card.tuning(trust)
    yield "tuning", _plain(tuning.sentence)
    if tuning.chosen:
        yield "chosen", _plain(figures.value_text(tuning.chosen), _ONE_LINE)
    asked = _MEASURED if records.schema_of(trust) is None else ("audit",)
    yield "measured", _plain(", ".join(f"{name} {_measured(trust, name)}" for name in asked))


def _caution_row(trust: Mapping[str, Any]) -> Iterator[tuple[str, Words]]:
    size = (trust.get("data") or {}).get("nominal_size") or 0
    stated = card.statements(trust)
    if size and stated and max(s.delta for s in stated) * size >= 1:
        words = (
            f"delta is not below 1/{size}: "
            f"such a guarantee allows publishing a whole {stated[0].unit}"
        )
        yield "caution", [(words, "bold red")]


def _privacy_rows(trust: Mapping[str, Any], *, taken: int) -> Iterator[tuple[str, Words]]:
    """Reasons and statements, fewer by as many as there are notes elsewhere."""
    reasons, statements = card.withheld(trust), card.statements(trust)
    most = _MOST_REASONS - taken
    title = "privacy"
    if reasons or not statements:
        said = "no privacy guarantee is given" if reasons else "the card states no guarantee"
        yield title, [("withheld", _STYLES["withheld"]), (f": {said}", "")]
        title = ""
    for reason in reasons[:most]:
        yield "", _plain(f"- {reason}")
    room = _MOST_REASONS_AND_STATEMENTS - taken - len(reasons[:most])
    # where not all find room, a contradiction must
    for statement in sorted(statements, key=lambda s: not s.contradicted)[:room]:
        yield title, _statement(statement)
        title = ""
    hidden = len(reasons[most:]) + len(statements[room:])
    if hidden:
        yield "", _plain(f"and {hidden} more, see the report")


def _statement(s: card.Statement) -> Words:
    words = [(s.basis, _STYLES[s.basis]), (f" {s.terms}, {s.neighbours}", "")]
    gaps = sum(not gap.startswith(REFUTED) for gap in s.gaps)
    if gaps:
        words.append((f" ({gaps} known gap{'s' if gaps > 1 else ''})", ""))
    if s.contradicted:
        words += [(" ", ""), ("CONTRADICTED", _STYLES["contradicted"]), (f": {s.against}", "")]
    elif s.refuted:
        words += [(" ", ""), ("REFUTED", _STYLES["contradicted"]), (f": {s.against}", "")]
    return words


def _worth_rows(trust: Mapping[str, Any]) -> Iterator[tuple[str, Words]]:
    """How good the model is, or what it makes."""
    schema = records.schema_of(trust)
    if schema is None:
        yield "accuracy", _plain(_accuracy(trust))
        return
    yield "records", _plain(records.in_a_line(schema))
    yield "fidelity", _plain("not published: it is measured on private records")


def _accuracy(trust: Mapping[str, Any]) -> str:
    utility, data = trust.get("utility") or {}, trust.get("data") or {}
    if "test_accuracy" not in utility:
        public = data.get("test_is_public")
        return "not measured" if public else "not published: the test records are private"
    text = figures.percent(utility["test_accuracy"])
    if "interval95" in utility:
        text += f" (95 % interval {figures.interval(*utility['interval95'])})"
    if "test_examples" in utility:
        text += f" on {utility['test_examples']} test examples"
    return text + card.under_attack(trust)


def _measured(trust: Mapping[str, Any], name: str) -> str:
    rows = trust.get(name) or ()
    if name == "audit" and rows:
        least = min(len(row.get("assumptions") or ()) for row in rows)  # not one that assumes more
        bounds = [row["epsilon"] for row in rows if len(row.get("assumptions") or ()) == least]
        return f"ε ≥ {figures.at_least(max(bounds))}"
    count = len(rows)
    return f"{count} result(s), see the report" if count else "not measured"


def _mechanism(mechanism: Mapping[str, Any], federated: bool) -> str:
    if mechanism.get("noise") == "none" and federated:
        return f"{figures.value_text(mechanism.get('steps'))} rounds, without clipping and noise"
    if mechanism.get("noise") == "none":
        steps, batch = (figures.value_text(mechanism.get(name)) for name in ("steps", "batch"))
        return f"{steps} steps of {batch}, without clipping and noise"
    if mechanism.get("sampler") == "local":
        named = ("dimensions", "record_norm", "noise_scale", "keep_probability")
        cells, norm, scale, kept = (figures.value_text(mechanism.get(name)) for name in named)
        return (
            f"{cells} numbers a record, L1 norm {norm}, Laplace noise {scale}; labels kept with "
            f"probability {kept}"
        )
    if mechanism.get("sampler") in ("self-selected", "server-sampled"):
        return _federated(mechanism)
    known = ("steps", "sampler", "sampling_rate", "noise_multiplier", "clip_norm")
    if not all(name in mechanism for name in known):  # another method's: say what it says
        return figures.value_text(mechanism or None)
    steps, sampler, rate, noise, clip = (figures.value_text(mechanism[name]) for name in known)
    redone = mechanism.get("redone_steps")
    again = f" and {redone} charged again" if redone else ""
    cycle = mechanism.get("cycle", 1)
    turns = "" if cycle == 1 else f" in cycles of {cycle}"
    return (
        f"{steps} steps{again}{turns}, {sampler} sampling at rate {rate}, "
        f"noise {noise} x clip norm {clip}"
    )


def _federated(mechanism: Mapping[str, Any]) -> str:
    """Of clients whose updates are summed: how often one may be in, and the noise."""
    named = ("steps", "participations", "apart", "sampling_rate", "noise_multiplier", "clip_norm")
    rounds, most, apart, rate, noise, clip = (
        figures.value_text(mechanism.get(name)) for name in named
    )
    asked = f"every client asked with chance {rate}"
    if mechanism["sampler"] == "self-selected":
        asked = f"a client in at most {most}" + ("" if apart == "1" else f", {apart} apart")
    return f"{rounds} rounds, {asked}, noise {noise} x clip norm {clip} on the sum"


def _plain(text: str, most: int = _LONGEST_VALUE) -> Words:
    return [(text if len(text) <= most else f"{text[: most - 3]}...", "")]


def _legible(text: str, encoding: str) -> str:
    """Keep control sequences in foreign names, and letters the terminal lacks, off the screen."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    if encoding.lower().startswith("utf"):
        return printable
    for letter, word in _WITHOUT_UNICODE.items():
        printable = printable.replace(letter, word)
    return printable.encode(encoding, "replace").decode(encoding)
