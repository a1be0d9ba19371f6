"""What the papers say of their figures, and whether ours say so: by means over seeds.

A claim needs the rows that it speaks of; where one is missing, it stays open. None is a test: the
contest has the intervals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, final

from scipy.stats import kendalltau

from privet.studies.synthesis.contenders import BASELINES, HERO, LADDER, NONE, PAPER, SOUND
from privet.studies.synthesis.published import OVERALL
from privet.studies.synthesis.results import Found, rows_under
from privet.studies.synthesis.sources import Shown
from privet.synthesis.evaluation.feature_clusters import ELAPSED

DISTANCE: Final = "clusters.minkowski_sum"
COSINE: Final = "clusters.cosine_mean"
ACCURACY: Final = "classes-of.percent"
GAP: Final = "timing.mean_gap"
EMPTY: Final = "missing-patterns.per_record"
WITHIN: Final = 2.0  # points of accuracy
RANKED: Final = 3  # contenders, the fewest that have an order worth speaking of
TIMED: Final = ("dgatt", "dgamt", "edgamt", HERO)
UNTIMED: Final = (*BASELINES, "dgat")

Row = Mapping[str, Any]


class _MissingError(Exception):
    """A row or figure that a claim speaks of is not there."""


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one analysis at one budget, by their names without it."""

    by_base: Mapping[str, Row]

    def figure(self, base: str, key: str) -> float:
        """Mean over seeds."""
        return _mean(self._row(base)["figures"].get(key))

    def column(self, base: str, what: str, column: str) -> float:
        """The same of one column."""
        return _mean(self._row(base)["columns"][what].get(column))

    def columns(self, base: str, what: str) -> dict[str, float]:
        """The same of all columns that have it."""
        found = self._row(base)["columns"][what]
        return {name: one["mean"] for name, one in found.items() if one is not None}

    def best(self, bases: Sequence[str], key: str, *, higher: bool = False) -> tuple[str, float]:
        """The best of those; all of them must be there."""
        found = {base: self.figure(base, key) for base in bases}
        name = (max if higher else min)(found, key=lambda base: found[base])
        return name, found[name]

    def _row(self, base: str) -> Row:
        if base not in self.by_base:
            raise _MissingError
        return self.by_base[base]


def _mean(found: Found) -> float:
    if found is None:
        raise _MissingError
    return float(found["mean"])


Answer = tuple[bool, str]
"""Whether it holds here, and by which figures."""


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence of the papers; `asked` of rows of each of `analyses`."""

    says: str
    published: str
    asked: Callable[[Rows, Row, Shown], Answer]
    analyses: tuple[str, ...] = (PAPER, SOUND)


def checked(
    rows: Sequence[Row], yardstick: Row, epsilon: float, shown: Shown
) -> list[dict[str, Any]]:
    """Every claim under every analysis that has rows."""
    told = []
    for claim in CLAIMS:
        for analysis in claim.analyses:
            there = Rows({row["base"]: row for row in rows_under(rows, analysis, epsilon)})
            if len(there.by_base) > 1:  # more than the reference
                told.append({"analysis": analysis, **_answered(claim, there, yardstick, shown)})
    return told


def rankings(rows: Sequence[Row], epsilon: float) -> list[dict[str, Any]]:
    """Kendall's tau of our order of distances and each published one, by analysis."""
    told = []
    for analysis in (PAPER, SOUND, NONE):
        ours = {
            row["base"]: row["figures"].get(DISTANCE) for row in rows_under(rows, analysis, epsilon)
        }
        for where, pairs in OVERALL.items():
            both = [base for base in pairs if ours.get(base) is not None]
            if len(both) < RANKED:
                continue
            mine = {base: float(ours[base]["mean"]) for base in both}
            tau = kendalltau(list(mine.values()), [pairs[base][0] for base in both]).statistic
            told.append(
                {
                    "analysis": analysis,
                    "published": where,
                    "tau": float(tau),
                    "of": len(both),
                    "ours": sorted(both, key=lambda base: mine[base]),
                    "theirs": sorted(both, key=lambda base: pairs[base][0]),
                }
            )
    return told


def _answered(claim: Claim, rows: Rows, yardstick: Row, shown: Shown) -> dict[str, Any]:
    said = {"says": claim.says, "published": claim.published}
    try:
        holds, ours = claim.asked(rows, yardstick, shown)
    except _MissingError:
        return {**said, "holds": None, "ours": "a contender that it speaks of has no figure"}
    return {**said, "holds": holds, "ours": ours}


def _ahead_of_baselines(rows: Rows, _: Row, __: Shown) -> Answer:
    distance, cosine = rows.figure(HERO, DISTANCE), rows.figure(HERO, COSINE)
    near, alike = rows.best(BASELINES, DISTANCE), rows.best(BASELINES, COSINE, higher=True)
    ours = (
        f"{distance:.3g} against {near[1]:.3g} ({near[0]}); "
        f"{cosine:.3g} against {alike[1]:.3g} ({alike[0]})"
    )
    return distance < near[1] and cosine > alike[1], ours


def _imitator_helps(rows: Rows, _: Row, __: Shown) -> Answer:
    with_it, without = (rows.figure(base, DISTANCE) for base in (HERO, "edgamt"))
    return with_it < without, f"{with_it:.3g} with, {without:.3g} without"


def _steps_help(rows: Rows, _: Row, __: Shown) -> Answer:
    steps = [rows.figure(base, DISTANCE) for base in LADDER]
    falling = all(a >= b for a, b in pairwise(steps))
    return falling, " → ".join(f"{value:.3g}" for value in steps)


def _transformers_ahead(rows: Rows, _: Row, __: Shown) -> Answer:
    best, near = rows.best(("dgamt", "edgamt"), DISTANCE), rows.best(BASELINES, DISTANCE)
    return best[1] < near[1], f"{best[1]:.3g} ({best[0]}) against {near[1]:.3g} ({near[0]})"


def _ahead_by_column(rows: Rows, _: Row, shown: Shown) -> Answer:
    said, holds = [], True
    for column in (ELAPSED, shown.heart_rate, shown.systolic):
        found = {b: rows.column(b, "distance", column) for b in (*BASELINES, *LADDER, HERO)}
        best = min(found, key=lambda base: found[base])
        holds = holds and best == HERO
        said.append(f"{column}: {found[HERO]:.3g}, best {best} {found[best]:.3g}")
    return holds, "; ".join(said)


def _time_embedding_helps(rows: Rows, _: Row, __: Shown) -> Answer:
    said, holds = [], True
    for what, key in (("mean gap", GAP), ("empty cells", EMPTY)):
        with_it, without = (
            sum(rows.figure(base, key) for base in bases) / len(bases) for bases in (TIMED, UNTIMED)
        )
        holds = holds and with_it < without
        said.append(f"{what}: W1 {with_it:.3g} with, {without:.3g} without, on average")
    return holds, "; ".join(said)


def _kl_below_daae(rows: Rows, _: Row, __: Shown) -> Answer:
    ours, theirs = rows.columns(HERO, "kl"), rows.columns("daae", "kl")
    both = [column for column in ours if column in theirs]
    if not both:
        raise _MissingError
    lower = sum(ours[column] < theirs[column] for column in both)
    return lower > len(both) / 2, f"lower in {lower} of {len(both)} columns"


def _as_useful_as_real(rows: Rows, yardstick: Row, __: Shown) -> Answer:
    ours, real = rows.figure(HERO, ACCURACY), _mean(yardstick["figures"].get(ACCURACY))
    return ours >= real - WITHIN, f"{ours:.1f} % against {real:.1f} % of real ones"


CLAIMS: Final = (
    Claim(
        says="IGAMT is ahead of every baseline in cluster distance and cosine",
        published="3.97 against 5.56; 0.54 against 0.29",
        asked=_ahead_of_baselines,
    ),
    Claim(
        says="the imitator brings IGAMT nearer",
        published="3.97 with, 5.11 without",
        asked=_imitator_helps,
    ),
    Claim(
        says="every further embedding, and the mask critic, bring it nearer",
        published="5.55 → 5.49 → 5.17 → 5.11",
        asked=_steps_help,
    ),
    Claim(
        says="without privacy, transformers with all embeddings are ahead of the baselines",
        published="figures of the principal plane",
        asked=_transformers_ahead,
        analyses=(NONE,),
    ),
    Claim(
        says="IGAMT is nearest in time, heart rate and systolic pressure, each by itself",
        published="0.43, 0.39, 0.79",
        asked=_ahead_by_column,
    ),
    Claim(
        says="with an embedding of time, histograms of gaps and of empty cells are met",
        published="figures",
        asked=_time_embedding_helps,
    ),
    Claim(
        says="the divergence of IGAMT's columns is below DAAE's",
        published="in 8 of 10 columns, one tie",
        asked=_kl_below_daae,
    ),
    Claim(
        says=f"a classifier learns as much from IGAMT's records, within {WITHIN:g} points",
        published="82.0 % against 80.5 % of real ones",
        asked=_as_useful_as_real,
    ),
)
