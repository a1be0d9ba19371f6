import re

import pytest

from privet.reports import look

TEXT = ["ink", "muted", "accent", "proved", "claimed", "audited", "withheld", "contradicted"]


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("role", TEXT)
@pytest.mark.parametrize("ground", ["paper", "card"])
@pytest.mark.parametrize("shade", [0, 1], ids=["light", "dark"])
def test_text_is_legible_in_both_shades(role: str, ground: str, shade: int) -> None:
    pair = sorted(luminance(look.PALETTE[name][shade]) for name in (role, ground))
    assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5  # WCAG 2.2, level AA


def test_each_role_has_a_colour_of_its_own() -> None:
    for shade in (0, 1):
        assert len({colours[shade] for colours in look.PALETTE.values()}) == len(look.PALETTE)


def test_the_rules_use_only_variables_that_exist() -> None:
    css = look.stylesheet()
    assert set(re.findall(r"var\((--[a-z]+)\)", css)) <= set(re.findall(r"(--[a-z]+):", css))


def test_the_title_is_escaped_and_the_body_is_not() -> None:
    page = look.page("a < b", "<p>body</p>")
    assert "<title>a &lt; b</title>" in page
    assert "<p>body</p>" in page


def test_a_badge_says_its_basis_in_words() -> None:
    assert look.badge("audited") == '<span class="badge audited">audited</span>'
    assert ">CONTRADICTED<" in look.badge("contradicted")
    assert "<script>" not in look.badge("<script>")
