"""FedProx (Li et al., 2020): FedAvg whose clients pay for moving away from where they started."""

from privet.federation.rule import Rule
from privet.federation.rules.fedavg import fedavg


def fedprox(
    *,
    proximal: float = 0.01,
    cohort: int | None = 64,
    rate: float | None = None,
    seconds: float = 3600.0,
    server_rate: float = 1.0,
    quorum: int = 0,
    patient: bool = False,
) -> Rule:
    """FedAvg with mu/2 |theta - theta_t|^2 in the loss of every client."""
    return fedavg(
        cohort=cohort,
        rate=rate,
        seconds=seconds,
        server_rate=server_rate,
        quorum=quorum,
        patient=patient,
        name="fedprox",
        proximal=proximal,
    )
