"""What all verbs share: where they print, and how."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

Json = Annotated[bool, Parameter(name="--json", negative="")]
DataDir = Annotated[Path | None, Parameter(name="--data-dir")]

out = Console()
err = Console(stderr=True)


def print_json(record: Any) -> None:
    """Machine-readable, on stdout."""
    print(json.dumps(record, indent=2, ensure_ascii=False, default=str))


@contextlib.contextmanager
def opened_ledger() -> Iterator[Any]:
    """The user's ledger, closed afterwards."""
    from privet.ledger import Ledger, default_ledger_path

    book = Ledger(default_ledger_path())
    try:
        yield book
    finally:
        book.close()
