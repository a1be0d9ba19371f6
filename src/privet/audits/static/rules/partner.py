"""Rule `partner-apart`: a record and its adversarial partner are clipped as if they were two."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.algebra import Term
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, NoiseSite, shown

RULE: Final = "partner-apart"
WHY: Final = (
    "One record then adds up to two clip norms to the sum, while the noise is made for one: "
    "the true epsilon is about twice the stated one or more."
)
FIX: Final = "Average the gradients of a record and its partner first, and clip that mean once."


def check(marks: Marks) -> Iterator[Finding]:
    """Two clipped sums over one batch; a batch joined with its own variants; views in a loop."""
    seen: set[int] = set()
    for node, what in [*_two_sums(marks), *_joined(marks), *_views(marks)]:
        line = getattr(node, "lineno", 0)
        if line not in seen:
            seen.add(line)
            yield marks.finding(node, RULE, Severity.WRONG, what=what, why=WHY, fix=FIX)


def _two_sums(marks: Marks) -> Iterator[tuple[ast.AST, str]]:
    for site in marks.noise_sites:
        pair = _clipped_apart(marks, site)
        if pair is not None:
            first, second = pair
            what = f"{shown(first)} and {shown(second)} are clipped apart and added up."
            yield second, what


def _clipped_apart(marks: Marks, site: NoiseSite) -> tuple[ast.AST, ast.AST] | None:
    """Two terms with clip factors of their own, one of which is about variants of the other's."""
    found: list[tuple[ast.AST, Term]] = []
    for term in site.partners:
        clip = term.clipped
        if clip is not None and not _halved(term):
            origin: ast.AST = clip.calls[0] if clip.calls else clip.node
            if all(origin is not other for other, _ in found):
                found.append((origin, term))
    for place, (first, one) in enumerate(found):
        for second, other in found[place + 1 :]:
            together = not one.excludes(other)
            if together and _share_records(marks, (first, one), (second, other)):
                return first, second
    return None


def _halved(term: Term) -> bool:
    """Bounded by half of the clip norm each, so that the sum is bounded by the whole."""
    clip = term.clipped
    nodes = [] if clip is None else [clip.node, *(a for c in clip.calls for a in c.args)]
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div | ast.Mult)
        and any(
            isinstance(s, ast.Constant) and s.value in (2, 2.0, 0.5)
            for s in (node.left, node.right)
        )
        for part in nodes
        for node in ast.walk(part)
    )


def _share_records(marks: Marks, one: tuple[ast.AST, Term], other: tuple[ast.AST, Term]) -> bool:
    """Whether both are made of one batch: they share what a loop yields, or a parameter."""
    return bool(_batch(marks, *one) & _batch(marks, *other))


def _batch(marks: Marks, origin: ast.AST, term: Term) -> set[object]:
    drawn: set[ast.AST] = {loop.iter for loop in marks.batch_loops}
    gradients = [leaf.node for leaf in term.over if leaf.kind == "gradient"]
    parts = [origin, *gradients] if isinstance(origin, ast.Call) else gradients
    nodes = {node for part in parts for node in marks.story.reach(part)}
    return {node for node in nodes if node in drawn} | set(
        marks.data_of(parts) & (marks.training_data or marks.data_of(parts)) - marks.models
    )


def _joined(marks: Marks) -> Iterator[tuple[ast.AST, str]]:
    """`cat([x, attack(x)])` as a batch of per-example gradients that nothing pairs up again."""
    if not (marks.claims and marks.story.uses(v.PER_EXAMPLE)):
        return
    if marks.story.uses(v.PAIRINGS):
        return
    for loop in marks.step_loops:
        for call in marks.story.within(loop):
            if isinstance(call, ast.Call) and marks.story.called(call) in v.JOINS and call.args:
                parts = getattr(call.args[0], "elts", [])
                if _holds_variants(marks, parts) and not _is_label_pair(marks, parts):
                    yield (
                        call,
                        f"{shown(call)} puts variants of the records beside them as new ones.",
                    )


def _holds_variants(marks: Marks, parts: list[ast.expr]) -> bool:
    """Whether one part is computed from another one."""
    for one in parts:
        for other in parts:
            computed = isinstance(one, ast.Name) and one is not other
            if computed and _made_of(marks, other, one):
                return True
    return False


def _made_of(marks: Marks, variant: ast.expr, record: ast.expr) -> bool:
    name = record.id if isinstance(record, ast.Name) else ""
    itself = isinstance(variant, ast.Name) and variant.id == name
    return not itself and any(
        isinstance(node, ast.Name) and node.id == name for node in marks.story.reach(variant)
    )


def _is_label_pair(marks: Marks, parts: list[ast.expr]) -> bool:
    return len({ast.dump(part) for part in parts}) == 1


def _views(marks: Marks) -> Iterator[tuple[ast.AST, str]]:
    """`for view in (x, attack(x))` around the clipping."""
    if not marks.noise_sites:
        return
    for loop in marks.story.nodes:
        views = getattr(loop.iter, "elts", []) if isinstance(loop, ast.For) else []
        if isinstance(loop, ast.For) and _holds_variants(marks, views) and _clips(marks, loop):
            yield loop.iter, f"Each of {shown(loop.iter)} is clipped by itself."


def _clips(marks: Marks, loop: ast.For) -> bool:
    return any(
        marks.story.called(node) in v.CLIPPERS
        or (marks.story.called(node) in v.LIMITS and marks.story.mentions(node, v.NORMS))
        for statement in loop.body
        for node in ast.walk(statement)
    )
