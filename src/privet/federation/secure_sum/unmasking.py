r"""Taking the masks away from a sum: each secret that is needed, from t shares of it.

| symbol   | here          | meaning                                                          |
|----------|---------------|------------------------------------------------------------------|
| U2       | `shares`      | who gave shares of both secrets to all                           |
| U3       | `survivors`   | whose masked updates are in the sum                              |
| U5       |               | t of those who answered; the lowest, so that it is always the same |

sum of y_u = sum of x_u + sum over u in U3 of p_u + sum over u in U3, v in U2 \ U3 of +-p_uv

A client may send a wrong share. So every secret is held against what its owner has published: a
seed against its commitment, a mask key against its public half.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from privet.federation.secure_sum.encoding import Residues
from privet.federation.secure_sum.keys import public_of
from privet.federation.secure_sum.masks import add_mask, commitment, pair_key, self_key
from privet.federation.secure_sum.messages import Advertise, Shares, Unmask
from privet.federation.secure_sum.refusals import Refused
from privet.federation.secure_sum.shamir import combine, weights_at_zero
from privet.federation.secure_sum.terms import Terms


@final
@dataclass(frozen=True, kw_only=True)
class Cohort:
    """What the server knows when it comes to unmasking."""

    terms: Terms
    advertised: Mapping[str, Advertise]
    shares: Mapping[str, Shares]
    survivors: tuple[str, ...]


def unmask(total: Residues, cohort: Cohort, answers: Mapping[str, Unmask]) -> None:
    """Make the sum of masked updates the sum of updates, where it lies.

    Raises:
        Refused: a secret that its shares do not give; `total` is worth nothing then.
    """
    terms = cohort.terms
    used = {terms.points[name]: answers[name] for name in sorted(answers)[: terms.threshold]}
    weights = weights_at_zero(used)
    for name in cohort.survivors:
        seed = combine({x: answer.seeds[name] for x, answer in used.items()}, weights)
        if commitment(seed, terms.digest) != cohort.shares[name].commitment:
            raise Refused("shares of a seed do not fit its commitment", got=f"that of '{name}'")
        add_mask(total, self_key(seed, terms.digest), sign=-1)
    for name in sorted(set(cohort.shares) - set(cohort.survivors)):
        secret = combine({x: answer.mask_keys[name] for x, answer in used.items()}, weights)
        if public_of(secret) != cohort.advertised[name].mask_key:
            raise Refused("shares of a mask key do not fit it", got=f"that of '{name}'")
        _take_pairs_away(total, cohort, name, secret)


def _take_pairs_away(total: Residues, cohort: Cohort, gone: str, secret: bytes) -> None:
    """The masks that survivors share with a client that is gone."""
    points, digest = cohort.terms.points, cohort.terms.digest
    for name in cohort.survivors:
        pair = points[name], points[gone]
        key = pair_key(secret, cohort.advertised[name].mask_key, digest, pair)
        add_mask(total, key, sign=-1 if pair[0] < pair[1] else 1)
