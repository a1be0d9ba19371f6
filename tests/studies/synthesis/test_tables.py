import csv
import io

import pytest

from privet.studies.synthesis.claims import checked, rankings
from privet.studies.synthesis.contest import contest
from privet.studies.synthesis.sources import PUBLIC
from privet.studies.synthesis.tables import all_tables, as_csv, contest_table, missing_table

SHOWN = PUBLIC["simulator"]
COLUMNS = {
    "kl": {"time between rows": 0.5, "heartrate": 0.25},
    "distance": {"time between rows": 1.5, "heartrate": 1.25, "sbp": 2.0},
    "cosine": {"time between rows": 0.5, "heartrate": 0.75, "sbp": 0.5},
    "empty": {"heartrate": 3.0},
}


@pytest.fixture
def results(make_row):
    rows = [
        make_row("autoregressive", columns=COLUMNS),
        make_row("vae", dist=[5.0, 5.1], columns=COLUMNS),
        make_row("igamt", dist=[4.0, 4.1], corr=None, time=[0.25, 0.25], columns=COLUMNS),
        make_row("igamt:paper", columns=COLUMNS),
    ]
    real = make_row("real", columns=COLUMNS)
    return {
        "data": "simulator", "label": "dbp", "time_unit": "minutes", "epsilon": 1.5,
        "shown": {"heart_rate": "heartrate", "systolic": "sbp", "label": "dbp"},
        "rows": rows, "yardstick": real, "contest": contest(rows, 1.5),
        "claims": checked(rows, real, 1.5, SHOWN), "rankings": rankings(rows, 1.5),
        "failed": [{"cell": "x", "name": "gan", "epsilon": 1.5, "seed": 2, "why": "no memory"}],
        "left_out": {"daae": "there is no method 'daae'"},
    }  # fmt: skip


def titled(results, begin):
    (table,) = [t for t in all_tables(results) if t.title.startswith(begin)]
    return table


def cells(table, name):
    (row,) = [row for row in table.rows if row[0] == name]
    return dict(zip(table.head, row, strict=True))


def test_ours_stand_beside_the_published(results):
    overall = cells(titled(results, "Overall similarity"), "igamt")
    assert overall["distance ↓"] == "4.05 (4 to 4.1)"
    assert overall["thesis, MIMIC-IV-ED (published)"] == "3.97 / 0.54"
    assert overall["AAAI (published)"] == "3.97 / 0.82"
    assert cells(titled(results, "Overall"), "autoregressive")["AAAI (published)"] == "-"
    feature = cells(titled(results, "Similarity by column"), "vae")
    assert feature["sbp, distance / cosine"] == "2 / 0.5"
    assert feature["SBP (published)"] == "1.08 / -0.30"
    assert "published" in titled(results, "Kullback-Leibler divergence of each column, publ").title


def test_the_basis_of_every_epsilon_is_told(results):
    seven = titled(results, "Seven measures")
    assert cells(seven, "igamt")["basis"] == "proved"
    assert cells(seven, "igamt:paper")["basis"] == "claimed"
    assert cells(seven, "real")["ε"] == "-"
    assert cells(seven, "igamt")["correlations ↓"] == "-"
    privacy = cells(titled(results, "Privacy"), "igamt:paper")
    assert privacy["claimed"].startswith("1.5 at δ")
    assert privacy["proved, add/remove"] == "-"


def test_the_contest_says_who_won_and_how(results):
    found = titled(results, "igamt against")
    vae = cells(found, "vae")
    assert (vae["dist."], vae["corr."], vae["KL"]) == ("+", "-", "(-)")
    assert (vae["won"], vae["lost"]) == ("1", "1")
    assert "0.25 of the best baseline's (vae" in found.note
    assert "ahead of each on at least 5: no" in found.note


def test_who_is_not_there_is_told(results):
    told = missing_table(results)
    assert ["gan", "1.5", "2", "no memory"] in told.rows
    assert ["daae", "-", "-", "there is no method 'daae'"] in told.rows
    assert "Not in these tables" in [t.title for t in all_tables(results)]
    whole = results | {"failed": [], "left_out": {}}
    assert "Not in these tables" not in [t.title for t in all_tables(whole)]


def test_without_igamt_there_is_no_contest():
    table = contest_table({"epsilon": 1.5, "why": "nobody came"})
    assert table.rows == []
    assert "nobody came" in table.note


def test_every_figure_is_a_line(results):
    lines = list(csv.DictReader(io.StringIO(as_csv(results))))
    (distance,) = [
        line for line in lines
        if line["contender"] == "igamt" and line["measure"] == "clusters"
        and line["figure"] == "minkowski_sum"
    ]  # fmt: skip
    assert float(distance["mean"]) == pytest.approx(4.05)
    assert (distance["proved"], distance["claimed"], distance["epsilon"]) == ("1.5", "", "1.5")
    kl = [line for line in lines if line["figure"] == "kl_real_other" and line["column"]]
    assert len(kl) == 2 * 5  # columns, and rows with the yardstick
    assert not [
        line for line in lines if line["contender"] == "igamt" and line["figure"] == "rows_mean"
    ]
