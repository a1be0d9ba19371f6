"""Sizes: of a batch, which is drawn, and of the data set, which is a fact about the records."""

import ast

from privet.audits.static import vocabulary as v
from privet.audits.static.marks import Marks


def is_size(node: ast.AST) -> bool:
    """`len(x)`, `x.shape[0]`, `x.size(0)`."""
    return measured(node) is not None


def measured(size: ast.AST) -> ast.expr | None:
    """What a size is the size of."""
    match size:
        case ast.Call(func=ast.Name(id="len"), args=[thing]):
            return thing
        case ast.Call(func=ast.Attribute(attr="size", value=thing), args=[ast.Constant(value=0)]):
            return thing
        case ast.Subscript(
            value=ast.Attribute(attr="shape", value=thing), slice=ast.Constant(value=0)
        ):
            return thing
    return None


def of_a_batch(marks: Marks, size: ast.AST) -> bool:
    """Sizes of what a loop yields or an index picks; not of the data set as a whole."""
    thing = measured(size)
    if thing is None:
        return False
    drawn: set[ast.AST] = {loop.iter for loop in marks.batch_loops}
    nodes = list(marks.story.reach(thing))
    picked = any(_picks(marks, node) for node in nodes)
    return picked or any(node in drawn for node in nodes) or _is_free(marks, thing)


def is_coin(marks: Marks, node: ast.AST) -> bool:
    """`rand(n) < q`."""
    return isinstance(node, ast.Compare) and marks.story.called(node.left) in v.UNIFORM


def _picks(marks: Marks, node: ast.AST) -> bool:
    """An index inside of a step loop."""
    if is_coin(marks, node):
        return True
    loops = marks.story.names.loops(node) if isinstance(node, ast.Subscript) else []
    return any(loop in marks.step_loops for loop in loops)


def _is_free(marks: Marks, node: ast.AST) -> bool:
    """A parameter of a step that stands alone."""
    if not isinstance(node, ast.Name) or marks.step_loops:
        return False
    return any(binding.kind == "parameter" for binding in marks.story.bindings(node))
