import ast

import pytest

from privet.audits.static.scopes import Names
from privet.audits.static.stories import Story, stories_of

TEXT = """
from torch.utils.data import DataLoader as DL
import numpy as np
SIZE = 10
UNUSED = 11

def helper(x):
    return x + SIZE

def train(data):
    return helper(DL(data))

def other(path):
    table = np.load(path)
    return table[: len(table)]

def main():
    train(1)
"""


def stories(root=None, text=TEXT):
    return stories_of(Names(ast.parse(text)), root)


def named(story):
    return {
        getattr(s, "name", None) or ast.unparse(s.targets[0])
        for s in story.statements
        if isinstance(s, ast.FunctionDef | ast.Assign)
    }


def test_a_story_is_a_root_with_what_it_uses():
    assert [named(s) for s in stories()] == [{"other"}, {"main", "train", "helper", "SIZE"}]
    assert [named(s) for s in stories("train")] == [{"train", "helper", "SIZE"}]


def test_what_runs_at_the_top_is_a_story_of_its_own():
    found = stories(text=TEXT + "\nif __name__ == '__main__':\n    other('a')\n")
    assert [named(s) for s in found] == [
        {"main", "train", "helper", "SIZE"},
        {"other", "SIZE", "UNUSED"},
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from a.b import c as d\nd(1)", "c"),
        ("import a.b as e\ne.c(1)", "c"),
        ("from a import c\nd = c\nd(1)", "c"),
        ("x.c(1)", "c"),
        ("c(1)", "c"),
        ("def c(x):\n    pass\nc(1)", "?"),
        ("for c in d:\n    c(1)", "?"),
    ],
)
def test_a_call_is_known_by_what_was_imported(text, name):
    tree = ast.parse(text)
    story = Story(Names(tree), list(tree.body))
    (call,) = story.calls
    assert story.called(call) == name


def test_reach_goes_through_names_calls_and_parameters_but_not_through_sizes():
    (story,) = stories("train")
    (returned,) = [n for n in ast.walk(story.statements[1]) if isinstance(n, ast.Return)]
    reached = {ast.unparse(n) for n in story.reach(returned.value)}
    assert {"SIZE", "10", "DL(data)", "data"} <= reached
    (other,) = stories("other")
    subscript = next(n for n in other.nodes if isinstance(n, ast.Subscript))
    assert "len(table)" not in {ast.unparse(n) for n in other.reach(subscript)}
    assert "len(table)" in {ast.unparse(n) for n in other.reach(subscript, sizes=True)}
    stopped = other.reach(subscript, stop=frozenset({"load"}))
    assert "path" not in {ast.unparse(n) for n in stopped if isinstance(n, ast.Name)}
