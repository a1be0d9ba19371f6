"""Check a release offline: its parts must not contradict each other.

`verify` recomputes every proved epsilon from the recorded events, the events from the mechanism,
the digests from the files, and looks the run up in a ledger if there is one here. It says what
failed, and what it cannot know.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch

from privet.engine.tuned import Tuning, score_noise
from privet.errors import InputError
from privet.files import read_json
from privet.guarantee import Basis, Privacy
from privet.ledger import Ledger, RunRecord
from privet.privacy.accounting import DpEvent, total_epsilon
from privet.privacy.correlated import BandedNoise
from privet.privacy.events import from_json
from privet.privacy.sampling import sampler_for, sampler_of
from privet.release import (
    CUSTOM,
    INTERNAL,
    MANIFEST,
    RELEASED_FILES,
    SIGNATURE,
    Release,
    read_weights,
    require_finished,
    sha256,
)
from privet.reports import render_report
from privet.reports.card import statements
from privet.reports.recomputing import curves_of
from privet.signing import signature_problem

# Two versions of the accountant may differ in the last digits of a rounded grid, not by more.
TOLERANCE: Final = 1e-3
CONFIGURED: Final = ("shape", "features", "classes", "bounds")
REPORT: Final = "report.html"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was checked."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Everything `verify` found, and what no offline check can know."""

    findings: tuple[Finding, ...]
    unproven: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts anything."""
        return all(finding.ok for finding in self.findings)


def verify(
    folder: str | Path, *, key: str | Path | None = None, ledger: Ledger | None = None
) -> Verification:
    """Check the release in `folder`; `key` is the public key it must be signed with."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("no such release", got=folder, expected="a folder made by privet")
    require_finished(folder)
    trust = read_json(folder / "trust.json")
    _require_fields(trust)
    try:
        findings = (
            *_check_files(folder),
            *_check_signature(folder, key),
            *_check_weights(folder),
            *_check_config(folder, trust),
            *_check_mechanism(trust),
            *_check_epsilons(trust),
            *_check_withheld(trust),
            *_check_audits(trust),
            *_check_leaks(trust),
            *_check_report(folder, trust),
            *_check_ledger(trust, ledger),
        )
        return Verification(findings=findings, unproven=_unproven(folder, trust, key, ledger))
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise InputError("malformed trust.json", got=repr(error), fix="restore the file") from None


def _require_fields(trust: Mapping[str, Any]) -> None:
    needed = (
        "method",
        "analysis",
        "data",
        "privacy",
        "withheld",
        "tuning",
        "mechanism",
        "events",
        "provenance",
    )
    for name in needed:
        if name not in trust:
            raise InputError("incomplete trust.json", got=f"no '{name}'", fix="restore the file")


def _check_files(folder: Path) -> Iterator[Finding]:
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict):
        raise InputError("corrupt manifest.json", got="no list of files")
    for name in RELEASED_FILES:
        if not (folder / name).exists():
            yield Finding(check=f"digest of {name}", ok=False, detail="the file is missing")
        else:
            same = sha256(folder / name) == files.get(name)
            detail = "as in the manifest" if same else "the file was changed after release"
            yield Finding(check=f"digest of {name}", ok=same, detail=detail)
    expected = {*RELEASED_FILES, MANIFEST, SIGNATURE, INTERNAL}
    foreign = sorted(p.name for p in folder.iterdir() if p.name not in expected)
    if foreign:
        yield Finding(check="foreign files", ok=False, detail=f"not released: {', '.join(foreign)}")


def _check_signature(folder: Path, key: str | Path | None) -> Iterator[Finding]:
    if (folder / SIGNATURE).exists():
        problem = signature_problem(folder, key)
        good = (
            "by the key given" if key else "by the key inside; give --key to say whose it must be"
        )
        yield Finding(check="signature", ok=problem is None, detail=problem or good)
    elif key is not None:
        yield Finding(check="signature", ok=False, detail="a key was given, but nothing is signed")


def _check_weights(folder: Path) -> Iterator[Finding]:
    weights = read_weights(folder / "weights.safetensors")
    finite = all(bool(torch.isfinite(w).all()) for w in weights.values() if w.is_floating_point())
    yield Finding(
        check="weights finite",
        ok=finite,
        detail="all finite" if finite else "NaN or infinite weight",
    )
    if read_json(folder / "config.json").get("model") == CUSTOM:
        return
    try:
        Release.load(folder)
        yield Finding(check="weights fit the model", ok=True, detail="every tensor has its place")
    except InputError as error:
        yield Finding(check="weights fit the model", ok=False, detail=str(error))


def _check_config(folder: Path, trust: Mapping[str, Any]) -> Iterator[Finding]:
    """The model is built, and its inputs scaled, from the facts that the card states."""
    config, data = read_json(folder / "config.json"), trust["data"]
    differing = [name for name in CONFIGURED if config[name] != data[name]]
    yield Finding(
        check="config matches the card",
        ok=not differing,
        detail=f"{', '.join(differing)} differ" if differing else ", ".join(CONFIGURED),
    )


def _check_mechanism(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """The events must be those that the stated mechanism makes, and the mechanism make sense."""
    mechanism, recorded = trust["mechanism"], _events(trust)
    expected: list[DpEvent] = [
        from_json({"type": "Laplace", "noise_multiplier": 1.0 / fact["epsilon"]})
        for fact in trust["data"]["learned"]
    ]
    sampler = sampler_of(mechanism)
    turns = sampler.turns(mechanism["steps"]) + mechanism["redone_steps"]
    run = sampler.event(mechanism["noise_multiplier"], turns)
    expected.append(Tuning.from_json(trust["tuning"]).event(run))
    same = recorded == expected
    yield Finding(
        check="events match the mechanism",
        ok=same,
        detail="as stated" if same else f"mechanism implies {expected}, recorded are {recorded}",
    )
    senseless = list(_senseless(trust))
    yield Finding(
        check="mechanism makes sense",
        ok=not senseless,
        detail="; ".join(senseless) or "steps, rate, normaliser, unit and sampler agree",
    )


def _senseless(trust: Mapping[str, Any]) -> Iterator[str]:
    mechanism, data, config = trust["mechanism"], trust["data"], trust["provenance"]["config"]
    if not 0 <= mechanism["steps_run"] <= mechanism["steps"]:
        yield f"{mechanism['steps_run']} steps were run of {mechanism['steps']} planned"
    if mechanism["redone_steps"] < 0:
        yield f"{mechanism['redone_steps']} redone steps"
    sampler = sampler_of(mechanism)
    if mechanism["redone_steps"] > 0 and not sampler.redoable:
        yield f"steps were redone under {sampler.name} sampling, where every unit has its turn once"
    if mechanism["bands"]:
        coefficients = tuple(mechanism["bands"])
        try:
            BandedNoise(
                multiplier=mechanism["noise_multiplier"],
                sensitivity=mechanism["clip_norm"],
                coefficients=coefficients,
            ).require_valid_with(sampler.name, sampler.cycle)
        except InputError as error:
            yield str(error)
    if not (mechanism["normaliser"] > 0 and mechanism["clip_norm"] > 0):
        yield "normaliser and clip norm must be positive"
    tuning = Tuning.from_json(trust["tuning"])
    size = tuning.training_size(data["nominal_size"])
    if not math.isclose(mechanism["sampling_rate"] * size, mechanism["normaliser"]):
        yield "normaliser is not the expected batch at the nominal size"
    asked = config.get("batch")
    if asked is not None:
        rate = sampler_for(
            sampler.name, batch=asked, nominal_size=size, cycle=mechanism["cycle"]
        ).rate
        if not math.isclose(rate * size, mechanism["normaliser"]):
            yield f"batch {asked} was asked for, the normaliser is {mechanism['normaliser']}"
    if tuning.selected is not None:
        turns = sampler.turns(mechanism["steps"])
        least = score_noise(sampler.turn_rate, mechanism["noise_multiplier"], turns)
        stated = tuning.selected.score_multiplier
        if stated < least * (1 - 1e-9):
            yield f"the noise of the scores is {stated:g}, the runs' own asks for {least:g}"
    for guarantee in _proved(trust):
        if (guarantee.sampler, guarantee.unit) != (mechanism["sampler"], data["unit"]):
            yield f"a guarantee speaks of {guarantee.sampler} sampling, unit {guarantee.unit}"
        if guarantee.adjacency not in sampler.adjacencies:
            yield f"nothing is proved for {guarantee.adjacency} under {sampler.name} sampling"


def _check_epsilons(trust: Mapping[str, Any]) -> Iterator[Finding]:
    if trust["withheld"]:
        return
    events = _events(trust)
    for guarantee in _proved(trust):
        check = f"epsilon ({guarantee.adjacency}, delta={guarantee.delta:g})"
        exact = _recomputed(events, guarantee)
        same = math.isclose(exact, guarantee.epsilon, rel_tol=TOLERANCE)
        detail = f"stated {guarantee.epsilon:.6g}, the events give {exact:.6g}"
        yield Finding(check=check, ok=same, detail=detail)


def _recomputed(events: list[DpEvent], guarantee: Privacy) -> float:
    """What the events prove; nothing, where no accountant covers them."""
    try:
        return total_epsilon(events, guarantee.delta, guarantee.adjacency)
    except InputError:
        return math.inf


def _check_withheld(trust: Mapping[str, Any]) -> Iterator[Finding]:
    stated = [g for g in map(Privacy.from_json, trust["privacy"]) if g.basis is not Basis.AUDITED]
    if trust["withheld"]:
        yield Finding(
            check="epsilon withheld",
            ok=not stated,
            detail="; ".join(trust["withheld"]) + (" - yet one is stated" if stated else ""),
        )
    elif not any(g.basis is Basis.PROVED for g in stated):
        yield Finding(
            check="guarantee", ok=False, detail="nothing is proved and no reason is given"
        )


def _check_audits(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """A measured lower bound above a stated epsilon refutes the statement."""
    for stated in statements(trust):
        if stated.contradicted:
            yield Finding(
                check=f"audit against the {stated.basis} epsilon",
                ok=False,
                detail=f"measured at least {stated.contradicted_by:.4g}, "
                f"stated {stated.epsilon:.4g}",
            )


def _check_leaks(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Figures on private records must not be in the card."""
    leak = bool(trust.get("utility")) and not trust["data"].get("test_is_public")
    yield Finding(
        check="no uncharged figures",
        ok=not leak,
        detail="utility was measured on private records" if leak else "none found",
    )


def _check_report(folder: Path, trust: Mapping[str, Any]) -> Iterator[Finding]:
    """The report must say what the card says; drawings aside, which other versions draw alike."""
    if trust["provenance"].get("privet") != version("privet") or not (folder / REPORT).exists():
        return
    try:
        expected = _without_drawings(render_report(trust, curves_of(trust)))
    except (LookupError, TypeError, ValueError, InputError):  # a card that no report follows from
        expected = ""
    same = _without_drawings((folder / REPORT).read_text(errors="replace")) == expected
    yield Finding(
        check="report matches the card",
        ok=same,
        detail="every word" if same else "report.html does not say what trust.json says",
    )


def _without_drawings(html: str) -> str:
    return re.sub(r"<svg\b.*?</svg>", "", html, flags=re.DOTALL)


def _check_ledger(trust: Mapping[str, Any], ledger: Ledger | None) -> Iterator[Finding]:
    run = _run_in(ledger, trust)
    if run is None or ledger is None:
        return
    mechanism, provenance = trust["mechanism"], trust["provenance"]
    charged = _charged(trust)
    recorded = {
        "data set": (run.dataset, trust["data"]["name"]),
        "planned steps": (run.planned, charged.planned),
        "charged steps": (run.charged, charged.done),
        "redone steps": (run.redone, mechanism["redone_steps"]),
        "step": (run.step_event, run.step_event if trust["withheld"] else charged.step),
    }
    differing = [f"{k}: {a} in the ledger, {b} here" for k, (a, b) in recorded.items() if a != b]
    known = [ledger.commitment(s, run.id) for s in ledger.snapshots(run.dataset)]
    if provenance.get("data_digest") not in known:
        differing.append("the data digest is of no version of the data in the ledger")
    yield Finding(
        check="ledger",
        ok=not differing,
        detail="; ".join(differing) or f"{run.charged} steps charged, {run.redone} redone",
    )


@dataclass(frozen=True, kw_only=True)
class _Charged:
    """What the ledger must hold for a card: an event, how often it was reserved and charged."""

    step: DpEvent
    planned: int
    done: int


def _charged(trust: Mapping[str, Any]) -> _Charged:
    mechanism, sampler = trust["mechanism"], sampler_of(trust["mechanism"])
    planned = sampler.turns(mechanism["steps"])
    turn = sampler.turn_event(mechanism["noise_multiplier"])
    tuning = Tuning.from_json(trust["tuning"])
    if tuning.selected is not None:  # all runs and the choice among them are one event
        whole = tuning.event(sampler.event(mechanism["noise_multiplier"], planned))
        return _Charged(step=whole, planned=1, done=1)
    return _Charged(step=turn, planned=planned, done=sampler.turns(mechanism["steps_run"]))


def _run_in(ledger: Ledger | None, trust: Mapping[str, Any]) -> RunRecord | None:
    if ledger is None:
        return None
    try:
        return ledger.run(str(trust["provenance"].get("run")))
    except InputError:
        return None


def _unproven(
    folder: Path, trust: Mapping[str, Any], key: str | Path | None, ledger: Ledger | None
) -> tuple[str, ...]:
    statements: list[tuple[Callable[[], bool], str]] = [
        (lambda: True, "that the training code ran as recorded: the events are its own statement"),
        (lambda: True, "that the noise was secret and fresh, and that no other run was left out"),
        (
            lambda: not (folder / SIGNATURE).exists(),
            "who made it: unsigned, integrity only; whoever changed all files alike goes unnoticed",
        ),
        (
            lambda: (folder / SIGNATURE).exists() and key is None,
            "that the signer is who you think: give --key",
        ),
        (
            lambda: _run_in(ledger, trust) is None,
            "that a ledger was charged: no ledger here knows this run",
        ),
        (
            lambda: trust["provenance"].get("privet") != version("privet"),
            "that report.html says what trust.json says: it was written by another version",
        ),
        (lambda: not trust.get("audit"), "that attacks fail: this release was not audited"),
    ]
    return tuple(text for applies, text in statements if applies())


def _events(trust: Mapping[str, Any]) -> list[DpEvent]:
    try:
        return [from_json(entry["event"]) for entry in trust["events"]]
    except (KeyError, TypeError) as error:
        raise InputError("malformed events in trust.json", got=repr(error)) from None


def _proved(trust: Mapping[str, Any]) -> Iterator[Privacy]:
    for record in trust["privacy"]:
        guarantee = Privacy.from_json(record)
        if guarantee.basis is Basis.PROVED:
            yield guarantee
