"""The report in a real browser."""

import os
import shutil
import subprocess

import pytest

from privet.reports import Curves, render_report

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
WIDTH_PROBE = "<script>document.title = document.documentElement.scrollWidth</script></body>"


@pytest.fixture
def browser():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        message = "no Chromium here"
        if os.environ.get("PRIVET_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.mark.parametrize("width", [500, 1100])
def test_the_report_fits_the_window_and_shows_its_figures(browser, card, tmp_path, width):
    page = tmp_path / "report.html"
    html = render_report(card(), Curves())
    assert "Content-Security-Policy" in html  # which forbids scripts: the probe must lift it
    unguarded = html.replace("Content-Security-Policy", "X-None")
    page.write_text(unguarded.replace("</body>", WIDTH_PROBE))
    outcome = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
         "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "ε = 2.98" in outcome.stdout
    shown = int(outcome.stdout.split("<title>")[1].split("</title>")[0])
    assert shown <= width
