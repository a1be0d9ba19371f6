"""`privet audit function`: anybody's training function, as a black box."""

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from privet.commands.audit_telling import PRIVATE, fail_if, tell_bounds, tell_curves
from privet.commands.bench import progress_bar
from privet.commands.screen import out, print_json
from privet.errors import InputError
from privet.guarantee import BEYOND_DOUBT

if TYPE_CHECKING:
    from privet.audits.evidence import Bound


def bounded(
    train: Any,
    data: Any,
    *,
    path: str,
    epsilon: float | None,
    delta: float,
    confidence: float,
    kind: str,
    canaries: int,
    runs: int,
    seed: int,
    as_json: bool,
) -> None:
    """Lower bounds of epsilon; exit code 1 if they refute the one that is claimed."""
    from privet.audits.evidence import check_confidence

    if epsilon is not None and not (epsilon > 0 and math.isfinite(epsilon)):
        raise InputError("bad epsilon", got=epsilon, expected="a positive, finite number")
    if not 0 <= delta < 1:
        raise InputError("bad delta", got=delta, expected="0 <= delta < 1", fix="try 1e-5")
    check_confidence(confidence)
    estimators = _estimators(train, data, kind, canaries, runs, seed, quiet=as_json)
    bounds = [estimate(delta=delta, confidence=confidence) for estimate in estimators]
    # A claim is refuted without assumptions, and with a confidence that may be shown in public.
    least = estimators[0](delta=delta, confidence=BEYOND_DOUBT).epsilon
    refuted = epsilon is not None and least > epsilon
    what = f"{2 * runs} trainings, one {kind}" if runs else f"one training, {canaries} {kind}"
    if as_json:
        rows = [asdict(bound) for bound in bounds]
        found = {"function": path, "what": what, "refuted": refuted, "bounds": rows}
        print_json({**found, "private": PRIVATE})
    else:
        tell_bounds(bounds, f"{what} canar{'y' if runs else 'ies'}")
        if epsilon is not None and not refuted:
            out.print(f"claimed  ε = {epsilon:g}: not refuted, which proves nothing")
        out.print(PRIVATE, style="yellow")
    fail_if(refuted, f"epsilon {epsilon}, at confidence {BEYOND_DOUBT}")


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


def shadowed(train: Any, data: Any, models: int, seed: int, *, as_json: bool) -> None:
    """Membership inference by LiRA: it describes, and bounds nothing."""
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
    else:
        tell_curves(found)
