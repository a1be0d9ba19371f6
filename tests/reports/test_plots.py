import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import matplotlib
import pytest

from privet.reports import Curves, plots
from privet.reports.look import PALETTE


def drawings(curves: Curves) -> dict[str, str]:
    return {
        "steps": plots.epsilon_plot(curves.epsilon_by_step, 3.0),
        "profile": plots.profile_plot(curves.profile, (2.98, 1e-5), "proved"),
        "tradeoff": plots.tradeoff_plot(curves.tradeoff, "At most 5.8 % of members."),
    }


@pytest.mark.parametrize(
    ("name", "alt"),
    [
        ("steps", "Epsilon by training step: 2.98 after step 120, of 3 asked for."),
        ("profile", "This release is marked: ε = 2.98 at δ = 1e-05."),
        ("tradeoff", "At most 5.8 % of members."),
    ],
)
def test_the_alt_text_tells_what_the_plot_shows(curves: Curves, name: str, alt: str) -> None:
    svg = ET.fromstring(drawings(curves)[name])
    assert svg.get("role") == "img"
    assert alt in svg.get("aria-label", "")


def test_the_figures_are_marked_in_the_drawing(curves: Curves) -> None:
    texts = {
        name: [node.text for node in ET.fromstring(svg).iter("text")]
        for name, svg in drawings(curves).items()
    }
    assert "asked for: 3" in texts["steps"]
    assert "ε = 2.98 at δ = 1e-05" in texts["profile"]
    assert "10⁻⁵" in texts["profile"]
    assert "blind guessing" in texts["tradeoff"]


def test_without_a_target_no_target_is_drawn(curves: Curves) -> None:
    assert "asked for" not in plots.epsilon_plot(curves.epsilon_by_step, None)


def test_colours_come_from_the_page_so_that_dark_mode_works(curves: Curves) -> None:
    for svg in drawings(curves).values():
        assert not re.search(r"#[0-9a-f]{6}\b", svg)
        assert set(re.findall(r"var\(--([a-z]+)\)", svg)) <= {*PALETTE, "sans"}
        assert "<style" not in svg  # it would apply to the whole page


def test_the_basis_colours_the_released_point(curves: Curves) -> None:
    claimed = plots.profile_plot(curves.profile, (2.98, 1e-5), "claimed")
    assert "var(--claimed)" in claimed
    assert "var(--proved)" not in claimed


def test_the_settings_of_the_user_change_nothing(curves: Curves) -> None:
    plain = drawings(curves)
    with matplotlib.rc_context({"axes.facecolor": "red", "lines.marker": "x", "font.size": 30}):
        assert drawings(curves) == plain


def test_alt_text_is_escaped(curves: Curves) -> None:
    svg = plots.tradeoff_plot(curves.tradeoff, '"><script>')
    assert "<script" not in svg
    assert ET.fromstring(svg).get("aria-label", "").endswith('"><script>')


def test_importing_the_package_loads_no_plotting_and_plotting_no_pyplot() -> None:
    program = (
        "import sys, privet; before = set(sys.modules); import privet.reports\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "assert not new & {'matplotlib', 'torch'}, new\n"
        "from privet.reports import plots; plots.epsilon_plot([(1, 0.5), (2, 0.7)], None)\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_audited_bounds_are_in_the_profile_in_their_own_colour(curves) -> None:
    """Left of the released pair, and in words for those who cannot see them."""
    plain = plots.profile_plot(curves.profile, (2.98, 1e-5), "proved")
    audited = plots.profile_plot(curves.profile, (2.98, 1e-5), "proved", [(1.2, 1e-5), (1.5, 1e-5)])
    assert "var(--audited)" not in plain
    assert audited.count("var(--audited)") > plain.count("var(--audited)")
    assert "Audits found epsilon at least 1.5." in audited
    assert "Audits" not in plain
