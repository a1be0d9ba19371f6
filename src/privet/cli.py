"""The verbs. Thin: parse, call, print; heavy imports wait until a verb runs.

Exit codes: 0 done, 1 a check failed, 2 bad input, 3 faulty environment.
"""

import contextlib
import errno
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from privet.errors import InputError, PrivetError

app = App(
    name="privet",
    help="Train on sensitive data and release the result with proof.\n\nStart here: `privet demo`.",
    version_flags=["--version"],
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
data_app = App(name="data", help="Data sets: what is here, and declaring your own.")
ledger_app = App(name="ledger", help="What has been spent on which data set, and its caps.")
app.command(data_app)
app.command(ledger_app)

Json = Annotated[bool, Parameter(name="--json", negative="")]
DataDir = Annotated[Path | None, Parameter(name="--data-dir")]

out = Console()
err = Console(stderr=True)

FULL_OR_FORBIDDEN = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def main(arguments: list[str] | None = None) -> None:
    """The console script: run a verb, turn errors into one line and an exit code."""
    try:
        result = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.exit(result if isinstance(result, int) else 0)
    except CycloptsError as error:
        _fail(str(error).replace("\n", " "), 2)
    except PrivetError as error:
        _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        _fail(f"missing package: {error.name}. Fix: install privet again, with its extras", 3)
    except KeyboardInterrupt:
        _fail("interrupted; `privet resume` continues a run that had an --out folder", 130)
    except sqlite3.OperationalError as error:
        _fail(f"the ledger cannot be written: {error}. Fix: check disk space and PRIVET_HOME", 3)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        faulty = error.errno in FULL_OR_FORBIDDEN
        fix = " Fix: free space, or choose another folder" if faulty else ""
        _fail(f"{error.strerror or error}{where}.{fix}", 3 if faulty else 2)


def _fail(message: str, code: int) -> None:
    err.print(f"privet: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


@app.command
def train(
    method: str,
    /,
    *,
    data: str,
    epsilon: float,
    delta: float = 1e-5,
    out: Path,
    data_dir: DataDir = None,
    batch: int | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    momentum: float | None = None,
    clip_norm: float | None = None,
    model: str | None = None,
    init_seed: int | None = None,
    device: str | None = None,
    keep_keys: bool | None = None,
    checkpoint_every: int | None = None,
    noise_seed: int | None = None,
    json: Json = False,
) -> None:
    """Train a private classifier and write its release.

    Example: privet train dpsgd --data digits --epsilon 3 --out runs/digits

    Parameters
    ----------
    method
        How to train; see `privet methods`.
    data
        A name from `privet data list`, or your description file (.toml).
    epsilon
        Privacy target under add/remove neighbours; smaller is more private.
    delta
        Of the target; well below 1 / size of the data.
    out
        Folder of the release; a killed run is continued by `privet resume OUT`.
    data_dir
        Where the files of a named data set are.
    batch
        Expected batch; default: from the declared size.
    epochs
        Expected passes over the data.
    learning_rate
        First learning rate; it falls linearly to zero.
    momentum
        Of SGD.
    clip_norm
        Bound on one example's gradient.
    model
        Network; default: by the shape of the examples.
    init_seed
        Seed of the first weights; public.
    device
        cpu, cuda, ...
    keep_keys
        Keep the secret keys until the run ends, to repeat lost steps exactly after a crash;
        without them lost steps are charged again.
    checkpoint_every
        Steps between checkpoints; default: every 20 seconds.
    noise_seed
        For tests only: known noise, so the release gets no epsilon.
    json
        Print the trust card as JSON, nothing else.
    """
    from privet.training.registry import find_method

    find_method(method)
    given = {
        name: value
        for name, value in {
            "batch": batch,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "momentum": momentum,
            "clip_norm": clip_norm,
            "model": model,
            "init_seed": init_seed,
            "device": device,
            "keep_keys": keep_keys,
            "checkpoint_every": checkpoint_every,
            "noise_seed": noise_seed,
        }.items()
        if value is not None
    }
    import privet

    reference = {"name": data, "data_dir": None if data_dir is None else str(data_dir.resolve())}
    if data.endswith(".toml"):
        reference["name"] = str(Path(data).resolve())
    from privet.guarantee import check_target

    check_target(epsilon, delta)
    loaded = privet.data.load(data, data_dir)
    with _progress(quiet=json) as watch:
        release = privet.train(
            method,
            loaded,
            epsilon=epsilon,
            delta=delta,
            out=out,
            watch=watch,
            reference=reference,
            **given,
        )
    _show_release(release.trust, out, as_json=json)


@app.command
def resume(folder: Path, /, *, json: Json = False) -> None:
    """Continue a killed run: lost steps are repeated exactly, or charged again.

    Parameters
    ----------
    folder
        The --out folder of the run.
    json
        Print the trust card as JSON, nothing else.
    """
    import privet
    from privet.training import dpsgd
    from privet.training.run_folder import RunFolder

    _, record = RunFolder.open(folder)
    if not record.get("data"):
        raise InputError(
            "the run does not say where its data are",
            fix="resume it from Python: privet.training.dpsgd.resume(folder, data)",
        )
    loaded = privet.data.load(record["data"]["name"], record["data"]["data_dir"])
    with _progress(quiet=json) as watch:
        release = dpsgd.resume(folder, loaded, watch=watch)
    _show_release(release.trust, folder, as_json=json)


@app.command
def verify(
    folder: Path, /, *, key: Path | None = None, ledger: Path | None = None, json: Json = False
) -> int:
    """Check a release offline: digests, signature, and every proved epsilon from its events.

    Exit code 1 if anything contradicts anything.

    Parameters
    ----------
    folder
        The release.
    key
        Public key (.pub) that it must be signed with.
    ledger
        Look the run up in this ledger; default: yours, if there is one.
    json
        Print the findings as JSON, nothing else.
    """
    from privet.ledger import Ledger, default_ledger_path
    from privet.verification import verify as check

    path = ledger or default_ledger_path()
    result = check(folder, key=key, ledger=Ledger(path) if path.exists() else None)
    if json:
        _print_json({"ok": result.ok, **asdict(result)})
        return 0 if result.ok else 1
    for finding in result.findings:
        mark = "[green]ok  [/]" if finding.ok else "[bold red]FAIL[/]"
        out.print(f"{mark} {finding.check}: ", end="")
        out.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
    out.print("\nWhat this check cannot prove:")
    for statement in result.unproven:
        out.print(f"  - {statement}", markup=False, highlight=False, soft_wrap=True)
    verdict = "[green]verified[/]" if result.ok else "[bold red]CONTRADICTED[/]"
    out.print(f"\n{folder}: {verdict}", highlight=False, soft_wrap=True)
    return 0 if result.ok else 1


@app.command
def keygen(file: Path, /) -> None:
    """Make an Ed25519 key pair: FILE (keep it secret) and FILE.pub (publish it).

    Parameters
    ----------
    file
        Where to write the secret key.
    """
    from privet.signing import new_key

    secret, public = new_key(file)
    out.print(f"secret key {secret}, public key {public}", highlight=False, soft_wrap=True)


@app.command
def sign(folder: Path, /, *, key: Path) -> None:
    """Sign a release, so that `privet verify --key` detects any change.

    Parameters
    ----------
    folder
        The release.
    key
        Your secret key, from `privet keygen`.
    """
    from privet.signing import sign as sign_release

    sign_release(folder, key)
    out.print(f"signed {folder}", highlight=False, soft_wrap=True)


@app.command
def export(folder: Path, destination: Path, /) -> None:
    """Copy what may leave to a new folder, without `internal/`.

    Parameters
    ----------
    folder
        The run's folder.
    destination
        A folder that does not exist yet.
    """
    from privet.release import export as copy_release

    copied = copy_release(folder, destination)
    out.print(f"exported to {copied}", highlight=False, soft_wrap=True)


@app.command
def methods(*, json: Json = False) -> None:
    """List the training methods and what each one promises.

    Parameters
    ----------
    json
        Machine-readable.
    """
    from privet.training import describe_methods

    listed = [
        {"name": m.name, "summary": m.summary, "promises": m.promises} for m in describe_methods()
    ]
    if json:
        _print_json(listed)
    for method in listed if not json else []:
        out.print(f"{method['name']:<10} {method['summary']}; {method['promises']}", soft_wrap=True)


@app.command
def demo(*, out_folder: Annotated[Path, Parameter(name="--out")] = Path("runs/demo")) -> int:
    """Run the whole story on embedded data: train, guarantee, release, verify, report.

    Parameters
    ----------
    out_folder
        Where the release goes; a number is added if it is taken.
    """
    from privet.demo import run_demo

    with _progress(quiet=False) as watch:
        return run_demo(out_folder, out, watch)


@data_app.command(name="list")
def list_data(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List the named data sets and where each was found.

    Parameters
    ----------
    data_dir
        Look here first.
    json
        Machine-readable.
    """
    from rich.table import Table

    from privet.data import available

    found = available(data_dir)
    if json:
        _print_json([asdict(entry) for entry in found])
        return
    table = Table("data set", "examples", "shape", "classes", "licence", "where", box=None)
    for entry in found:
        shape = "x".join(map(str, entry.shape))
        where = entry.where if entry.found else f"not found; {entry.note}"
        table.add_row(
            entry.name, str(entry.nominal_size), shape, str(entry.classes), entry.licence, where
        )
    out.print(table)


@data_app.command
def declare(
    file: Path,
    /,
    *,
    classes: Annotated[list[str], Parameter(consume_multiple=True)],
    description: Annotated[Path, Parameter(name="--out")],
    name: str | None = None,
    label: str | None = None,
    feature: Annotated[list[str], Parameter(consume_multiple=True)] = [],  # noqa: B006
    bounds: tuple[float, float] | None = None,
    nominal_size: int | None = None,
    test: Path | None = None,
    test_fraction: float | None = None,
    test_is_public: bool = False,
    unit: str = "example",
    licence: str = "not stated",
    parent: Annotated[list[str], Parameter(consume_multiple=True)] = [],  # noqa: B006
    learn_epsilon: float | None = None,
) -> None:
    """Declare the public facts about your own data in a description file, for `--data FILE.toml`.

    Facts you do not know can be learned privately: leave them out and give --learn-epsilon; the
    cost is charged to the ledger and counted in every release from this data.

    Example: privet data declare clinic.csv --label outcome --classes healthy ill
    --feature age=0:110 bmi=10:70 --nominal-size 1200 --test-fraction 0.2 --out clinic.toml

    Parameters
    ----------
    file
        Training data: .csv, .parquet, or .npz with arrays x and y.
    classes
        All labels that can occur, in order: what is possible, not what was seen.
    description
        The description file to write (.toml).
    name
        What to call the data set; default: the file's name.
    label
        Column of the label (tables).
    feature
        Columns to use with their public bounds, NAME=LOW:HIGH; NAME alone: learn its bounds.
    bounds
        Public bounds of all values (.npz).
    nominal_size
        Public size of the training data, may be rough; left out: learned.
    test
        File with test records.
    test_fraction
        Or: share of the records to test on, chosen by each record's own content.
    test_is_public
        Whether figures on the test records may be published.
    unit
        Whose data one record is.
    licence
        Of the data.
    parent
        Data sets in the ledger that this one was made from.
    learn_epsilon
        Privacy budget for facts left out, under add/remove neighbours.
    """
    from privet.data.declaring import declare as declare_data

    with _ledger() as book:
        facts = declare_data(
            file,
            description,
            name=name or file.stem,
            classes=tuple(classes),
            label=label,
            features=dict(_feature(text) for text in feature),
            bounds=bounds,
            nominal_size=nominal_size,
            test=test,
            test_fraction=test_fraction,
            test_is_public=test_is_public,
            unit=unit,
            licence=licence,
            parents=tuple(parent),
            learn_epsilon=learn_epsilon,
            ledger=book,
        )
    for fact in facts.learned:
        out.print(f"learned {fact.name}: epsilon {fact.epsilon:g} charged", highlight=False)
    out.print(f"wrote {description}; use it: --data {description}", highlight=False, soft_wrap=True)


def _feature(text: str) -> tuple[str, tuple[float, float] | None]:
    name, _, pair = text.rpartition("=")
    if not name and ":" not in text:
        return text, None
    try:
        low, high = map(float, pair.split(":"))
    except ValueError:
        raise InputError(
            "bad feature", got=f"'{text}'", expected="NAME=LOW:HIGH, as in age=0:110"
        ) from None
    return name, (low, high)


@ledger_app.command
def show(name: str | None = None, /, *, json: Json = False) -> None:
    """Show what was spent on one data set, or on all.

    Parameters
    ----------
    name
        A data set; default: all.
    json
        Machine-readable.
    """
    from privet.reports.ledger_page import account_record, print_account

    with _ledger() as book:
        accounts = [book.account(n) for n in ([name] if name else book.names())]
    if json:
        _print_json([account_record(account) for account in accounts])
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
    with _ledger() as book:
        known = name in book.names()
        registered = name if known else _register(name, None, book)
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
    with _ledger() as book:
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
    with _ledger() as book:
        out.print(f"registered {_register(data, data_dir, book)}", highlight=False)


@ledger_app.command
def settle(run: str, /) -> None:
    """Close an abandoned run: steps that were never charged are given back.

    Parameters
    ----------
    run
        The run's id, from `privet ledger show`.
    """
    with _ledger() as book:
        book.settle(run)
        record = book.run(run)
    out.print(f"{run}: {record.charged} of {record.planned} steps stay charged", highlight=False)


def _register(data: str, data_dir: Path | None, book: Any) -> str:
    import privet
    from privet.data.identity import enter_in_ledger

    loaded = privet.data.load(data, data_dir)
    enter_in_ledger(loaded, book)
    return loaded.name


@contextlib.contextmanager
def _ledger() -> Iterator[Any]:
    from privet.ledger import Ledger, default_ledger_path

    book = Ledger(default_ledger_path())
    try:
        yield book
    finally:
        book.close()


def _show_release(trust: Any, folder: Path, *, as_json: bool) -> None:
    from privet.reports import print_card

    if as_json:
        _print_json(trust)
    else:
        print_card(trust, out, report=folder / "report.html")


def _print_json(record: Any) -> None:
    print(json.dumps(record, indent=2, ensure_ascii=False, default=str))


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Any], None] | None]:
    """A bar on stderr with the steps done, the time left and the epsilon spent so far."""
    if quiet:
        yield None
        return
    from privet.engine.progress import StepBar

    with StepBar(err) as bar:
        yield bar.update


if __name__ == "__main__":
    main()
