import ast

import pytest

from privet.audits.static.scopes import Names


def values(text, name):
    """What the last use of a name may stand for, as source."""
    tree = ast.parse(text)
    names = Names(tree)
    uses = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node) == name
    ]
    last = max(uses, key=lambda node: (node.lineno, node.col_offset))
    return {
        f"{b.kind} {ast.unparse(b.value) if b.value is not None else b.origin or '-'}"
        for b in names.bindings(last)
    }


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("a = 1\na = 2\na", "a", {"is 2"}),
        ("a = 1\nif c:\n    a = 2\na", "a", {"is 1", "is 2"}),
        ("a = 1\nif c:\n    a = 2\n    a", "a", {"is 2"}),
        ("a = 1\na = a + 1", "a", {"is 1"}),
        ("a = 1\na += 2\na", "a", {"add 2"}),
        ("a = 1\na /= 2\na", "a", {"div 2"}),
        ("a.add_(2)\na", "a", {"add 2"}),
        ("for s in sums:\n    s += g\nsums", "sums", {"into g"}),
        ("d = {}\nd[k] = v\nd", "d", {"is {}", "into v"}),
        ("a, b = 1, 2\nb", "b", {"is 2"}),
        ("for i, (p, s) in enumerate(zip(P, S)):\n    s", "s", {"item S"}),
        ("for p, s in zip(P, S):\n    s", "s", {"item S"}),
        ("from m import f as g\ng", "g", {"import m.f"}),
        ("import m.n as k\nk", "k", {"import m.n"}),
        ("a = 1\ndef f(a):\n    return a", "a", {"parameter -"}),
        ("a = 1\ndef f():\n    return a", "a", {"is 1"}),
        ("a = 1\n[a for a in X]\na", "a", {"is 1"}),
        ("while c:\n    a\n    a = 2", "a", {"is 2"}),  # an earlier round
        ("class C:\n    a = 1\n    def f(self):\n        return a", "a", set()),
        ("p.grad = 1\nq.grad", "q.grad", {"is 1"}),
        ("p.grad = 1\nloss.backward()\nq.grad", "q.grad", set()),
        ("p.grad = 1\nloss.backward()\np.grad += 2\nq.grad", "q.grad", {"add 2"}),
        ("p.data = 1\np", "p", {"is 1"}),
        ("self.data = 1\nself.data", "self.data", {"is 1"}),
        ("def f():\n    self.n = 1\ndef g():\n    return self.n", "self.n", {"is 1"}),
    ],
)
def test_a_name_has_the_values_that_reach_its_use(text, name, expected):
    assert values(text, name) == expected


def test_loops_end_at_the_function():
    tree = ast.parse("for a in b:\n    def f():\n        for c in d:\n            e")
    names = Names(tree)
    use = next(n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "e")
    assert [loop.target.id for loop in names.loops(use)] == ["c"]
