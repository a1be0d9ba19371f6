"""FedAdam (Reddi et al., 2021): the mean change is a gradient, and the server takes Adam's step."""

from dataclasses import replace

from privet.federation.rule import Rule
from privet.federation.rules.fedavg import fedavg
from privet.federation.stepping import Adam


def fedadam(
    *,
    cohort: int | None = 64,
    rate: float | None = None,
    seconds: float = 3600.0,
    server_rate: float = 0.01,
    b1: float = 0.9,
    b2: float = 0.99,
    tau: float = 1e-3,
    quorum: int = 0,
    patient: bool = False,
) -> Rule:
    """FedAvg's rounds with Adam's step."""
    like = fedavg(
        cohort=cohort, rate=rate, seconds=seconds, quorum=quorum, patient=patient, name="fedadam"
    )
    return replace(like, step=lambda n: Adam(n, rate=server_rate, b1=b1, b2=b2, tau=tau))
