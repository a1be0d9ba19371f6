"""Methods by name: `train("dpsgd", data, ...)`."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from torch import nn

from privet.data.dataset import Dataset
from privet.engine.arguments import require_dataset, require_ledger, shown
from privet.errors import InputError
from privet.guarantee import USUAL_EPSILON
from privet.release import Release
from privet.training import (
    adlm,
    advgan,
    ain,
    ain_private,
    atn,
    dpsgd,
    local_records,
    pixeldp,
    plain,
    transdenoiser,
)
from privet.training.functional_head import FunctionalSettings
from privet.training.published import adlm as published_adlm
from privet.training.published import securesgd as published_securesgd
from privet.training.published import stobatch as published_stobatch
from privet.training.published import transdenoiser as published_transdenoiser
from privet.training.published.adlm_settings import AdlmPaperSettings
from privet.training.published.stobatch_settings import DpalSettings as PublishedDpal
from privet.training.published.stobatch_settings import StobatchSettings as PublishedStobatch
from privet.training.published.transdenoiser_settings import PublishedTransDenoiser
from privet.training.recipes import settings_of
from privet.training.securesgd import SecureSGDSettings
from privet.training.settings import Settings
from privet.training.stobatch import DpalSettings, StoBatchSettings
from privet.training.with_classifier import named

SOUND: Final = "sound"
PAPER: Final = "paper"
FOUND: Final = frozenset(
    {
        *("attacker_digest", "attacker_data", "attacker_spent"),
        *("classifier_digest", "classifier_data", "start_digest", "start_data", "relevance"),
    }
)
"""Settings of filled settings alone: the run finds them."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A method under one analysis: its settings, and how a run begins and goes on.

    Attributes:
        promises: what may be said of its releases, in a few words.
        settings: the class of its settings.
        run, resume: see `training.dpsgd`.
    """

    promises: str
    settings: type[Any]
    run: Callable[..., Release]
    resume: Callable[..., Release]

    @property
    def private(self) -> bool:
        """Whether it has a privacy target."""
        return "epsilon" in self.options

    @property
    def needs_target(self) -> bool:
        """Whether it cannot do without one; settings that can know themselves when."""
        (target,) = (f for f in fields(self.settings) if f.name == "epsilon")
        return target.default is MISSING

    @property
    def usual_epsilon(self) -> float:
        """A target to try."""
        return float(getattr(self.settings, "usual_epsilon", USUAL_EPSILON))

    @property
    def options(self) -> set[str]:
        """Names of its settings."""
        return {field.name for field in fields(self.settings)}

    @property
    def settable(self) -> set[str]:
        """Those that a user may choose; the others are found by the run itself."""
        return self.options - FOUND


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way of training, under one analysis or two: `sound` first, then as in its paper."""

    name: str
    summary: str
    analyses: Mapping[str, Variant]

    def under(self, analysis: str | None) -> Variant:
        """The variant for an analysis; None for the first, which is sound where that exists."""
        if analysis is None:
            return next(iter(self.analyses.values()))
        if analysis in self.analyses:
            return self.analyses[analysis]
        raise InputError(
            f"'{self.name}' has no such analysis",
            got=shown(analysis),
            expected=f"one of {', '.join(self.analyses)}",
            fix="leave --analysis out",
        )


def _private(settings: type[Settings]) -> Variant:
    """What runs on the engine of DP-SGD."""
    return Variant(
        promises="(epsilon, delta)-DP, proved",
        settings=settings,
        run=dpsgd.run,
        resume=partial(dpsgd.resume, kind=settings),
    )


def _without_privacy(settings: type[Any], home: ModuleType) -> dict[str, Variant]:
    """What makes no promise; `home` is the module with its run and resume."""
    return {
        "none": Variant(promises="no privacy", settings=settings, run=home.run, resume=home.resume)
    }


METHODS: Final = {
    method.name: method
    for method in (
        Method(
            name="dpsgd",
            summary="per-example clipped, noised gradients (Abadi et al., 2016)",
            analyses={SOUND: _private(Settings)},
        ),
        Method(
            name="stobatch",
            summary="partners by several attacks and noise, in one clipped gradient (Phan, 2020)",
            analyses={
                SOUND: _private(StoBatchSettings),
                PAPER: Variant(
                    promises="epsilon-DP, claimed; refuted by audits",
                    settings=PublishedStobatch,
                    run=published_stobatch.run_stobatch,
                    resume=published_stobatch.resume_stobatch,
                ),
            },
        ),
        Method(
            name="stobatch-fm",
            summary="a linear head on fixed features by the functional mechanism: one release",
            analyses={SOUND: _private(FunctionalSettings)},
        ),
        Method(
            name="stobatch-ldp",
            summary="every record randomised once, by itself; then any training",
            analyses={
                SOUND: Variant(
                    promises="epsilon-DP, proved",
                    settings=local_records.LocalSettings,
                    run=local_records.run,
                    resume=local_records.resume,
                ),
            },
        ),
        Method(
            name="dpal",
            summary="the first version of stobatch (Phan et al., 2019)",
            analyses={
                SOUND: _private(DpalSettings),
                PAPER: Variant(
                    promises="epsilon-DP, claimed; refuted by audits",
                    settings=PublishedDpal,
                    run=published_stobatch.run_dpal,
                    resume=published_stobatch.resume_dpal,
                ),
            },
        ),
        Method(
            name="securesgd",
            summary="DP-SGD through a layer of noise, for certificates (Phan et al., 2019)",
            analyses={
                SOUND: _private(SecureSGDSettings),
                PAPER: Variant(
                    promises="(epsilon, delta)-DP, claimed",
                    settings=published_securesgd.PublishedSecureSGD,
                    run=published_securesgd.run,
                    resume=published_securesgd.resume,
                ),
            },
        ),
        Method(
            name="adlm",
            summary="more noise where inputs matter less (Phan et al., 2017)",
            analyses={
                SOUND: Variant(
                    promises="(epsilon, delta)-DP, proved",
                    settings=adlm.AdlmSettings,
                    run=adlm.run,
                    resume=adlm.resume,
                ),
                PAPER: Variant(
                    promises="epsilon-DP, claimed; refuted by audits",
                    settings=AdlmPaperSettings,
                    run=published_adlm.run,
                    resume=published_adlm.resume,
                ),
            },
        ),
        Method(
            name="transdenoiser",
            summary="a denoiser in front of a classifier that is there already",
            analyses={
                SOUND: Variant(
                    promises="(epsilon, delta)-DP, proved",
                    settings=transdenoiser.TransDenoiserSettings,
                    run=transdenoiser.run,
                    resume=transdenoiser.resume,
                ),
                PAPER: Variant(
                    promises="(epsilon, delta)-DP, claimed; refuted by audits",
                    settings=PublishedTransDenoiser,
                    run=published_transdenoiser.run,
                    resume=published_transdenoiser.resume,
                ),
            },
        ),
        Method(
            name="pixeldp",
            summary="noise behind the first layer, for certificates (Lecuyer et al., 2019)",
            analyses=_without_privacy(pixeldp.PixelDPSettings, pixeldp),
        ),
        Method(
            name="ain",
            summary="a network that attacks a fixed classifier in one pass, by imitation",
            analyses=_without_privacy(ain.AinSettings, ain)
            | {
                SOUND: Variant(
                    promises="(epsilon, delta)-DP, proved",
                    settings=ain_private.PrivateAinSettings,
                    run=ain_private.run,
                    resume=ain_private.resume,
                ),
            },
        ),
        Method(
            name="atn",
            summary="adversarial transformation network, to compare with ain",
            analyses=_without_privacy(atn.AtnSettings, atn),
        ),
        Method(
            name="advgan",
            summary="perturbations by a generative adversarial network, to compare with ain",
            analyses=_without_privacy(advgan.AdvGanSettings, advgan),
        ),
        Method(
            name="plain",
            summary="minibatch gradient descent, to compare with",
            analyses=_without_privacy(plain.PlainSettings, plain),
        ),
    )
}


def describe_methods() -> list[Method]:
    """All methods, for `privet methods`."""
    return list(METHODS.values())


def find_method(name: str) -> Method:
    """A method by name; an unknown one is bad input."""
    return find_in(METHODS, name, where="privet methods")


def find_in(methods: Mapping[str, Method], name: str, *, where: str) -> Method:
    """One of these methods; `where` says which command lists them."""
    if isinstance(name, str) and name in methods:
        return methods[name]
    near = difflib.get_close_matches(name, methods, n=1) if isinstance(name, str) else []
    raise InputError(
        "unknown method",
        got=shown(name),
        expected=f"one of {', '.join(methods)}",
        fix=f"did you mean '{near[0]}'?" if near else f"see `{where}`",
    )


def train(
    method: str,
    data: Dataset,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    **options: Any,
) -> Release:
    """Train a classifier by a named method.

    Args:
        method: see `privet methods`.
        data: from `privet.data.load`, or a `Dataset` of your own.
        epsilon: target, add/remove neighbours; every private method needs one, no other takes one.
        delta: of the target; well below 1 / size of the data; default 1e-5.
        analysis: 'sound', the default: the method's idea with a proof; or 'paper', where there is
            one: as published, its epsilon stated as claimed.
        options: the method's settings, and `out` (folder), `ledger`, `watch`.
    """
    require_dataset(data)
    require_ledger(options.get("ledger"))
    chosen = require_target(find_method(method), epsilon, delta, analysis)
    unknown = set(options) - chosen.options - {"out", "ledger", "watch", "reference"}
    if unknown:
        raise foreign(METHODS, method, sorted(unknown), chosen)
    if isinstance(options.get("classifier"), nn.Module):
        options["classifier"] = named(options["classifier"])
    given = {
        k: str(v) if isinstance(v, Path) else v for k, v in options.items() if k in chosen.options
    }
    settings = settings_of(options.get("recipe"), given, data.nominal_size) | given
    target = {"epsilon": epsilon, "delta": delta}
    settings |= {name: value for name, value in target.items() if value is not None}
    rest = {k: v for k, v in options.items() if k not in chosen.options}
    return chosen.run(data, chosen.settings(**settings), **rest)


def foreign(
    methods: Mapping[str, Method], method: str, unknown: list[str], chosen: Variant
) -> InputError:
    """Names whose the first unknown setting is, if it is anybody's."""
    having = [
        other.name if len(other.analyses) == 1 else f"{other.name} --analysis {analysis}"
        for other in methods.values()
        for analysis, variant in other.analyses.items()
        if unknown[0] in variant.options
    ]
    if not having:
        return InputError(
            f"unknown setting of '{method}'",
            got=", ".join(unknown),
            expected=f"some of {', '.join(sorted(chosen.settable))}",
        )
    own = [name for name in having if name.partition(" ")[0] == method]
    return InputError(
        f"'{method}' has no such setting here",
        got=", ".join(unknown),
        expected=f"with it: {', '.join(own or having)}",
        fix="name such an analysis, or leave it out" if own else "leave it out",
    )


def _without(method: Method) -> str:
    return "--analysis none" if "none" in method.analyses else "`privet train plain`"


def require_target(
    method: Method, epsilon: float | None, delta: float | None, analysis: str | None = None
) -> Variant:
    """The variant; a private one needs a target, one without privacy must not seem to have one."""
    variant = method.under(analysis)
    if variant.private and variant.needs_target and epsilon is None:
        raise InputError(
            "no privacy target",
            got=f"'{method.name}' without epsilon",
            fix=f"give one, as in --epsilon {variant.usual_epsilon:g};"
            f" without privacy: {_without(method)}",
        )
    if not variant.private and not (epsilon is delta is None):
        raise InputError(
            f"'{method.name}' gives no privacy, and takes no target",
            got=f"epsilon {epsilon}" if epsilon is not None else f"delta {delta}",
            fix=f"--analysis {SOUND}"
            if SOUND in method.analyses
            else "leave it out; for a private model: `privet train dpsgd`",
        )
    return variant
