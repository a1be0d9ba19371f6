"""Who is better on the seven measures, and how sure that is.

Two contenders are compared by their means over seeds. The difference has Welch's 95 % interval over
seeds, unpaired as in `robust_private.results`. Where it does not contain 0, the better mean has
*won*; where it does, or where there are not two seeds of both, it is a *tie*, whoever is ahead.
Seven measures against several rivals are many intervals, and none is corrected for their number:
of wholly equal rivals one comparison in twenty would be won by luck, half of these on either side.
A contender without a figure (it never measured two columns together, say) has lost against one
that has it.

The ratio of the elapsed-time distances is that of geometric means, with Welch's interval of the
difference of logarithms.
"""

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from scipy.stats import ttest_ind

from privet.studies.synthesis.contenders import BASELINES, HERO, REFERENCE, SOUND
from privet.studies.synthesis.fidelity import ELAPSED, ENOUGH, SEVEN, Fidelity
from privet.studies.synthesis.results import Found, rows_under

WON, LOST, TIE = "won", "lost", "tie"
HALF: Final = 0.5  # of the best baseline's elapsed-time distance: what is asked for

Row = Mapping[str, Any]


def contest(rows: Sequence[Row], epsilon: float) -> dict[str, Any]:
    """`igamt` against every other sound contender at a budget; a reason where it is not there."""
    sound = rows_under(rows, SOUND, epsilon)
    ours = [row for row in sound if row["name"] == HERO]
    if not ours:
        return {"epsilon": epsilon, "why": f"'{HERO}' has no row under the sound analysis"}
    rivals = [row for row in sound if row["name"] != HERO]
    told = [against(ours[0], row) for row in rivals]
    baselines = [one for one in told if one["rival"] in BASELINES]
    return {
        "epsilon": epsilon,
        "hero": HERO,
        "rivals": told,
        "every_baseline": _over_all(baselines),
        "elapsed": elapsed_ratio(ours[0], [r for r in rivals if r["name"] in BASELINES]),
        "beside": elapsed_ratio(ours[0], [r for r in rivals if r["name"] == REFERENCE]),
    }


def against(ours: Row, theirs: Row) -> dict[str, Any]:
    """Two rows on the seven measures."""
    found = {one.name: duel(one, one.of(ours), one.of(theirs)) for one in SEVEN}
    verdicts = [one["verdict"] for one in found.values()]
    return {
        "rival": theirs["name"],
        "basis": theirs["basis"],
        "measures": found,
        "ahead": sum(one["ahead"] for one in found.values()),
        "won": verdicts.count(WON),
        "ties": verdicts.count(TIE),
        "lost": verdicts.count(LOST),
    }


def duel(measure: Fidelity, ours: Found, theirs: Found) -> dict[str, Any]:
    """One measure of two rows: who is ahead, by how much (positive: ours), and the verdict."""
    if ours is None or theirs is None:
        verdict = TIE if ours is theirs else WON if theirs is None else LOST
        return {"ahead": verdict == WON, "by": None, "interval": None, "verdict": verdict}
    sign = 1.0 if measure.higher else -1.0
    by = sign * (ours["mean"] - theirs["mean"])
    signed = [[sign * v for v in one["values"]] for one in (ours, theirs)]
    interval = welch_interval(*signed)
    verdict = TIE
    if interval is not None and not interval[0] <= 0.0 <= interval[1]:
        verdict = WON if by > 0 else LOST
    return {"ahead": by > 0, "by": by, "interval": interval, "verdict": verdict}


def welch_interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of mean(a) - mean(b); None where there are not two values of both."""
    if min(len(a), len(b)) < 2:
        return None
    apart = statistics.fmean(a) - statistics.fmean(b)
    if max(statistics.pvariance(a), statistics.pvariance(b)) == 0.0:
        return apart, apart
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of one that does not vary
        found = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return float(found.low), float(found.high)


def elapsed_ratio(ours: Row, rivals: Sequence[Row]) -> dict[str, Any]:
    """Our elapsed-time distance in those of the best rival; best: by its mean."""
    known = [(row, ELAPSED.of(row)) for row in rivals]
    there = [(row, found) for row, found in known if found is not None]
    mine = ELAPSED.of(ours)
    if mine is None or not there:
        return {"why": "no such figure on one side"}
    best, theirs = min(there, key=lambda one: float(one[1]["mean"]))
    logs = [[_log(v) for v in found["values"]] for found in (mine, theirs)]
    interval = welch_interval(*logs)
    return {
        "best": best["name"],
        "ratio": math.exp(statistics.fmean(logs[0]) - statistics.fmean(logs[1])),
        "interval": None if interval is None else [math.exp(end) for end in interval],
        "ours": mine["mean"],
        "theirs": theirs["mean"],
    }


def _over_all(baselines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """On how many measures every baseline is behind, and on how many every one is beaten."""
    ahead = [m.name for m in SEVEN if all(one["measures"][m.name]["ahead"] for one in baselines)]
    won = [
        m.name for m in SEVEN if all(one["measures"][m.name]["verdict"] == WON for one in baselines)
    ]
    return {
        "baselines": [one["rival"] for one in baselines],
        "enough": ENOUGH,
        "ahead_of_all": ahead if baselines else [],
        "won_against_all": won if baselines else [],
        "enough_against_each": bool(baselines) and all(one["ahead"] >= ENOUGH for one in baselines),
    }


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))
