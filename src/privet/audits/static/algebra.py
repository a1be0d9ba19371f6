"""Values as sums of products: what is added to what, and which factors each part carries.

`(total + sigma * C * randn_like(total)) / B` becomes two terms: total / B, and
sigma C noise / B. On this form the rules can ask whether noise was divided twice, whether it
carries the clip norm, whether a gradient was clipped, and as what.
"""

import ast
from dataclasses import dataclass, replace
from typing import Final, Literal

from privet.audits.static import vocabulary as v
from privet.audits.static.scopes import Binding, Function, is_same
from privet.audits.static.stories import Story, returned

LeafKind = Literal["noise", "gradient", "clip", "norm", "constant", "mean", "other"]
MOST_TERMS: Final = 24
MOST_DEPTH: Final = 40
MOST_WORK: Final = 600  # parts of one value; what is larger is not read further
NEGLIGIBLE: Final = 1e-3


@dataclass(frozen=True)
class Leaf:
    """A factor that is not taken apart; `site` uses it and `drawn` made it, in one function.

    `drawn` is None where it was made outside of the function that uses it.
    """

    node: ast.AST
    kind: LeafKind
    calls: tuple[ast.Call, ...]
    site: ast.AST
    drawn: ast.AST | None
    name: str = ""  # of a constant: what the code calls it

    @property
    def text(self) -> str:
        """The same for the same expression."""
        return ast.unparse(self.node)


@dataclass(frozen=True)
class Term:
    """A product of leaves over a product of leaves."""

    over: tuple[Leaf, ...]
    under: tuple[Leaf, ...] = ()
    choices: frozenset[tuple[ast.AST, int]] = frozenset()  # which of several values it belongs to

    def times(self, other: "Term") -> "Term":
        """The product."""
        return Term(self.over + other.over, self.under + other.under, self._both(other))

    def divided(self, other: "Term") -> "Term":
        """The quotient."""
        return Term(self.over + other.under, self.under + other.over, self._both(other))

    def _both(self, other: "Term") -> frozenset[tuple[ast.AST, int]]:
        return self.choices | other.choices

    def excludes(self, other: "Term") -> bool:
        """Whether the two are never added up: parts of a list, values of two branches."""
        own = dict(self.choices)
        return any(own.get(at, place) != place for at, place in other.choices)

    def first(self, kind: LeafKind) -> Leaf | None:
        """The first leaf of a kind, in either place."""
        return next((leaf for leaf in self.over + self.under if leaf.kind == kind), None)

    @property
    def clipped(self) -> Leaf | None:
        """The factor that bounds its norm."""
        dividing = (leaf for leaf in self.under if leaf.kind == "norm")
        return self.first("clip") or next(dividing, None)


@dataclass(frozen=True)
class Path:
    """How a value was reached: through which calls, and from where."""

    calls: tuple[ast.Call, ...]
    site: ast.AST
    drawn: ast.AST | None
    depth: int = 0
    seen: frozenset[ast.AST] = frozenset()  # values on the way: a round of a loop is gone once

    @classmethod
    def to(cls, value: ast.expr, at: ast.AST) -> "Path":
        """The beginning of a path: a value, and the statement or call that uses it."""
        return cls((), at, at, seen=frozenset({value}))

    def at(self, node: ast.AST) -> "Path":
        """One step deeper, in the same function."""
        inside = not self.calls and self.drawn is not None
        return replace(self, drawn=node if inside else self.drawn, depth=self.depth + 1)


class Algebra:
    """Takes values of a story apart."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self._work = 0

    def terms(self, expression: ast.expr, path: Path | None = None) -> list[Term]:
        """The terms whose sum a value is."""
        if path is None:
            path = Path.to(expression, expression)
        if path.depth == 0:
            self._work = 0
        self._work += 1
        if path.depth > MOST_DEPTH or self._work > MOST_WORK:
            return [self._leaf(expression, "other", path)]
        return self._terms(expression, path.at(expression))[:MOST_TERMS]

    def _terms(self, node: ast.expr, path: Path) -> list[Term]:
        match node:
            case ast.Constant():
                return [self._leaf(node, "constant", path)]
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self.terms(node.left, path) + self.terms(node.right, path)
            case ast.BinOp(op=ast.Mult() | ast.MatMult()):
                return _product(self.terms(node.left, path), self.terms(node.right, path))
            case ast.BinOp(op=ast.Div() | ast.FloorDiv()):
                return self.quotient(self.terms(node.left, path), node.right, path)
            case ast.UnaryOp():
                return self.terms(node.operand, path)
            case ast.Starred() | ast.Subscript() | ast.Await():
                return self._within(node, path)
            case ast.List() | ast.Tuple() | ast.Set():
                return _one_of(node, [self.terms(part, path) for part in node.elts])
            case ast.Dict():
                return _one_of(node, [self.terms(part, path) for part in node.values])
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self.terms(node.elt, path)
            case ast.DictComp():
                return self.terms(node.value, path)
            case ast.IfExp():
                return self._choice(node, path)
            case ast.Call():
                return self._call(node, path)
            case ast.Name() | ast.Attribute():
                return self._named(node, path)
        return [self._leaf(node, "other", path)]

    def _leaf(self, node: ast.AST, kind: LeafKind, path: Path) -> Term:
        return Term((Leaf(node, kind, path.calls, path.site, path.drawn),))

    def _within(self, node: ast.Starred | ast.Subscript | ast.Await, path: Path) -> list[Term]:
        if isinstance(node, ast.Subscript) and self._is_batch_size(node):
            return [self._leaf(node, "other", path)]
        return self.terms(node.value, path)

    def _is_batch_size(self, node: ast.Subscript) -> bool:
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"

    def _choice(self, node: ast.IfExp, path: Path) -> list[Term]:
        if self.story.mentions(node.test, v.NORMS):
            return [self._leaf(node, "clip", path)]
        return _one_of(node, [self.terms(part, path) for part in (node.body, node.orelse)])

    def quotient(self, above: list[Term], divisor: ast.expr, path: Path) -> list[Term]:
        """Terms over a divisor, which is one leaf where it is a sum."""
        below = [t for t in self.terms(divisor, path) if not _negligible(t)]
        if len(below) != 1:
            below = [self._leaf(divisor, "other", path)]
        return [term.divided(below[0]) for term in above]

    def _named(self, node: ast.Name | ast.Attribute, path: Path) -> list[Term]:
        if isinstance(node, ast.Attribute) and (node.attr == "T" or is_same(node)):
            return self.terms(node.value, path)
        plain = self._leaf(node, _kind_of_name(node), path)
        found = _one_of(node, [self._bound(b, node, path) for b in self.story.bindings(node)])
        return [_called_by(term, node) for term in found] or [plain]

    def _bound(self, binding: Binding, use: ast.expr, path: Path) -> list[Term]:
        if binding.kind == "parameter":
            return self._given(binding, path)
        if binding.value is None or binding.value in path.seen:
            return []
        path = replace(path, seen=path.seen | {binding.value})
        if self._made_before(binding, use):
            path = replace(path, drawn=None)
        value = self.terms(binding.value, path)
        if binding.kind not in ("add", "mul", "div"):
            return value
        before = self._before(binding, use, path)
        if binding.kind == "add":
            return before + value
        if binding.kind == "mul":
            return _product(before, value)
        return self.quotient(before, binding.value, path)

    def _made_before(self, binding: Binding, use: ast.expr) -> bool:
        """Whether a value comes from outside of the function that uses it, and is kept there."""
        names = self.story.names
        if names.body_of(names.scope_of(use)) is names.body_of(binding.scope):
            return False
        at_birth = getattr(binding.scope.node, "name", "") == "__init__"
        return isinstance(use, ast.Name) or at_birth

    def _before(self, binding: Binding, use: ast.expr, path: Path) -> list[Term]:
        """What a name was before `+=` and the like."""
        names = self.story.names
        earlier = [
            b
            for b in names.reaching(binding.scope.bindings[binding.name], binding.node)
            if b is not binding
        ]
        deeper = path.at(binding.node)
        if deeper.depth > MOST_DEPTH:
            return []
        found = [t for b in earlier for t in self._bound(b, use, deeper)]
        return found or [self._leaf(use, _kind_of_name(use), deeper)]

    def _given(self, binding: Binding, path: Path) -> list[Term]:
        """A parameter: what the call that led here gives, or else what any call gives."""
        function = binding.scope.node
        if path.calls and self._leads_to(path.calls[-1], function):
            call = path.calls[-1]
            given = self.story.argument(call, binding)
            if given is None and self.story.called(call) in v.MAPS:
                given = call.args[binding.place + 1] if len(call.args) > binding.place + 1 else None
            outer = replace(path, calls=path.calls[:-1])
            return [] if given is None else self.terms(given, outer)
        found = []
        for call in self.story.callers(function):
            given = self.story.argument(call, binding)
            if given is not None:
                outside = path if path.calls else Path((), call, call, path.depth, path.seen)
                found.append(self.terms(given, outside))
        return _one_of(function, found)

    def _leads_to(self, call: ast.Call, function: ast.AST) -> bool:
        mapped = call.args[0] if self.story.called(call) in v.MAPS and call.args else call.func
        return self.story.function(mapped) is function

    def _call(self, node: ast.Call, path: Path) -> list[Term]:
        name = self.story.called(node)
        if name in v.NOISE:
            return self._noise(node, name, path)
        if name in v.LIMITS and self.story.mentions(node, v.NORMS):
            return [self._leaf(node, "clip", path)]
        if name in v.NORMS:
            return [self._leaf(node, "norm", path)]
        function = self._local(node, name)
        if function is not None and not self._is_in(function, path):
            inner = replace(path, calls=(*path.calls, node), depth=path.depth + 1)
            return [t for value in returned(function) for t in self.terms(value, inner)]
        if self.is_gradient(node):
            return [self._leaf(node, "gradient", path)]
        return self._arithmetic(node, name, path)

    def _is_in(self, function: Function, path: Path) -> bool:
        """Whether a function calls itself."""
        return any(self._local(call, self.story.called(call)) is function for call in path.calls)

    def _local(self, node: ast.Call, name: str) -> Function | None:
        if name in v.MAPS and node.args:
            return self.story.function(node.args[0])
        return self.story.function(node.func)

    def is_gradient(self, node: ast.Call) -> bool:
        """`backward()`, `autograd.grad(...)`, `grad(f)(...)`, `vmap(grad(f))(...)`."""
        return self.story.called(node) in v.GRADIENTS or self._makes_gradients(node.func)

    def _makes_gradients(self, maker: ast.expr, depth: int = 0) -> bool:
        if isinstance(maker, ast.Call):
            name = self.story.called(maker)
            if name in v.GRADIENTS:
                return True
            wrapped = name in v.WRAPPERS and bool(maker.args)
            return wrapped and self._makes_gradients(maker.args[0], depth)
        if not isinstance(maker, ast.Name) or depth > 5:
            return False
        values = [b.value for b in self.story.bindings(maker) if b.kind == "is" and b.value]
        return any(self._makes_gradients(value, depth + 1) for value in values)

    def _arithmetic(self, node: ast.Call, name: str, path: Path) -> list[Term]:
        parts = self._operands(node)
        if name in v.EMPTY or not parts:
            kind: LeafKind = "constant" if name in v.EMPTY else "other"
            return [self._leaf(node, kind, path)]
        if name in v.SUMS:
            return [t for part in parts[:2] for t in self.terms(part, path)]
        if name in v.PRODUCTS:
            return self._multiplied(parts, path)
        if name in v.QUOTIENTS and len(parts) > 1:
            return self.quotient(self.terms(parts[0], path), parts[1], path)
        if name == "mean":
            mean = self._leaf(node, "mean", path)
            return [t.divided(mean) for t in self.terms(parts[0], path)]
        if name in v.JOINS | v.TRANSPARENT:  # of a method, the arguments are axes, types, ...
            passed = parts if len(parts) == len(node.args) else parts[:1]
            return [t for part in passed for t in self.terms(part, path)]
        return [self._leaf(node, "other", path)]

    def _operands(self, node: ast.Call) -> list[ast.expr]:
        """The receiver, where there is one that is a value, and the arguments."""
        own = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [part for part in own if not self.story.is_module(part)] + list(node.args)

    def _multiplied(self, parts: list[ast.expr], path: Path) -> list[Term]:
        factors = [p for p in parts if not isinstance(p, ast.Constant) or len(parts) == 2]
        found = [Term(())]
        for factor in factors:
            found = _product(found, self.terms(factor, path))
        return found

    def _noise(self, node: ast.Call, name: str, path: Path) -> list[Term]:
        place = v.SCALE_ARGUMENT.get(name)
        if self.story.dotted(node.func).startswith("jax."):
            place = None
        scales = [k.value for k in node.keywords if k.arg in v.SCALE_KEYWORDS]
        if not scales and place is not None and len(node.args) > place:
            scales = [node.args[place]]
        noise = [self._leaf(node, "noise", path)]
        return _product(noise, self.terms(scales[0], path)) if scales else noise


def _kind_of_name(node: ast.expr) -> LeafKind:
    known = isinstance(node, ast.Attribute) and node.attr in v.GRADIENT_ATTRIBUTES
    return "gradient" if known else "other"


def _called_by(term: Term, name: ast.expr) -> Term:
    """The same; where it is a number, its leaves are known by the number's name."""
    if any(leaf.kind != "constant" for leaf in term.over + term.under):
        return term
    text = ast.unparse(name)
    over, under = ([replace(leaf, name=text) for leaf in part] for part in (term.over, term.under))
    return Term(tuple(over), tuple(under), term.choices)


def _one_of(at: ast.AST, values: list[list[Term]]) -> list[Term]:
    """Terms of several values, only one of which is meant at a time."""
    if len(values) < 2:
        return [term for value in values for term in value]
    return [
        replace(term, choices=term.choices | {(at, place)})
        for place, value in enumerate(values)
        for term in value
    ]


def _product(left: list[Term], right: list[Term]) -> list[Term]:
    return [a.times(b) for a in left for b in right][:MOST_TERMS]


def _negligible(term: Term) -> bool:
    """A small constant that keeps a divisor from zero."""
    if not all(leaf.kind == "constant" for leaf in term.over) or term.under:
        return False
    values = [getattr(leaf.node, "value", None) for leaf in term.over]
    return all(isinstance(x, int | float) and abs(x) < NEGLIGIBLE for x in values)
