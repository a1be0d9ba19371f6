"""Rule `unprivate-update`: parameters move along gradients of the records without noise."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown

RULE: Final = "unprivate-update"
WHY: Final = (
    "These parameters learn from the records without noise, and whatever is computed through them "
    "carries that on; the epsilon covers only the private part."
)
FIX: Final = (
    "Clip and noise the gradients of all parameters that see the records, or train this part on "
    "public data beforehand and freeze it."
)


def check(marks: Marks) -> Iterator[Finding]:
    """An optimiser that steps on the records beside a private one."""
    if not marks.claims:
        return
    private = _private_modules(marks)
    for step, maker in _steps(marks):
        bare = _bare(marks, maker, private)
        if bare and _learns_from_records(marks, step):
            what = f"{shown(step)} updates {bare} by gradients without noise."
            yield marks.finding(step, RULE, Severity.WRONG, what=what, why=WHY, fix=FIX)


def _steps(marks: Marks) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Steps of optimisers, each with the call that made the optimiser."""
    for call in marks.story.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step":
            for binding in marks.story.bindings(call.func.value):
                maker = binding.value
                if isinstance(maker, ast.Call) and marks.story.called(maker) in v.OPTIMISERS:
                    yield call, maker


def _private_modules(marks: Marks) -> frozenset[str] | None:
    """Whose gradients get noise by hand, by all their names; None where that cannot be read."""
    found: set[str] = set()
    for site in marks.noise_sites:
        loops = marks.story.names.loops(site.node)
        iterated = [loop.iter for loop in loops if isinstance(loop, ast.For)]
        modules = [module for part in iterated for module in _modules(marks, part)]
        if not modules:
            return None
        found.update(name for module in modules for name in _owners(marks, module))
    return frozenset(found) if found and "self" not in found else None


def _modules(marks: Marks, expression: ast.AST) -> list[ast.expr]:
    """Networks whose `parameters()` an expression is made of."""
    return [
        node.func.value
        for node in marks.story.reach(expression)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in v.PARAMETER_LISTS
    ]


def _owners(marks: Marks, module: ast.expr) -> set[str]:
    """The names of a network: its own, those it was given by, and those of what holds it."""
    names = {ast.unparse(module)}
    for node in marks.story.reach(module):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
    passed = isinstance(module, ast.Attribute) and ast.unparse(module.value) == "self"
    return names - {"self"} if passed else names


def _bare(marks: Marks, maker: ast.Call, private: frozenset[str] | None) -> str:
    """The networks of an optimiser that get no noise, in quotes; empty where all do."""
    own = _modules(marks, maker.args[0]) if maker.args else []
    if private is not None:
        bare = [module for module in own if not _owners(marks, module) & private]
    else:
        bare = own if _engine_elsewhere(marks, maker) else []
    return ", ".join(sorted({f"`{ast.unparse(module)}`" for module in bare}))


def _engine_elsewhere(marks: Marks, maker: ast.Call) -> bool:
    """Whether an engine makes another optimiser private, and not this one."""
    engines = [call for call in marks.story.calls if marks.story.called(call) in v.ENGINES]
    given = [
        node
        for call in engines
        for part in [*call.args, *(k.value for k in call.keywords)]
        for node in marks.story.reach(part)
    ]
    return bool(engines) and not any(node is maker for node in given)


def _learns_from_records(marks: Marks, step: ast.Call) -> bool:
    """Whether the loss behind a step is made of what the step loops run over."""
    backward = [
        call
        for call in marks.gradient_calls
        if call.lineno <= step.lineno
        and marks.story.names.scope_of(call) is marks.story.names.scope_of(step)
    ]
    if not backward:
        return False
    drawn: set[ast.AST] = {loop.iter for loop in marks.batch_loops}
    nodes = list(marks.story.reach(backward[-1]))
    return any(node in drawn for node in nodes) or bool(
        marks.data_of([backward[-1]]) & marks.training_data
    )
