"""Rule `batch-clipping`: the gradient of the whole batch is clipped, not each record's."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown

RULE: Final = "batch-clipping"
WHY: Final = (
    "One record can turn the whole clipped mean around, which moves it by up to twice the clip "
    "norm whatever the size of the batch; noise scaled for one record's share does not cover that."
)
FIX: Final = (
    "Clip the gradient of each record by itself (`torch.func.vmap(grad(...))`, Opacus, or "
    "`privet.make_private`), then sum and add noise."
)


def check(marks: Marks) -> Iterator[Finding]:
    """Clipping of `.grad` before noise, with nothing that takes the batch apart by record."""
    if marks.per_example or not marks.noise_sites:
        return
    for node in [*_clippers(marks), *_clipped_by_hand(marks)]:
        what = f"{shown(node)} clips the gradient of the whole batch before noise is added."
        yield marks.finding(node, RULE, Severity.WRONG, what=what, why=WHY, fix=FIX)


def _clippers(marks: Marks) -> list[ast.Call]:
    return [call for call in marks.story.calls if marks.story.called(call) in v.CLIPPERS]


def _clipped_by_hand(marks: Marks) -> Iterator[ast.AST]:
    seen = set()
    for site in marks.noise_sites:
        for term in site.partners:
            clip = term.clipped
            if clip is not None and term.first("gradient") and clip.node not in seen:
                seen.add(clip.node)
                yield clip.node
