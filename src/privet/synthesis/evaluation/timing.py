"""When rows come: gaps between them, their times, and how long stays are."""

from typing import Final

import numpy as np

from privet.synthesis.evaluation.distances import earth_moved, kl, shares_by_bin
from privet.synthesis.evaluation.measure import Comparison, Figures, Headline, Measure, Outcome
from privet.synthesis.evaluation.side import Floats, Side

HISTOGRAM: Final = 40


def samples(side: Side) -> dict[str, Floats]:
    """What is compared, each as one sample; times in the unit of the schema."""
    records, lengths = side.records, side.records.lengths
    ends = records.times[np.maximum(records.offsets[1:] - 1, 0)] if len(records.times) else lengths
    total = np.bincount(side.stay_of_row, weights=side.gaps, minlength=len(side))
    return {
        "gap": side.gaps,
        "mean_gap": total[lengths > 0] / lengths[lengths > 0],
        "time": records.times,
        "duration": np.where(lengths > 0, ends, 0.0),
        "length": lengths.astype(np.float64),
    }


def compare(comparison: Comparison) -> Outcome:
    """Wasserstein-1 of each sample, in its unit; of gaps also KL, on 50 logarithmic bins."""
    schema = comparison.test.schema
    real, other = samples(comparison.test), samples(comparison.candidate)
    figures: Figures = {
        name: earth_moved(real[name], other[name]) if len(real[name]) and len(other[name]) else None
        for name in real
    }
    p, q = (shares_by_bin(schema.gap, side["gap"]) for side in (real, other))
    figures |= {"gap_kl_real_other": kl(p, q), "gap_kl_other_real": kl(q, p)}
    figures["gap_scaled"] = _scaled(figures["gap"], schema.max_gap)
    figures["length_scaled"] = _scaled(figures["length"], schema.max_steps)
    figures["time_unit"] = schema.time_unit
    ticks = schema.gap.value_at(np.linspace(0, 1, 5))
    drawn = {"gap": {"real": p, "other": q, "ticks": [f"{tick:.3g}" for tick in ticks]}}
    return Outcome(figures=figures, drawn=drawn | _drawn(real, other))


def _scaled(moved: float | None, whole: float) -> float | None:
    return None if moved is None else moved / whole


def _drawn(real: dict[str, Floats], other: dict[str, Floats]) -> Figures:
    drawn: Figures = {}
    for name in ("mean_gap", "time", "length"):
        both = np.concatenate([real[name], other[name]])
        edges = np.histogram_bin_edges(both, HISTOGRAM) if len(both) else np.linspace(0, 1, 2)
        counts = [np.histogram(s, edges)[0] / max(len(s), 1) for s in (real[name], other[name])]
        drawn[name] = {"edges": edges, "real": counts[0], "other": counts[1]}
    return drawn


MEASURE: Final = Measure(
    name="timing",
    says="Whether rows come at the times and in the numbers that they should.",
    compare=compare,
    headlines=(
        Headline(figure="gap_scaled", says="time between rows, W1, in longest gaps", best=0.0),
        Headline(
            figure="gap_kl_real_other", says="time between rows, KL(real ‖ synthetic)", best=0.0
        ),
        Headline(figure="length", says="rows of a stay, W1", best=0.0, unit="rows"),
    ),
)
