"""`privet audit`: measure what a release, a training function or a mechanism really leaks."""

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from privet.commands.bench import progress_bar
from privet.commands.recording import Record
from privet.commands.screen import DataDir, Json, out, print_json, print_listing
from privet.commands.subjects import require_own_folder
from privet.errors import CheckFailed, InputError

if TYPE_CHECKING:
    from privet.audits.canary_run import RunAudit
    from privet.audits.evidence import Bound
    from privet.audits.mechanism import Subject

REFUTING: Final = 0.999  # the confidence with which a claim is refuted
PRIVATE: Final = "computed from training records: not for release"

audit_app = App(
    name="audit", help="Measure what a release, a training function or a mechanism leaks."
)


@audit_app.default
def release(
    folder: Path,
    /,
    *,
    canaries: int | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    record: Record = False,
    json: Json = False,
) -> None:
    """Audit a release: train a twin with canaries, and guess which of them took part.

    The twin has the same engine and plan, and made-up records: nothing private is
    read, nothing is charged. The result is a *lower* bound of epsilon. It is far
    below the proved epsilon even where that is exact: one run shows only so much.
    Exit code 1 if the proved trade-off curve is refuted (confidence 0.999).

    Other audits: privet audit function, mechanism, mutants.

    Example: privet audit runs/digits --record

    Parameters
    ----------
    folder
        Of the release.
    canaries
        Made-up units with gradients of their own; each takes part by a fair coin; default:
        5000, or as many as there are parameters.
    confidence
        Of the bounds.
    seed
        For tests only: known noise and coins.
    out_folder
        Where audit.json and audit.svg go; default: nowhere.
    record
        Add the bounds to the release's trust card; what stands there is kept.
    json
        Print the result as JSON, nothing else.
    """
    from privet.audits.evidence import check_confidence
    from privet.audits.twin import audit, plan_of
    from privet.release import Release, add_measured, require_addable, require_finished

    if ":" in str(folder) and not folder.exists():
        raise InputError(
            "no such release", got=folder, fix=f"for a function: privet audit function {folder}"
        )
    require_own_folder(out_folder)
    require_finished(folder)
    measured = require_addable(folder) if record else None
    check_confidence(confidence)
    _require_consistent(folder)
    loaded = Release.load(folder)
    with progress_bar(plan_of(loaded.trust).steps, quiet=json) as tell:
        found = audit(
            loaded,
            canaries=canaries,
            confidence=confidence,
            seed=seed,
            watch=lambda trainer: tell(f"twin, step {trainer.next_step}"),
        )
    kept = {"release": str(folder), "proved": _proved(loaded.trust), "audit": found.rows()}
    if out_folder is not None:
        _keep_run(found, kept, out_folder)
    if record:
        add_measured(folder, "audit", found.rows(), of=measured)
    if json:
        print_json(kept)
    else:
        _tell_run(found, kept, out_folder)
    _fail_if(found.refuted, "the plan's trade-off curve")


@audit_app.command
def function(
    path: str,
    /,
    *,
    data: str,
    epsilon: float | None = None,
    delta: float = 1e-5,
    canary: str | None = None,
    canaries: int = 1000,
    runs: int = 0,
    shadows: int = 0,
    confidence: float = 0.95,
    seed: int = 0,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Audit a training function of your own, as a black box.

    It is called as train(x, y, seed), with inputs in [0, 1], and returns a function
    from inputs to class scores. By default one training, with many canaries; with
    --runs many trainings with and without a single one; with --shadows membership
    inference (LiRA), which describes and bounds nothing.

    Example: privet audit function my.module:train --data digits --epsilon 3

    Parameters
    ----------
    path
        package.module:name, found from the current folder too.
    data
        A name from `privet data list`, or your description file (.toml).
    epsilon
        What is claimed: exit code 1 if it is refuted, at confidence 0.999.
    delta
        Of the bound, and of the claim.
    canary
        noise (default), mislabelled (public test examples) or blank (many runs only; the
        default there).
    canaries
        How many, in one training.
    runs
        Trainings in each world; 0: one training in all.
    shadows
        Models of random halves, for LiRA; 0: none.
    confidence
        Of the bounds.
    seed
        Of canaries and coins, and of the seeds that the function is given.
    data_dir
        Where the files of a named data set are.
    json
        Print the result as JSON, nothing else.
    """
    from privet.audits.functions import open_function
    from privet.data import load

    train, dataset = open_function(path), load(data, data_dir)
    if runs < 0 or shadows < 0:
        raise InputError("bad number of trainings", got=min(runs, shadows), expected="0 or more")
    if epsilon is not None and not (epsilon > 0 and math.isfinite(epsilon)):
        raise InputError("bad epsilon", got=epsilon, expected="a positive, finite number")
    if shadows:
        _shadowed(train, dataset, shadows, seed, as_json=json)
        return
    kind = canary or ("blank" if runs else "noise")
    estimators = _estimators(train, dataset, kind, canaries, runs, seed, quiet=json)
    bounds = [estimate(delta=delta, confidence=confidence) for estimate in estimators]
    # A claim is refuted without assumptions, and with a confidence that may be shown in public.
    least = estimators[0](delta=delta, confidence=REFUTING).epsilon
    refuted = epsilon is not None and least > epsilon
    what = f"{2 * runs} trainings, one" if runs else f"one training, {canaries}"
    if json:
        rows = [asdict(bound) for bound in bounds]
        print_json({"function": path, "what": f"{what} {kind}", "refuted": refuted, "bounds": rows})
    else:
        _tell_bounds(bounds, f"{what} {kind} canar{'y' if runs else 'ies'}")
        if epsilon is not None and not refuted:
            out.print(f"claimed  ε = {epsilon:g}: not refuted, which proves nothing")
    _fail_if(refuted, f"epsilon {epsilon}, at confidence {REFUTING}")


@audit_app.command
def mechanism(
    name: str | None = None,
    /,
    *,
    runs: int | None = None,
    confidence: float = 0.999,
    seed: int = 0,
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Json = False,
) -> None:
    """Audit a mechanism by name: run it many times on the pair of inputs that shows most.

    Without a name, lists them: sound ones, broken ones (mutants) and mechanisms of
    papers. Exit code 1 if the claim is refuted.

    Example: privet audit mechanism securesgd

    Parameters
    ----------
    name
        Of the mechanism.
    runs
        In each world; default: what the mechanism says is worth it.
    confidence
        Of the bound.
    seed
        Of everything.
    out_folder
        Where audit.json and audit.svg go; default: nowhere.
    json
        Print the result as JSON, nothing else.
    """
    from privet.audits.registry import find_subject, subjects

    if name is None:
        print_listing((known, entry.summary) for known, entry in subjects().items())
        return
    require_own_folder(out_folder)
    subject = find_subject(name)
    row = _mechanism_row(subject, runs, confidence, seed, out_folder)
    if json:
        print_json(row)
    else:
        _tell_mechanism(subject, row)
    _fail_if(row["refuted"], f"epsilon {subject.epsilon:.3g}")


@audit_app.command
def mutants(
    *, runs: int | None = None, confidence: float = 0.999, seed: int = 0, json: Json = False
) -> None:
    """Audit every broken trainer of the catalogue, and the sound ones: which are caught.

    Exit code 1 if a sound one is refuted.

    Example: privet audit mutants

    Parameters
    ----------
    runs
        In each world; default: what each says is worth it.
    confidence
        At which a claim counts as refuted.
    seed
        Of everything.
    json
        Print the result as JSON, nothing else.
    """
    from privet.audits.mutant_pairs import MUTANTS
    from privet.audits.sound import SOUND

    known = {**SOUND, **MUTANTS}
    rows = []
    with progress_bar(len(known), quiet=json) as tell:
        for name, entry in known.items():
            tell(name)
            rows.append(_mechanism_row(entry.make(), runs, confidence, seed, None))
    if json:
        print_json(rows)
    else:
        _tell_all(rows)
    wrong = [row["mechanism"] for row in rows if row["refuted"] and row["mechanism"] in SOUND]
    _fail_if(bool(wrong), ", ".join(wrong))


def _require_consistent(folder: Path) -> None:
    """What the card states must follow from the plan that is audited."""
    from privet.verification import verify

    wrong = [finding for finding in verify(folder).findings if not finding.ok]
    if any(not finding.check.startswith("audit against") for finding in wrong):
        raise InputError(
            "the release does not verify, so an audit of its plan would say nothing about it",
            got=f"{wrong[0].check}: {wrong[0].detail}",
            fix=f"privet verify {folder}",
        )


def _mechanism_row(
    subject: "Subject", runs: int | None, confidence: float, seed: int, folder: Path | None
) -> dict[str, Any]:
    from privet.audits.mechanism import audit_mechanism, refutes

    evidence = audit_mechanism(subject, runs=runs, confidence=confidence, seed=seed)
    row = {
        "mechanism": subject.name,
        "flaw": subject.flaw,
        "claimed": subject.epsilon,
        **evidence.to_json(),
        "refuted": refutes(evidence, subject),
    }
    if folder is not None:
        _keep_mechanism(subject, row, seed, folder)
    return row


def _keep_mechanism(subject: "Subject", row: dict[str, Any], seed: int, folder: Path) -> None:
    from privet.audits.mechanism import scores_of
    from privet.audits.plot import audit_plot
    from privet.audits.two_worlds import region
    from privet.files import write_atomically, write_json
    from privet.guarantee import Basis

    folder.mkdir(parents=True, exist_ok=True)
    scores = scores_of(subject, row["runs"] // 2, seed)
    measured = region(scores.without, scores.with_, confidence=row["confidence"])
    write_json(folder / "audit.json", row)
    write_atomically(folder / "audit.svg", audit_plot({Basis.CLAIMED: subject.claim}, measured))


def _estimators(
    train: Any, data: Any, kind: str, canaries: int, runs: int, seed: int, *, quiet: bool
) -> "list[Callable[..., Bound]]":
    """What the scores of the trainings go into; the one without assumptions first."""
    from privet.audits import gaussian, one_run, one_run_gaussian, two_worlds
    from privet.audits.functions import in_many_runs, in_one_run

    with progress_bar(2 * runs or 1, quiet=quiet) as tell:
        if runs:
            worlds = in_many_runs(
                train, data, kind=kind, runs=runs, seed=seed,
                watch=lambda done, of: tell(f"training {done} of {of}"),
            )  # fmt: skip
            return [partial(two_worlds, *worlds), partial(gaussian, *worlds)]
        tell("training")
        found = in_one_run(train, data, kind=kind, m=canaries, seed=seed)
        return [partial(one_run, *found), partial(one_run_gaussian, *found)]


def _shadowed(train: Any, data: Any, models: int, seed: int, *, as_json: bool) -> None:
    import numpy as np

    from privet.audits.functions import with_shadows
    from privet.audits.membership import lira, roc

    with progress_bar(models, quiet=as_json) as tell:
        confidences, member = with_shadows(
            train, data, models=models, seed=seed,
            watch=lambda done, of: tell(f"shadow model {done} of {of}"),
        )  # fmt: skip
    ratios = lira(confidences, member)
    known = np.isfinite(ratios)
    curves = {
        "loss": roc(confidences[member], confidences[~member]),
        "lira": roc(ratios[member & known], ratios[~member & known]),
    }
    found = {attack: curve.to_json() for attack, curve in curves.items()}
    if as_json:
        print_json({**found, "models": models, "private": PRIVATE})
        return
    for attack, figures in found.items():
        said = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        out.print(f"{attack}: {said}", highlight=False)
    out.print(PRIVATE, style="yellow")


def _proved(trust: Any) -> list[dict[str, Any]]:
    return [row for row in trust["privacy"] if row["basis"] == "proved"]


def _keep_run(found: "RunAudit", kept: dict[str, Any], folder: Path) -> None:
    from privet.audits.plot import audit_plot
    from privet.audits.two_worlds import region
    from privet.files import write_atomically, write_json
    from privet.guarantee import Basis

    folder.mkdir(parents=True, exist_ok=True)
    inside, outside = found.scores[found.included], found.scores[~found.included]
    measured = region(outside, inside, confidence=found.evidence[0].confidence)
    write_json(folder / "audit.json", kept)
    write_atomically(folder / "audit.svg", audit_plot({Basis.PROVED: found.curve}, measured))


def _tell_run(found: "RunAudit", kept: dict[str, Any], folder: Path | None) -> None:
    first = found.evidence[0]
    proved = [row for row in kept["proved"] if row["adjacency"] == first.adjacency.value]
    for row in proved:
        out.print(f"proved   ε = {row['epsilon']:.4g} at δ = {row['delta']:g}", highlight=False)
    _tell_bounds(list(found.evidence), f"{first.subject}; {first.canaries} canaries")
    said = "REFUTED" if found.refuted else "not refuted"
    out.print(f"curve    {said} at confidence 0.999", highlight=False)
    if folder is not None:
        out.print(f"\nkept in {folder}", highlight=False, soft_wrap=True)


def _tell_bounds(bounds: "list[Bound]", what: str) -> None:
    from privet.reports.figures import at_least

    for bound in bounds:
        assumed = "assumes mu-GDP" if len(bound.assumptions) > 1 else "assumes no kind of mechanism"
        out.print(
            f"audited  ε ≥ {at_least(bound.epsilon)} at δ = {bound.delta:g}, "
            f"confidence {bound.confidence:g}; {assumed}",
            highlight=False,
        )
    out.print(f"of       {what}", highlight=False, soft_wrap=True)


def _tell_mechanism(subject: "Subject", row: dict[str, Any]) -> None:
    from privet.reports.figures import at_least

    lines = [
        ("claimed", f"ε = {subject.epsilon:.4g} at δ = {subject.delta:g}"),
        ("audited", f"ε ≥ {at_least(row['epsilon'])}, confidence {row['confidence']:g}"),
        ("pair", subject.pair),
        ("runs", f"{row['runs']:,} in all"),
    ]
    if subject.flaw:
        lines.append(("flaw", subject.flaw))
    lines.append(("claim", "REFUTED" if row["refuted"] else "not refuted"))
    print_listing(lines)


def _tell_all(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from privet.reports.figures import at_least

    table = Table(box=None)
    for column in ("mechanism", "claimed ε", "audited ε ≥", "claim"):
        table.add_column(column)
    for row in rows:
        said = "REFUTED" if row["refuted"] else "not refuted"
        table.add_row(row["mechanism"], f"{row['claimed']:.3g}", at_least(row["epsilon"]), said)
    out.print(table)


def _fail_if(refuted: bool, what: str) -> None:
    if refuted:
        raise CheckFailed(f"an audit refutes {what}")
