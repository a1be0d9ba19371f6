"""The page on L2DP-ML has the figures of the record that takes it apart."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
BOTH = "first layer held, conditional projection"
ARMS = {
    "published, ε = ([0-9,]+) claimed": "published, claimed {}",
    "without noise": "no noise",
    "without noise, projection conditional": "no noise, conditional projection",
    "without noise, without reconstruction": "no noise, first layer held",
    "without noise and reconstruction, projection conditional": f"no noise, {BOTH}",
    "the same, with the noise of ε = (3) claimed": "claimed {}, " + BOTH,
    "the same, of ([0-9,]+)": "claimed {}, " + BOTH,
    "ε = 3, the noise on the inputs alone": "chi1 alone, of claimed 3",
    "ε = 3, that on the first layer alone": "chi2 alone, of claimed 3",
    "ε = 3, that on the labels alone": "chi3 alone, of claimed 3",
    "`--variant agem`, the twin": "twin",
    "the twin, projection as printed": "twin, projection as printed",
}


def arm_of(label):
    """Of a line of the table."""
    for pattern, arm in ARMS.items():
        if found := re.fullmatch(pattern, label):
            return arm.format(*(group.replace(",", "") for group in found.groups()))
    raise AssertionError(label)


def test_the_page_has_the_figures_of_the_record():
    record = json.loads((ROOT / "benchmarks/results/lifelong_published.json").read_text())
    rows = {row["arm"]: row for row in record["rows"]}
    page = (ROOT / "docs/methods/l2dp.md").read_text()
    section = page.split("### Why it is not near A-GEM")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == 18
    for line in lines:
        label, *shown = (cell.strip() for cell in line.strip("|").split("|"))
        row = rows[arm_of(label)]
        first, accuracy = row["average_accuracy"][0], row["accuracy"]
        assert shown == [
            f"{100 * sum(first) / len(first):.1f} %",
            f"{100 * accuracy['mean']:.1f} %",
            f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}",
            f"{100 * row['forgetting']:.1f}",
        ], label
