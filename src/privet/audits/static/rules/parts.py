"""Rule `unclipped-part`: some parameters are left out of clipping or noise, by name or shape."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown

RULE: Final = "unclipped-part"
SHAPES: Final = frozenset({"dim", "ndim", "shape"})
PROTECTING: Final = v.NOISE | v.CLIPPERS | v.NORMS
COMPREHENSIONS = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


def check(marks: Marks) -> Iterator[Finding]:
    """Guards like `if "bias" in name` around clipping or noise, where all parameters move on."""
    if not marks.noise_sites or marks.story.uses(frozenset({"requires_grad_"})) or _freezes(marks):
        return
    for test in [*_guards(marks), *_filters(marks)]:
        yield marks.finding(
            test,
            RULE,
            Severity.WRONG,
            what=f"{shown(test)} keeps some parameters out of clipping or noise.",
            why="Their gradients are released as they are, so the epsilon covers only the others.",
            fix="Take one norm over all parameters that are trained, and add noise to all of them; "
            "freeze what shall not be trained.",
        )


def _freezes(marks: Marks) -> bool:
    return "requires_grad" in {
        target.attr
        for node in marks.story.nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }


def _guards(marks: Marks) -> Iterator[ast.expr]:
    for loop in marks.story.nodes:
        if isinstance(loop, ast.For) and marks.story.mentions(loop.iter, v.PARAMETER_LISTS):
            for place, statement in enumerate(loop.body):
                if not isinstance(statement, ast.If) or not selects(statement.test):
                    continue
                if _leaves_out(marks, *_split(statement, loop.body[place + 1 :])):
                    yield statement.test


def _leaves_out(marks: Marks, chosen: list[ast.stmt], others: list[ast.stmt]) -> bool:
    """Whether only the chosen parameters are protected, while all of them move on."""
    moves = any(marks.updates(statement) for statement in chosen)
    return _protects(marks, chosen) and not _protects(marks, others) and not moves


def _split(guard: ast.If, rest: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """What only the chosen parameters get, and what only the others get."""
    if any(isinstance(statement, ast.Continue) for statement in guard.body):
        return rest, [s for s in guard.body if not isinstance(s, ast.Continue)]
    return guard.body, guard.orelse


def _protects(marks: Marks, statements: list[ast.stmt]) -> bool:
    return any(
        marks.story.called(node) in PROTECTING
        for statement in statements
        for node in marks.story.within(statement)
    )


def selects(test: ast.expr) -> bool:
    """Whether a test tells parameters apart by name or shape."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(left=ast.Constant(value=str()), ops=[ast.In() | ast.NotIn()]):
                return True
            case ast.Call(func=ast.Attribute(attr="endswith" | "startswith")):
                return True
            case ast.Attribute(attr=name) if name in SHAPES:
                return True
    return False


def _filters(marks: Marks) -> Iterator[ast.expr]:
    for node in marks.story.nodes:
        if isinstance(node, COMPREHENSIONS):
            for test in (t for g in node.generators for t in g.ifs if selects(t)):
                if _protected_by(marks, node) and not _trains_only(marks, node):
                    yield test


def _protected_by(marks: Marks, chosen: ast.AST) -> bool:
    """Whether clipping or noise sees these parameters."""
    for call in marks.story.calls:
        protects = marks.story.called(call) in v.CLIPPERS | v.NORMS
        if protects and any(node is chosen for node in marks.story.reach(call)):
            return True
    return any(
        _protects(marks, loop.body) and any(n is chosen for n in marks.story.reach(loop.iter))
        for loop in marks.story.nodes
        if isinstance(loop, ast.For)
    )


def _trains_only(marks: Marks, chosen: ast.AST) -> bool:
    """Whether the others are not trained: the optimiser, or the loop that updates, has these."""
    movers: list[ast.AST] = [
        call for call in marks.story.calls if marks.story.called(call) in v.OPTIMISERS
    ]
    movers += [
        loop.iter
        for loop in marks.story.nodes
        if isinstance(loop, ast.For) and marks.updates(loop) and not marks.computes_gradients(loop)
    ]
    return any(node is chosen for mover in movers for node in marks.story.reach(mover))
