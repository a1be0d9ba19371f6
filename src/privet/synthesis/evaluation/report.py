"""The report of an evaluation: one HTML page for whoever owns the real records."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from privet.reports.figures import interval, percent
from privet.reports.look import page
from privet.synthesis.evaluation import marks
from privet.synthesis.evaluation.measure import Figures, plain
from privet.synthesis.evaluation.registry import find_measure
from privet.synthesis.evaluation.result import FidelityResult, Row

WORST: Final = 12  # columns whose histograms are drawn
FOLLOWED: Final = 6  # columns whose means by row are drawn

Plots = dict[str, Markup]


def render_fidelity_report(
    result: FidelityResult, figures: Mapping[str, Figures] | None = None
) -> str:
    """One self-contained page; `figures` is what plots are drawn from, those of the result if None.

    With an empty `figures` there are tables only.
    """
    drawn = result.figures if figures is None else figures
    body = _environment().get_template("fidelity.html.jinja").render(_view(result, drawn))
    return page(f"Fidelity of synthetic records: {result.data}", body)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("privet.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, percent=_percent, interval=_interval)
    return environment


def _view(result: FidelityResult, drawn: Mapping[str, Figures]) -> dict[str, Any]:
    measures = plain(result.measures)
    return {
        "data": result.data,
        "stays": result.stays,
        "seed": result.seed,
        "cautions": result.cautions,
        "sentence": _sentence(measures),
        "groups": _groups(result.rows),
        "m": measures,
        "columns": _columns(measures),
        "plots": _plots(measures, drawn),
    }


def number(value: float | None, unit: str = "") -> str:
    """Three significant digits and the unit; a dash for nothing."""
    if value is None:
        return "–"
    text = "0" if value == 0 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _percent(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _interval(found: Mapping[str, Any]) -> str:
    return interval(found["low"], found["high"])


def _sentence(m: Mapping[str, Any]) -> str:
    """The two or three figures that say most, in words."""
    parts = []
    if "discriminative" in m:
        ours, real = (m["discriminative"][who]["auroc"] for who in ("synthetic", "real"))
        parts.append(
            f"A classifier tells synthetic from real stays with AUROC {ours:.2f} "
            f"(real from real: {real:.2f})."
        )
    best = _best_learner(m)
    if best is not None:
        parts.append(
            f"Models of the outcome reach {best[0]:.2f} when synthetic records train them, "
            f"{best[1]:.2f} when real ones do."
        )
    if "missing-rates" in m:
        error = m["missing-rates"]["synthetic"]["largest_cells_error"]
        parts.append(
            f"No column is empty more than {number(error)} points too often or too rarely."
        )
    return " ".join(parts)


def _best_learner(m: Mapping[str, Any]) -> tuple[float, float] | None:
    """AUROC of the learner that does best on real records."""
    if "downstream" not in m:
        return None
    ours, real = m["downstream"]["synthetic"], m["downstream"]["real"]
    known = [k for k in ("boosting", "logistic") if None not in (ours[k], real[k])]
    best = max(known, key=lambda k: float(real[k]), default=None)
    return None if best is None else (ours[best], real[best])


def _groups(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        measure = find_measure(row.measure)
        group = groups.setdefault(row.measure, {"says": measure.says, "rows": []})
        group["rows"].append(
            {
                "says": row.headline.says,
                "synthetic": number(row.synthetic, row.headline.unit),
                "real": number(row.real, row.headline.unit),
                "best": number(row.headline.best),
                "times": _times(row),
            }
        )
    return list(groups.values())


def _times(row: Row) -> str:
    """An error in units of its sampling noise; nothing where 0 is not the best."""
    if row.headline.best != 0 or not row.real or row.real <= 0 or row.synthetic is None:
        return ""
    return f"{row.synthetic / row.real:.1f} ×" if row.synthetic >= 0 else ""


def _columns(m: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each column, of what is known of it."""
    by_marginals = m["marginals"]["synthetic"]["features"] if "marginals" in m else {}
    rates = m["missing-rates"]["synthetic"]["features"] if "missing-rates" in m else {}
    names = list(by_marginals or rates)
    empty = dict.fromkeys(("kind", "wasserstein", "kl_real_other", "kl_other_real"))
    none = dict.fromkeys(("cells_real", "cells_other", "never_real", "never_other"))
    return [
        {"name": name} | empty | none | by_marginals.get(name, {}) | rates.get(name, {})
        for name in names
    ]


def _plots(m: Mapping[str, Any], drawn: Mapping[str, Figures]) -> dict[str, Any]:
    """Whatever can be drawn of what was measured, by name."""
    makers = {
        "projection": _of_projection,
        "marginals": _of_marginals,
        "missing-rates": _of_rates,
        "missing-patterns": _of_patterns,
        "timing": _of_timing,
        "trajectories": _of_trajectories,
        "dependence": _of_dependence,
        "nearness": _of_nearness,
        "membership": _of_membership,
    }
    plots: dict[str, Any] = {}
    for name, make in makers.items():
        if name in m and name in drawn:
            plots |= make(m[name], drawn[name]["synthetic"])
    return plots


def _of_projection(_: Any, drawn: Figures) -> dict[str, Any]:
    alt = "Real and synthetic records in the principal plane of real ones."
    return {"pca": marks.cloud("pca", alt, drawn["points"])}


def _of_marginals(found: Any, drawn: Figures) -> dict[str, Any]:
    ours, real = found["synthetic"]["features"], found["real"]["features"]
    known = [name for name in ours if ours[name]["wasserstein"] is not None]
    worst = sorted(known, key=lambda name: -ours[name]["wasserstein"])
    label = "Wasserstein-1 distance, in widths of the public range"
    values = [[side[name]["wasserstein"] for name in worst] for side in (ours, real)]
    small = [
        marks.small_steps(f"hist{k}", name, drawn[name]) for k, name in enumerate(worst[:WORST])
    ]
    alt = "Wasserstein distance of each column."
    dots = marks.dots("w1", alt, worst, values[0], values[1], label)
    return {"wasserstein": dots, "histograms": small}


def _edges(shares: Any) -> Any:
    """Of bins that are drawn side by side, whatever they stand for."""
    return np.linspace(0, 1, len(shares) + 1)


def _of_rates(found: Any, _: Figures) -> dict[str, Any]:
    columns = found["synthetic"]["features"].values()
    pairs = {
        word: ([c[f"{key}_real"] for c in columns], [c[f"{key}_other"] for c in columns])
        for word, key in (("of cells", "cells"), ("of stays, never measured", "never"))
    }
    alt = "Share of empty cells of each column, real and synthetic."
    return {"rates": marks.against("rates", alt, pairs, "share empty")}


def _of_patterns(found: Any, drawn: Figures) -> dict[str, Any]:
    by_step, by_time = (
        {"real": part[0].mean(axis=1), "other": part[1].mean(axis=1)}
        for part in (drawn["by_step"], drawn["by_time"])
    )
    times = np.concatenate([[0.0], drawn["edges"]])
    label = "share of empty cells"
    record = drawn["per_record"]
    joint = drawn["joint"][1] - drawn["joint"][0]
    names = drawn["names"]
    return {
        "by_step": marks.lines(
            "bystep", "Empty cells by row.", 1 + np.arange(len(by_step["real"])), by_step,
            "row of the stay", label,
        ),
        "by_time": marks.lines(
            "bytime", "Empty cells by time.", times, by_time, "time since the start", label
        ),
        "per_record": marks.steps(
            "perrecord", "Empty cells of a stay.", record["edges"], record,
            "empty cells of a stay, mean over columns",
        ),
        "joint": marks.matrix("joint", "Differences of correlations of gaps.", names, joint),
    }  # fmt: skip


def _of_timing(found: Any, drawn: Figures) -> dict[str, Any]:
    unit = found["synthetic"]["time_unit"]
    gap, length, time = drawn["gap"], drawn["length"], drawn["time"]
    scale = f"time between rows, {unit}, logarithmic"
    return {
        "gap": marks.steps("gap", "Time between rows.", _edges(gap["real"]), gap, scale),
        "length": marks.steps(
            "length", "Rows of a stay.", length["edges"], length, "rows of a stay"
        ),
        "time": marks.steps(
            "time", "Times of rows.", time["edges"], time, f"time of a row since the start, {unit}"
        ),
    }


def _of_trajectories(_: Any, drawn: Figures) -> dict[str, Any]:
    most = sorted(drawn, key=lambda name: -drawn[name]["values"])[:FOLLOWED]
    return {
        "trajectories": [
            marks.small_lines(f"path{k}", name, drawn[name]) for k, name in enumerate(most)
        ]
    }


def _of_dependence(found: Any, drawn: Figures) -> dict[str, Any]:
    lag = [c for c in found["synthetic"]["lag"].values() if c["error"] is not None]
    # A column that is never measured twice goes with its past in no way, as in its error.
    pair = [c["real"] for c in lag], [c["other"] or 0.0 for c in lag]
    alt = "Correlation of a value with the next one, by column."
    return {
        "rows": marks.matrix(
            "rows", "Differences of correlations.", drawn["rows"]["names"],
            drawn["rows"]["difference"],
        ),
        "lag": marks.against("lag", alt, {"next value": pair}, "correlation"),
    }  # fmt: skip


def _of_nearness(_: Any, drawn: Figures) -> dict[str, Any]:
    alt = "Distances of synthetic records to the nearest real ones."
    return {"nearness": marks.distances("near", alt, drawn["to_train"], drawn["to_test"])}


def _of_membership(_: Any, drawn: Figures) -> dict[str, Any]:
    return {"membership": marks.roc("roc", "Curves of membership attacks.", drawn)}
