"""The study counts what it says, and the record in the repository says what the pages quote."""

import io
import json
import re
from decimal import ROUND_DOWN, Decimal
from pathlib import Path

import pytest
from rich.console import Console

from privet.audits.evidence import Bound
from privet.audits.registry import subjects
from privet.errors import InputError
from privet.studies.audit_power import study as module
from privet.studies.audit_power.results import tables
from privet.studies.audit_power.study import EPSILONS, Contest, Study

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"
RECORD = json.loads((RESULTS / "audit_power.json").read_text())
BLACK_BOX = json.loads((RESULTS / "audit_blackbox_digits.json").read_text())
POWER_ROWS = {
    "`two_worlds`, 1,000,000 runs a world": ("two_worlds", 1_000_000),
    'the same, `strategy="bonferroni"`': ("two_worlds, bonferroni", 1_000_000),
    "`two_worlds`, 20,000 runs a world": ("two_worlds", 20_000),
    "`gaussian`, 20,000 runs a world": ("gaussian", 20_000),
    "`one_run`, 5,000 canaries": ("one_run", 5000),
    "the same, `shares=(0.05,)` fixed beforehand": ("one_run, shares=(0.05,)", 5000),
    "`one_run_gaussian`, 5,000 canaries": ("one_run_gaussian", 5000),
    "the same, `shares=(0.1,)` fixed beforehand": ("one_run_gaussian, shares=(0.1,)", 5000),
}


def bound(epsilon):
    return Bound(epsilon=epsilon, delta=1e-5, confidence=0.95, estimator="made up", assumptions=())


@pytest.fixture
def few(monkeypatch):
    """One made-up estimator, which is above the truth of 1 for every second seed."""
    asked = []

    def estimate(without, with_, *, delta, confidence):
        asked.append((len(without), len(with_), delta, confidence))
        return bound(0.5 if len(asked) % 2 else 1.25)

    monkeypatch.setattr(module, "EPSILONS", (1.0,))
    monkeypatch.setattr(
        module, "CONTESTS", (Contest(name="made up", estimate=estimate, size=4000, seeds=40),)
    )
    monkeypatch.setattr(module, "two_worlds", estimate)
    monkeypatch.setattr(module, "gaussian", estimate)
    return asked


def test_power_is_the_mean_and_what_is_above_is_counted(few):
    (row,) = Study(share=0.1).power()
    assert few == [(400, 400, 1e-5, 0.95)] * 4
    assert row["found"] == row["share"] == pytest.approx(0.875)
    assert (row["above_the_truth"], row["seeds"], row["runs_in_each_world"]) == (2, 4, 400)


def test_false_alarms_are_counted(few):
    rows = Study(share=0.1).false_alarms()
    assert [(row["alarms"], row["trials"]) for row in rows[:2]] == [(10, 20)] * 2
    assert [row["of"] for row in rows[2:]] == ["gaussian"] * 2 + ["dpsgd-step"] * 2
    assert all(row["alarms"] <= 5 and row["trials"] == 20 for row in rows[2:])


def test_every_subject_is_audited_in_every_way(monkeypatch):
    few = {name: subjects()[name] for name in ("laplace", "unclipped-bias")}
    monkeypatch.setattr(module, "subjects", lambda: few)
    told = []
    sound, broken = Study(share=0.05, watch=told.append).subjects()
    assert told == ["laplace", "unclipped-bias"]
    assert (sound["runs"], broken["runs"]) == (10_000, 1000)
    for how in ("told", "learned", "means", "spreads", "covariances", "peaks"):
        assert sound[how]["refuted"] is False
        assert broken[how]["refuted"] is True
    assert "known" in broken["told"]["seen_by"]


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_share_is_a_share(share):
    with pytest.raises(InputError, match="bad share"):
        Study(share=share)


def test_the_tables_hold_what_was_found():
    console = Console(file=io.StringIO(), width=200)
    console.print(tables(RECORD))
    text = console.file.getvalue()
    for row in RECORD["subjects"]:
        assert re.search(rf"{row['name']}\b", text)
    assert "two_worlds, bonferroni" in text


def test_the_record_is_of_all_subjects_and_no_sound_one_is_accused():
    known = [name for name, entry in subjects().items() if entry.kind in ("sound", "mutant")]
    assert [row["name"] for row in RECORD["subjects"]] == known
    unseen = []
    for row in RECORD["subjects"]:
        assert row["told"]["refuted"] is (row["kind"] != "sound")
        if row["learned"]["refuted"] is not row["told"]["refuted"]:
            unseen.append(row["name"])
    assert unseen == ["skipped-noise", "uniform-noise"]
    assert all(row["trials"] == 200 and row["alarms"] <= 21 for row in RECORD["false_alarms"])


def down(value):
    """A lower bound is rounded down, to two decimals."""
    return str(Decimal(repr(value)).quantize(Decimal("0.01"), rounding=ROUND_DOWN))


def table_rows(page):
    """Of all tables of a page: the cells of each row by the head of their column."""
    rows, head = [], None
    for line in page.splitlines():
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if head is None:
            head = cells
        elif set(line) - set("|-"):
            rows.append(dict(zip(head, cells, strict=True)))
    return rows


def one_line(page):
    return " ".join(page.split())


def require_power(page):
    """Each row by its label; the labels in order, since some say "the same"."""
    rows = [row for row in table_rows(page) if "true ε" in row]
    assert [row["true ε"] for row in rows] == list(POWER_ROWS)
    for row, (estimator, size) in zip(rows, POWER_ROWS.values(), strict=True):
        found = {f"{each['epsilon']:g}": down(each["found"]) for each in power_of(estimator, size)}
        assert row == {"true ε": row["true ε"]} | found
    assert len(RECORD["power"]) == len(POWER_ROWS) * len(EPSILONS)
    million, some, canaries = (
        power_of(*key)[0]["seeds"]
        for key in (("two_worlds", 10**6), ("two_worlds", 20_000), ("one_run", 5000))
    )
    assert (
        f"Means over {million} seeds (a million runs), {some} seeds (20,000 runs) and"
        f" {canaries} seeds (5,000 canaries), rounded down." in one_line(page)
    )
    first, second = (
        [int(100 * each["share"]) for each in power_of(*key) if each["epsilon"] != 2.0]
        for key in (("gaussian", 20_000), ("two_worlds", 10**6))
    )
    assert (
        "`gaussian` with 20,000 runs finds {}, {} and {} % at ε = 1, 4 and 8, `two_worlds` with"
        " a million {}, {} and {} %."
    ).format(*first, *second) in one_line(page)


def require_alarms(page):
    trials = {(row["trials"], row["runs_in_each_world"]) for row in RECORD["false_alarms"]}
    assert trials == {(200, 2000)}
    known = alarms("exact Gaussian mechanism", "two_worlds")
    assumed = alarms("exact Gaussian mechanism", "gaussian")
    noise, step = alarms("gaussian", "two_worlds"), alarms("dpsgd-step", "two_worlds")
    assert (
        f"in 200 trials of 2,000 runs a world each: {known} by `two_worlds` and {assumed} by"
        " `gaussian` at each of ε = 1, 2, 4 and 8, where up to ten are allowed on average;"
        f" {noise} on the Gaussian noise that Privet adds and {step} on a step of DP-SGD,"
        " whether the score is told or learned." in one_line(page)
    )


def require_mutants(page):
    """The block of all subjects, and the tables of the broken ones by row and column."""
    block = "\n".join(
        f"{row['name']:20} {row['runs']:7,} runs  found {down(row['told']['epsilon']):>5}"
        f"  {'refuted' if row['told']['refuted'] else 'stands'}"
        for row in RECORD["subjects"]
    )
    assert f"```text\n{block}\n```" in page
    broken = {row["name"]: row for row in RECORD["subjects"] if row["kind"] == "mutant"}
    rows = [row for row in table_rows(page) if "mutant" in row]
    assert [row["mutant"] for row in rows] == [f"`{name}`" for name in broken]
    for row, entry in zip(rows, broken.values(), strict=True):
        assert {name: row[name] for name in quoted(entry)} == quoted(entry), row["mutant"]
    assert f"A catalogue of {len(broken)} trainers" in page
    assert alarms("gaussian", "two_worlds") == alarms("dpsgd-step", "two_worlds") == "none"
    assert (
        "in 200 trials at 95 % of one step of DP-SGD and of the Gaussian mechanism there was no"
        " false alarm (10 would be allowed)" in one_line(page)
    )


def require_black_box(page):
    settings, free, assuming = BLACK_BOX["settings"], *BLACK_BOX["audit"]
    assert (len(free["assumptions"]), len(assuming["assumptions"])) == (1, 2)
    twins = free["runs"] // 2
    what = (
        f"digits, `{settings['model']}`, ε = {settings['epsilon']:g}, full batch"
        f" ({settings['batch']:,}), {BLACK_BOX['mechanism']['steps']} steps,"
        f" {settings['schedule']} rate; black box, {twins:,} twins without and {twins:,} with the"
        " canary (`benchmarks/results/audit_blackbox_digits.json`)"
    )
    found = {row["what"]: row["found"] for row in table_rows(page) if "found" in row}
    assert found[what] == f"ε ≥ {down(free['epsilon'])}; assuming GDP {down(assuming['epsilon'])}"


def power_of(estimator, size):
    return [
        row
        for row in RECORD["power"]
        if (row["estimator"], row.get("runs_in_each_world", row.get("canaries")))
        == (estimator, size)
    ]


def alarms(of, estimator):
    """How many there were, in words."""
    counts = {
        row["alarms"]
        for row in RECORD["false_alarms"]
        if (row["of"], row["estimator"]) == (of, estimator)
    }
    return {(0,): "none", (0, 1): "one or none", (1,): "one"}[tuple(sorted(counts))]


def quoted(entry):
    """What the tables say of a mutant; what is not refuted is missed."""
    told, learned, two = entry["told"], entry["learned"], (entry["means"], entry["spreads"])
    best = down(max(each["epsilon"] for each in two))
    (statistic,) = re.findall(r"seen by the learned (\w+) statistic", learned["seen_by"])
    return {
        "told": down(told["epsilon"]),
        "two statistics": best if any(each["refuted"] for each in two) else f"missed ({best})",
        "learned": down(learned["epsilon"]),
        "by": f"`{statistic}`" if learned["refuted"] else "missed",
    }


PAGES = {
    require_power: ROOT / "docs" / "methods" / "audits.md",
    require_alarms: ROOT / "docs" / "methods" / "audits.md",
    require_mutants: ROOT / "docs" / "methods" / "mutants.md",
    require_black_box: ROOT / "docs" / "verbs" / "audit.md",
}


@pytest.mark.parametrize(("require", "page"), PAGES.items())
def test_the_pages_quote_the_record(require, page):
    require(page.read_text())


@pytest.mark.parametrize(
    ("require", "right", "wrong"),
    [
        (require_mutants, "| 1.46 | missed (0.51) | 1.31 |", "| 1.31 | missed (0.51) | 1.46 |"),
        (require_mutants, "| missed (0.51) | 1.31 |", "| 0.51 | 1.31 |"),
        (require_mutants, "| 1.31 | `peaks` |", "| 1.31 | `means` |"),
        (require_mutants, "| `shared-noise` | one", "| `antithetic-noise` | one"),
        (require_mutants, "100,000 runs  found  1.46", "100,000 runs  found  1.47"),
        (require_mutants, "shuffled             100,000", "shuffled             200,000"),
        (require_mutants, "found  0.98  stands", "found  0.98  refuted"),
        (require_mutants, "there was no false alarm", "there was one false alarm"),
        (require_power, "| 0.44 | 1.04 | 2.13 | 3.85 |", "| 0.82 | 1.80 | 3.78 | 7.68 |"),
        (require_power, "| 0.75 | 1.64 |", "| 1.64 | 0.75 |"),
        (require_power, "| true ε | 1 | 2 |", "| true ε | 2 | 1 |"),
        (require_power, "finds 82, 94 and 96 %", "finds 82, 95 and 96 %"),
        (require_power, "40 seeds (20,000 runs)", "20 seeds (20,000 runs)"),
        (require_alarms, "one or none by `gaussian`", "none by `gaussian`"),
        (require_alarms, "none on a step of DP-SGD", "one on a step of DP-SGD"),
        (require_alarms, "in 200 trials", "in 400 trials"),
        (require_black_box, "ε ≥ 2.65; assuming GDP 8.20", "ε ≥ 2.66; assuming GDP 8.20"),
        (require_black_box, "ε ≥ 2.65; assuming GDP 8.20", "ε ≥ 8.20; assuming GDP 2.65"),
        (require_black_box, "black box, 2,000 twins", "black box, 4,000 twins"),
    ],
)
def test_a_page_that_misquotes_is_noticed(require, right, wrong):
    page = PAGES[require].read_text()
    assert page.count(right) == 1
    with pytest.raises((AssertionError, KeyError)):
        require(page.replace(right, wrong))
