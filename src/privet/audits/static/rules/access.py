"""Rule `uncharged-access`: something is computed from the records before training, for free."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, reads, shown
from privet.audits.static.sizes import measured, of_a_batch

RULE: Final = "uncharged-access"
LEARNERS: Final = ("Scaler", "PCA", "Vectorizer", "Encoder", "Imputer", "Binarizer", "Transformer")
MAYBE: Final = frozenset({"max", "min", "amax", "amin", "unique"})
WHY: Final = (
    "It is an exact answer about the records that goes into the model without noise, "
    "and no epsilon counts it."
)
FIX: Final = (
    "Declare the figure from public knowledge, or learn it with noise and charge for it "
    "(`privet data`)."
)


def check(marks: Marks) -> Iterator[Finding]:
    """Fitted scalers, means, counts and sizes of the training records."""
    if not marks.claims:
        return
    inside = {node for loop in marks.step_loops for node in ast.walk(loop)}
    for call in marks.story.calls:
        operand = _operand(marks, call)
        if call in inside or operand is None or not _is_training_data(marks, operand):
            continue
        if marks.story.called(call) not in v.FITTED and not _is_raw(marks, operand):
            continue
        maybe = marks.story.called(call) in MAYBE or _is_printed(marks, call)
        severity = Severity.DOUBT if maybe else Severity.WRONG
        what = f"{shown(call)} reads the training records before the first private step."
        yield marks.finding(call, RULE, severity, what=what, why=WHY, fix=FIX)
    yield from _sizes(marks)


def _operand(marks: Marks, call: ast.Call) -> ast.expr | None:
    """The data that a call computes a figure from; None for other calls."""
    name = marks.story.called(call)
    own = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in v.FITTED:
        learns = name == "fit_transform" or (own is not None and _is_learner(marks, own))
        return call.args[0] if learns and call.args else None
    if name not in v.STATISTICS | v.COUNTS:
        return None
    if own is not None and not marks.story.is_module(own):
        return own
    of_two = name in ("max", "min") and len(call.args) > 1
    return call.args[0] if call.args and not of_two else None


def _is_learner(marks: Marks, owner: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Call) and marks.story.called(node).endswith(LEARNERS)
        for node in marks.story.reach(owner)
    )


def _is_training_data(marks: Marks, operand: ast.expr) -> bool:
    roots = marks.data_of([operand]) - marks.models
    return bool(roots & marks.training_data)


def _is_raw(marks: Marks, node: ast.expr, depth: int = 0) -> bool:
    """Records as they are, or a part of them: no predictions, no losses."""
    if isinstance(node, ast.Attribute) and node.attr in v.GRADIENT_ATTRIBUTES:
        return False
    if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        return _is_raw(marks, node.value, depth)
    if isinstance(node, ast.Call):
        return _is_passed_on(marks, node, depth)
    if not isinstance(node, ast.Name) or depth > 8:
        return False
    values = [b.value for b in marks.story.bindings(node) if b.value is not None]
    return all(_is_raw(marks, value, depth + 1) for value in values)


def _is_passed_on(marks: Marks, call: ast.Call, depth: int) -> bool:
    """Data that were just read, or that a call hands on as they are."""
    name = marks.story.called(call)
    if reads(call, name):
        return True
    own = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_module = own is None or marks.story.is_module(own)
    value = next(iter(call.args), None) if of_module else own
    kept = name in v.TRANSPARENT - {"sum"} or name in ("from_numpy", "TensorDataset", "Subset")
    return kept and value is not None and _is_raw(marks, value, depth)


def _is_printed(marks: Marks, call: ast.Call) -> bool:
    return any(
        marks.story.called(above) in ("print", "info", "debug", "log")
        for above in marks.story.names.ancestors(call)
    )


def _sizes(marks: Marks) -> Iterator[Finding]:
    """The exact number of records in a sampling rate, or in the noise."""
    rates = [k.value for c in marks.story.calls for k in c.keywords if k.arg == "sample_rate"]
    factors = [leaf for s in marks.noise_sites for t in s.noise for leaf in t.over + t.under]
    noise = [leaf.node for leaf in factors if leaf.kind != "noise"]
    seen = set()
    for part in [*rates, *noise]:
        for node in marks.story.reach(part, sizes=True):
            if node not in seen and _counts_records(marks, node):
                seen.add(node)
                yield marks.finding(
                    node,
                    RULE,
                    Severity.DOUBT,
                    what=f"{shown(node)}, the exact number of records, enters the accounting.",
                    why="Under add/remove neighbours that number is a fact about one record.",
                    fix="Use a public or rounded figure that is declared beforehand.",
                )


def _counts_records(marks: Marks, node: ast.AST) -> bool:
    thing = measured(node)
    if thing is None or of_a_batch(marks, node):
        return False
    return bool((marks.data_of([thing]) - marks.models) & marks.training_data)
