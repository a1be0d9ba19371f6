"""Published mechanisms under audit, as their public code has them; one file each."""

from typing import Final

from privet.audits.mechanism import Entry
from privet.audits.papers import securesgd

PAPERS: Final[dict[str, Entry]] = {
    "securesgd": Entry(
        kind="paper",
        summary="SecureSGD (2019), public code: clips the mean of the batch.",
        make=securesgd.weights,
    ),
    "securesgd-bias": Entry(
        kind="paper",
        summary="SecureSGD (2019), public code: seen at the bias, which is not clipped.",
        make=securesgd.bias,
    ),
}
