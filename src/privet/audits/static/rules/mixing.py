"""Rule `mixing-modules`: one example changes what the network does to another."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown

RULE: Final = "mixing-modules"
WHY: Final = (
    "One record then moves the gradients of all others in the batch, so clipping each by itself "
    "bounds nothing; running statistics also store the records without noise."
)
FIX: Final = "Use GroupNorm or LayerNorm, for example by `privet.models.without_batchnorm(model)`."


def check(marks: Marks) -> Iterator[Finding]:
    """Batch norm, and statistics over the batch in `forward`, in code that claims privacy."""
    if not marks.claims or marks.story.uses(v.REPAIRS):
        return
    for call in marks.story.calls:
        if _is_batch_norm(marks, call):
            what = f"{shown(call)} normalises with the statistics of the whole batch."
            yield marks.finding(call, RULE, Severity.WRONG, what=what, why=WHY, fix=FIX)
    for call in _over_the_batch(marks):
        vectorised = bool(marks.story.uses(v.VECTORISED))  # there the first axis may be another
        severity = Severity.DOUBT if vectorised else Severity.WRONG
        what = f"{shown(call)} in the network takes a statistic over its first axis, the batch."
        yield marks.finding(call, RULE, severity, what=what, why=WHY, fix=FIX)


def _is_batch_norm(marks: Marks, call: ast.Call) -> bool:
    name = marks.story.called(call)
    if name in v.BATCH_NORMS:
        return True
    from_zoo = marks.story.dotted(call.func).startswith("torchvision.models")
    replaced = any(k.arg == "norm_layer" for k in call.keywords)
    holds = name.startswith(v.WITH_BATCH_NORM) or name.endswith("_bn")
    return from_zoo and holds and not replaced


def _over_the_batch(marks: Marks) -> Iterator[ast.Call]:
    for node in marks.story.nodes:
        if isinstance(node, ast.FunctionDef) and node.name in ("forward", "__call__"):
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and _is_first_axis(marks, call, node):
                    yield call


def _is_first_axis(marks: Marks, call: ast.Call, forward: ast.FunctionDef) -> bool:
    if marks.story.called(call) not in v.STATISTICS:
        return False
    method = isinstance(call.func, ast.Attribute) and not marks.story.is_module(call.func.value)
    operand = call.func.value if method and isinstance(call.func, ast.Attribute) else None
    rest = list(call.args)
    if operand is None and rest:
        operand = rest.pop(0)
    axes = rest + [k.value for k in call.keywords if k.arg in ("dim", "axis")]
    first = any(isinstance(axis, ast.Constant) and axis.value == 0 for axis in axes)
    return first and operand is not None and _from_input(marks, operand, forward)


def _from_input(marks: Marks, operand: ast.expr, forward: ast.FunctionDef) -> bool:
    inputs = {argument.arg for argument in forward.args.args[1:]}
    return any(
        isinstance(node, ast.Name) and node.id in inputs for node in marks.story.reach(operand)
    )
