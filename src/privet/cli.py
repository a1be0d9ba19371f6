"""The verbs. Thin: parse, call, print; heavy imports wait until a verb runs.

Exit codes: 0 done, 1 a check failed, 2 bad input, 3 faulty environment, 130 interrupted (Ctrl-C),
143 terminated.
"""

import contextlib
import errno
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from privet.commands.attack import attack
from privet.commands.audit import audit_app
from privet.commands.bench import bench_app
from privet.commands.bench_certify import certify as bench_certify
from privet.commands.certify import certify
from privet.commands.check import check
from privet.commands.data import data_app
from privet.commands.federate import federate_app
from privet.commands.help_text import Flowing
from privet.commands.ledger import ledger_app
from privet.commands.lifelong import lifelong_app
from privet.commands.options import (
    OTHER_NAMES,
    Options,
    Own,
    OwnOptions,
    TrainingOptions,
    given,
)
from privet.commands.screen import DataDir, Json, err, out, print_json, print_listing, step_bar
from privet.commands.study import study_app
from privet.commands.subjects import reference_to
from privet.commands.synthesize import synthesize_app
from privet.commands.synthesize_records import Told, are_records
from privet.errors import InputError, PrivetError

if TYPE_CHECKING:
    from privet.release import Release

app = App(
    name="privet",
    help="Train on sensitive data and release the result with proof.\n\nStart here: `privet demo`.",
    version_flags=["--version"],
    help_format="plaintext",
    help_formatter=Flowing(),
    suppress_keyboard_interrupt=False,
)
app.command(attack)
app.command(audit_app)
app.command(bench_app)
bench_app.command(bench_certify)
app.command(certify)
app.command(check)
app.command(data_app)
app.command(federate_app)
app.command(ledger_app)
app.command(lifelong_app)
app.command(study_app)
app.command(synthesize_app)

GOES_ON = (
    "training goes on by `privet resume`, a stream of tasks by `privet lifelong extend`, other work"
    " by the same command"
)
REPEATED_AFTER_SECONDS = 0.1
LEAD_SPEAKS_SECONDS = 1.0
FULL_OR_FORBIDDEN = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


class Terminated(KeyboardInterrupt):
    """Asked to end by SIGTERM: the same as Ctrl-C, with an exit code of its own."""


def console() -> None:
    """The console script: `main`, and under torchrun an end that PyTorch cannot spoil.

    A process of several that winds down is at times aborted by PyTorch (`ranks.hang_up` says why),
    when all is done and written; torchrun then stops the others. So it leaves without winding down.
    """
    try:
        main()
    except SystemExit as end:
        if not _one_of_several():
            raise
        from privet.engine.ranks import hang_up

        hang_up()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


def main(arguments: list[str] | None = None) -> None:
    """Run a verb, turn errors into one line and an exit code."""
    try:
        with _terminated_like_interrupted():
            result = app(
                arguments, exit_on_error=False, print_error=False, result_action="return_value"
            )
        sys.exit(result if isinstance(result, int) else 0)
    except CycloptsError as error:
        _fail(_usage(error), 2)
    except PrivetError as error:
        _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        _fail(f"missing package: {error.name}. Fix: install privet again, with its extras", 3)
    except KeyboardInterrupt as stop:
        what, code = ("terminated", 143) if isinstance(stop, Terminated) else ("interrupted", 130)
        _fail(f"{what}; {GOES_ON}", code)
    except sqlite3.OperationalError as error:
        _fail(f"the ledger cannot be written: {error}. Fix: check disk space and PRIVET_HOME", 3)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        faulty = error.errno in FULL_OR_FORBIDDEN
        fix = " Fix: free space, or choose another folder" if faulty else ""
        _fail(f"{error.strerror or error}{where}.{fix}", 3 if faulty else 2)


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Not under torchrun: there a process that waits for a dead one must end at once."""

    def stop(*_: object) -> NoReturn:
        raise Terminated

    def repeat(dropped: "sys.UnraisableHookArgs") -> None:
        # Inside a finaliser nothing can be raised: the wish to stop would be lost.
        if not issubclass(dropped.exc_type, Terminated):
            hook(dropped)
            return
        again = threading.Timer(REPEATED_AFTER_SECONDS, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()
        repeated.append(again)

    repeated: list[threading.Timer] = []
    if _one_of_several():
        yield
        return
    before, hook = signal.signal(signal.SIGTERM, stop), sys.unraisablehook
    sys.unraisablehook = repeat
    try:
        yield
    finally:
        for timer in repeated:
            timer.cancel()
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


def _usage(error: CycloptsError) -> str:
    """What is wrong with the arguments, in one line."""
    if isinstance(error, UnknownOptionError):
        given = str(error.token.keyword or error.token.value).split("=")[0]
        ours = OTHER_NAMES.get(given)
        if any(ours in argument.names for argument in error.argument_collection):
            return f"Unknown option: {given}. Did you mean {ours}?"
    return str(error).replace("\n", " ")


def _fail(message: str, code: int) -> None:
    if _follows():  # the lead says it; a moment for that, since torchrun stops all with the first
        time.sleep(LEAD_SPEAKS_SECONDS)
        sys.exit(code)
    err.print(f"privet: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def _follows() -> bool:
    """Whether `torchrun` started this process as another than the lead, which speaks for all."""
    return _one_of_several() and os.environ.get("RANK", "0") != "0"


def _one_of_several() -> bool:
    """Whether `torchrun` started this process, and others with it."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


@app.command
def train(
    method: str,
    /,
    *,
    data: str,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    out: Path,
    data_dir: DataDir = None,
    options: Options = TrainingOptions(),  # noqa: B008 - frozen
    own: Own = OwnOptions(),  # noqa: B008 - frozen
    json: Json = False,
) -> None:
    """Train a classifier, private unless the method is `plain`, and write its release.

    Example: privet train dpsgd --data digits --epsilon 3 --out runs/digits

    Example: privet train plain --data digits --adversarial madry --out runs/robust

    Example: privet train transdenoiser --data digits/second --epsilon 3 --classifier runs/h
    --public-classifier "trained on digits/first, which is public" --out runs/denoised

    Parameters
    ----------
    method
        How to train; see `privet methods`.
    data
        A name from `privet data list`, or your description file (.toml).
    epsilon
        Privacy target under add/remove neighbours; smaller is more private. Every private method
        needs one; plain takes none. It covers all that is counted: learned facts and a
        --private-attacker, too.
    delta
        Of the target; well below 1 / size of the data; default 1e-5.
    analysis
        sound (default): the method's idea, its epsilon proved; paper: as published, its epsilon
        stated as claimed, with the gaps of its proof. See `privet methods`.
    out
        Folder of the release, new or empty; a killed run is continued by `privet resume OUT`.
    data_dir
        Where the files of a named data set are.
    options
        Settings of the method.
    own
        Settings that only some methods have.
    json
        Print the trust card as JSON, nothing else.
    """
    import privet
    from privet.engine.ranks import Ranks
    from privet.guarantee import check_target
    from privet.training.registry import find_method, require_target

    usual = require_target(find_method(method), epsilon, delta, analysis).usual_epsilon
    if epsilon is not None:
        check_target(epsilon, 1e-5 if delta is None else delta, usual=usual)
    with Ranks.joined() as ranks, step_bar(quiet=json) as watch:
        with ranks.agreed():
            loaded = privet.data.load(data, data_dir)
        release = privet.train(
            method,
            loaded,
            epsilon=epsilon,
            delta=delta,
            analysis=analysis,
            out=out,
            watch=watch,
            reference=reference_to(data, data_dir),
            **given(options, own),
        )
    if ranks.leads:
        _show_release(release.trust, out, as_json=json)


@app.command
def tune(
    method: str,
    /,
    *,
    data: str,
    epsilon: float,
    delta: float = 1e-5,
    search: Path,
    out: Path,
    trials: float = 10.0,
    holdout: float = 0.1,
    shape: float = 1.0,
    data_dir: DataDir = None,
    options: Options = TrainingOptions(),  # noqa: B008 - frozen
    json: Json = False,
) -> None:
    """Choose the settings of training on the private records, and pay for the choice.

    Trains a random, secret number of candidates and releases the best one; the target covers all.

    Example: privet tune dpsgd --data digits --epsilon 3 --search search.toml --out runs/tuned

    where search.toml says: learning_rate = [0.1, 0.25, 0.5], clip_norm = [0.1, 1.0], epochs = 20,
    each on a line of its own.

    Parameters
    ----------
    method
        How to train; see `privet methods`.
    data
        A name from `privet data list`, or your description file (.toml).
    epsilon
        Privacy target for all trials and the choice, under add/remove neighbours.
    delta
        Of the target; well below 1 / size of the data.
    search
        A .toml file: a list of candidates for each setting to choose, one value for others.
        Candidates must be public: values you would try on any data.
    out
        Folder of the release, new or empty; a killed search is continued by `privet resume OUT`.
    trials
        Expected number of trials; more of them need more noise in each.
    holdout
        Share of the units that score the trials and train none.
    shape
        Of the distribution of the number of trials: 1 geometric, 0 logarithmic.
    data_dir
        Where the files of a named data set are.
    options
        Settings of the method that are not searched.
    json
        Print the trust card as JSON, nothing else.
    """
    import privet
    from privet.guarantee import check_target
    from privet.tuning.search import read_search

    check_target(epsilon, delta)
    candidates = read_search(search)
    loaded = privet.data.load(data, data_dir)
    with step_bar(quiet=json, of_trials=True) as watch:
        release = privet.tune(
            method,
            loaded,
            epsilon=epsilon,
            delta=delta,
            search=candidates,
            trials=trials,
            holdout=holdout,
            shape=shape,
            out=out,
            watch=watch,
            reference=reference_to(data, data_dir),
            **given(options),
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
    from privet.engine.ranks import Ranks

    searches = _searches(folder)
    with Ranks.joined() as ranks, step_bar(quiet=json, of_trials=searches) as watch:
        with ranks.agreed():
            begun = _begun_in(folder) if ranks.leads else ("", "", None, {})
        verb, method, analysis, found = ranks.told(begun)
        with ranks.agreed():
            loaded = _found_again(found)
        go_on = _way_on(verb, method, analysis, found, searches=searches)
        release = go_on(folder, loaded, watch=watch)
    if ranks.leads:
        _show_release(release.trust, folder, as_json=json)
        if verb == "federation" and not json:
            out.print(f"rounds     privet federate show {folder}", highlight=False, soft_wrap=True)


def _found_again(reference: dict[str, str | None]) -> Any:
    """The data of a run."""
    from privet.data import load

    if are_records(reference):
        return Told.of_reference(reference).read()[0]
    return load(str(reference["name"]), reference["data_dir"])


def _way_on(
    verb: str,
    method: str,
    analysis: str | None,
    reference: dict[str, str | None],
    *,
    searches: bool,
) -> Callable[..., "Release"]:
    """What continues a run, given its folder and its data."""
    if verb == "federation":
        from privet.federation.fitting import resume as resume_rounds

        return resume_rounds
    if are_records(reference):
        from privet.synthesis.fitting import resume as resume_fit

        return partial(resume_fit, method=method, analysis=analysis)
    from privet.training.registry import find_method
    from privet.tuning import resume as resume_search

    return resume_search if searches else find_method(method).under(analysis).resume


def _searches(folder: Path) -> bool:
    from privet.files import read_json
    from privet.training.run_folder import RunFolder

    begun = RunFolder(folder).settings
    return begun.exists() and "search" in read_json(begun)


def _begun_in(folder: Path) -> tuple[str, str, str | None, dict[str, str | None]]:
    """The verb of a run (of training none), its method, its analysis, and where its data are."""
    from privet.lifelong.life import stream_around
    from privet.training.run_folder import RunFolder

    if (stream := stream_around(folder)) is not None:
        raise InputError(
            "a stream goes on as a whole, not one of its versions",
            got=folder,
            fix=f"privet lifelong extend {stream}",
        )
    _, record = RunFolder.open(folder)
    reference: dict[str, str | None] | None = record.get("data")
    if not reference:
        raise InputError(
            "the run does not say where its data are",
            fix=f"resume it from Python: {_home_of(record['method'])}",
        )
    return record.get("verb", ""), record["method"], record.get("analysis"), reference


def _home_of(method: str) -> str:
    from privet.federation.rules import RULES
    from privet.synthesis.fitting import METHODS

    if method in RULES:
        return "privet.federation.fitting.resume(folder, data)"
    if method in METHODS:
        return f"privet.synthesis.fitting.resume(folder, records, method='{method}', analysis=...)"
    return f"privet.training.{method}.resume(folder, data)"


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
        print_json({"ok": result.ok, **asdict(result)})
        return 0 if result.ok else 1
    for finding in result.findings:
        mark = "[green]ok  [/]" if finding.ok else "[bold red]FAIL[/]"
        out.print(f"{mark} {finding.check}: ", end="")
        out.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
    out.print("\nWhat this check cannot prove:")
    for statement in result.unproven:
        out.print(f"  - {statement}", markup=False, highlight=False, soft_wrap=True)
    verdict = _verdict(folder) if result.ok else "[bold red]CONTRADICTED[/]"
    out.print(f"\n{folder}: {verdict}", highlight=False, soft_wrap=True)
    return 0 if result.ok else 1


def _verdict(folder: Path) -> str:
    """That all is as stated; and whether what is stated promises anything."""
    from privet.files import read_json

    promised = not read_json(folder / "trust.json").get("withheld")
    return "[green]verified[/]" + ("" if promised else ": a card that proves no privacy")


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
        {
            "name": method.name,
            "summary": method.summary,
            "promises": {name: v.promises for name, v in method.analyses.items()},
        }
        for method in describe_methods()
    ]
    if json:
        print_json(listed)
        return
    print_listing(row for method in listed for row in _promised(method))


def _promised(method: dict[str, Any]) -> list[tuple[str, str]]:
    promises = [("", f"{name}: {said}") for name, said in method["promises"].items()]
    return [(method["name"], method["summary"]), *promises]


@app.command
def recipes(*, json: Json = False) -> None:
    """List the recipes: settings that were found to work well, and on which data.

    Parameters
    ----------
    json
        Machine-readable.
    """
    from privet.training.recipes import RECIPES

    if json:
        print_json([asdict(recipe) for recipe in RECIPES.values()])
        return
    print_listing(row for recipe in RECIPES.values() for row in _told(recipe))


def _told(recipe: Any) -> list[tuple[str, str]]:
    chosen = ", ".join(f"{name} {value}" for name, value in recipe.settings.items())
    return [(recipe.name, recipe.summary), ("", chosen)]


@app.command
def models(*, json: Json = False) -> None:
    """List the networks that `privet train --model` can build.

    Parameters
    ----------
    json
        Machine-readable.
    """
    from privet.models import describe

    listed = describe()
    if json:
        print_json([{"name": name, "summary": summary} for name, summary in listed])
        return
    print_listing(listed)


@app.command
def demo(*, out_folder: Annotated[Path, Parameter(name="--out")] = Path("runs/demo")) -> int:
    """Run the whole story on embedded data: train, guarantee, release, verify, report.

    Parameters
    ----------
    out_folder
        Where the release goes; a number is added if it is taken.
    """
    from privet.demo import run_demo

    with step_bar(quiet=False) as watch:
        return run_demo(out_folder, out, watch)


def _show_release(trust: Any, folder: Path, *, as_json: bool) -> None:
    from privet.reports import print_card

    if as_json:
        print_json(trust)
    else:
        print_card(trust, out, report=folder / "report.html")


if __name__ == "__main__":
    console()
