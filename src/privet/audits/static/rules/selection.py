"""Rule `private-selection`: what is released, or how long is trained, is chosen on records."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import LOOPS, Marks, shown

RULE: Final = "private-selection"
SPENT: Final = frozenset({"get_epsilon", "get_privacy_spent", "running_epsilon", "epsilon_of"})
WHY: Final = (
    "The choice is an answer about these records that nobody charged for: which weights come out "
    "can depend on a single one."
)
FIX: Final = (
    "Choose on data that are public, or charge for the choice (`privet tune`), "
    "or train for a fixed number of steps and keep the last weights."
)


def check(marks: Marks) -> Iterator[Finding]:
    """Best checkpoints, early stopping and schedules by a metric on records."""
    if not marks.claims:
        return
    for node, metric, does in [*_choices(marks), *_schedules(marks)]:
        severity = _severity(marks, metric)
        if severity is not None:
            what = f"{shown(metric)} decides {does}, and it is measured on records."
            yield marks.finding(node, RULE, severity, what=what, why=WHY, fix=FIX)


def _choices(marks: Marks) -> Iterator[tuple[ast.AST, ast.expr, str]]:
    for node in marks.story.nodes:
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        does = _consequence(marks, node)
        if does and any(loop in marks.step_loops for loop in _around(marks, node)):
            yield node, node.test, does


def _around(marks: Marks, node: ast.AST) -> list[ast.AST]:
    return [above for above in marks.story.names.ancestors(node) if isinstance(above, LOOPS)]


def _consequence(marks: Marks, choice: ast.If) -> str:
    branches = [*choice.body, *choice.orelse]
    for node in (n for statement in branches for n in ast.walk(statement)):
        if isinstance(node, ast.Call) and marks.story.called(node) in v.KEEPERS:
            return "which weights are kept"
        if isinstance(node, ast.Break):
            return "when training stops"
    return ""


def _schedules(marks: Marks) -> Iterator[tuple[ast.AST, ast.expr, str]]:
    for call in marks.story.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step" and call.args:
            made = [b.value for b in marks.story.bindings(call.func.value) if b.value]
            if any(marks.story.called(maker) == "ReduceLROnPlateau" for maker in made):
                yield call, call.args[0], "the learning rate"


def _severity(marks: Marks, metric: ast.expr) -> Severity | None:
    """Wrong for records of the training's own source, doubt for others, None for no records."""
    nodes = list(marks.story.reach(metric))
    if any(marks.story.called(node) in SPENT for node in nodes):
        return None
    if any("public" in n.id.lower() for n in nodes if isinstance(n, ast.Name)):
        return None
    drawn: set[ast.AST] = {loop.iter for loop in marks.batch_loops}
    roots = marks.data_of([metric]) - marks.models
    if any(node in drawn for node in nodes) or roots & marks.training_data:
        return Severity.WRONG
    return Severity.DOUBT if roots & _evaluated(marks) else None


def _evaluated(marks: Marks) -> frozenset[str]:
    """Where the data come from that loops run over, or that are given to a call with a model."""
    fed: list[ast.AST] = [n.iter for n in marks.story.nodes if isinstance(n, ast.For)]
    for call in marks.story.calls:
        if marks.data_of(call.args) & marks.models:
            fed += call.args
    return marks.data_of(fed) - marks.models
