"""Rule `reused-noise`: the same noise hides more than one sum, or anyone can draw it again."""

import ast
from collections.abc import Iterator
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.algebra import Leaf
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.marks import Marks, shown

RULE: Final = "reused-noise"
WHY: Final = "The same noise on two sums cancels in their difference, which is then released bare."
FIX: Final = "Draw fresh noise in every step, from a generator that is seeded once and secretly."


def check(marks: Marks) -> Iterator[Finding]:
    """Noise from outside of the step loop, seeds inside of it, keys that never change."""
    if not marks.claims:
        return
    seen: set[ast.AST] = set()
    for noise in _noises(marks):
        if noise.node in seen:
            continue
        seen.add(noise.node)
        if _from_outside(marks, noise):
            what = f"The noise {shown(noise.node)} is drawn once and added in every step."
            yield _finding(marks, noise.node, what)
        elif _same_key(marks, noise.node):
            what = f"{shown(noise.node)} draws with the same key in every step."
            yield _finding(marks, noise.node, what)
        elif seed := _known_seed(marks, noise.node):
            yield _known(marks, noise.node, seed)
    for call in _reseeded(marks):
        yield _finding(marks, call, f"{shown(call)} sets the same seed again in every step.")


def _finding(marks: Marks, node: ast.AST, what: str) -> Finding:
    return marks.finding(node, RULE, Severity.WRONG, what=what, why=WHY, fix=FIX)


def _known(marks: Marks, noise: ast.AST, seed: ast.AST) -> Finding:
    return marks.finding(
        noise,
        RULE,
        Severity.DOUBT,
        what=f"The noise {shown(noise)} comes from a generator with a known seed, {shown(seed)}.",
        why="Whoever knows the seed can compute the noise and take it off.",
        fix="Seed the noise from the operating system, and keep constants for first weights.",
    )


def _noises(marks: Marks) -> Iterator[Leaf]:
    for site in marks.noise_sites:
        for term in site.noise:
            noise = term.first("noise")
            if noise is not None:
                yield noise


def _from_outside(marks: Marks, noise: Leaf) -> bool:
    if noise.drawn is None:
        return bool(marks.step_loops) or _in_method(marks, noise.site)
    around = set(marks.story.names.ancestors(noise.drawn)) | {noise.drawn}
    loops = [loop for loop in marks.story.names.loops(noise.site) if loop in marks.step_loops]
    return any(loop not in around for loop in loops)


def _in_method(marks: Marks, node: ast.AST) -> bool:
    return marks.story.names.class_of(marks.story.names.scope_of(node)) is not None


def _reseeded(marks: Marks) -> Iterator[ast.Call]:
    seen = set()
    for loop in marks.step_loops:
        for node in marks.story.within(loop):
            if isinstance(node, ast.Call) and _is_seed(marks, node) and node not in seen:
                seen.add(node)
                if not _varies(marks, node, loop):
                    yield node


def _is_seed(marks: Marks, call: ast.Call) -> bool:
    name = marks.story.called(call)
    made = name in v.SEEDED and marks.story.is_module(call.func)
    return bool(call.args) and (name in v.SEEDS or made)


def _varies(marks: Marks, seed: ast.Call, loop: ast.AST) -> bool:
    """Whether a seed depends on anything that the loop, or a loop in it, changes."""
    inside = set(ast.walk(loop))
    for argument in seed.args:
        for node in marks.story.reach(argument, sizes=True):
            if isinstance(node, ast.Call):  # drawn, counted, read: not a constant
                return True
            bindings = marks.story.bindings(node) if isinstance(node, ast.Name) else []
            if any(binding.node in inside for binding in bindings):
                return True
    return False


def _same_key(marks: Marks, noise: ast.AST) -> bool:
    """For noise made from an explicit key, as in JAX: whether the key stays the same."""
    if not isinstance(noise, ast.Call) or not noise.args:
        return False
    if not marks.story.dotted(noise.func).startswith("jax."):
        return False
    return _stays(marks, noise.args[0], noise)


def _stays(marks: Marks, key: ast.expr, at: ast.AST, depth: int = 0) -> bool:
    if isinstance(key, ast.Subscript):
        return _stays(marks, key.value, at, depth)
    if isinstance(key, ast.Call) and marks.story.called(key) == "split" and key.args:
        return _stays(marks, key.args[0], at, depth)
    if not isinstance(key, ast.Name) or depth > 8:
        return False
    bindings = marks.story.bindings(key)
    if any(binding.kind == "parameter" for binding in bindings):
        return any(_stays(marks, given, call, depth + 1) for given, call in _given(marks, key))
    loops = [loop for loop in marks.story.names.loops(at) if loop in marks.step_loops]
    if not loops:
        return False
    renewed = [b for b in _everywhere(marks, key) if loops[-1] in marks.story.names.ancestors(b)]
    if not renewed:
        return True
    values = [b.value for b in bindings if b.value is not None and _names_itself(b.node) is False]
    return any(_stays(marks, value, at, depth + 1) for value in values)


def _given(marks: Marks, key: ast.Name) -> Iterator[tuple[ast.expr, ast.Call]]:
    for binding in marks.story.bindings(key):
        for call in marks.story.callers(binding.scope.node):
            given = marks.story.argument(call, binding)
            if given is not None:
                yield given, call


def _everywhere(marks: Marks, name: ast.Name) -> list[ast.AST]:
    """All places that bind a name in its function."""
    scope = marks.story.names.scope_of(name)
    while name.id not in scope.bindings and scope.parent is not None:
        scope = scope.parent
    return [binding.node for binding in scope.bindings.get(name.id, [])]


def _names_itself(node: ast.AST) -> bool:
    """`key, part = split(key)`: the key moves on."""
    if not isinstance(node, ast.Assign):
        return False
    bound = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return any(isinstance(n, ast.Name) and n.id in bound for n in ast.walk(node.value))


def _known_seed(marks: Marks, noise: ast.AST) -> ast.AST | None:
    """The call that seeds this noise's own generator with a constant."""
    if not isinstance(noise, ast.Call):
        return None
    sources: list[ast.expr] = [k.value for k in noise.keywords if k.arg == "generator"]
    if isinstance(noise.func, ast.Attribute) and not marks.story.is_module(noise.func):
        sources.append(noise.func.value)
    if marks.story.dotted(noise.func).startswith("jax.") and noise.args:
        sources.append(noise.args[0])
    for node in (n for source in sources for n in marks.story.reach(source)):
        if isinstance(node, ast.Call) and _is_seed(marks, node) and _is_literal(node.args[0]):
            return node
    return _seeded_later(marks, sources)


def _seeded_later(marks: Marks, sources: list[ast.expr]) -> ast.AST | None:
    """`generator.manual_seed(0)` as a statement of its own."""
    names = {source.id for source in sources if isinstance(source, ast.Name)}
    for call in marks.story.calls:
        if marks.story.called(call) in v.SEEDS and isinstance(call.func, ast.Attribute):
            owner = call.func.value
            if isinstance(owner, ast.Name) and owner.id in names and _is_literal(call.args[0]):
                return call
    return None


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)
