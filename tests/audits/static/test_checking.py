from pathlib import Path

import pytest

from privet.audits.static import check
from privet.errors import InputError

MUTANTS = Path(__file__).parents[1] / "static_corpus" / "mutants.py"


def test_a_function_is_checked_with_what_it_uses_and_nothing_else():
    whole = check(str(MUTANTS)).findings
    one = check(f"{MUTANTS}:mutant_batch_norm").findings
    assert len(whole) == 10
    assert [f for f in whole if f.rule == "mixing-modules"] == list(one)


def test_a_path_is_told_from_the_folder(tmp_path):
    (tmp_path / "code.py").write_text(MUTANTS.read_text())
    assert {f.file for f in check("code.py", folder=tmp_path).findings} == {"code.py"}


def test_what_two_trainers_share_is_reported_once(tmp_path):
    text = MUTANTS.read_text()
    twin = text[text.index("def mutant_batch_norm") : text.index("def mutant_split_partner")]
    shared = f"{text}\n\ndef first(x, y):\n    mutant_batch_norm(x, y)\n"
    shared += "\n\ndef second(x, y):\n    mutant_batch_norm(x, y)\n"
    assert twin
    (tmp_path / "code.py").write_text(shared)
    found = [f.rule for f in check("code.py", folder=tmp_path).findings]
    assert found.count("mixing-modules") == 1


def test_nesting_without_end_is_bad_input(tmp_path):
    (tmp_path / "deep.py").write_text("x = " + "+".join(["y"] * 3000) + "\n")
    with pytest.raises(InputError, match=r"nested|cannot be read"):
        check("deep.py", folder=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def f(x):\n    return f(x) + f(f(x))\n",
        "a = b\nb = a\nfor a in a:\n    a += a\n",
        "x = [y for y in [z for z in x]]\nx /= x\n",
        "import jax\ndef f(k):\n  for _ in k:\n    k = g(k)\n    k -= jax.random.normal(k)\n",
        "f = lambda x: f(x)\ng = f(f)\ng.grad += g.grad + g.grad\n",
        "match x:\n    case [a, *b]:\n        pass\n    case {'k': v}:\n        pass\n",
        "(a, *b), c = d\nfor (a, b), *c in d:\n    pass\ndel a\n",
        "async def f():\n  async for x in y:\n    await x\n  async with y as z:\n    pass\n",
        "x.normal_()\nx.append()\nx.add_()\nclip(norm())\nmean()\nmin()\nfit()\nlen()\nrange()\n",
    ],
)
def test_odd_code_ends_quickly_and_finds_nothing(text, tmp_path):
    (tmp_path / "odd.py").write_text(text)
    assert check("odd.py", folder=tmp_path).findings == ()
