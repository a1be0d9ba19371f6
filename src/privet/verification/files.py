"""The files of a release: whole, signed, fitting each other, and saying what the card says."""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch

from privet.errors import InputError
from privet.files import read_json
from privet.models.own_classifier import has_own_classifier
from privet.release import (
    CARD_FILES,
    CUSTOM,
    INTERNAL,
    MANIFEST,
    NEXT_CARD,
    RELEASED_FILES,
    SIGNATURE,
    Release,
    read_weights,
    sha256,
)
from privet.reports import render_report
from privet.reports.recomputing import curves_of
from privet.signing import signature_problem
from privet.verification.finding import Finding

CONFIGURED: Final = ("shape", "features", "classes", "bounds")
IF_THERE: Final = ("schema",)
REPORT: Final = "report.html"


def check_digests(folder: Path) -> Iterator[Finding]:
    """Every file is the one that the manifest names, and there is no other."""
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict):
        raise InputError("corrupt manifest.json", got="no list of files")
    for name in RELEASED_FILES:
        if not (folder / name).exists():
            yield Finding(check=f"digest of {name}", ok=False, detail="the file is missing")
        else:
            same = sha256(folder / name) == files.get(name)
            half = name in CARD_FILES and (folder / NEXT_CARD).exists()
            wrong = "half written by a killed process; its command with --record finishes it"
            why = wrong if half else "the file was changed after release"
            detail = "as in the manifest" if same else why
            yield Finding(check=f"digest of {name}", ok=same, detail=detail)
    expected = {*RELEASED_FILES, MANIFEST, SIGNATURE, INTERNAL}
    foreign = sorted(p.name for p in folder.iterdir() if p.name not in expected)
    if foreign:
        yield Finding(check="foreign files", ok=False, detail=f"not released: {', '.join(foreign)}")


def check_signature(folder: Path, key: str | Path | None) -> Iterator[Finding]:
    """By the key that was given, if one was."""
    if (folder / SIGNATURE).exists():
        problem = signature_problem(folder, key)
        good = (
            "by the key given" if key else "by the key inside; give --key to say whose it must be"
        )
        yield Finding(check="signature", ok=problem is None, detail=problem or good)
    elif key is not None:
        yield Finding(check="signature", ok=False, detail="a key was given, but nothing is signed")


def check_weights(folder: Path) -> Iterator[Finding]:
    """Finite numbers, each in its place in the model."""
    weights = read_weights(folder / "weights.safetensors")
    finite = all(bool(torch.isfinite(w).all()) for w in weights.values() if w.is_floating_point())
    yield Finding(
        check="weights finite",
        ok=finite,
        detail="all finite" if finite else "NaN or infinite weight",
    )
    name = str(read_json(folder / "config.json").get("model"))
    if name == CUSTOM or has_own_classifier(name):  # nobody but its maker can build it
        return
    try:
        Release.load(folder)
        yield Finding(check="weights fit the model", ok=True, detail="every tensor has its place")
    except InputError as error:
        yield Finding(check="weights fit the model", ok=False, detail=str(error))


def check_config(folder: Path, trust: Mapping[str, Any]) -> Iterator[Finding]:
    """The model is built, and its inputs scaled, from the facts that the card states."""
    yield Finding.of(
        "config matches the card",
        _differing(read_json(folder / "config.json"), trust),
        otherwise=", ".join(CONFIGURED),
    )


def _differing(config: Mapping[str, Any], trust: Mapping[str, Any]) -> Iterator[str]:
    data, provenance = trust["data"], trust["provenance"]
    names = [name for name in CONFIGURED if config[name] != data[name]]
    names += [name for name in IF_THERE if config.get(name) != data.get(name)]
    if names:
        yield f"{', '.join(names)} differ"
    asked = provenance["config"].get("model", config["model"])
    if config["model"] == CUSTOM:
        if provenance["init_seed"] is not None:
            yield "a model of the user's own has no seed here that makes its first weights"
    elif config["model"] != asked:
        yield f"model {config['model']}, where the settings name {asked}"


def check_report(folder: Path, trust: Mapping[str, Any]) -> Iterator[Finding]:
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
