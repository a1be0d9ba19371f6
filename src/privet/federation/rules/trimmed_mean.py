"""The trimmed mean (Yin et al., 2018): of each weight, the mean without the extremes."""

from functools import partial

from torch import Tensor

from privet.errors import InputError
from privet.federation.gathering import Kept
from privet.federation.pacing import Deadline
from privet.federation.rule import Rule
from privet.federation.stepping import Move


def trimmed_mean(
    *, trim: float = 0.1, seconds: float = 360.0, quorum: int = 1, server_rate: float = 1.0
) -> Rule:
    """At each deadline, of each weight the mean without the share `trim` at either end."""
    if not 0 <= trim < 0.5:
        raise InputError("bad share to trim", got=trim, expected="0 <= trim < 0.5")
    return Rule(
        name="trimmed-mean",
        pacing=Deadline(seconds=seconds, least=max(1, quorum)),
        gathering=lambda _: Kept(partial(inner_mean, trim=trim)),
        step=lambda _: Move(server_rate),
    )


def inner_mean(changes: Tensor, trim: float) -> Tensor:
    """Of each column the mean without floor(trim k) values at either end."""
    cut = int(trim * len(changes))
    ordered = changes.sort(dim=0).values
    return ordered[cut : len(changes) - cut].double().mean(0)
