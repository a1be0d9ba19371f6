"""Finds the code to check, and reads it. It is parsed, never imported and never run."""

import ast
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from privet.errors import InputError


@dataclass(frozen=True)
class Target:
    """A parsed file, and the function or class in it that is meant; None: all of it."""

    path: Path
    text: str
    tree: ast.Module
    name: str | None


def locate(target: str, folder: Path | None = None) -> Target:
    """`PATH.py`, `PATH.py:name`, `my.module` or `my.module:name`, seen from `folder`."""
    here = Path.cwd() if folder is None else folder
    where, _, name = target.partition(":")
    path = here / where
    _require_code(path, target)
    file = path if where.endswith(".py") else _module(where, here)
    if file is None or not file.is_file():
        raise InputError(
            "no such code",
            got=target,
            expected="PATH.py, PATH.py:train or my.module:train",
            fix="give a file, or start from the folder that holds the module",
        )
    text, tree = _parsed(file)
    _require(tree, name, file)
    return Target(file, text, tree, name or None)


def _require_code(path: Path, target: str) -> None:
    folder = path.is_dir() and not (path / "__init__.py").exists()
    if folder or (path.is_file() and path.suffix != ".py"):
        raise InputError(
            "that is not Python code",
            got=f"the {'folder' if folder else 'file'} {target}",
            expected="PATH.py or my.module:train",
            fix="a release is checked by `privet verify FOLDER`",
        )


def _module(dotted: str, here: Path) -> Path | None:
    """The source of a module: from the folder first, else from the path of this Python."""
    parts = dotted.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for root in (here, here / "src"):
        base = root.joinpath(*parts)
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file
    return _installed(parts)


def _installed(parts: list[str]) -> Path | None:
    """Only the top package is looked up: `find_spec` of a submodule would import its parents."""
    try:
        spec = None if parts[0] in sys.builtin_module_names else importlib.util.find_spec(parts[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if len(parts) == 1:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    for root in spec.submodule_search_locations or ():
        base = Path(root).joinpath(*parts[1:])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file
    return None


def _parsed(file: Path) -> tuple[str, ast.Module]:
    try:
        text = file.read_text(encoding="utf-8")
        return text, ast.parse(text)
    except SyntaxError as error:
        where = f"{file}, line {error.lineno}"
        raise InputError(f"not Python: {error.msg}", got=where) from None
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise InputError("cannot be read as Python", got=file, expected="UTF-8 source") from None


def _require(tree: ast.Module, name: str, file: Path) -> None:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    if name and name not in names:
        raise InputError(
            f"no function or class of that name in {file.name}",
            got=name,
            expected=", ".join(names) or "a file with functions",
        )
