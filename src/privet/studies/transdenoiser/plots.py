"""The results as plots: the paper's figures, with what costs no privacy in each of them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from privet.reports.drawing import drawing
from privet.studies.robust_private.plots import (
    SIZE,
    against_epsilon,
    by_radius,
    draw_line,
    finish,
    look_of,
    rows_at,
)
from privet.studies.robust_private.results import WORST
from privet.studies.transdenoiser.contenders import ALWAYS, CONTENDERS, PUBLIC_DENOISER
from privet.studies.transdenoiser.results import CRAFTED, THROUGH, accuracy_at

GROUPS: Final = {
    "contenders": (
        *ALWAYS,
        *("td", "td-start", "td-start-labels", "securesgd-prt", "paper"),
        *(name for name, one in CONTENDERS.items() if not one.behind),
    ),
    "ablations": (PUBLIC_DENOISER, *(name for name, one in CONTENDERS.items() if one.behind)),
}
SAID: Final = {
    CRAFTED: "attacks on the classifier alone, one noisy pass",
    THROUGH: "attacks through denoiser and noise, the smoothed classifier",
}

Row = Mapping[str, Any]


def all_plots(results: Mapping[str, Any]) -> dict[str, tuple[bytes, str]]:
    """SVG files by name, each with what it shows."""
    rows, epsilon, norm = results["rows"], results["epsilon"], results["attack_norm"]
    found = {}
    for group, names in GROUPS.items():
        found[f"certified_by_radius_{group}"] = (
            by_radius(rows, epsilon, names),
            f"Certified accuracy by l2 radius at epsilon {epsilon:g}: {group}.",
        )
        for kind, said in SAID.items():
            for attack in rows[0][kind] if group == "contenders" else (WORST,):
                found[_file(f"{kind}_by_norm", attack, group)] = (
                    by_norm(rows, epsilon, kind, attack, names),
                    f"Accuracy after {attack} by l2 norm at epsilon {epsilon:g}, {said}: {group}.",
                )
            found[f"{kind}_by_epsilon_{group}"] = (
                _by_epsilon(rows, kind, norm, names),
                f"Accuracy after the worst attack of l2 norm {norm:g} by epsilon, {said}: {group}.",
            )
    return found


def by_norm(
    rows: Sequence[Row], epsilon: float, kind: str, attack: str, only: Collection[str]
) -> bytes:
    """Accuracy against the norm of attacks; at norm 0 that of clean images."""
    clean = "noisy" if kind == CRAFTED else "clean"
    with drawing(*SIZE) as sheet:
        for row in rows_at(rows, epsilon, only):
            found = [row[clean], *row[kind][attack]]
            draw_line(sheet, [0.0, *row["sizes"]], found, look_of(row["name"], rows, [row]))
        sheet.axes.set(
            xlabel="l2 norm, inputs in [0, 1]", ylabel=f"accuracy, {attack}",
            xlim=(0, None), ylim=(0, 1.02),
        )  # fmt: skip
        finish(sheet)
    return sheet.svg


def _by_epsilon(rows: Sequence[Row], kind: str, norm: float, only: Collection[str]) -> bytes:
    return against_epsilon(
        rows, lambda row: accuracy_at(row, kind, WORST, norm), f"accuracy, {WORST}", only
    )


def _file(what: str, attack: str, group: str) -> str:
    return f"{what}_{'worst' if attack == WORST else attack}_{group}"
