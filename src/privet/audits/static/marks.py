"""What a trainer does, as far as it can be read: gradients, noise, updates, loops, data."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from privet.audits.static import vocabulary as v
from privet.audits.static.algebra import Algebra, Path, Term
from privet.audits.static.findings import Finding, Severity
from privet.audits.static.stories import Story

LOOPS = ast.For | ast.AsyncFor | ast.While
LONGEST: Final = 60


@dataclass(frozen=True)
class NoiseSite:
    """An addition of noise to gradients."""

    node: ast.AST
    noise: tuple[Term, ...]
    partners: tuple[Term, ...]


class Marks:
    """A story read as a trainer."""

    def __init__(self, story: Story, file: str) -> None:
        self.story = story
        self.algebra = Algebra(story)
        self.file = file

    def finding(
        self, node: ast.AST, rule: str, severity: Severity, *, what: str, why: str, fix: str
    ) -> Finding:
        """A finding at a node of this story."""
        return Finding(self.file, getattr(node, "lineno", 1), rule, severity, what, why, fix)

    @cached_property
    def noise_sites(self) -> list[NoiseSite]:
        """Where noise meets gradients: every addition, also those within another."""
        found = []
        for node in self.story.nodes:
            terms = self._sum_at(node)
            noise = tuple(t for t in terms if t.first("noise"))
            partners = tuple(t for t in terms if not t.first("noise"))
            if noise and any(t.first("gradient") for t in partners):
                found.append(NoiseSite(node, noise, partners))
        return found

    def _sum_at(self, node: ast.AST) -> list[Term]:
        """The terms of an addition; none for anything else."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            return self.algebra.terms(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
            return self._added(node.target, node.value, node)
        if isinstance(node, ast.Call) and self.story.called(node) in v.SUMS:
            return self.algebra.terms(node)
        return []

    @cached_property
    def values(self) -> list[tuple[ast.AST, list[Term]]]:
        """Every value that is assigned, returned or changed in place, taken apart."""
        return [(node, terms) for node in self.story.nodes if (terms := self._value_at(node))]

    def _value_at(self, node: ast.AST) -> list[Term]:
        if isinstance(node, ast.Assign | ast.Return) and node.value is not None:
            return self.algebra.terms(node.value)
        if isinstance(node, ast.AugAssign):
            path = Path.to(node.value, node)
            if isinstance(node.op, ast.Div):
                return self.algebra.quotient(
                    self.algebra.terms(node.target, path), node.value, path
                )
            return self._added(node.target, node.value, node)
        if isinstance(node, ast.Call) and self.story.called(node) in v.QUOTIENTS | v.SUMS:
            return self.algebra.terms(node)
        return []

    def _added(self, target: ast.expr, value: ast.expr, at: ast.AST) -> list[Term]:
        path = Path.to(value, at)
        return self.algebra.terms(target, path) + self.algebra.terms(value, path)

    @cached_property
    def claims(self) -> bool:
        """Whether the story says that it is private: by an accountant, or by noise on gradients."""
        return bool(self.story.uses(v.CLAIMS)) or bool(self.noise_sites)

    def computes_gradients(self, container: ast.AST) -> bool:
        """Whether gradients are computed inside, or in what is called from there."""
        return any(self.is_gradient_call(node) for node in self.story.within(container))

    def is_gradient_call(self, node: ast.AST) -> bool:
        """`loss.backward()`, `autograd.grad(...)`, `vmap(grad(f))(...)`."""
        return isinstance(node, ast.Call) and self.algebra.is_gradient(node)

    def updates(self, container: ast.AST) -> bool:
        """Whether parameters are changed inside, or in what is called from there."""
        return any(self._is_update(node) for node in self.story.within(container))

    def _is_update(self, node: ast.AST) -> bool:
        if isinstance(node, ast.AugAssign):
            return isinstance(node.op, ast.Sub)
        if isinstance(node, ast.Assign):
            return isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Sub)
        return self.story.called(node) in ("step", "apply_updates", "sub_")

    @cached_property
    def step_loops(self) -> list[ast.For | ast.AsyncFor | ast.While]:
        """Loops in which gradients are computed, from the outside in."""
        loops = [node for node in self.story.nodes if isinstance(node, LOOPS)]
        return [loop for loop in loops if any(self.computes_gradients(part) for part in loop.body)]

    @cached_property
    def per_example(self) -> bool:
        """Whether gradients are taken apart by example, in whichever way."""
        ones = any(
            k.arg == "batch_size" and isinstance(k.value, ast.Constant) and k.value.value == 1
            for call in self.story.calls
            for k in call.keywords
        )
        apart = any(not self.updates(loop) for loop in self.step_loops)
        return ones or apart or bool(self.story.uses(v.PER_EXAMPLE))

    @cached_property
    def batch_loops(self) -> list[ast.For | ast.AsyncFor]:
        """Step loops whose values are batches: not those that count."""
        return [
            loop
            for loop in self.step_loops
            if isinstance(loop, ast.For | ast.AsyncFor) and self.story.called(loop.iter) != "range"
        ]

    @cached_property
    def gradient_calls(self) -> list[ast.Call]:
        """All computations of gradients."""
        return [call for call in self.story.calls if self.is_gradient_call(call)]

    def data_of(self, nodes: Iterable[ast.AST]) -> frozenset[str]:
        """Where values come from in the end: files, loaders, parameters without a caller.

        A figure about other data (their mean, a fitted scale) does not make a value theirs, and a
        counter is not data.
        """
        return frozenset(root for node in nodes for root in self._roots(node))

    def _roots(self, expression: ast.AST) -> Iterator[str]:
        figures = v.STATISTICS | v.COUNTS | {"fit", "adapt", "range"}
        for node in self.story.reach(expression, stop=figures):
            if isinstance(node, ast.Name):
                yield from self._free(node)
            elif isinstance(node, ast.Call) and reads(node, self.story.called(node)):
                yield ast.unparse(node)

    def _free(self, name: ast.Name) -> Iterator[str]:
        """A parameter that no call in the story fills."""
        for binding in self.story.bindings(name):
            function = binding.scope.node
            if binding.kind == "parameter" and not self.story.callers(function):
                yield f"{getattr(function, 'name', 'lambda')}.{binding.name}"

    @cached_property
    def training_data(self) -> frozenset[str]:
        """Where the values of the step loops come from, models aside."""
        fed: list[ast.AST] = [loop.iter for loop in self.batch_loops]
        for loop in self.step_loops:
            fed += [n for n in self.story.within(loop) if isinstance(n, ast.Subscript)]
        return self.data_of(fed) - self.models

    @cached_property
    def models(self) -> frozenset[str]:
        """Parameters that are networks or optimisers: things with methods of theirs, or called."""
        found: set[str] = set()
        for call in self.story.calls:
            owner = call.func
            if isinstance(owner, ast.Attribute) and owner.attr in (
                "parameters", "named_parameters", "state_dict", "zero_grad", "train", "eval",
                "step", "backward",
            ):  # fmt: skip
                owner = owner.value
            if isinstance(owner, ast.Name):
                found.update(self._free(owner))
        return frozenset(found)


def reads(call: ast.Call, name: str) -> bool:
    """A call that brings data from somewhere: a file's name, or a data set's class."""
    readers = ("load", "read", "fetch", "open")
    if name.startswith(readers) and name not in ("load_state_dict",):
        return True
    return any(k.arg in ("root", "train", "download") for k in call.keywords)


def shown(node: ast.AST) -> str:
    """A piece of the user's code, in quotes, short enough for a sentence."""
    text = " ".join(ast.unparse(node).split())
    return f"`{text}`" if len(text) <= LONGEST else f"`{text[: LONGEST - 3]}...`"
