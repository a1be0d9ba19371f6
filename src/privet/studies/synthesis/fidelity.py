"""The seven measures by which contenders are judged.

They were named, with their directions and reasons, before any figure of `igamt` existed, and stay
as they are. Six are the papers' own; none of those looks at two columns together, so the seventh
does. All are figures of measures of `privet synthesize evaluate`, and all compare with held-out
real patients.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from privet.synthesis.evaluation.sequence_classifier import NAME as CLASSES_OF


@final
@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """One of the seven.

    Attributes:
        name: of tables.
        short: where there is little room.
        measure, figure: of the evaluation's registry; the classifier's measure has its column's
            name behind it.
        higher: whether more is better.
        unit: of the figure.
        why: it is among the seven.
    """

    name: str
    short: str
    measure: str
    figure: str
    higher: bool = False
    unit: str = ""
    why: str

    @property
    def key(self) -> str:
        """Of its figures in a row."""
        return f"{self.measure}.{self.figure}"

    def of(self, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a row has of it, over seeds; None where some seed has none."""
        found: Mapping[str, Any] | None = row["figures"].get(self.key)
        return found


ELAPSED: Final = Fidelity(
    name="elapsed time",
    short="time",
    measure="timing",
    figure="gap",
    unit="W1",
    why="irregular times are what the papers are about; their figure is a histogram of gaps",
)
SEVEN: Final = (
    Fidelity(
        name="cluster distance",
        short="dist.",
        measure="clusters",
        figure="minkowski_sum",
        why="the papers' main table",
    ),
    Fidelity(
        name="cluster cosine",
        short="cos.",
        measure="clusters",
        figure="cosine_mean",
        higher=True,
        why="the papers' main table",
    ),
    Fidelity(
        name="KL by column",
        short="KL",
        measure="marginals",
        figure="mean_kl_real_other",
        unit="nats",
        why="the AAAI paper's table; of real from synthetic shares, which sees what is never made",
    ),
    Fidelity(
        name="empty cells",
        short="empty",
        measure="missing-rates",
        figure="mean_cells_error",
        unit="points",
        why="missingness carries meaning; the papers' figure is a histogram of empty cells",
    ),
    ELAPSED,
    Fidelity(
        name="correlations",
        short="corr.",
        measure="dependence",
        figure="rows_mean",
        why="the one thing that no measure of the papers sees: two columns in the same row",
    ),
    Fidelity(
        name="accuracy",
        short="acc.",
        measure=CLASSES_OF,
        figure="percent",
        higher=True,
        unit="%",
        why="the AAAI paper's use: a classifier learned from synthetic rows, tested on real ones",
    ),
)
ENOUGH: Final = 5  # of seven, to be called better
USUAL_EPSILON: Final = 1.5  # as in the papers

BESIDES: Final = (
    "missing-patterns",
    "trajectories",
    "projection",
    "feature-clusters",
    "downstream",
    "discriminative",
    "constraints",
)


def measures_with(label: str) -> tuple[str, ...]:
    """All that a study takes of a release, by their names in the registry.

    Args:
        label: the column whose classes are learned.
    """
    seven = dict.fromkeys(
        f"{CLASSES_OF}:{label}" if one.measure == CLASSES_OF else one.measure for one in SEVEN
    )
    return (*seven, *BESIDES)
