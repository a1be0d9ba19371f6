"""What is true of every record, and how often it is not."""

from typing import Final

from privet.data.records.constraints import violations
from privet.synthesis.evaluation.intervals import share
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
)


def compare(comparison: Comparison) -> Outcome:
    """Of each declared constraint: how often the candidate breaks it, of how many chances."""
    found = {
        name: {"violated": broken} | share(broken, chances)
        for name, (broken, chances) in violations(comparison.candidate.records).items()
    }
    broken = sum(constraint["violated"] for constraint in found.values())
    chances = sum(constraint["of"] for constraint in found.values())
    figures: Figures = {"share": 100 * broken / chances if chances else None, "violated": broken}
    return Outcome(figures=figures | {"constraints": found})


MEASURE: Final = Measure(
    name="constraints",
    says="Whether what the schema declares to be always true is.",
    compare=compare,
    headlines=(Headline(figure="share", says="constraints broken", best=0.0, unit="%"),),
)
