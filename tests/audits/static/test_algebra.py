import ast

import pytest

from privet.audits.static.algebra import Algebra
from privet.audits.static.scopes import Names
from privet.audits.static.stories import stories_of

HEAD = "import torch\nfrom torch import randn_like as bell, normal\n"


def terms(text):
    """The last statement's value as 'over / under', with noise and the like in capitals."""
    tree = ast.parse(HEAD + text)
    names = Names(tree)
    last = tree.body[-1]
    (story,) = [s for s in stories_of(names, None) if last in s.statements]
    return {
        " ".join(sorted(map(said, term.over))) + " / " + " ".join(sorted(map(said, term.under)))
        for term in Algebra(story).terms(last.value)
    }


def said(leaf):
    plain = leaf.kind in ("other", "constant")
    return leaf.text if plain else leaf.kind.upper()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(s + z * C * bell(s)) / B", {"s / B", "C NOISE z / B"}),
        ("n = z * bell(s) / B\n(s + n) / B", {"s / B", "NOISE z / B B"}),
        ("normal(0.0, z * C, size=k)", {"C NOISE z / "}),
        ("torch.normal(mean=0.0, std=z / B, size=k)", {"NOISE z / B"}),
        ("p.grad * torch.clamp(C / g.norm(), max=1.0)", {"CLIP GRADIENT / "}),
        ("p.grad / max(1, p.grad.norm() / C)", {"GRADIENT / CLIP"}),
        ("p.grad * (C / (p.grad.norm() + 1e-6))", {"C GRADIENT / NORM"}),
        ("p.grad * (C / n if p.grad.norm() > C else 1)", {"CLIP GRADIENT / "}),
        ("s = 0\nfor g in G:\n    s += g / B\ns", {"0 / ", "G / B"}),
        ("s = a\ns *= b\ns /= c\ns", {"a b / c"}),
        ("s = a\ns.add_(bell(a)).div_(c)\ns.div(d)", {"a / d"}),
        ("def f(t, k):\n    return t + k * bell(t)\nf(s, z) / B", {"s / B", "NOISE z / B"}),
        ("f = lambda t: t * 2\nf(a) + f(b)", {"2 a / ", "2 b / "}),
        ("torch.einsum('i,i->', w, p.grad_sample)", {"GRADIENT w / "}),
        ("p.grad_sample.mean(0)", {"GRADIENT / MEAN"}),
        ("torch.func.vmap(torch.func.grad(f))(x).sum(0)", {"GRADIENT / "}),
        ("x / x.shape[0]", {"x / x.shape[0]"}),
        ("x / (a + b)", {"x / a + b"}),
        ("[a + b for a in A for b in B]", {"A / ", "B / "}),
        ("def normal(x):\n    return x\nnormal(a)", {"a / "}),  # a function of one's own
        ("def f(x):\n    return f(x) + 1\nf(a)", {"1 / ", "f(x) / "}),  # ends
    ],
)
def test_values_are_sums_of_products(text, expected):
    assert terms(text) == expected


def test_a_value_too_large_to_read_is_left_whole_and_soon():
    text = "a0 = x + y\n" + "".join(f"a{i} = a{i - 1} * a{i - 1}\n" for i in range(1, 60)) + "a59"
    assert 0 < len(terms(text)) <= 24
