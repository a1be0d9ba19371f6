"""The report of a release: one HTML file that a lawyer understands and an expert would sign."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from privet.data.dataset import EXAMPLE
from privet.reports import card, figures, records
from privet.reports.curves import Curves, detection_bound_from_epsilon
from privet.reports.event_tree import event_tree
from privet.reports.look import badge, page
from privet.reports.mechanism import clipping_text, sampler_note, unusual

# The rate at which membership attacks are usually compared (Carlini et al. 2022).
FALSE_POSITIVES = 0.01

# What a reader may not know about the terms of a mechanism; added behind the value.
_MECHANISM = {
    "sampling_rate": "the chance of one unit to be in a step",
    "cycle": "the steps in which one unit has one turn",
    "clip_norm": "the longest gradient of one unit",
    "precision": "in which gradients were computed",
    "noise_multiplier": "in clip norms",
    "normaliser": "the constant divisor of each step",
    "redone_steps": "after interruptions",
    "participations": "the most steps that one unit may be in",
    "apart": "the fewest steps from one of a unit to its next",
    "places": "randomised records, those of nobody among them",
    "dimensions": "the numbers of one record that are noised",
    "record_norm": "the L1 norm to which a record is shortened",
    "noise_scale": "of the Laplace noise on each number",
    "redrawn": "the chance of a label to be drawn anew from all classes",
    "keep_probability": "the chance of a label to stay what it was",
    "torch_draws": "whether PyTorch's generators drew dropout, views or a unit's records",
}
_SELECTION = {
    "mean": "the expected number of runs; the true one stays secret",
    "shape": "of the distribution of that number; 1 is geometric",
    "holdout": "the share of units that scored the runs and trained none",
    "score_multiplier": "the noise on the number of correct answers",
}
_MANY = 12


def render_report(trust: Mapping[str, Any], curves: Curves) -> str:
    """Render a trust card and the curves of its strongest guarantee as one self-contained page."""
    view = _view(trust, curves)
    body = _environment().get_template("release.html.jinja").render(view)
    return page(f"Trust card: {view['method']} on {view['data_name']}", body)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("privet.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(badge=badge)
    return environment


def _view(trust: Mapping[str, Any], curves: Curves) -> dict[str, Any]:
    headline = card.headline(trust)
    bound = _attack_bound(headline, curves)
    return {
        "method": str(trust.get("method", "unknown method")),
        "analysis": "" if trust.get("analysis") == "none" else str(trust.get("analysis", "")),
        "data_name": str(_part(trust, "data").get("name", "unnamed data")),
        "unit": str(_part(trust, "data").get("unit", EXAMPLE)),
        "of_records": str(_part(trust, "data").get("unit", EXAMPLE)) == EXAMPLE,
        "headline": headline,
        "withheld": card.withheld(trust),
        "statements": card.statements(trust),
        "attack": _attack_sentence(headline, bound),
        "bound": None if bound is None else figures.percent_at_most(bound),
        "plots": _plots(trust, curves, headline, bound),
        "cautions": _cautions(trust, headline),
        "utility": _utility(trust),
        "mechanism": _mechanism(trust),
        "tuning": _tuning(trust),
        "data": _data_facts(trust),
        "provenance": _provenance(trust),
        "settings": _settings(trust),
        "events": [(e.get("label", ""), event_tree(e.get("event", {}))) for e in _events(trust)],
        "measured": {
            name: _table(trust.get(name) or ()) for name in ("robustness", "attacks", "audit")
        },
        "test_is_public": bool(_part(trust, "data").get("test_is_public")),
        "makes_records": records.schema_of(trust) is not None,
    }


def _part(trust: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = trust.get(name) or {}
    return part if isinstance(part, Mapping) else {}


def _events(trust: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [event for event in trust.get("events") or () if isinstance(event, Mapping)]


def _attack_bound(headline: card.Headline, curves: Curves) -> float | None:
    """The best bound on members found; none when the statement bounds nothing from above."""
    s = headline.statement
    if s is None or headline.verdict not in ("proved", "claimed"):
        return None
    by_epsilon = detection_bound_from_epsilon(s.epsilon, s.delta, FALSE_POSITIVES)
    return min(by_epsilon, curves.detection_bound(FALSE_POSITIVES))


def _attack_sentence(headline: card.Headline, bound: float | None) -> str:
    if bound is None:
        return ""
    found = figures.percent_at_most(bound)
    claim = "If the claim holds: at" if headline.verdict == "claimed" else "At"
    return f"{claim} 1 % false positives an attacker finds at most {found} of members."


def _plots(
    trust: Mapping[str, Any], curves: Curves, headline: card.Headline, bound: float | None
) -> dict[str, Markup]:
    s = headline.statement
    if s is None or bound is None:
        return {}
    from privet.reports import plots  # matplotlib is slow to import; only a report needs it

    target = _part(_part(trust, "provenance"), "config").get("epsilon")
    drawn = {}
    if curves.tradeoff:
        sentence = _attack_sentence(headline, bound)
        drawn["tradeoff"] = Markup(plots.tradeoff_plot(curves.tradeoff, sentence))
    if curves.epsilon_by_step:
        drawn["steps"] = Markup(plots.epsilon_plot(curves.epsilon_by_step, target))
    if any(delta > 0 for _, delta in curves.profile):
        released = (s.epsilon, s.delta)
        audited = [
            (audit.epsilon, audit.delta)
            for audit in card.audits(trust)
            if audit.adjacency == s.adjacency and not audit.assumes_gdp
        ]
        drawn["profile"] = Markup(plots.profile_plot(curves.profile, released, s.basis, audited))
    return drawn


def _cautions(trust: Mapping[str, Any], headline: card.Headline) -> list[str]:
    """What an expert would hold against the figures, said before they have to."""
    s, size = headline.statement, _part(trust, "data").get("nominal_size")
    if s is None or not size or s.delta < 1 / size:
        return []
    return [
        f"δ = {s.delta_text} is not below 1/{size}, one over the nominal size of the data: a "
        f"mechanism that publishes a few whole {s.unit}s at random could meet it."
    ]


def _utility(trust: Mapping[str, Any]) -> dict[str, str]:
    utility = dict(_part(trust, "utility"))
    facts = {}
    if "test_accuracy" in utility:
        accuracy = figures.percent(utility.pop("test_accuracy"))
        facts["test accuracy"] = accuracy + card.under_attack(trust)
    if "interval95" in utility:
        facts["95 % interval"] = figures.interval(*utility.pop("interval95"))
    return facts | _texts(utility)


def _explained(part: Mapping[str, Any], meanings: Mapping[str, str]) -> dict[str, str]:
    facts = _texts(part)
    for key, meaning in meanings.items():
        if key in part:
            facts[figures.label(key)] += f", {meaning}"
    return facts


def _mechanism(trust: Mapping[str, Any]) -> dict[str, str]:
    part, note = _part(trust, "mechanism"), sampler_note(trust)
    facts = _explained(part, _MECHANISM)
    if "clipping" in part:
        facts["clipping"] = clipping_text(part)
    if note:
        facts["sampler"] += f": {note}"
    besides = ", ".join(unusual(trust))
    return facts | ({"besides": besides} if besides else {})


def _tuning(trust: Mapping[str, Any]) -> dict[str, str]:
    """How the settings were chosen, and by what mechanism where it was a private one."""
    said, selected = card.tuning(trust), _part(_part(trust, "tuning"), "selected")
    facts = {"kind": said.sentence}
    if said.chosen:
        facts["chosen"] = figures.value_text(said.chosen)
    return facts | _explained(selected, _SELECTION)


def _data_facts(trust: Mapping[str, Any]) -> dict[str, str]:
    data = dict(_part(trust, "data"))
    facts = {}
    if "name" in data:
        facts["name"] = str(data.pop("name"))
    counted = f" {data['unit']}s" if "unit" in data else ""
    if "unit" in data:
        facts["unit of privacy"] = _unit(data.pop("unit"), data.pop("grouped", None))
    if "nominal_size" in data:
        facts["nominal size"] = f"{data.pop('nominal_size')}{counted} (declared, not counted)"
    schema = records.schema_of(trust)
    if schema is not None:  # what the network is fed, codes, would tell a reader nothing
        facts |= records.facts(schema)
        coded = ("schema", "classes", "bounds", "shape", "features", "test_is_public")
        data = {key: value for key, value in data.items() if key not in coded}
    if "classes" in data:
        facts["classes"] = _shortened(data.pop("classes"))
    if "bounds" in data:
        facts["bounds of the values"] = _bounds(data.pop("bounds"))
    if "shape" in data:
        facts["shape of one example"] = " × ".join(str(n) for n in data.pop("shape"))
    if "test_is_public" in data:
        facts["test records are public"] = figures.value_text(data.pop("test_is_public"))
    if "learned" in data:
        facts["learned privately"] = _learned(trust, data.pop("learned"))
    return facts | _texts(data)


def _unit(name: Any, grouped: Any) -> str:
    """What is protected as one; and where only a name says whose a record is, that it does."""
    if grouped:
        return f"one {name}, with all its records"
    bare = grouped is False and name != EXAMPLE
    return f"one {name}, if none has more than one record" if bare else f"one {name}"


def _learned(trust: Mapping[str, Any], learned: Any) -> str:
    """Facts with their price; a card that withholds its guarantee shows no price either."""
    if not card.withheld(trust):
        return figures.value_text(learned)
    return ", ".join(figures.value_text(fact.get("name")) for fact in learned) or "none"


def _bounds(bounds: Mapping[str, Any]) -> str:
    pairs = zip(bounds.get("low", ()), bounds.get("high", ()), strict=False)
    return _shortened([f"{low:g} to {high:g}" for low, high in pairs])


def _shortened(items: list[Any]) -> str:
    shown = ", ".join(figures.value_text(item) for item in items[:_MANY])
    return f"{shown} and {len(items) - _MANY} more" if len(items) > _MANY else shown


def _provenance(trust: Mapping[str, Any]) -> dict[str, str]:
    provenance = _part(trust, "provenance")
    facts = _texts({key: value for key, value in provenance.items() if key != "config"})
    return facts | {f"{part}, taken as it came": text for part, text in card.fixed_parts(trust)}


def _settings(trust: Mapping[str, Any]) -> dict[str, str]:
    """The settings of the run; a target that was not reached must not pass for a figure."""
    config = _part(_part(trust, "provenance"), "config")
    hidden = ("epsilon", "delta") if card.withheld(trust) else ()
    return _texts({key: value for key, value in config.items() if key not in hidden})


def _texts(facts: Mapping[str, Any]) -> dict[str, str]:
    return {figures.label(key): figures.value_text(value) for key, value in facts.items()}


def _table(rows: Any) -> tuple[list[str], list[list[str]]]:
    """Any list of records as a header and cells; columns in order of first appearance."""
    records = [row if isinstance(row, Mapping) else {"result": row} for row in rows]
    keys = list(dict.fromkeys(key for record in records for key in record))
    cells = [[figures.value_text(r[k]) if k in r else "" for k in keys] for r in records]
    return [figures.label(key) for key in keys], cells
