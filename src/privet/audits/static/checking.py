"""Reads the code, tells its stories, asks every rule about each."""

from pathlib import Path

from privet.audits.static.findings import Finding, Report, settled
from privet.audits.static.marks import Marks
from privet.audits.static.rules import RULES
from privet.audits.static.scopes import Names
from privet.audits.static.stories import stories_of
from privet.audits.static.target import Target, locate
from privet.errors import InputError


def check(target: str, *, folder: Path | None = None) -> Report:
    """Look for known mistakes in `PATH.py`, `PATH.py:train` or `my.module:train`.

    The code is parsed, never imported and never run. A module is looked for in `folder` (default:
    the current one) and its `src`, then among the installed packages.
    """
    found = locate(target, folder)
    file = _short(found.path, Path.cwd() if folder is None else folder)
    try:
        findings = findings_in(found, file)
    except RecursionError:
        raise InputError("too deeply nested to be read", got=file) from None
    return settled(target, file, found.text, findings, RULES)


def findings_in(target: Target, file: str) -> list[Finding]:
    """What all rules say about all stories, each thing once."""
    names = Names(target.tree)
    found: dict[Finding, None] = {}
    for story in stories_of(names, target.name):
        marks = Marks(story, file)
        for rule in RULES.values():
            found.update(dict.fromkeys(rule(marks)))
    return list(found)


def _short(path: Path, folder: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(path)
