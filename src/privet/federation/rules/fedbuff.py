"""FedBuff (Nguyen et al., 2022): no rounds; a step whenever K updates are there.

The sum of the weighted updates is divided by K, not by the sum of weights and not version by
version: the step does not grow with the number of versions in the buffer.
"""

from privet.federation.gathering import StreamingMean
from privet.federation.pacing import Buffer
from privet.federation.rule import Rule
from privet.federation.stepping import Move


def fedbuff(
    *,
    buffer: int = 10,
    stale: int = 20,
    server_rate: float = 1.0,
    seconds: float = float("inf"),
) -> Rule:
    """Theta + gamma / K sum Delta_i / sqrt(1 + s_i), updates more than `stale` behind refused."""
    return Rule(
        name="fedbuff",
        pacing=Buffer(size=buffer, seconds=seconds),
        gathering=lambda n: StreamingMean(n, divisor=buffer),
        step=lambda _: Move(server_rate),
        stale=stale,
    )
