"""The project keeps its own rules: style, types, documentation, and what its files may say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "privet").rglob("*.py"))


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
    ],
    ids=["style", "format", "types"],
)
def test_the_checkers_are_content(command):
    outcome = run(sys.executable, "-m", *command)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_the_documentation_builds_without_a_warning(tmp_path):
    outcome = run(sys.executable, "-m", "zensical", "build", "--clean", "--strict")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert (ROOT / "site" / "index.html").exists()


def test_the_pinned_versions_name_no_address():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][\w.]*", pin) for pin in pins)
    assert "torch==2.13.0" in pins


def test_ci_runs_the_readme_test_command():
    readme = (ROOT / "README.md").read_text()
    block = readme.split("<!-- test command -->")[1].split("```")[1]
    assert "-m pytest" in block
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text()


def test_imports_go_downwards_only():
    """Rooms may import their own floor and those below; see docs/architecture.md."""
    floors = [
        {"cli", "commands", "demo"},
        {"studies"},
        {
            "training",
            "tuning",
            "verification",
            "signing",
            "attacks",
            "certification",
            "audits",
            "synthesis",
            "lifelong",
            "federation",
        },
        {"engine", "classifiers"},
        {"release", "models"},
        {"reports"},
        {"data", "ledger"},
        {"privacy"},
        {"guarantee", "errors", "files"},
    ]
    floor_of = {room: i for i, rooms in enumerate(floors) for room in rooms}
    wrong = []
    for source in SOURCES:
        room = source.relative_to(ROOT / "src" / "privet").parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        for line in source.read_text().splitlines():
            found = re.match(r"\s*from privet\.(\w+)", line)
            if found and floor_of[found[1]] < floor_of[room]:
                wrong.append(f"{source.name}: {line.strip()}")
    assert wrong == []


def test_public_functions_are_short():
    """Functions of about ten lines; none above seventy, docstrings aside."""
    import ast

    lengths = []
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body:
                    lengths.append((body[-1].end_lineno - body[0].lineno + 1, node.name))
    assert max(lengths)[0] <= 60, max(lengths)
    assert sorted(length for length, _ in lengths)[len(lengths) // 2] <= 10
