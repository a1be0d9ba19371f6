"""Combinations that cannot be right, refused before a client is asked for anything."""

from privet.errors import InputError
from privet.federation.gathering import Gathering, StreamingMean
from privet.federation.pacing import Buffer, Cohort
from privet.federation.rule import Rule
from privet.federation.user_privacy import UserPrivacy
from privet.privacy.participation import Capped, Sampled


def require_allowed(
    rule: Rule,
    gathering: Gathering,
    privacy: UserPrivacy | None,
    *,
    secure_sum: bool,
    rounds: int,
) -> None:
    """Refuse a rule with privacy, or with secure aggregation, that it cannot have."""
    if secure_sum:
        _require_summable(rule, gathering)
    if privacy is not None:
        if secure_sum:
            _require_given_up_unnoticed(rule)
        _require_private(rule, gathering, privacy)
        if isinstance(privacy.participation, Sampled):
            _require_sampled(rule, privacy.participation, rounds)


def _require_summable(rule: Rule, gathering: Gathering) -> None:
    if not gathering.streaming:
        raise InputError(
            f"secure aggregation with '{rule.name}'",
            got="a rule that looks at single updates",
            expected="a rule that adds them up",
            fix="fedavg, fedprox, fedadam or flsys",
        )
    if isinstance(rule.pacing, Buffer) or rule.stale:
        raise InputError(
            f"secure aggregation with '{rule.name}'",
            got="updates of several versions in one sum",
            expected="a cohort of one round, whose masks cancel",
            fix="fedavg, fedprox, fedadam or flsys",
        )


def _require_given_up_unnoticed(rule: Rule) -> None:
    """A secure sum of too few is given up: then one client decides on all others' updates.

    Where rounds end by the clock alone it is proved that a client may come or stay away. By that
    neighbour the sum of a whole cohort could be there or not. Elsewhere it is proved that its
    update may be blank, and then the same rounds are given up.
    """
    if rule.pacing.by_clock:
        raise InputError(
            f"secure aggregation and privacy with '{rule.name}' that ends by the clock alone",
            got="rounds that are given up where one client stays away",
            expected="rounds for which it is not proved that a client may stay away unnoticed",
            fix="fedavg, fedprox or fedadam with a cohort of a size",
        )


def _require_private(rule: Rule, gathering: Gathering, privacy: UserPrivacy) -> None:
    if not isinstance(gathering, StreamingMean):  # no other is known to be a sum
        raise InputError(
            f"privacy for the user with '{rule.name}'",
            got="a rule by which one update can move the result at will",
            expected="a sum of clipped updates",
            fix="fedavg, fedprox, fedadam, fedbuff or flsys",
        )
    _require_steps(rule, privacy)
    if isinstance(privacy.participation, Capped) and _rate(rule) is not None:
        raise InputError(
            "a server that samples, and a cap on participation",
            got=f"rate {_rate(rule):g}",
            fix="account it as sampled, or ask for a cohort of a size",
        )


def _require_steps(rule: Rule, privacy: UserPrivacy) -> None:
    """Clients wait for steps, and steps must not wait for these clients."""
    cap, least = privacy.participation, getattr(rule.pacing, "least", 0)
    if isinstance(cap, Capped) and cap.apart > 1 and least:
        raise InputError(
            "a quorum, and a separation of a client's steps",
            got=f"a quorum of {least}, steps {cap.apart} apart",
            expected="steps that come whoever came, or all may be waiting for one that never comes",
            fix="leave out --quorum, or --apart and --bands",
        )


def _require_sampled(rule: Rule, participation: Sampled, rounds: int) -> None:
    rate = _rate(rule)
    if rate != participation.rate:
        raise InputError(
            "sampling is accounted where nobody samples so",
            got=f"rate {participation.rate:g} accounted, "
            + (f"{rate:g} of the server" if rate else f"'{rule.name}' without sampling"),
            expected="the server asks every client with this probability",
            fix="fedavg with this rate, or a cap on participation",
        )
    if rounds > participation.steps:
        raise InputError(
            "more rounds than are accounted", got=rounds, expected=f"at most {participation.steps}"
        )
    assert isinstance(rule.pacing, Cohort)
    if rule.pacing.least:
        raise InputError(
            "a quorum where the server samples",
            got=rule.pacing.least,
            expected="0: updates kept for the next round would be in it more often than accounted",
        )
    if not rule.pacing.by_clock:
        # How long a round was, and who could train after it, would tell whose coin it waited for.
        raise InputError(
            "sampling is accounted, and rounds end when those who were asked have answered",
            got=f"'{rule.name}' that is not patient",
            expected="coins that nobody can see",
            fix="--patient: every round lasts its whole time",
        )


def _rate(rule: Rule) -> float | None:
    return rule.pacing.rate if isinstance(rule.pacing, Cohort) else None
