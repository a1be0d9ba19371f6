"""Rule `realised-normaliser`: the noisy sum is divided by the size of the batch that came out."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.algebra import Leaf, Term
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown
from privet.audits.static.rules.sampling import accounts_poisson, shuffles
from privet.audits.static.sizes import is_coin, is_size, of_a_batch

RULE: Final = "realised-normaliser"
WHY: Final = (
    "Under Poisson sampling that size changes with one record, so the whole average moves by more "
    "than the noise covers, up to twice the clip norm."
)
FIX: Final = "Divide by a constant that is declared beforehand: the expected batch size."


def check(marks: Marks) -> Iterator[Finding]:
    """Clipped or noisy terms over `len(x)` of the batch, or a mean over what was drawn."""
    severity = Severity.WRONG if _varies(marks) else Severity.DOUBT
    seen = set()
    for _, terms in marks.values:
        if not any(term.first("noise") for term in terms):
            continue
        for term in terms:
            for leaf in term.under:
                if _is_private(term) and _is_realised(marks, leaf) and leaf.node not in seen:
                    seen.add(leaf.node)
                    what = f"The noisy sum is divided by {shown(leaf.node)}, "
                    what += "the size of the batch that was drawn."
                    yield marks.finding(leaf.node, RULE, severity, what=what, why=WHY, fix=FIX)


def _varies(marks: Marks) -> bool:
    """Whether the size of a batch is random: sampled so, or accounted so and not shuffled."""
    if marks.story.uses(v.POISSON_SAMPLERS) or any(is_coin(marks, n) for n in marks.story.nodes):
        return True
    return accounts_poisson(marks) and not list(shuffles(marks))


def _is_private(term: Term) -> bool:
    return term.first("noise") is not None or term.clipped is not None


def _is_realised(marks: Marks, leaf: Leaf) -> bool:
    if leaf.kind == "mean" and isinstance(leaf.node, ast.Call):
        return _means_over_clipped(marks, leaf.node)
    if leaf.kind != "other":
        return False
    if is_size(leaf.node):
        return of_a_batch(marks, leaf.node)
    return any(is_coin(marks, node) for node in ast.walk(leaf.node))


def _means_over_clipped(marks: Marks, call: ast.Call) -> bool:
    own = call.func.value if isinstance(call.func, ast.Attribute) else None
    operand = own if own is not None and not marks.story.is_module(own) else call.args[0]
    return any(term.clipped for term in marks.algebra.terms(operand))
