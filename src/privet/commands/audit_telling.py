"""What the audits on the command line share: how bounds are printed, and when one fails."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from privet.commands.screen import out
from privet.errors import CheckFailed

if TYPE_CHECKING:
    from privet.audits.evidence import Bound

PRIVATE: Final = "computed from training records, without charge: not for release"


def tell_bounds(bounds: "Sequence[Bound]", what: str) -> None:
    """Each bound with what it assumes, and of what it is."""
    from privet.reports.figures import at_least

    for bound in bounds:
        assumed = "assumes mu-GDP" if len(bound.assumptions) > 1 else "assumes no kind of mechanism"
        out.print(
            f"audited  ε ≥ {at_least(bound.epsilon)} at δ = {bound.delta:g}, "
            f"confidence {bound.confidence:g}; {assumed}",
            highlight=False,
        )
    out.print(f"of       {what}", highlight=False, soft_wrap=True)


def tell_curves(found: Mapping[str, Mapping[str, float]]) -> None:
    """The figures of each attack on membership, and that they stay inside."""
    for attack, figures in found.items():
        said = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        out.print(f"{attack}: {said}", highlight=False)
    out.print(PRIVATE, style="yellow")


def fail_if(refuted: bool, what: str) -> None:
    """Exit code 1, in words."""
    if refuted:
        raise CheckFailed(f"an audit refutes {what}")
