"""A twin of a released model: trained by the same engine under the same plan, on made-up records.

The audit of a run needs canaries in it, and a second run on the private records would have to be
paid for. Dirac canaries do not need the records: what they show has the real units' part taken out
(`engine.canaries`). So the twin learns from made-up ones, as many as are declared, within the
public bounds. It shares with the release all that its epsilon rests on: engine, plan, sampler,
noise, kind of clipping, model, precision. It does not share the data, and the card says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from privet.audits.canary_run import RunAudit
from privet.data.dataset import Bounds, Dataset, Split
from privet.engine.account import Unpaid
from privet.engine.canaries import DiracCanaries
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.errors import InputError
from privet.release import Release
from privet.training.dpsgd import build, fresh_randomness, take_steps
from privet.training.registry import METHODS
from privet.training.settings import Settings

CANARIES: Final = 5000
TWIN: Final = "a twin, trained under the same plan on made-up records"

Watch = Callable[[PrivateTrainer], None]


def audit(
    release: Release | str | Path,
    *,
    canaries: int | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    device: str | None = None,
    watch: Watch | None = None,
) -> RunAudit:
    """Bound the epsilon of a release from below, by a twin with canaries.

    Args:
        release: or its folder.
        canaries: see `audited_twin`.
        confidence: of the bounds.
        seed: for tests only: known noise and coins.
        device: to train on; default: that of the release.
        watch: called after every step of the twin.
    """
    trust = (release if isinstance(release, Release) else Release.load(release)).trust
    put_in = audited_twin(trust, canaries=canaries, seed=seed, device=device, watch=watch)
    return RunAudit.of(put_in, subject=TWIN, confidence=confidence)


def audited_twin(
    trust: Mapping[str, Any],
    *,
    canaries: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    watch: Watch | None = None,
) -> DiracCanaries:
    """Train a twin of the release with this card; the answer knows what was seen of its canaries.

    Args:
        trust: the card.
        canaries: how many; about half of them take part. Default: 5000, or one for each trained
            parameter where there are fewer.
        seed: of everything that is drawn, for tests; None for secret draws.
        device: to train on; default: that of the release.
        watch: called after every step.
    """
    if canaries is not None and canaries < 1:
        raise InputError("bad number of canaries", got=canaries, expected="at least 1")
    settings, plan, data = settings_of(trust, device=device), plan_of(trust), made_up(trust)
    most = trust["provenance"]["model"]["trainable"]
    settings = replace(
        settings,
        canaries=min(CANARIES, most) if canaries is None else canaries,
        noise_seed=seed,
    )
    trainer = build(data, settings, plan, randomness=fresh_randomness(settings), account=Unpaid())
    take_steps(trainer, settings, None, watch)
    assert trainer.canaries is not None
    return trainer.canaries


def settings_of(trust: Mapping[str, Any], *, device: str | None = None) -> Settings:
    """With which a release was trained, on another device if given; refused if no card tells."""
    config = trust["provenance"].get("config") or {}
    kind = _settings_of_method(trust["method"], trust["analysis"])
    if kind is None or not config:
        analysis = f", analysis '{trust['analysis']}'"
        raise InputError(
            "no twin of this release can be trained",
            got=f"method '{trust['method']}'{analysis if config else ', no settings on its card'}",
            expected="a method on the engine of DP-SGD, with a proof",
            fix="a paper's mechanism: `privet audit mechanism`; a loop of your own: canaries,"
            " Extras(canaries=...), see the docs of audit",
        )
    known = {field.name for field in fields(kind)}
    settings = kind(**{name: value for name, value in config.items() if name in known})
    _require_fixed_parts(config)
    return settings if device is None else replace(settings, device=device)


def _require_fixed_parts(config: Mapping[str, Any]) -> None:
    """What training was given, the twin is given, too: from where the card says that it was."""
    places = {name: config.get(name) for name in ("classifier", "classifier_weights", "start")}
    classifier = str(places["classifier"])
    of_release = config.get("classifier_data") is not None
    if places["classifier_weights"] or not (of_release or classifier.endswith(".onnx")):
        places.pop("classifier")  # the name of a network, or a module
    for name, where in places.items():
        if where is not None and not Path(where).exists():
            raise InputError(
                f"a twin needs the {name} that the release was trained with, which is not there",
                got=f"{where} in {Path.cwd()}",
                expected="the folder or file that the card names, with the same weights",
                fix="audit from the folder where training was started, or link it there:"
                f" ln -s ITS_PLACE {where}",
            )


def _settings_of_method(name: str, analysis: str) -> type[Settings] | None:
    """Of a method that runs on the private engine; None for others."""
    found = METHODS[name].analyses.get(analysis) if name in METHODS else None
    return found.settings if found and issubclass(found.settings, Settings) else None


def plan_of(trust: Mapping[str, Any]) -> Plan:
    """The plan that the card states."""
    settings, mechanism = settings_of(trust), trust["mechanism"]
    named = ("steps", "sampling_rate", "clip_norm", "noise_multiplier", "normaliser", "cycle")
    return Plan(
        **{name: mechanism[name] for name in named},
        delta=settings.delta,
        unit=trust["data"]["unit"],
        sampler_name=mechanism["sampler"],
        bands=tuple(mechanism["bands"]),
    )


def made_up(trust: Mapping[str, Any]) -> Dataset:
    """As many records as are declared, of the public shape, bounds and classes: nobody's."""
    facts = trust["data"]
    rng = np.random.default_rng(0)
    n, bounds = facts["nominal_size"], Bounds(**{k: tuple(v) for k, v in facts["bounds"].items()})
    grain = rng.integers(0, 256, (n, *facts["shape"]), dtype=np.uint8)
    low, high = np.asarray(bounds.low, np.float32), np.asarray(bounds.high, np.float32)
    train = Split(
        x=low + (high - low) * (grain / np.float32(255)),
        y=rng.integers(0, len(facts["classes"]), n),
        units=np.arange(n) if facts["grouped"] else None,
    )
    return Dataset(
        name=facts["name"],
        train=train,
        test=train.part(np.arange(n) < 1),
        bounds=bounds,
        classes=tuple(facts["classes"]),
        nominal_size=n,
        licence="none",
        source="made up",
        unit=facts["unit"],
        test_is_public=True,
        features=tuple(facts["features"]),
    )
