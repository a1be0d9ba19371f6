"""Figures over seeds, gains, tests, tables and plots of made-up records."""

import csv
import io

import pytest
from scipy.stats import ttest_ind

from privet.studies.robust_private.protocol import Protocol
from privet.studies.transdenoiser.plots import all_plots
from privet.studies.transdenoiser.tables import all_tables, as_csv, summary
from privet.studies.transdenoiser.writing import results_of, write_results

TOLD = {"data": "digits", "seeds": [0, 1], "delta": 1e-5, "command": "c", "together": {"note": "n"}}
CERTIFIED = {"public-denoiser": (0.50, 0.54), "td": (0.60, 0.66), "paper": (0.70, 0.72)}


@pytest.fixture
def records(make_record):
    public = {"basis": "none", "half": "first"}
    return [
        make_record("classifier", 0, 0.2, **public),
        *(
            make_record("public-denoiser", s, CERTIFIED["public-denoiser"][s], **public)
            for s in (0, 1)
        ),
        *(make_record("td", s, CERTIFIED["td"][s]) for s in (0, 1)),
        *(make_record("paper", s, CERTIFIED["paper"][s], basis="claimed") for s in (0, 1)),
        *(make_record("paper-nodp", s, 0.8, basis="none") for s in (0, 1)),
    ]  # fmt: skip


def shown(records):
    protocol = Protocol(norm="l2", sizes=(1.0, 2.0), radii=(0.25, 0.5), attacks=("pgd",))
    return results_of(
        records, protocol=protocol, attack_norm=2.0, epsilon=1.0, radius=0.25, told=TOLD
    )


def test_gains_are_over_the_public_denoiser(records):
    gains = {row["best"]: row for row in shown(records)["gains"]["rows"]}
    assert set(gains) == {"td", "paper", "paper-nodp"}
    for name in ("td", "paper"):
        t, p = ttest_ind(CERTIFIED[name], CERTIFIED["public-denoiser"], equal_var=False)
        assert (gains[name]["t"], gains[name]["p"]) == pytest.approx((t, p))
    assert gains["td"]["points"] == pytest.approx(63 - 52)
    assert gains["paper-nodp"]["points"] == pytest.approx(80 - 52)


def test_the_best_with_a_budget_meets_each_other_one(records):
    (row,) = shown(records)["tests"]["rows"]
    assert (row["best"], row["best_basis"], row["other"]) == ("paper", "claimed", "td")
    t, p = ttest_ind(CERTIFIED["paper"], CERTIFIED["td"], equal_var=False)
    assert (row["t"], row["p"], row["points"]) == pytest.approx((t, p, 8.0))


def test_one_seed_has_gains_and_no_tests(records):
    found = shown([r for r in records if r["seed"] == 0])
    assert found["tests"]["rows"] == []
    assert "needs 2 seeds" in found["tests"]["skipped"]
    gain = next(row for row in found["gains"]["rows"] if row["best"] == "td")
    assert gain["points"] == pytest.approx(10.0)
    assert (gain["t"], gain["p"]) == (None, None)


def test_what_no_private_record_had_a_part_in_has_epsilon_zero(records):
    found = shown(records)
    lines = {row[0]: row for row in summary(found).rows}
    assert lines["public-denoiser"][1:3] == ["0", "public"]
    assert lines["classifier"][1:3] == ["0", "public"]
    assert lines["paper-nodp"][1:3] == ["-", "none"]
    assert lines["td"] == [
        "td", "1", "proved", "95.0 (95.0 to 95.0)", "90.0 (90.0 to 90.0)",
        "63.0 (60.0 to 66.0)", "+11.0", "70.0 (70.0 to 70.0)", "35.0 (35.0 to 35.0)",
    ]  # fmt: skip
    brief = next(row for row in summary(found, brief=True).rows if row[0] == "td")
    assert brief[3:] == ["95.0", "90.0", "63.0", "+11.0", "70.0", "35.0"]


def test_who_has_no_certificates_has_no_gain_and_says_why(records, make_record):
    records += [make_record("dpcert", s, 0.0, why="rows are mixed") for s in (0, 1)]
    found = shown(records)
    assert "dpcert" not in {row["best"] for row in found["gains"]["rows"]}
    assert next(row for row in summary(found).rows if row[0] == "dpcert")[5:7] == ["-", "-"]
    text = "\n".join(table.markdown() for table in all_tables(found))
    assert "Not certified: dpcert, rows are mixed." in text


def test_where_nobody_has_certificates_nothing_is_compared(make_record):
    found = shown([make_record("td", s, 0.0, why="rows are mixed") for s in (0, 1)])
    assert (found["gains"]["rows"], found["tests"]["rows"]) == ([], [])


def test_every_figure_is_a_line_of_the_csv(records):
    lines = list(csv.DictReader(io.StringIO(as_csv(shown(records)["rows"]))))
    ours = [line for line in lines if line["contender"] == "td"]
    assert len(ours) == 2 + 2 + 2 * 2 * 2  # clean; radii; kinds, attacks and worst, norms
    (one,) = [line for line in ours if (line["measure"], line["at"]) == ("certified", "0.25")]
    assert [float(one[k]) for k in ("mean", "low", "high")] == [0.63, 0.60, 0.66]
    assert (one["epsilon"], one["proved"], one["claimed"], one["seeds"]) == ("1", "1", "", "2")
    (two,) = [
        line
        for line in lines
        if line["contender"] == "paper"
        and (line["measure"], line["attack"], line["at"]) == ("crafted", "worst case", "2")
    ]
    assert (float(two["mean"]), two["proved"], two["claimed"]) == (0.7, "", "1")


def test_plots_have_the_public_denoiser_and_tell_claims_from_proofs(records):
    plots = all_plots(shown(records))
    for name, (svg, _) in plots.items():
        text = svg.decode()
        assert "public-denoiser (public, ε 0)" in text, name
        assert "td (proved)" in text, name
        assert "paper (claimed)" in text, name
        assert ("paper-nodp (no ε)" in text) == name.endswith("_ablations"), name
    assert {"certified_by_radius_contenders", "certified_by_radius_ablations"} < set(plots)
    assert {"crafted_by_norm_pgd_contenders", "attacks_by_epsilon_contenders"} < set(plots)


def test_what_is_written(records, tmp_path):
    found = shown(records)
    write_results(tmp_path, found)
    page, table = ((tmp_path / n).read_text() for n in ("index.html", "table.md"))
    assert "A private denoiser before a fixed classifier on digits" in page
    assert page.count("data:image/svg+xml;base64,") == len(list(tmp_path.glob("*.svg"))) > 0
    assert "trained on public records alone" in page
    assert "gain over public-denoiser" in table
    assert "## What is missing: paper" in table
    assert (tmp_path / "figures.csv").read_text() == as_csv(found["rows"])
