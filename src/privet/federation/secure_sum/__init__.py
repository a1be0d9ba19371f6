"""Secure sums: the server learns the sum of a cohort's updates, and no single one.

Bonawitz et al., *Practical Secure Aggregation for Privacy-Preserving Machine Learning* (CCS 2017),
all five rounds, the consistency check (round 3) included:

| round | a client                                              | needs                    |
|-------|-------------------------------------------------------|--------------------------|
| 0     | signs two new public keys                             |                          |
| 1     | shares its mask key s_u and a seed b_u, t of n        | keys of at least t: U1   |
| 2     | sends y_u = x_u + p_u + sum of +-p_uv mod 2^k         | boxes of at least t: U2  |
| 3     | signs what it was told: U1 with its keys, U2, U3      | survivors, at least t: U3|
| 4     | reveals shares: of b_v for v in U3, of s_v for others | t signatures over the    |
|       | of U2; of nobody both                                 | same: U4                 |

n is the size of the roster, t the threshold, c the number of clients that collude with the server
(chosen before the round begins). x_u is the encoded update, p_u the client's own mask, p_uv the one
it shares with v (`masks`).

**Guarantee A, the server follows the protocol** (and may look at all it gets), c <= t - 1: server
and colluding clients together learn the sum of the x_u over the other clients of U3, who was in
which U, and nothing else that can be computed in feasible time. If the round is given up they learn
at most that sum, and the server without colluding clients learns nothing.

**Guarantee B, the server does as it likes**, 2t > n + c, and every honest device has the right
public keys of the others in its roster: as A, for one set of honest clients of at least t - c. With
t > 2n/3 (`safe_threshold`) that holds for c up to n/3, and with t > n/2, which is always asked for,
for c = 0.

**Proof note.** A: theorem 6.3 of the paper. What the proof needs: Diffie-Hellman on X25519 with
HKDF gives keys that look random to all but the two; ChaCha20 is a pseudorandom generator; AES-GCM
hides and authenticates; t - 1 shares say nothing (`shamir`). The commitment to b_u, which the paper
has not, is HKDF of b_u under another label: beside the mask, it looks random as long as b_u is
hidden, and where b_u becomes known it tells nothing new.
B: An honest client signs one transcript, and reveals shares only where t clients signed its own.
Two transcripts with t signatures each would have t - c honest signers each and none in common:
2(t - c) <= n - c, which 2t > n + c excludes. So all honest clients that reveal shares do so for the
same U1, U2, U3, and of an honest v for one of its two secrets only; of the other one the adversary
has at most c < t shares. If v is not in U3, p_v hides y_v. If it is, s_v stays secret, and each
mask that y_v has with an honest client of U3 is cancelled only by the same mask in that client's y.
So y's that show anything when they are added up contain both ends of all such masks. If there is an
honest signer among them, they are those of all honest clients of U3, at least t - c: a signer was
told of them all and has a mask with each. If there is none, their clients were told of no honest
signer, so of at most (n - c) - (t - c) honest clients; but to mask, a client asks to be told of t,
at least t - c of them honest: again 2t <= n + c.

**What does not follow.**

- *No differential privacy.* The sum is exact. Where noise is added, the server adds it, after it
  has seen the sum; only what is published is protected by it. What the sum of a small cohort says
  about one member is not little: t - c updates are what one is hidden among.
- *Invented clients.* The server keeps the register of devices. If the roster and its keys come from
  the server alone, it can fill a cohort with clients of its own, and c is what it likes: then B
  says nothing, and A is a promise about the server's conduct. B needs public keys from elsewhere
  (pinned, or signed by whoever enrols devices). A device can ask for a least cohort, which makes
  the attack dearer and does not prevent it.
- *Several sums of one update.* Two sums that differ by one client show its update. A client must
  not mask the same update again under other terms once it has sent y_u. An update that is made
  anew from the same version is much like the one before, and no protocol of one sum hides that.
- *Nothing is checked about x_u.* The server cannot see norms, NaN, or poison. A client that keeps
  the protocol clips its own update, so its own privacy does not depend on others; whether the model
  stays good does. Anything modulo 2^k can be added by one bad client.
- *No guarantee that there will be a sum.* One client with wrong shares or boxes can spoil a round.
- Who takes part and when, and sizes of messages, are seen by the server.
- Python's whole numbers do not take the same time for all values; who can measure a device's time
  to the microsecond is not considered.
"""

from privet.federation.secure_sum.client import SecureClient
from privet.federation.secure_sum.encoding import FixedPoint
from privet.federation.secure_sum.refusals import GivenUp, Refused
from privet.federation.secure_sum.server import SecureServer, Stage, Sum
from privet.federation.secure_sum.terms import Terms, safe_threshold

__all__ = [
    "FixedPoint",
    "GivenUp",
    "Refused",
    "SecureClient",
    "SecureServer",
    "Stage",
    "Sum",
    "Terms",
    "safe_threshold",
]
