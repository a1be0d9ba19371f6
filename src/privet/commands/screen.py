"""What all verbs share: where they print, and how."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, Parameter(name="--json", negative="")]
DataDir = Annotated[Path | None, Parameter(name="--data-dir")]

out = Console()
err = Console(stderr=True)


def print_json(record: Any) -> None:
    """Machine-readable, on stdout."""
    print(json.dumps(record, indent=2, ensure_ascii=False, default=str))


def print_listing(rows: Iterable[tuple[str, str]]) -> None:
    """Names and what is said of each, in two columns; what does not fit goes on below itself."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, said in rows:
        grid.add_row(Text(name), Text(said))
    out.print(grid)


@contextlib.contextmanager
def opened_ledger() -> Iterator[Any]:
    """The user's ledger, closed afterwards."""
    from privet.ledger import Ledger, default_ledger_path

    book = Ledger(default_ledger_path())
    try:
        yield book
    finally:
        book.close()


@contextlib.contextmanager
def step_bar(*, quiet: bool, of_trials: bool = False) -> Iterator[Callable[[Any], None] | None]:
    """A bar on stderr with the steps done, the time left and the epsilon spent so far."""
    if quiet:
        yield None
        return
    from privet.engine.progress import StepBar
    from privet.tuning.progress import TrialBar

    with (TrialBar if of_trials else StepBar)(err) as bar:
        yield bar.update
