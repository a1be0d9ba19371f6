"""The median of every weight (Yin et al., 2018): no half of the clients moves it at will."""

from torch import Tensor

from privet.federation.gathering import Kept
from privet.federation.pacing import Deadline
from privet.federation.rule import Rule
from privet.federation.stepping import Move


def median(*, seconds: float = 360.0, quorum: int = 1, server_rate: float = 1.0) -> Rule:
    """At each deadline, the median of the updates, weight by weight."""
    return Rule(
        name="median",
        pacing=Deadline(seconds=seconds, least=max(1, quorum)),
        gathering=lambda _: Kept(middle),
        step=lambda _: Move(server_rate),
    )


def middle(changes: Tensor) -> Tensor:
    """Of each column the median; of an even number the mean of the two in the middle."""
    ordered = changes.sort(dim=0).values
    low, high = (len(changes) - 1) // 2, len(changes) // 2
    return (ordered[low].double() + ordered[high].double()) / 2
