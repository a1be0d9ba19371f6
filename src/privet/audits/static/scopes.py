"""Which value a name has where it is used: scopes, bindings, and the order of statements.

Deliberately simple. A name has the value that was last assigned before the use, together with what
branches and loops may have assigned in between. Attributes are told apart by their own name alone
(`p.grad` and `q.grad` are one), since the same tensor goes by many names.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["is", "item", "into", "add", "mul", "div", "parameter", "definition", "import"]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
RELATIVE = ("add", "mul", "div")
BRANCHES = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try
IN_PLACE: dict[str, Kind] = {
    "add_": "add", "sub_": "add", "mul_": "mul", "div_": "div", "copy_": "is",
    "append": "into", "extend": "into", "normal_": "is",
}  # fmt: skip


@dataclass(eq=False)
class Scope:
    """A module, a class, a function, a lambda or a comprehension."""

    node: ast.AST
    parent: "Scope | None"
    bindings: dict[str, list["Binding"]] = field(default_factory=dict)

    @property
    def ordered(self) -> bool:
        """Whether the order of lines says which value a name has."""
        return isinstance(self.node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)


@dataclass(eq=False)
class Binding:
    """One place where a name gets a value; `node` says where, `value` what."""

    name: str
    kind: Kind
    node: ast.AST
    value: ast.expr | None
    scope: Scope
    origin: str = ""  # of an import: its dotted name
    place: int = 0  # of a parameter: among the arguments
    part: int = 2**16  # of a tuple: which one, where it is not known by itself


class Names:
    """All scopes of a module, and what each name in it is bound to."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self.stores: dict[str, list[Binding]] = {}  # attributes, by their name
        self.backwards: dict[Scope, list[tuple[int, int]]] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        self.module = Scope(tree, None)
        _Binder(self).read(tree, self.module)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "backward":
                body = self.body_of(self.scope_of(node))
                self.backwards.setdefault(body, []).append(start(node))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the inside out."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """Loops around a node inside its function, from the inside out."""
        around: list[ast.AST] = []
        for above in self.ancestors(node):
            if isinstance(above, ast.For | ast.AsyncFor | ast.While):
                around.append(above)
            if isinstance(above, Function | ast.ClassDef):
                break
        return around

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which a node is evaluated."""
        return self.scopes.get(node, self.module)

    def body_of(self, scope: Scope) -> Scope:
        """The function or module whose lines a scope stands among."""
        while not scope.ordered and scope.parent is not None:
            scope = scope.parent
        return scope

    def class_of(self, scope: Scope) -> Scope | None:
        """The class that a method belongs to."""
        here: Scope | None = scope
        while here is not None and not isinstance(here.node, ast.ClassDef):
            here = here.parent
        return here

    def bindings(self, use: ast.expr) -> list[Binding]:
        """What a name or an attribute may be bound to where it is used."""
        scope = self.scope_of(use)
        if isinstance(use, ast.Name):
            return self._named(use.id, use, scope)
        if isinstance(use, ast.Attribute):
            return self._stored(use, scope)
        return []

    def _named(self, name: str, use: ast.AST, scope: Scope) -> list[Binding]:
        here: Scope | None = scope
        own = True
        while here is not None:
            passed_over = isinstance(here.node, ast.ClassDef) and here is not scope
            if name in here.bindings and not passed_over:
                found = here.bindings[name]
                return self.reaching(found, use) if own and here.ordered else found
            own = own and not here.ordered  # a lambda or comprehension is read where it stands
            here = here.parent
        return []

    def _stored(self, use: ast.Attribute, scope: Scope) -> list[Binding]:
        key = f".{use.attr}"
        here = self.body_of(scope)
        # What an earlier round of a loop stored does not count: backward passes come in between.
        found = self.before(here.bindings.get(key, []), use)
        fresh = self._last_backward(here, use) if use.attr == "grad" else None
        if fresh is not None:
            return [binding for binding in found if end(binding) > fresh]
        return found or [b for b in self.stores.get(use.attr, []) if b.scope is not here]

    def _last_backward(self, scope: Scope, use: ast.AST) -> tuple[int, int] | None:
        """Where gradients were last computed before a use, in the same function."""
        places = self.backwards.get(scope, [])
        return max((place for place in places if place < start(use)), default=None)

    def reaching(self, found: list[Binding], use: ast.AST) -> list[Binding]:
        """What holds at a use: what came before it, or else an earlier round of a loop."""
        return self.before(found, use) or [
            b for b in found if b.kind not in RELATIVE and not _inside(b, use)
        ]

    def before(self, found: list[Binding], use: ast.AST) -> list[Binding]:
        """The last binding before the use, and those that may have come in between."""
        before = sorted((b for b in found if end(b) <= start(use)), key=end, reverse=True)
        reached = []
        for binding in before:
            reached.append(binding)
            if binding.kind in RELATIVE or (binding.kind != "into" and self._certain(binding, use)):
                break
        return reached

    def _certain(self, binding: Binding, use: ast.AST) -> bool:
        around = set(self.ancestors(use))
        branches = (a for a in self.ancestors(binding.node) if isinstance(a, BRANCHES))
        return all(branch in around for branch in branches)


def is_same(node: ast.Attribute) -> bool:
    """`p.data` is `p`, but `self.data` is a field."""
    own = isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr == "data" and not own


def start(node: ast.AST) -> tuple[int, int]:
    """Where a node begins."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def end(binding: Binding) -> tuple[int, int]:
    """From where on a binding holds."""
    node = binding.node
    if isinstance(node, ast.For | ast.AsyncFor):
        node = node.iter
    if isinstance(node, Function | ast.ClassDef):
        return start(node)
    return getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)


def _inside(binding: Binding, use: ast.AST) -> bool:
    """Whether the use stands in the very statement that binds."""
    return any(node is use for node in ast.walk(binding.node)) and binding.kind != "item"


class _Binder:
    """Fills the scopes in one pass."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def read(self, node: ast.AST, scope: Scope) -> None:
        self.names.scopes[node] = scope
        inner = self._opened(node, scope)
        self._bound(node, scope)
        for child in ast.iter_child_nodes(node):
            outside = isinstance(child, ast.arguments) or child in getattr(
                node, "decorator_list", ()
            )
            self.read(child, scope if outside else inner)

    def _opened(self, node: ast.AST, scope: Scope) -> Scope:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._bind(node.name, "definition", node, None, scope)
        if isinstance(node, Function):
            inner = Scope(node, scope)
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            for place, argument in enumerate(arguments):
                self._bind(argument.arg, "parameter", node, None, inner, place=place)
            return inner
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            inner = Scope(node, scope)
            for generator in node.generators:
                self._target(generator.target, generator.iter, "item", node, inner)
            return inner
        return Scope(node, scope) if isinstance(node, ast.ClassDef) else scope

    def _bound(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(target, node.value, "is", node, scope)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._target(node.target, node.value, "is", node, scope)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._target(node.target, node.iter, "item", node, scope)
        elif isinstance(node, ast.AugAssign):
            kind = _augmented(node.op)
            self._target(node.target, node.value, kind, node, scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._target(node.optional_vars, node.context_expr, "is", node.context_expr, scope)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._called(node.value, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._imported(node, scope)

    def _called(self, call: ast.Call, scope: Scope) -> None:
        """`total.add_(g)` changes `total`, as `total += g` would."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in IN_PLACE:
            kind = IN_PLACE[call.func.attr]
            value = call if call.func.attr == "normal_" else call.args[0] if call.args else None
            if value is not None:
                self._target(call.func.value, value, kind, call, scope)

    def _imported(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            if isinstance(node, ast.Import):
                origin = alias.name if alias.asname else alias.name.split(".")[0]
                name = alias.asname or origin
            else:
                origin = f"{node.module or ''}.{alias.name}"
            self._bind(name, "import", node, None, scope, origin=origin)

    def _target(
        self, target: ast.expr, value: ast.expr, kind: Kind, node: ast.AST, scope: Scope
    ) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = _parts(value, len(target.elts), kind)
            for place, (one, part) in enumerate(zip(target.elts, parts, strict=True)):
                matched = kind == "is" and part is not value
                self._target(one, part, "is" if matched else "item", node, scope)
                if isinstance(one, ast.Name):
                    scope.bindings[one.id][-1].part = place
        elif isinstance(target, ast.Starred):
            self._target(target.value, value, "item", node, scope)
        elif isinstance(target, ast.Subscript):
            self._target(target.value, value, "into" if kind == "is" else kind, node, scope)
        elif isinstance(target, ast.Attribute):
            self._attribute(target, value, kind, node, scope)
        elif isinstance(target, ast.Name):
            self._bind(target.id, kind, node, value, scope)
            self._into_container(target, kind, node, value, scope)

    def _attribute(
        self, target: ast.Attribute, value: ast.expr, kind: Kind, node: ast.AST, scope: Scope
    ) -> None:
        if is_same(target):
            self._target(target.value, value, kind, node, scope)
            return
        binding = self._bind(f".{target.attr}", kind, node, value, scope)
        self.names.stores.setdefault(target.attr, []).append(binding)

    def _into_container(
        self, target: ast.Name, kind: Kind, node: ast.AST, value: ast.expr, scope: Scope
    ) -> None:
        """`for s in sums: s += g` changes `sums`."""
        if kind not in RELATIVE:
            return
        for binding in scope.bindings.get(target.id, []):
            if binding.kind == "item" and isinstance(binding.value, ast.Name):
                self._bind(binding.value.id, "into", node, value, scope)

    def _bind(
        self,
        name: str,
        kind: Kind,
        node: ast.AST,
        value: ast.expr | None,
        scope: Scope,
        *,
        origin: str = "",
        place: int = 0,
    ) -> Binding:
        binding = Binding(name, kind, node, value, scope, origin, place)
        scope.bindings.setdefault(name, []).append(binding)
        return binding


def _augmented(operator: ast.operator) -> Kind:
    if isinstance(operator, ast.Div | ast.FloorDiv):
        return "div"
    return "mul" if isinstance(operator, ast.Mult) else "add"


def _parts(value: ast.expr, count: int, kind: Kind) -> list[ast.expr]:
    """What each name of a tuple stands for: its own part where that can be seen."""
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == count and kind == "is":
        return list(value.elts)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and kind == "item":
        if value.func.id == "zip" and len(value.args) == count:
            return list(value.args)
        if value.func.id == "enumerate" and count == 2 and value.args:
            return [ast.Constant(0), value.args[0]]
    return [value] * count
