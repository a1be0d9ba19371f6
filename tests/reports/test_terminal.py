import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from privet.reports import print_card

Make = Callable[..., dict[str, Any]]


def printed(trust: dict[str, Any], *, width: int = 80, report: str | None = None) -> list[str]:
    stream = io.StringIO()
    print_card(trust, Console(file=stream, width=width), report=report)
    return stream.getvalue().splitlines()


def words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_the_card_holds_the_figures(card: Make) -> None:
    text = words(printed(card(), report="runs/digits/report.html"))
    for piece in (
        "dpsgd (sound analysis) on digits",
        "93.0 % (95 % interval 90.0 to 95.0 %) on 360 test examples",
        "proved (ε = 2.98, δ = 1e-05), adding or removing one example",
        "proved (ε = 6.4, δ = 1e-05), replacing one example",
        "120 steps, poisson sampling at rate 0.178, noise 2.1 x clip norm 1",
        "robustness not measured",
        "report runs/digits/report.html",
    ):
        assert piece in text


@pytest.mark.parametrize("reasons", [0, 1, 9])
def test_the_fullest_card_fits_one_screen(card: Make, figure: Make, reasons: int) -> None:
    claims = [figure(basis="claimed", epsilon=0.1, gaps=["gap"] * 9) for _ in range(9)]
    trust = card(
        privacy=[figure(basis="audited", epsilon=5.0), *claims],
        withheld=["a long reason " * 40 for _ in range(reasons)],
        data=card()["data"] | {"name": "n" * 400},
        mechanism={f"setting_{n}": n for n in range(50)},
    )
    trust["tuning"] = {"kind": "charged", "detail": "the best " * 40}
    trust["provenance"] = {"config": {"search": {f"setting_{n}": [] for n in range(60)}}}
    lines = printed(trust, report="a/long/path/" * 8 + "report.html")
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80
    # ten figures and the reasons, of which five in all and at most three reasons are shown
    assert f"and {10 + reasons - 5} more, see the report" in words(lines)
    assert "CONTRADICTED" in words(lines)


@pytest.mark.parametrize("reasons", [0, 1, 9])
def test_a_card_with_much_to_say_of_its_mechanism_fits_too(
    card: Make, figure: Make, reasons: int
) -> None:
    trust = card(
        privacy=[figure(basis="claimed", epsilon=0.1, gaps=["gap"] * 9) for _ in range(9)]
        + [figure(basis="audited", epsilon=5.0)],
        withheld=["a long reason " * 40 for _ in range(reasons)],
        data=card()["data"] | {"name": "n" * 400},
        mechanism=card()["mechanism"]
        | {"sampler": "shuffled", "cycle": 5, "bands": [0.7] * 12, "sampling_rate": 1 / 3}
        | {"clipping": {"name": "per-layer", "numbers": {}}},
    )
    trust["tuning"] = {"kind": "charged", "detail": "the best " * 40}
    trust["provenance"] = {"config": {"search": dict.fromkeys("abc" * 20), "augment": "flip-crop"}}
    lines = printed(trust, report="a/long/path/" * 8 + "report.html")
    assert len(lines) <= 24
    text = words(lines)
    assert "120 steps in cycles of 5, shuffled sampling" in text
    assert "no amplification by sampling; zero-out and replace-one neighbours" in text
    assert "per-layer clipping, noise correlated over 12 steps, a random view" in text
    assert "CONTRADICTED" in text
    shown = min(reasons, 1)  # of three things in all
    assert f"and {10 - (3 - shown) + reasons - shown} more, see the report" in text


def test_a_caution_names_the_unit(card: Make, figure: Make) -> None:
    trust = card(privacy=[figure(delta=0.01, unit="patient")])
    assert "allows publishing a whole patient" in words(printed(trust))


@pytest.mark.parametrize("width", [30, 40])
def test_a_narrow_terminal_loses_no_word(card: Make, width: int) -> None:
    lines = printed(card(), width=width)
    assert max(len(line) for line in lines) <= width
    for figure in ("93.0 %", "2.98", "6.4", "1e-05", "adding or", "replacing"):
        assert figure in words(lines)


def test_a_withholding_card_gives_reasons_and_no_figure(card: Make, figure: Make) -> None:
    text = words(printed(card(withheld=["a noise seed was given"], privacy=[figure()])))
    assert "privacy withheld: no privacy guarantee is given - a noise seed was given" in text
    assert not re.search(r"ε|epsilon|2\.98", text)


def test_a_contradicted_claim_says_so_in_words(card: Make, figure: Make) -> None:
    claim, audit = figure(basis="claimed", epsilon=0.2), figure(basis="audited", epsilon=1.234)
    text = words(printed(card(privacy=[claim, audit])))
    assert "CONTRADICTED: an audit measured ε ≥ 1.23" in text
    assert "audited (ε ≥ 1.23, δ = 1e-05)" in text


@pytest.mark.parametrize(
    ("gaps", "said"),
    [(["refuted: so", "a", "b"], "2 known gaps"), (["a"], "1 known gap)"), (["refuted: so"], "")],
)
def test_a_refutation_is_no_gap(card: Make, figure: Make, gaps: list[str], said: str) -> None:
    text = words(printed(card(privacy=[figure(basis="claimed", gaps=gaps)])))
    assert said in text
    assert ("known gap" in text) == bool(said)


@pytest.mark.parametrize("kind", ["declared", "public", "uncharged", "charged"])
def test_the_card_says_how_the_settings_were_chosen(card: Make, kind: str) -> None:
    text = words(printed(card(tuning={"kind": kind, "detail": "so and so"})))
    assert f"tuning {kind}: so and so" in text
    assert "chosen" not in text


def test_a_search_shows_what_it_chose(card: Make) -> None:
    config = {"learning_rate": 0.5, "momentum": 0.9, "search": {"learning_rate": [0.1, 0.5]}}
    trust = card(tuning={"kind": "charged", "detail": "d"}, provenance={"config": config})
    assert "chosen learning rate 0.5" in words(printed(trust))
    assert "momentum" not in words(printed(trust))
    assert "tuning not stated" in words(printed(card()))


def test_private_test_records_are_named_as_the_reason(card: Make) -> None:
    trust = card(utility={}, data=card()["data"] | {"test_is_public": False})
    assert "accuracy not published: the test records are private" in words(printed(trust))
    assert "accuracy not measured" in words(printed(card(utility={})))


def test_colour_only_where_it_is_wanted(card: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def colours(**settings: Any) -> bool:
        stream = io.StringIO()
        print_card(card(), Console(file=stream, width=80, **settings))
        return re.search(r"\x1b\[[\d;]*3\d", stream.getvalue()) is not None

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert colours(force_terminal=True)
    assert not colours(force_terminal=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours(force_terminal=True)


def test_foreign_names_cannot_steer_the_terminal(card: Make) -> None:
    name = "\x1b[2Jdigits\r[red]x[/red]"
    text = words(printed(card(data=card()["data"] | {"name": name})))
    assert "\x1b" not in text
    assert "?[2Jdigits?[red]x[/red]" in text


def test_a_terminal_without_unicode_spells_the_letters_out(card: Make, figure: Make) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    trust = card(privacy=[figure(), figure(basis="audited", epsilon=1.2)])
    print_card(trust, Console(file=stream, width=80))
    stream.flush()
    text = words([raw.getvalue().decode("ascii")])
    assert "proved (epsilon = 2.98, delta = 1e-05)" in text
    assert "audited (epsilon >= 1.2, delta = 1e-05)" in text


def test_a_nearly_empty_card_admits_what_it_lacks() -> None:
    text = words(printed({}))
    assert "privacy withheld: the card states no guarantee" in text
    assert "mechanism not stated" in text


def test_a_delta_that_allows_publishing_a_record_is_cautioned(card: Make, figure: Make) -> None:
    careful, careless = figure(delta=1e-5), figure(delta=1e-3)
    assert "caution" not in words(printed(card(privacy=[careful])))
    assert "delta is not below 1/1437" in words(printed(card(privacy=[careless])))
