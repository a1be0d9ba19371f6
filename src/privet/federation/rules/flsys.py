"""FLSys (Algorithm 4.1, AsynFedAveraging): phones select themselves, rounds have a deadline.

An upload after the deadline is refused. A round with too few updates is given up and the model
stays as it is, so that its updates are not stale and count in the next one. Every client counts
once.
"""

from privet.federation.gathering import StreamingMean
from privet.federation.pacing import Deadline
from privet.federation.rule import Rule
from privet.federation.stepping import Move


def flsys(*, seconds: float = 360.0, quorum: int = 1, server_rate: float = 1.0) -> Rule:
    """Theta + gamma mean(Delta) at each deadline at which `quorum` updates are there."""
    return Rule(
        name="flsys",
        pacing=Deadline(seconds=seconds, least=quorum),
        gathering=StreamingMean,
        step=lambda _: Move(server_rate),
    )
