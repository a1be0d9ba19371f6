"""Rule `noise-scale`: the noise is not as large as the accountant was told.

For a sum of gradients clipped to C, noise of standard deviation z C belongs to the *sum*; both are
divided alike afterwards. Symbols: z noise multiplier, C clip norm, B what the sum is divided by.
"""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.algebra import Leaf, Term
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown
from privet.audits.static.sizes import is_size

RULE: Final = "noise-scale"


def check(marks: Marks) -> Iterator[Finding]:
    """Noise divided once more than the sum it hides, or without the clip norm."""
    yield from _divided_twice(marks)
    yield from _divided_alone(marks)
    yield from _without_clip_norm(marks)


def _divided(marks: Marks, noise: Leaf, divisor: Leaf, how: str) -> Finding:
    return marks.finding(
        noise.node,
        RULE,
        Severity.WRONG,
        what=f"The noise {shown(noise.node)} is divided by {_named(divisor)} {how}.",
        why="The noise is then smaller than the accountant was told, by the size of a batch.",
        fix="Add noise of standard deviation multiplier x clip norm to the sum, "
        "and divide the noisy sum once.",
    )


def _divided_twice(marks: Marks) -> Iterator[Finding]:
    seen = set()
    for _, terms in marks.values:
        for term in terms:
            noise, divisor = term.first("noise"), _repeated(term)
            if noise is not None and divisor is not None and noise.node not in seen:
                seen.add(noise.node)
                yield _divided(marks, noise, divisor, "twice")


def _repeated(term: Term) -> Leaf | None:
    """A divisor that stands there twice; small numbers may do so by chance."""
    counted = [leaf for leaf in term.under if leaf.kind == "other" or _is_large(leaf)]
    texts = [leaf.text for leaf in counted]
    again = (leaf for leaf in counted if texts.count(leaf.text) > 1)
    return next(again, None)


def _is_large(leaf: Leaf) -> bool:
    value = getattr(leaf.node, "value", None)
    return leaf.kind == "constant" and isinstance(value, int | float) and value > 2


def _named(leaf: Leaf) -> str:
    return f"`{leaf.name}`" if leaf.name else shown(leaf.node)


def _divided_alone(marks: Marks) -> Iterator[Finding]:
    sizes = _batch_sizes(marks)
    seen = set()
    for site in marks.noise_sites:
        clipped = [t for t in site.partners if t.clipped and t.first("gradient")]
        for term in site.noise:
            noise = term.first("noise")
            for divisor in term.under:
                alone = divisor.text in sizes and not any(_has(t, divisor) for t in clipped)
                if noise and clipped and alone and marks.per_example and noise.node not in seen:
                    seen.add(noise.node)
                    yield _divided(marks, noise, divisor, "but the sum that it hides is not")


def _has(term: Term, divisor: Leaf) -> bool:
    return any(leaf.kind == "mean" or leaf.text == divisor.text for leaf in term.under)


def _batch_sizes(marks: Marks) -> frozenset[str]:
    """Texts of what is a batch size: given as one, the stride of a range, or measured."""
    found = []
    for call in marks.story.calls:
        given = [k.value for k in call.keywords if k.arg in ("batch_size", "expected_batch_size")]
        if marks.story.called(call) == "range" and len(call.args) == 3:
            given.append(call.args[2])
        found += [leaf for g in given for t in marks.algebra.terms(g) for leaf in t.over]
    measured = {ast.unparse(node) for node in marks.story.nodes if is_size(node)}
    return frozenset(leaf.text for leaf in found) | measured


def _without_clip_norm(marks: Marks) -> Iterator[Finding]:
    multipliers = _multipliers(marks)
    seen = set()
    for site in marks.noise_sites:
        bounds = _clip_norms(marks, site.partners)
        for term in site.noise:
            noise = term.first("noise")
            told = [leaf for leaf in term.over if leaf.text in multipliers]
            texts = {leaf.text for leaf in term.over}
            if noise and told and bounds and not bounds & texts and noise.node not in seen:
                seen.add(noise.node)
                yield _unscaled(marks, noise, told[0], min(bounds))


def _unscaled(marks: Marks, noise: Leaf, told: Leaf, bound: str) -> Finding:
    return marks.finding(
        noise.node,
        RULE,
        Severity.WRONG,
        what=f"The noise {shown(noise.node)} is scaled by the multiplier {shown(told.node)} "
        f"without the clip norm `{bound}`.",
        why="A noise multiplier counts in clip norms: with a norm above 1 the noise is too small.",
        fix=f"Multiply the noise by `{bound}` as well.",
    )


def _multipliers(marks: Marks) -> frozenset[str]:
    """Texts of what accountants are told as the noise multiplier."""
    found = []
    for call in marks.story.calls:
        given = [k.value for k in call.keywords if k.arg in v.MULTIPLIER_KEYWORDS]
        if marks.story.called(call) in v.EVENTS_OF_MULTIPLIERS:
            given += call.args[:1]
        found += [leaf for g in given for t in marks.algebra.terms(g) for leaf in t.over]
    own = {leaf.text for leaf in found if leaf.kind == "other"}
    made = {
        ast.unparse(c) for c in marks.story.calls if marks.story.called(c) == "get_noise_multiplier"
    }
    return frozenset(own | made)


def _clip_norms(marks: Marks, partners: tuple[Term, ...]) -> frozenset[str]:
    """Texts of the clip norms, where all are known and none is 1."""
    found: set[str] = set()
    for term in partners:
        if term.clipped is not None:
            found |= set(_bounds(marks, term.clipped))
    for call in marks.story.calls:
        if marks.story.called(call) in v.CLIPPERS and len(call.args) > 1:
            found |= _texts(marks, call.args[1])
    return frozenset() if found & {"1", "1.0"} else frozenset(found)


def _texts(marks: Marks, expression: ast.expr) -> set[str]:
    return {leaf.text for t in marks.algebra.terms(expression) for leaf in t.over}


def _bounds(marks: Marks, clip: Leaf) -> Iterator[str]:
    """What a norm is divided by or compared with, or what is divided by it."""
    for node in marks.story.reach(clip.node):
        pair: tuple[ast.expr, ast.expr] | None = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            pair = node.left, node.right
        elif isinstance(node, ast.Compare):
            pair = node.left, node.comparators[0]
        if pair is None:
            continue
        normed = [marks.story.mentions(side, v.NORMS) for side in pair]
        if normed == [True, False]:
            yield from _texts(marks, pair[1])
        elif normed == [False, True]:
            yield from _texts(marks, pair[0])
