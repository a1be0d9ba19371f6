import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from scipy.stats import norm

from privet.reports import Curves, render_report

Make = Callable[..., dict[str, Any]]
VOID = {"meta", "use", "br", "hr"}


class Page(HTMLParser):
    """What a browser would make of a page: elements, attributes, readable text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def all(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.elements if attribute in attrs]


def poisoned(value: Any, payload: str) -> Any:
    """The same card with the payload behind every text and key in it."""
    if isinstance(value, str):
        return value + payload
    if isinstance(value, dict):
        return {key: poisoned(item, payload) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, payload) for item in value]
    return value


@pytest.mark.parametrize("payload", ["<script>alert(1)</script>", '" onload="x', "'><img src=x>"])
def test_nothing_in_a_card_can_become_markup(card: Make, curves: Curves, payload: str) -> None:
    trust = poisoned(card(attacks=[{"attack": "pgd", "size": 0.1}], withheld=[]), payload)
    trust["attacks"][0][payload] = payload
    for shown in (trust, trust | {"withheld": [payload]}):
        page = Page(render_report(shown, curves))
        assert not {"script", "img", "iframe", "link"} & {tag for tag, _ in page.elements}
        assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
        assert " ".join(payload.split()) in page.text  # shown as the text it is


def test_the_page_is_whole_and_loads_nothing(card: Make, curves: Curves) -> None:
    html = render_report(card(), curves)
    page = Page(html)
    assert page.open == []
    assert not re.search(r"https?://|@import|url\((?!#)|src=|xlink", html)
    assert all(address.startswith("#") for address in page.all("href"))
    assert "default-src 'none'" in html


def test_ids_are_unique_and_every_reference_finds_its_own(card: Make, curves: Curves) -> None:
    html = render_report(card(), curves)
    ids = Page(html).all("id")
    assert len(ids) == len(set(ids)) > 0
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', html)) <= set(ids)


def test_the_same_card_gives_the_same_bytes(card: Make, curves: Curves) -> None:
    assert render_report(card(), curves).encode() == render_report(card(), curves).encode()


def test_every_figure_stands_there_with_its_basis(card: Make, figure: Make) -> None:
    claim = figure(epsilon=0.51, basis="claimed", adjacency="zero-out", gaps=["the bias leaks"])
    audit = figure(epsilon=1.17, basis="audited", delta=3e-6)
    text = Page(render_report(card(privacy=[*card()["privacy"], claim, audit]), Curves())).text
    for row in (
        "proved 2.98 1e-05 add-remove: adding or removing one example pld poisson",
        "proved 6.4 1e-05 replace-one: replacing one example pld, group of 2 poisson",
        "claimed 0.51 1e-05 zero-out: blanking out one example pld poisson",
        "audited ≥ 1.17 3e-06 add-remove: adding or removing one example pld poisson",
        "noise and sampling keys stay secret",
        "the bias leaks",
    ):
        assert row in text


@pytest.mark.parametrize("mu", [0.5, 0.75, 1.2])
def test_members_found_by_the_best_attack_on_a_gaussian(card: Make, mu: float) -> None:
    tradeoff = tuple((a / 100, float(norm.cdf(norm.ppf(1 - a / 100) - mu))) for a in range(101))
    power = norm.cdf(norm.ppf(0.01) + mu)  # Neyman-Pearson
    page = Page(render_report(card(), Curves(tradeoff=tradeoff)))
    found = re.search(r"At 1 % false positives an attacker finds at most ([\d.]+) % of", page.text)
    assert found is not None
    assert 100 * power <= float(found[1]) < 100 * power + 0.1
    assert any(found[0] in alt for alt in page.all("aria-label"))


def test_without_curves_the_bound_follows_from_epsilon(card: Make, figure: Make) -> None:
    text = Page(render_report(card(privacy=[figure(epsilon=1.0, delta=0.0)]), Curves())).text
    assert "at most 2.8 % of members" in text  # e / 100 = 2.718 %
    assert "No curves are drawn: none were computed" in text


def test_a_bound_from_a_claim_is_conditional(card: Make, figure: Make, curves: Curves) -> None:
    text = Page(render_report(card(privacy=[figure(basis="claimed")]), curves)).text
    assert "If the claim holds: at 1 % false positives" in text
    assert "provided that the claim is right" in text


def test_a_withholding_card_gives_reasons_and_no_figure(
    card: Make, figure: Make, curves: Curves
) -> None:
    data = card()["data"] | {"learned": [{"name": "vocabulary", "epsilon": 0.777}]}
    trust = card(withheld=["a noise seed was given"], privacy=[figure()], data=data)
    for given in (Curves(), curves):
        page = Page(render_report(trust, given))
        assert "withheld No privacy guarantee is given" in page.text
        assert "a noise seed was given" in page.text
        assert "No curves are drawn" in page.text
        assert "vocabulary" in page.text
        assert not re.search(r"ε|δ|epsilon|2\.98|0\.777|of members", page.text)
        assert page.all("aria-label") == []


def test_a_claim_with_a_counter_example_tells_of_no_audit(
    card: Make, figure: Make, curves: Curves
) -> None:
    """Nothing was attacked here: the page must not say that something was."""
    claim = figure(basis="claimed", gaps=["refuted: by an audit of the method"])
    trust = card(analysis="paper", withheld=["nothing is proved"], privacy=[claim])
    text = Page(render_report(trust, curves)).text
    assert "has a known counter-example" in text
    assert "The audit attacked" not in text
    assert "finds at most" not in text


def test_a_contradicted_claim_is_flagged_and_bounds_nobody(
    card: Make, figure: Make, curves: Curves
) -> None:
    claim = figure(basis="claimed", epsilon=0.2)
    audit = figure(basis="audited", epsilon=1.234)
    page = Page(render_report(card(privacy=[claim, audit]), curves))
    badges = [attrs for tag, attrs in page.elements if attrs.get("class") == "badge contradicted"]
    assert len(badges) == 2  # in the headline and beside the figure
    assert page.text.count("CONTRADICTED") == 2
    assert "measured ε ≥ 1.23." in page.text
    assert "of members" not in page.text
    agreeing = Page(render_report(card(privacy=[claim | {"epsilon": 2.0}, audit]), curves))
    assert "CONTRADICTED" not in agreeing.text


@pytest.mark.parametrize(
    ("public", "utility", "words"),
    [
        (False, {}, "The test records are private, so no accuracy is published"),
        (True, {}, "How good the model is Not measured."),
        (True, {"test_accuracy": 0.93}, "test accuracy 93.0 % Measured on public test records"),
        (False, {"test_accuracy": 0.93}, "these figures are not covered by the guarantee"),
    ],
)
def test_what_is_said_about_accuracy(
    card: Make, public: bool, utility: dict[str, float], words: str
) -> None:
    trust = card(utility=utility, data=card()["data"] | {"test_is_public": public})
    assert words in Page(render_report(trust, Curves())).text


def test_what_was_not_measured_is_named(card: Make) -> None:
    text = Page(render_report(card(), Curves())).text
    for name in ("Certified robustness", "Attacks", "Privacy audits"):
        assert f"{name}: not measured." in text
    assert "Robustness. Nothing is certified" in text


def test_what_was_measured_becomes_a_table(card: Make) -> None:
    rows = [{"norm": "l2", "radius": 0.25}, {"norm": "l2", "certified_accuracy": 0.64}]
    text = Page(render_report(card(robustness=rows), Curves())).text
    assert "norm radius certified accuracy l2 0.25 l2 0.64" in text
    assert "Robustness. Nothing is certified" not in text


def test_a_delta_that_lets_records_leak_is_called_out(card: Make, figure: Make) -> None:
    caution = "Caution: δ = 0.01 is not below 1/1437"
    assert caution in Page(render_report(card(privacy=[figure(delta=0.01)]), Curves())).text
    assert "Caution" not in Page(render_report(card(), Curves())).text


def test_facts_of_mechanism_data_and_origin_are_all_there(card: Make) -> None:
    text = Page(render_report(card(), Curves())).text
    for words in (
        "sampling rate 0.178,", "clip norm 1,", "noise multiplier 2.1,", "normaliser 256,",
        "nominal size 1437 examples (declared, not counted)", "0 to 16", "1 × 8 × 8", "CC BY 4.0",
        "blake2b-keyed:ab12cd34", "2026-11-15T09:00:00Z", "device cpu", "120 times",
    ):  # fmt: skip
        assert words in text


def test_long_lists_are_cut_and_say_so(card: Make) -> None:
    data = card()["data"] | {"classes": [f"class {n}" for n in range(100)]}
    text = Page(render_report(card(data=data), Curves())).text
    assert "class 11 and 88 more" in text


def test_a_nearly_empty_card_admits_what_it_lacks() -> None:
    text = Page(render_report({}, Curves())).text
    assert "This card states no privacy guarantee." in text
    assert "No events are recorded." in text
    assert "How it was trained Not stated." in text


def test_a_private_search_is_told_with_its_mechanism(card: Make) -> None:
    selected = {"mean": 10.0, "shape": 1.0, "holdout": 0.1, "score_multiplier": 3.5}
    config = {"learning_rate": 0.5, "search": {"learning_rate": [0.1, 0.5]}}
    trust = card(
        tuning={"kind": "charged", "detail": "the best of several", "selected": selected},
        provenance={"config": config},
    )
    text = " ".join(" ".join(Page(render_report(trust, Curves())).pieces).split())
    assert "charged: the best of several" in text
    assert "chosen learning rate 0.5" in text
    assert "10, the expected number of runs; the true one stays secret" in text
    assert "0.1, the share of units that scored the runs and trained none" in text
    assert "3.5, the noise on the number of correct answers" in text


@pytest.mark.parametrize(
    ("unit", "grouped", "said"),
    [
        ("example", False, "one example classes"),
        ("patient", False, "one patient, if none has more than one record"),
        ("patient", True, "one patient, with all its records"),
    ],
)
def test_the_report_says_whose_records_are_one(card: Make, unit, grouped, said) -> None:
    data = card()["data"] | {"unit": unit, "grouped": grouped}
    text = Page(render_report(card(data=data), Curves())).text
    assert f"unit of privacy {said.removesuffix(' classes')}" in text
    assert ("one record" in text) == (unit == "patient" and not grouped)


@pytest.mark.parametrize("unit", ["example", "patient"])
def test_no_sentence_takes_a_unit_for_a_record(card: Make, figure: Make, unit: str) -> None:
    data = card()["data"] | {"unit": unit}
    stated = Page(render_report(card(privacy=[figure(unit=unit)], data=data), Curves())).text
    assert ("such as all records of one person" in stated) == (unit == "example")
    assert ("such as patients who belong to each other" in stated) == (unit == "patient")
    assert f"nominal size 1437 {unit}s (declared, not counted)" in stated
    nothing = Page(render_report(card(privacy=[], withheld=["why"], data=data), Curves())).text
    assert f"about any one {unit} in its training data" in nothing


def test_shuffled_batches_are_told_plainly(card: Make, figure: Make) -> None:
    mechanism = card()["mechanism"] | {"sampler": "shuffled", "cycle": 5}
    blanked = figure(adjacency="zero-out", sampler="shuffled")
    text = Page(render_report(card(privacy=[blanked], mechanism=mechanism), Curves())).text
    for piece in (
        "had been blanked out",
        "was in the data or a blank in its place",
        "zero-out: blanking out one example",
        "sampler shuffled: no amplification by sampling; zero-out and replace-one neighbours, not"
        " add/remove; the number of units is public",
        "cycle 5, the steps in which one unit has one turn",
    ):
        assert piece in text
    assert "not been in the data" not in text


def test_a_clipping_geometry_is_told_with_its_numbers(card: Make) -> None:
    clipping = {"name": "per-layer", "numbers": {"0": 1.0, "2": 1.0}}
    mechanism = card()["mechanism"] | {"clipping": clipping}
    text = Page(render_report(card(mechanism=mechanism), Curves())).text
    assert "clipping per-layer; shares of the layers: 0 1, 2 1" in text
