"""`privet audit`: measure what a release, a training function or a mechanism really leaks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from privet.commands.bench import progress_bar
from privet.commands.recording import Record
from privet.commands.screen import DataDir, Json, print_json, print_listing
from privet.commands.subjects import require_own_folder
from privet.errors import InputError

audit_app = App(
    name="audit", help="Measure what a release, a training function or a mechanism leaks."
)


@audit_app.default
def release(
    folder: Path,
    /,
    *,
    canaries: int | None = None,
    runs: int | None = None,
    records: int | None = None,
    membership: Annotated[bool, Parameter(negative="")] = False,
    shadows: int | None = None,
    data: str | None = None,
    data_dir: DataDir = None,
    device: str | None = None,
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
    With --runs, many twins without and with one record, of which only the finished
    model's answer is looked at (black box). Exit code 1 if the proved trade-off
    curve is refuted (confidence 0.999).

    With --membership instead: how well the training records are told from test
    records by the released model. Reads them without charge, bounds nothing, and
    keeps what it finds in the release's internal/ folder.

    Other audits: privet audit function, generator, mechanism, mutants.

    Example: privet audit runs/digits --record

    Example: privet audit runs/digits --runs 1000 --out audits/digits

    Parameters
    ----------
    folder
        Of the release.
    canaries
        Made-up units with gradients of their own; each takes part by a fair coin; default:
        5000, or as many as there are parameters.
    runs
        Twins without the canary record, and as many with it; a few hundred say something.
    records
        With --runs: blank records beside the canary; default 0, which shows most and costs least.
    membership
        Membership inference against the released model.
    shadows
        With --membership: models trained on random halves of the records, for LiRA.
    data
        With --membership: what the release was trained on; default: as its card says.
    data_dir
        With --membership: where the files of a named data set are.
    device
        To train on: cpu, cuda, ...; default: as the release was.
    confidence
        Of the bounds.
    seed
        For tests only: known noise and coins.
    out_folder
        Where audit.json, audit.svg and (--runs) scores.json go, by which a killed audit goes on;
        default: nowhere.
    record
        Add the bounds to the release's trust card; what stands there is kept.
    json
        Print the result as JSON, nothing else.
    """
    from privet.commands.audit_membership import told_apart
    from privet.commands.audit_release import Asked, audited, by_one_twin, by_twins

    if ":" in str(folder) and not folder.exists():
        raise InputError(
            "no such release", got=folder, fix=f"for a function: privet audit function {folder}"
        )
    twins = {"--runs": runs, "--canaries": canaries, "--records": records}
    private = {"--shadows": shadows, "--data": data, "--data-dir": data_dir}
    if membership:
        _require_absent("--membership", twins | {"--out": out_folder, "--record": record or None})
        told_apart(
            folder, data, data_dir, shadows=shadows or 0, seed=seed, device=device, as_json=json
        )
        return
    _require_absent("an audit without --membership", private)
    asked = Asked(
        folder=folder,
        how=twins | {"--device": device, "--seed": seed},
        confidence=confidence,
        seed=seed,
        device=device,
        out_folder=out_folder,
        record=record,
        as_json=json,
    )
    if runs is None:
        _require_absent("one twin", {"--records": records})
        audited(asked, by_one_twin(asked, canaries))
    else:
        _require_absent("--runs", {"--canaries": canaries})
        audited(asked, by_twins(asked, runs, records or 0))


@audit_app.command
def function(
    path: str,
    /,
    *,
    data: str,
    epsilon: float | None = None,
    delta: float = 1e-5,
    canary: str | None = None,
    canaries: int | None = None,
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
    inference (LiRA), which describes and bounds nothing. The records are read
    without charge: no figure of this is for release.

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
        How many, in one training; default 1000.
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
    from privet.commands.audit_function import bounded, shadowed
    from privet.data import load

    train, dataset = open_function(path), load(data, data_dir)
    if runs < 0 or shadows < 0:
        raise InputError("bad number of trainings", got=min(runs, shadows), expected="0 or more")
    if shadows:
        many = {"--epsilon": epsilon, "--runs": runs or None, "--canary": canary}
        _require_absent("--shadows, which bound nothing", {**many, "--canaries": canaries})
        shadowed(train, dataset, shadows, seed, as_json=json)
        return
    if runs:
        _require_absent("--runs, which have one", {"--canaries": canaries})
    bounded(
        train, dataset,
        path=path, epsilon=epsilon, delta=delta, confidence=confidence,
        kind=canary or ("blank" if runs else "noise"), runs=runs, seed=seed,
        canaries=1000 if canaries is None else canaries, as_json=json,
    )  # fmt: skip


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
    from privet.commands.audit_mechanism import mechanism_row, tell_mechanism
    from privet.commands.audit_telling import fail_if

    if name is None:
        print_listing((known, entry.summary) for known, entry in subjects().items())
        return
    require_own_folder(out_folder)
    subject = find_subject(name)
    row = mechanism_row(subject, runs, confidence, seed, out_folder)
    if json:
        print_json(row)
    else:
        tell_mechanism(subject, row)
    fail_if(row["refuted"], f"epsilon {subject.epsilon:.3g}")


@audit_app.command
def generator(
    method: str,
    /,
    *,
    analysis: str = "sound",
    epsilon: float = 1.5,
    delta: float = 1e-5,
    without: str | None = None,
    version: str | None = None,
    runs: int | None = None,
    confidence: float = 0.999,
    seed: int = 0,
    json: Json = False,
) -> None:
    """Audit a generator of records: many small fits without and with a canary patient.

    The method's own trainer, on a handful of made-up patients; seen is what the finished
    generators make of fixed noise. Takes minutes. Exit code 1 if what is claimed or proved
    is refuted.

    Example: privet audit generator igamt --analysis paper

    Parameters
    ----------
    method
        One of vae, gan, vaegan, aae, daae, igamt.
    analysis
        sound (default): against what is proved; paper: against what is claimed.
    epsilon
        That is asked for.
    delta
        Of it.
    without
        Of igamt: parts to go without, separated by commas.
    version
        Of igamt as published: thesis (default) or aaai.
    runs
        Fits in each world; default 120.
    confidence
        Of the bound.
    seed
        Of everything.
    json
        Print the result as JSON, nothing else.
    """
    from privet.audits.canary_patient import RUNS, canary_patient
    from privet.commands.audit_mechanism import mechanism_row, tell_mechanism
    from privet.commands.audit_telling import fail_if

    named = {"without": without, "version": version}
    options = {name: value for name, value in named.items() if value is not None}
    with progress_bar(2 * (runs or RUNS), quiet=json) as tell:
        subject = canary_patient(
            method, analysis, epsilon=epsilon, delta=delta, watch=lambda: tell("fits"), **options
        )
        row = mechanism_row(subject, runs, confidence, seed, None)
    if json:
        print_json(row)
    else:
        tell_mechanism(subject, row)
    fail_if(row["refuted"], f"epsilon {subject.epsilon:.3g}")


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
    from privet.commands.audit_mechanism import mechanism_row, tell_all
    from privet.commands.audit_telling import fail_if

    known = {**SOUND, **MUTANTS}
    rows = []
    with progress_bar(len(known), quiet=json) as tell:
        for name, entry in known.items():
            tell(name)
            rows.append(mechanism_row(entry.make(), runs, confidence, seed, None))
    if json:
        print_json(rows)
    else:
        tell_all(rows)
    wrong = [row["mechanism"] for row in rows if row["refuted"] and row["mechanism"] in SOUND]
    fail_if(bool(wrong), ", ".join(wrong))


def _require_absent(beside: str, options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"{given[0]} does not go with {beside}", fix=f"leave {given[0]} out")
