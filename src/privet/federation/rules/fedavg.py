"""FedAvg (McMahan et al., 2017), synchronous: the server asks a cohort and waits for it.

Every client counts once, however many records it has: by the number of records, whoever has many
would be heard more, and a client's number of records would be part of what it sends.
"""

from privet.federation.gathering import StreamingMean
from privet.federation.pacing import Cohort
from privet.federation.rule import Rule
from privet.federation.stepping import Move


def fedavg(
    *,
    cohort: int | None = 64,
    rate: float | None = None,
    seconds: float = 3600.0,
    server_rate: float = 1.0,
    quorum: int = 0,
    patient: bool = False,
    name: str = "fedavg",
    proximal: float = 0.0,
) -> Rule:
    """Theta + gamma mean(Delta) once the cohort has answered, or after `seconds`."""
    return Rule(
        name=name,
        pacing=Cohort(
            seconds=seconds,
            size=cohort if rate is None else None,
            rate=rate,
            least=quorum,
            patient=patient,
        ),
        gathering=StreamingMean,
        step=lambda _: Move(server_rate),
        proximal=proximal,
    )
