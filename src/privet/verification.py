"""Check a release offline: its parts must not contradict each other.

`verify` recomputes every proved epsilon from the recorded events, the events from the mechanism,
the digests from the files, and looks the run up in a ledger if there is one here. It says what
failed, and what it cannot know.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from privet.errors import InputError
from privet.files import read_json
from privet.guarantee import Basis, Privacy
from privet.ledger import Ledger, RunRecord
from privet.privacy.accounting import DpEvent, sampled_gaussian, total_epsilon
from privet.privacy.events import from_json
from privet.release import (
    CUSTOM,
    MANIFEST,
    RELEASED_FILES,
    SIGNATURE,
    Release,
    read_weights,
    sha256,
)
from privet.reports.card import statements
from privet.signing import signature_problem

# Two versions of the accountant may differ in the last digits of a rounded grid, not by more.
TOLERANCE: Final = 1e-3


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
    trust = read_json(folder / "trust.json")
    _require_fields(trust)
    findings = [
        *_check_files(folder),
        *_check_signature(folder, key),
        *_check_weights(folder),
        *_check_mechanism(trust),
        *_check_epsilons(trust),
        *_check_withheld(trust),
        *_check_audits(trust),
        *_check_leaks(trust),
        *_check_ledger(trust, ledger),
    ]
    return Verification(findings=tuple(findings), unproven=_unproven(folder, trust, key, ledger))


def _require_fields(trust: Mapping[str, Any]) -> None:
    needed = (
        "method",
        "analysis",
        "data",
        "privacy",
        "withheld",
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


def _check_mechanism(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """The training event must be the one that the stated mechanism makes."""
    mechanism = trust["mechanism"]
    recorded = _events(trust)
    expected: list[DpEvent] = [
        from_json({"type": "Laplace", "noise_multiplier": 1.0 / fact["epsilon"]})
        for fact in trust["data"].get("learned", [])
    ]
    try:
        steps = mechanism["steps"] + mechanism["redone_steps"]
        expected.append(
            sampled_gaussian(mechanism["noise_multiplier"], mechanism["sampling_rate"], steps)
        )
        sampler = mechanism["sampler"]
    except (KeyError, TypeError) as error:
        raise InputError("malformed mechanism in trust.json", got=repr(error)) from None
    same = recorded == expected
    yield Finding(
        check="events match the mechanism",
        ok=same,
        detail="as stated" if same else f"mechanism implies {expected}, recorded are {recorded}",
    )
    named = all(g.sampler == sampler for g in _proved(trust))
    yield Finding(
        check="sampler",
        ok=named and sampler == "poisson",
        detail=f"{sampler}, as accounted"
        if named
        else "guarantee and mechanism name different samplers",
    )


def _check_epsilons(trust: Mapping[str, Any]) -> Iterator[Finding]:
    if trust["withheld"]:
        return
    events = _events(trust)
    for guarantee in _proved(trust):
        check = f"epsilon ({guarantee.adjacency}, delta={guarantee.delta:g})"
        exact = total_epsilon(events, guarantee.delta, guarantee.adjacency) if events else math.inf
        same = math.isclose(exact, guarantee.epsilon, rel_tol=TOLERANCE)
        detail = f"stated {guarantee.epsilon:.6g}, the events give {exact:.6g}"
        yield Finding(check=check, ok=same, detail=detail)


def _check_withheld(trust: Mapping[str, Any]) -> Iterator[Finding]:
    proved = list(_proved(trust))
    if trust["withheld"]:
        yield Finding(
            check="epsilon withheld",
            ok=not proved,
            detail="; ".join(trust["withheld"]) + (" - yet one is stated" if proved else ""),
        )
    elif not proved:
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


def _check_ledger(trust: Mapping[str, Any], ledger: Ledger | None) -> Iterator[Finding]:
    run = _run_in(ledger, trust)
    if run is None:
        return
    mechanism = trust["mechanism"]
    same = run.charged == mechanism["steps_run"] and run.redone == mechanism["redone_steps"]
    yield Finding(
        check="ledger",
        ok=same,
        detail=f"{run.charged} steps charged, {run.redone} redone in the ledger here",
    )


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
