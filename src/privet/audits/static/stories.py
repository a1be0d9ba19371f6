"""A story: one trainer with all the functions and constants of its file that it uses."""

import ast
from collections.abc import Iterator
from functools import cached_property

from privet.audits.static.scopes import Binding, Function, Names, Scope
from privet.audits.static.vocabulary import ENGINES, WRAPPERS

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
SIZES = frozenset({"shape", "size", "ndim", "dim", "numel", "len", "dtype", "device"})


class Story:
    """The statements that belong together, and questions about them."""

    def __init__(self, names: Names, roots: list[ast.stmt]) -> None:
        self.names = names
        self.statements = _closure(names, roots)
        self._bound: dict[ast.expr, list[Binding]] = {}
        self._reached: dict[tuple[ast.AST, bool, frozenset[str]], list[ast.AST]] = {}
        self._within: dict[ast.AST, list[ast.AST]] = {}

    def bindings(self, use: ast.expr) -> list[Binding]:
        """What a name or an attribute may be bound to, as far as this story goes."""
        if use not in self._bound:
            found = self.names.bindings(use)
            by_name = isinstance(use, ast.Name)
            self._bound[use] = [b for b in found if by_name or b.node in self._members]
        return self._bound[use]

    @cached_property
    def _members(self) -> frozenset[ast.AST]:
        return frozenset(self.nodes)

    def is_module(self, node: ast.expr) -> bool:
        """Whether an expression names an imported module, or a part of one."""
        while isinstance(node, ast.Attribute):
            node = node.value
        found = self.names.bindings(node) if isinstance(node, ast.Name) else []
        return bool(found) and all(binding.kind == "import" for binding in found)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes, in the order of the file."""
        return [node for statement in self.statements for node in ast.walk(statement)]

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls, in the order of the file."""
        found = [node for node in self.nodes if isinstance(node, ast.Call)]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    @cached_property
    def _called(self) -> dict[ast.AST, list[ast.Call]]:
        found: dict[ast.AST, list[ast.Call]] = {}
        for call in self.calls:
            function = self.function(call.func)
            if function is not None:
                found.setdefault(function, []).append(call)
        return found

    def callers(self, function: ast.AST) -> list[ast.Call]:
        """The calls of a function of this file."""
        return self._called.get(function, [])

    def last(self, expression: ast.expr) -> str:
        """The last part of what a function is really called: `DataLoader` for a renamed import."""
        return self.dotted(expression).rsplit(".", 1)[-1]

    def called(self, node: ast.AST) -> str:
        """The last part of the name of what is called; empty for anything but a call."""
        return self.last(node.func) if isinstance(node, ast.Call) else ""

    def dotted(self, expression: ast.expr, depth: int = 0) -> str:
        """The full name of a function or module, with renamed imports undone."""
        if isinstance(expression, ast.Attribute):
            return f"{self.dotted(expression.value, depth)}.{expression.attr}"
        if not isinstance(expression, ast.Name) or depth > 5:
            return "?"
        for binding in self.names.bindings(expression):
            if binding.kind == "import":
                return binding.origin
            if binding.kind == "is" and isinstance(binding.value, ast.Name | ast.Attribute):
                return self.dotted(binding.value, depth + 1)
            return "?"
        return expression.id

    def function(self, expression: ast.expr) -> Function | None:
        """The function of this file that an expression names."""
        if isinstance(expression, ast.Lambda):
            return expression
        if isinstance(expression, ast.Attribute):
            return self._method(expression)
        if isinstance(expression, ast.Call):
            wrapped = self.called(expression) in WRAPPERS and expression.args
            return self.function(expression.args[0]) if wrapped else None
        for binding in self.names.bindings(expression):
            if binding.kind == "definition" and isinstance(binding.node, Function):
                return binding.node
            if binding.kind == "is" and isinstance(binding.value, ast.Lambda | ast.Call):
                return self.function(binding.value)
        return None

    def _method(self, expression: ast.Attribute) -> Function | None:
        if not (isinstance(expression.value, ast.Name) and expression.value.id == "self"):
            return None
        owner = self.names.class_of(self.names.scope_of(expression))
        for binding in owner.bindings.get(expression.attr, []) if owner else []:
            if isinstance(binding.node, Function):
                return binding.node
        return None

    def argument(self, call: ast.Call, binding: Binding) -> ast.expr | None:
        """What a call gives to a parameter."""
        for keyword in call.keywords:
            if keyword.arg == binding.name:
                return keyword.value
        place = binding.place - (1 if isinstance(call.func, ast.Attribute) else 0)
        return call.args[place] if 0 <= place < len(call.args) else None

    def reach(
        self, expression: ast.AST, *, sizes: bool = False, stop: frozenset[str] = frozenset()
    ) -> list[ast.AST]:
        """All that a value is made of: its nodes, and those of the names in it, and so on.

        What it is made of does not include sizes of things, unless asked for, nor the calls
        named in `stop`.
        """
        key = expression, sizes, stop
        if key not in self._reached:
            self._reached[key] = list(self._reach(expression, sizes, stop))
        return self._reached[key]

    def _reach(self, expression: ast.AST, sizes: bool, stop: frozenset[str]) -> Iterator[ast.AST]:
        seen: set[ast.AST] = set()
        waiting = [expression]
        while waiting:
            node = waiting.pop()
            if node in seen or (not sizes and self._is_size(node)):
                continue
            if stop and self.called(node) in stop:
                continue
            seen.add(node)
            yield node
            waiting.extend(ast.iter_child_nodes(node))
            if isinstance(node, ast.Name | ast.Attribute):
                waiting.extend(self._behind(node))
            if isinstance(node, ast.Call) and (function := self.function(node.func)) is not None:
                waiting.extend(returned(function))

    def _behind(self, use: ast.expr) -> Iterator[ast.AST]:
        for binding in self.bindings(use):
            if binding.value is not None:
                yield from self._value(binding)
            if binding.kind in ("add", "mul", "div"):
                earlier = self.names.reaching(binding.scope.bindings[binding.name], binding.node)
                yield from (b.value for b in earlier if b.value is not None)
            if binding.kind == "parameter":
                for call in self.callers(binding.scope.node):
                    given = self.argument(call, binding)
                    if given is not None:
                        yield given

    def _value(self, binding: Binding) -> Iterator[ast.AST]:
        """A model or optimiser that an engine hands back is made of what it was given for it."""
        value = binding.value
        if isinstance(value, ast.Call) and self.called(value) in ENGINES and binding.part < 2:
            wanted = ("module", "optimizer")[binding.part]
            yield from (k.value for k in value.keywords if k.arg == wanted)
        elif value is not None:
            yield value

    def _is_size(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in SIZES
        return isinstance(node, ast.Call) and self.called(node) in SIZES

    def mentions(self, expression: ast.AST, names: frozenset[str]) -> bool:
        """Whether a value is made with one of these calls or attributes."""
        return any(
            (isinstance(node, ast.Attribute) and node.attr in names) or self.called(node) in names
            for node in self.reach(expression)
        )

    def uses(self, names: frozenset[str]) -> list[ast.AST]:
        """Calls and attributes with one of these names, anywhere in the story."""
        return [
            node
            for node in self.nodes
            if (isinstance(node, ast.Attribute) and node.attr in names)
            or (isinstance(node, ast.Call) and self.called(node) in names)
        ]

    def within(self, container: ast.AST) -> list[ast.AST]:
        """Nodes inside a statement, and inside the functions of this file that it calls."""
        if container not in self._within:
            self._within[container] = list(self._inside(container))
        return self._within[container]

    def _inside(self, container: ast.AST) -> Iterator[ast.AST]:
        seen: set[ast.AST] = set()
        waiting = [container]
        while waiting:
            for node in ast.walk(waiting.pop()):
                if node in seen:
                    continue
                seen.add(node)
                yield node
                if isinstance(node, ast.Call):
                    function = self.function(node.func)
                    if function is not None:
                        waiting.append(function)


def returned(function: Function) -> list[ast.expr]:
    """What a function may return."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    return [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None
    ]


def stories_of(names: Names, root: str | None) -> list[Story]:
    """One story for each trainer: what nothing else in the file uses, and the file's own body."""
    definitions = {node.name: node for node in names.tree.body if isinstance(node, Definition)}
    if root is not None:
        return [Story(names, [definitions[root]])]
    body: list[ast.stmt] = [
        node
        for node in names.tree.body
        if not isinstance(node, Definition | ast.Import | ast.ImportFrom)
    ]
    used = {
        name.id
        for owner in [*definitions.values(), *body]
        for name in ast.walk(owner)
        if isinstance(name, ast.Name) and definitions.get(name.id) not in (None, owner)
    }
    free = [node for name, node in definitions.items() if name not in used]
    runs = any(not isinstance(node, ast.Assign | ast.AnnAssign) for node in body)
    return [Story(names, [node]) for node in free] + ([Story(names, body)] if runs else [])


def _closure(names: Names, roots: list[ast.stmt]) -> list[ast.stmt]:
    """The roots, and the statements of the module that bind a name used in them, and so on."""
    chosen: list[ast.stmt] = []
    waiting = list(roots)
    while waiting:
        statement = waiting.pop(0)
        if statement in chosen:
            continue
        chosen.append(statement)
        used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        waiting.extend(_binders(names.module, used))
    return sorted(chosen, key=lambda statement: statement.lineno)


def _binders(module: Scope, used: set[str]) -> Iterator[ast.stmt]:
    for name in used & module.bindings.keys():
        for binding in module.bindings[name]:
            node = binding.node
            own = node in getattr(module.node, "body", ())
            if own and isinstance(node, Definition | ast.Assign | ast.AnnAssign):
                yield node
