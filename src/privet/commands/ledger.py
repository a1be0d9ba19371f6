"""`privet ledger`: what has been spent on which data set, and its caps."""

import contextlib
from collections.abc import Iterator
from typing import Any

from cyclopts import App

from privet.commands.screen import DataDir, Json, err, opened_ledger, out, print_json

ledger_app = App(name="ledger", help="What has been spent on which data set, and its caps.")


@ledger_app.command
def show(name: str | None = None, /, *, json: Json = False) -> None:
    """Show what was spent on one data set, or on all.

    Parameters
    ----------
    name
        A data set, by its name in the ledger or its description file (.toml); default: all.
    json
        Machine-readable.
    """
    from privet.reports.ledger_page import account_record, print_account

    with opened_ledger() as book:
        names = [_known_name(name, book)] if name else book.names()
        accounts = [book.account(n) for n in names]
    if json:
        print_json([account_record(account) for account in accounts])
        return
    if not accounts:
        out.print("the ledger is empty")
    for account in accounts:
        print_account(account, out)


@ledger_app.command
def cap(name: str, /, *, epsilon: float, delta: float) -> None:
    """Cap the spending on a data set: a filter that holds for runs chosen one after another.

    Parameters
    ----------
    name
        A data set: by its name in `privet data list`, its description file (.toml), or its name
        in the ledger.
    epsilon
        The most that may be spent in all, under add/remove neighbours.
    delta
        Of the cap.
    """
    from privet.guarantee import check_target

    check_target(epsilon, delta)
    with opened_ledger() as book, _entered(name, book) as registered:
        chosen = book.cap(registered, epsilon, delta)
        earlier = len(book.account(registered).runs)
    out.print(
        f"{registered}: at most epsilon={epsilon:g} at delta={delta:g} "
        f"(Renyi order {chosen.order:g})",
        highlight=False,
    )
    if earlier:
        err.print(
            f"note: {earlier} run(s) came before this cap. Their spending counts, but the filter's "
            "proof covers caps that are set before the first run and not changed.",
            highlight=False,
        )


@ledger_app.command(name="open")
def open_account(name: str, /, *, unit: str = "example") -> None:
    """Open an account for data not declared yet, to cap it before its facts are learned.

    Parameters
    ----------
    name
        The name that the data set will have.
    unit
        Whose data one record will be.
    """
    with opened_ledger() as book:
        book.open_account(name, unit=unit)
    out.print(f"opened {name}; now cap it: privet ledger cap {name} ...", highlight=False)


@ledger_app.command
def register(data: str, /, *, data_dir: DataDir = None) -> None:
    """Enter a data set, so that a cap can be set before its first run.

    Parameters
    ----------
    data
        A name from `privet data list`, or your description file (.toml).
    data_dir
        Where the files of a named data set are.
    """
    import privet
    from privet.data.identity import enter_in_ledger

    loaded = privet.data.load(data, data_dir)
    with opened_ledger() as book:
        enter_in_ledger(loaded, book)
    out.print(f"registered {loaded.name}", highlight=False)


@ledger_app.command
def settle(run: str, /) -> None:
    """Close an abandoned run: turns that were never charged are given back.

    A turn is a step of training; with a sampler in cycles, a whole cycle; for a search, all of it.

    Parameters
    ----------
    run
        The run's id, from `privet ledger show`.
    """
    with opened_ledger() as book:
        book.settle(run)
        record = book.run(run)
    out.print(f"{run}: {record.charged} of {record.planned} turns stay charged", highlight=False)


def _known_name(name: str, book: Any) -> str:
    """A name in the ledger, or that of the data set which a file describes."""
    import privet

    if name in book.names() or not name.endswith(".toml"):
        return name
    return str(privet.data.load(name).name)


@contextlib.contextmanager
def _entered(name: str, book: Any) -> Iterator[str]:
    """A name in the ledger, or the data set of that name, entered while nothing is refused."""
    import privet
    from privet.data.identity import entered_in_ledger

    if name in book.names():
        yield name
        return
    loaded = privet.data.load(name)
    with entered_in_ledger(loaded, book):
        yield loaded.name
