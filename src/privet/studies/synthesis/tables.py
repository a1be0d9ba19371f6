"""The results as tables."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from privet.reports.figures import at_most
from privet.studies.robust_private.tables import NOTHING, Table, privacy_table
from privet.studies.synthesis import published
from privet.studies.synthesis.contenders import ANALYSES
from privet.studies.synthesis.contest import HALF, TIE
from privet.studies.synthesis.fidelity import ENOUGH, SEVEN
from privet.studies.synthesis.results import BY_COLUMN, Found
from privet.synthesis.evaluation.feature_clusters import ELAPSED

OVER: Final = "Means over seeds, and their range."
PUBLISHED: Final = (
    "Published: of other records and other code, at a claimed ε; for their order, not their size."
)
CSV_HEAD: Final = (
    "contender", "analysis", "epsilon", "basis", "proved", "claimed", "audited",
    "measure", "figure", "column", "mean", "low", "high", "seeds",
)  # fmt: skip
BESIDES: Final = {
    "empty cells of a stay, W1": "missing-patterns.per_record",
    "mean gap of a stay, W1": "timing.mean_gap",
    "rows of a stay, W1": "timing.length",
    "means by row": "trajectories.mean",
    "first axis, W1 in sd": "projection.first_axis",
    "outcomes, AUROC": "downstream.boosting",
    "told from real, AUROC": "discriminative.auroc",
}
_LONG: Final = {
    "kl": "Kullback-Leibler divergence of each column, real from synthetic, in nats",
    "distance": "Cluster distance of each column by itself",
    "cosine": "Cluster cosine of each column by itself",
    "empty": "Error of the share of empty cells, in points",
}

Row = Mapping[str, Any]


def all_tables(results: Mapping[str, Any]) -> list[Table]:
    """Every table, most important first."""
    rows = results["rows"]
    tables = [
        seven_table(results),
        contest_table(results["contest"]),
        privacy_table(rows),
        overall_table(results),
        feature_table(results),
        *(column_table(results, what) for what in ("kl", "empty")),
        published_kl(),
        besides_table(results),
        claims_table(results["claims"]),
        ranking_table(results["rankings"]),
        reasons_table(),
        cost_table(rows),
    ]
    missing = missing_table(results)
    return [*tables, *([missing] if missing.rows else [])]


def seven_table(results: Mapping[str, Any], *, brief: bool = False) -> Table:
    """The seven measures; if `brief`, means alone, which fit on a screen."""
    show, basis = (_mean, []) if brief else (amount, ["basis"])
    heads = (_directed(one.short if brief else one.name, one.higher) for one in SEVEN)
    return Table(
        title=f"Seven measures, against held-out patients of {results['data']}",
        head=["contender", "ε", *basis, *heads],
        rows=[
            [*_who(row), *(row[key] for key in basis), *(show(one.of(row)) for one in SEVEN)]
            for row in [results["yardstick"], *results["rows"]]
        ],
        note=(
            f"{OVER} real: training records in place of synthetic ones, which is what chance"
            f" alone does. Elapsed time: Wasserstein-1 in {results['time_unit']}; empty cells: in"
            f" points; accuracy: in %, of classes of {results['label']}."
        ),
    )


def contest_table(found: Mapping[str, Any]) -> Table:
    """`igamt` against every sound rival."""
    title = f"igamt against sound contenders at ε = {found['epsilon']:g}"
    head = ["against", *(one.short for one in SEVEN), "ahead", "won", "lost"]
    if "why" in found:
        return Table(title=title, head=head, rows=[], note=f"Not held: {found['why']}.")
    return Table(
        title=title,
        head=head,
        rows=[
            [
                one["rival"],
                *(_verdict(one["measures"][measure.name]) for measure in SEVEN),
                *(str(one[what]) for what in ("ahead", "won", "lost")),
            ]
            for one in found["rivals"]
        ],
        note=" ".join([_rules(), _sum(found["every_baseline"]), *_ratios(found)]),
    )


def overall_table(results: Mapping[str, Any]) -> Table:
    """Cluster distance and cosine beside the published ones."""
    head = ["contender", "ε", "basis", "distance ↓", "cosine ↑"]
    return Table(
        title="Overall similarity: paired cluster centres",
        head=[*head, *(f"{where} (published)" for where in published.OVERALL)],
        rows=[
            [
                *_who(row),
                row["basis"],
                amount(row["figures"]["clusters.minkowski_sum"]),
                amount(row["figures"]["clusters.cosine_mean"]),
                *(_pair(pairs.get(row["base"])) for pairs in published.OVERALL.values()),
            ]
            for row in [results["yardstick"], *results["rows"]]
        ],
        note=f"{OVER} k-means, 3 clusters, order 2, 5 seeds of its own. {PUBLISHED}",
    )


def feature_table(results: Mapping[str, Any]) -> Table:
    """The thesis's three columns, beside what it has of them."""
    shown = results["shown"]
    columns = {
        "time": ELAPSED,
        "heart rate": shown["heart_rate"],
        "SBP": shown["systolic"],
    }
    return Table(
        title="Similarity by column: paired cluster centres",
        head=[
            *("contender", "ε", "basis"),
            *(f"{column}, distance / cosine" for column in columns.values()),
            *(f"{name} (published)" for name in columns),
        ],
        rows=[
            [
                *_who(row),
                row["basis"],
                *(_both(row, column) for column in columns.values()),
                *(_pair(published.BY_FEATURE.get(row["base"], {}).get(name)) for name in columns),
            ]
            for row in [results["yardstick"], *results["rows"]]
        ],
        note=f"Means over seeds. {PUBLISHED}",
    )


def column_table(results: Mapping[str, Any], what: str) -> Table:
    """One figure of every column."""
    columns = list(results["yardstick"]["columns"][what])
    return Table(
        title=_LONG[what],
        head=["contender", "ε", *columns],
        rows=[
            [*_who(row), *(_mean(row["columns"][what].get(column)) for column in columns)]
            for row in [results["yardstick"], *results["rows"]]
        ],
        note="Means over seeds. " + (_KL_NOTE if what == "kl" else ""),
    )


_KL_NOTE: Final = (
    "50 bins between public bounds, 10⁻⁶ added to each share; of the time between rows on a"
    " logarithmic scale."
)


def published_kl() -> Table:
    """The AAAI paper's divergences."""
    return Table(
        title="Kullback-Leibler divergence of each column, published (AAAI)",
        head=["model", *(f"#{k}" for k in range(10))],
        rows=[[name, *(f"{v:g}" for v in values)] for name, values in published.KL.items()],
        note=f"{PUBLISHED} Named are #0 (time), #4 (heart rate) and #7 (systolic pressure).",
    )


def besides_table(results: Mapping[str, Any]) -> Table:
    """Measures that decide nothing."""
    return Table(
        title="Further measures",
        head=["contender", "ε", *BESIDES],
        rows=[
            [*_who(row), *(amount(row["figures"].get(key)) for key in BESIDES.values())]
            for row in [results["yardstick"], *results["rows"]]
        ],
        note=f"{OVER} Published accuracy (AAAI): {published.ACCURACY['igamt']:.1f} % from"
        f" synthetic, {published.ACCURACY['real']:.1f} % from real records.",
    )


def claims_table(claims: Sequence[Mapping[str, Any]]) -> Table:
    """The papers' sentences."""
    holds = {True: "yes", False: "no", None: "open"}
    return Table(
        title="What the papers say, and what is found here",
        head=["claim", "published", "analysis", "here", "holds"],
        rows=[
            [one["says"], one["published"], one["analysis"], one["ours"], holds[one["holds"]]]
            for one in claims
        ],
        note="By means over seeds; the contest has intervals.",
    )


def ranking_table(rankings: Sequence[Mapping[str, Any]]) -> Table:
    """Orders of cluster distances."""
    return Table(
        title="Order of cluster distances, best first",
        head=["analysis", "published in", "Kendall's τ", "here", "published"],
        rows=[
            [
                one["analysis"],
                one["published"],
                f"{one['tau']:+.2f} of {one['of']}",
                ", ".join(one["ours"]),
                ", ".join(one["theirs"]),
            ]
            for one in rankings
        ],
        note="1: the same order; 0: no relation; -1: reversed.",
    )


def reasons_table() -> Table:
    """Why these seven."""
    return Table(
        title="The seven measures, named before any figure of igamt existed",
        head=["name", "measure", "better", "why"],
        rows=[
            [
                one.name,
                f"{one.key}{f', {one.unit}' if one.unit else ''}",
                "higher" if one.higher else "lower",
                one.why,
            ]
            for one in SEVEN
        ],
    )


def cost_table(rows: Sequence[Row]) -> Table:
    """Seconds."""
    kinds = ("training", "sampling", "measuring")
    return Table(
        title="Seconds of a cell",
        head=["contender", "ε", *kinds],
        rows=[[*_who(row), *(amount(row["seconds"][kind]) for kind in kinds)] for row in rows],
        note="Several cells may have shared the machine.",
    )


def missing_table(results: Mapping[str, Any]) -> Table:
    """Who did not take part, or failed."""
    left = [[name, NOTHING, NOTHING, why] for name, why in results["left_out"].items()]
    failed = [
        [one["name"], _budget(one["epsilon"]), str(one["seed"]), one["why"]]
        for one in results["failed"]
    ]
    return Table(
        title="Not in these tables",
        head=["contender", "ε", "seed", "why"],
        rows=[*left, *failed],
        note="Cells that failed are tried again when the command is repeated.",
    )


def as_csv(results: Mapping[str, Any]) -> str:
    """Every figure in a line of its own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for row in [results["yardstick"], *results["rows"]]:
        stated = [_epsilon(row["proved"].get("add-remove")), _epsilon(row["claimed"])]
        who = [row["name"], row["analysis"], row["epsilon"], row["basis"], *stated]
        for measure, figure, column, found in _figures(row):
            means = [f"{found[name]:.6g}" for name in ("mean", "low", "high")]
            seeds = len(row["seeds"])
            writer.writerow(
                [*who, _epsilon(row["audited"]), measure, figure, column, *means, seeds]
            )
    return text.getvalue()


def amount(found: Found) -> str:
    """The mean, and the range over seeds."""
    if found is None:
        return NOTHING
    mean, low, high = (_number(found[name]) for name in ("mean", "low", "high"))
    return mean if len(found["values"]) == 1 else f"{mean} ({low} to {high})"


def by_analysis(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each analysis that there are."""
    found = {a: [row for row in rows if row["analysis"] == a] for a in ANALYSES}
    return {analysis: group for analysis, group in found.items() if group}


def _who(row: Row) -> list[str]:
    return [row["name"], _budget(row["epsilon"])]


def _budget(epsilon: float | None) -> str:
    return NOTHING if epsilon is None else f"{epsilon:g}"


def _mean(found: Found) -> str:
    return NOTHING if found is None else _number(found["mean"])


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.3g}"


def _directed(name: str, higher: bool) -> str:
    return f"{name} {'↑' if higher else '↓'}"


def _pair(pair: tuple[float, float] | None) -> str:
    return NOTHING if pair is None else f"{pair[0]:.2f} / {pair[1]:.2f}"


def _both(row: Row, column: str) -> str:
    distance, cosine = (row["columns"][what].get(column) for what in ("distance", "cosine"))
    return f"{_mean(distance)} / {_mean(cosine)}"


def _verdict(one: Mapping[str, Any]) -> str:
    sign = "+" if one["ahead"] else "-"
    return f"({sign})" if one["verdict"] == TIE else sign


def _rules() -> str:
    return (
        "+ won, - lost: Welch's 95 % interval over seeds of the difference leaves out 0. (+), (-):"
        " it does not, or there is one seed: a tie, ahead or behind by means alone. Not corrected"
        " for the number of comparisons."
    )


def _sum(found: Mapping[str, Any]) -> str:
    if not found["baselines"]:
        return "No sound baseline takes part."
    ahead, won = found["ahead_of_all"], found["won_against_all"]
    enough = "yes" if found["enough_against_each"] else "no"
    return (
        f"Ahead of every sound baseline on {len(ahead)} of {len(SEVEN)}"
        f" ({', '.join(ahead) or 'none'}), won against all of them on {len(won)};"
        f" ahead of each on at least {ENOUGH}: {enough}."
    )


def _ratios(found: Mapping[str, Any]) -> Iterator[str]:
    for which, of in (("elapsed", "best baseline's"), ("beside", "reference's")):
        ratio = found[which]
        if "ratio" in ratio:
            interval = "one seed, no interval"
            if ratio["interval"] is not None:
                interval = "95 % interval {:.3g} to {:.3g}".format(*ratio["interval"])
            asked = f"; asked for: below {HALF:g}" if which == "elapsed" else ""
            yield (
                f"Elapsed-time Wasserstein distance: {ratio['ratio']:.3g} of the {of}"
                f" ({ratio['best']}; {interval}{asked})."
            )


def _figures(row: Row) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    for key, found in row["figures"].items():
        if found is not None:
            measure, _, figure = key.partition(".")
            yield measure, figure, "", found
    for what, columns in row["columns"].items():
        for column, found in columns.items():
            if found is not None:
                yield (*BY_COLUMN[what], column, found)


def _epsilon(statement: Mapping[str, Any] | None) -> str:
    return "" if statement is None else at_most(statement["epsilon"])
