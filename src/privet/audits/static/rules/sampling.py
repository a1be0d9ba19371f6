"""Rule `sampler-vs-accountant`: batches are drawn otherwise than the accountant assumes."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown

RULE: Final = "sampler-vs-accountant"
STATED: Final = frozenset({"get_epsilon", "get_privacy_spent", "make_private_with_epsilon"})
WHY: Final = (
    "The accountant assumes that each record joins each batch by a coin of its own; for shuffled "
    "or fixed batches the true epsilon can be several times larger."
)
FIX: Final = (
    "Draw every batch by Poisson sampling (each record with probability q), "
    "or account one unamplified Gaussian for each epoch."
)


def check(marks: Marks) -> Iterator[Finding]:
    """Shuffling, permutations and fixed batches under an accountant of Poisson sampling."""
    if not accounts_poisson(marks):
        return
    stated = bool(marks.story.uses(STATED))
    for call in _engines_without_poisson(marks):
        severity = Severity.WRONG if stated else Severity.DOUBT
        yield _finding(marks, call, "keeps the loader's own batches", severity)
    for call in shuffles(marks):
        yield _finding(marks, call, "shuffles the records into batches", Severity.WRONG)
    for call in _of_fixed_size(marks):
        yield _finding(marks, call, "draws batches of a fixed size", Severity.DOUBT)


def _finding(marks: Marks, call: ast.Call, does: str, severity: Severity) -> Finding:
    what = f"{shown(call)} {does}, but the accounting is for Poisson sampling."
    return marks.finding(call, RULE, severity, what=what, why=WHY, fix=FIX)


def accounts_poisson(marks: Marks) -> bool:
    """Whether an accountant of Poisson sampling is used, at a rate that is not plainly 1."""
    story = marks.story
    rates = [k.value for call in story.calls for k in call.keywords if k.arg == "sample_rate"]
    if rates and all(isinstance(rate, ast.Constant) and rate.value == 1 for rate in rates):
        return False
    engines = [call for call in story.calls if story.called(call) in v.ENGINES]
    foreign = [call for call in engines if not story.dotted(call.func).startswith("privet")]
    return bool(rates or foreign or story.uses(v.POISSON_ACCOUNTANTS))


def _engines_without_poisson(marks: Marks) -> Iterator[ast.Call]:
    for call in marks.story.calls:
        if marks.story.called(call) in v.ENGINES and _is_constant(call, "poisson_sampling", False):
            yield call


def shuffles(marks: Marks) -> Iterator[ast.Call]:
    """Calls that put the records of the training loop into a random order."""
    seen = set()
    for expression in _feeding(marks):
        nodes = list(marks.story.reach(expression))
        if any(_draws_poisson(marks, node) for node in nodes):
            continue
        for node in nodes:
            if isinstance(node, ast.Call) and _shuffles(marks, node) and node not in seen:
                seen.add(node)
                yield node
        for call in _shuffled_in_place(marks, nodes):
            if call not in seen:
                seen.add(call)
                yield call


def _draws_poisson(marks: Marks, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return bool(v.POISSON_SAMPLERS & set(marks.story.dotted(node.func).split(".")))


def _feeding(marks: Marks) -> Iterator[ast.expr]:
    """What step loops run over, and what is indexed in them by a value of the loop."""
    for loop in marks.step_loops:
        if not isinstance(loop, ast.For | ast.AsyncFor):
            continue
        yield loop.iter
        counted = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        for node in marks.story.within(loop):
            if isinstance(node, ast.Subscript) and _names(node.slice) & counted:
                yield node.value


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _shuffles(marks: Marks, call: ast.Call) -> bool:
    name = marks.story.called(call)
    if name == "DataLoader":
        return _is_constant(call, "shuffle", True) or any(
            k.arg == "sampler" and marks.story.called(k.value) == "RandomSampler"
            for k in call.keywords
        )
    return name in ("randperm", "permutation")


def _shuffled_in_place(marks: Marks, nodes: list[ast.AST]) -> Iterator[ast.Call]:
    used = {(n.id, marks.story.names.scope_of(n)) for n in nodes if isinstance(n, ast.Name)}
    for call in marks.story.calls:
        if marks.story.called(call) == "shuffle" and call.args:
            target = call.args[0]
            scope = marks.story.names.scope_of(target)
            if isinstance(target, ast.Name) and (target.id, scope) in used:
                yield call


def _of_fixed_size(marks: Marks) -> Iterator[ast.Call]:
    """`choice` and the like, used as an index in a step loop."""
    for loop in marks.step_loops:
        for node in marks.story.within(loop):
            if isinstance(node, ast.Subscript):
                for part in marks.story.reach(node.slice):
                    if isinstance(part, ast.Call) and marks.story.called(part) in v.OF_FIXED_SIZE:
                        yield part


def _is_constant(call: ast.Call, keyword: str, value: bool) -> bool:
    return any(
        k.arg == keyword and isinstance(k.value, ast.Constant) and k.value.value is value
        for k in call.keywords
    )
