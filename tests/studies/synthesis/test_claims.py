"""The papers' own figures meet the papers' claims; turned around, they do not."""

from itertools import combinations

import pytest

from privet.studies.synthesis.claims import checked, rankings
from privet.studies.synthesis.published import AAAI, BY_FEATURE, THESIS_MIMIC
from privet.studies.synthesis.sources import PUBLIC

SHOWN = PUBLIC["simulator"]
COLUMNS = {"time": "time between rows", "heart rate": "heartrate", "SBP": "sbp"}


def published_rows(make_row, suffix="", turned=False):
    """Rows that have the papers' figures; `turned`: what is small is large."""
    rows = []
    for base, (distance, cosine) in THESIS_MIMIC.items():
        with_time = base in ("dgatt", "dgamt", "edgamt", "igamt")
        sign = -1.0 if turned else 1.0
        by_column = {c: sign * BY_FEATURE[base][f][0] for f, c in COLUMNS.items()}
        shown = 1.0 if with_time != turned else 9.0
        better = (base == "igamt") != turned
        rows.append(
            make_row(
                base + suffix, dist=[sign * distance], cos=[sign * cosine],
                acc=[82.0 if better else 60.0],
                others={"timing.mean_gap": [shown], "missing-patterns.per_record": [shown]},
                columns={"distance": by_column, "kl": {"a": 1.0 if better else 2.0, "b": 3.0}},
            )
        )  # fmt: skip
    return rows


@pytest.fixture
def real(make_row):
    return make_row("real", acc=[80.5])


def by_analysis(told, analysis):
    return {one["says"]: one["holds"] for one in told if one["analysis"] == analysis}


def test_the_papers_figures_meet_the_papers_claims(make_row, real):
    told = checked(published_rows(make_row, ":paper"), real, 1.5, SHOWN)
    found = by_analysis(told, "paper")
    assert len(found) == 7
    kl = "the divergence of IGAMT's columns is below DAAE's"
    assert {says for says, holds in found.items() if not holds} == {kl}  # a tie is not below
    assert by_analysis(told, "sound") == {}


def test_turned_around_none_is_met(make_row, real):
    told = checked(published_rows(make_row, turned=True), real, 1.5, SHOWN)
    assert set(by_analysis(told, "sound").values()) == {False}


def test_without_a_row_that_it_speaks_of_a_claim_is_open(make_row, real):
    rows = [row for row in published_rows(make_row) if row["base"] not in ("gan", "edgamt")]
    found = by_analysis(checked(rows, real, 1.5, SHOWN), "sound")
    (useful,) = [says for says in found if "learns as much" in says]
    (below,) = [says for says in found if "below DAAE's" in says]
    assert {says for says, holds in found.items() if holds is not None} == {useful, below}


def test_a_figure_that_is_missing_leaves_it_open(make_row, real):
    rows = published_rows(make_row)
    rows[-1]["figures"]["clusters.minkowski_sum"] = None
    found = by_analysis(checked(rows, real, 1.5, SHOWN), "sound")
    assert found["the imitator brings IGAMT nearer"] is None


def test_two_points_below_real_records_are_as_useful(make_row, real):
    claim = "a classifier learns as much from IGAMT's records, within 2 points"
    for accuracy, holds in ((78.5, True), (78.4, False), (90.0, True)):
        rows = [make_row("vae"), make_row("igamt", acc=[accuracy])]
        assert by_analysis(checked(rows, real, 1.5, SHOWN), "sound")[claim] is holds


def test_orders_are_compared_by_pairs(make_row):
    """Kendall's tau by counting pairs; there are no ties."""
    rows = published_rows(make_row, ":paper")
    assert {one["published"]: one["tau"] for one in rankings(rows, 1.5)}[
        "thesis, MIMIC-IV-ED"
    ] == pytest.approx(1.0)
    ours = {base: THESIS_MIMIC[base][0] for base in AAAI}
    signs = [
        1 if (ours[a] - ours[b]) * (AAAI[a][0] - AAAI[b][0]) > 0 else -1
        for a, b in combinations(AAAI, 2)
    ]
    (found,) = [one for one in rankings(rows, 1.5) if one["published"] == "AAAI"]
    assert found["tau"] == pytest.approx(sum(signs) / len(signs))
    assert found["theirs"] == ["igamt", "aae", "vae", "vaegan", "gan", "daae"]


def test_two_contenders_have_no_order(make_row):
    assert rankings([make_row("vae"), make_row("igamt")], 1.5) == []
