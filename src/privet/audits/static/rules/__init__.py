"""The rules, one file each: a name, and a function from a trainer to its findings."""

from collections.abc import Callable, Iterator
from typing import Final

from privet.audits.static.findings import Finding
from privet.audits.static.marks import Marks
from privet.audits.static.rules import (
    access,
    batch_clipping,
    mixing,
    noise_scale,
    normaliser,
    partner,
    parts,
    reused,
    sampling,
    second,
    selection,
)

Rule = Callable[[Marks], Iterator[Finding]]

RULES: Final[dict[str, Rule]] = {
    sampling.RULE: sampling.check,
    mixing.RULE: mixing.check,
    batch_clipping.RULE: batch_clipping.check,
    noise_scale.RULE: noise_scale.check,
    normaliser.RULE: normaliser.check,
    parts.RULE: parts.check,
    reused.RULE: reused.check,
    second.RULE: second.check,
    selection.RULE: selection.check,
    access.RULE: access.check,
    partner.RULE: partner.check,
}
