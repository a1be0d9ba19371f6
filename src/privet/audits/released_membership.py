"""Membership inference against a released model: who of these records trained it.

| attack | score of a record                                                                    |
|--------|--------------------------------------------------------------------------------------|
| loss   | the released model's confidence in its label                                          |
| lira   | its likelihood ratio, by shadow models that were trained with it and without it        |

Members are the training records, others the test records. Shadows are trained under the plan of the
release on random halves of *both*, so that a record's place tells nothing but what the released
model learned of it: with shadows on training records alone, others would never be inside one.

The figures describe and bound nothing. They are computed from training records without charge, and
so are the shadows, which exist in memory only: nothing of this may leave `internal/`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.audits.functions import LEAST_SHADOWS, Watch
from privet.audits.membership import Roc, Scores, confidence, lira, roc
from privet.audits.twin import plan_of, settings_of
from privet.data.dataset import Dataset, Split
from privet.data.identity import set_digest
from privet.engine.account import Unpaid
from privet.engine.handover import release_config
from privet.engine.plan import Plan
from privet.errors import InputError
from privet.ledger import Ledger
from privet.release import Release
from privet.training.dpsgd import build, fresh_randomness, take_steps
from privet.training.settings import Settings


def membership(
    release: Release,
    data: Dataset,
    *,
    shadows: int = 0,
    seed: int | None = None,
    device: str | None = None,
    watch: Watch = lambda *_: None,
) -> dict[str, Roc]:
    """The curve of each attack, by name: `loss`, and `lira` where there are shadow models.

    Args:
        release: the target.
        data: that it was trained on.
        shadows: how many models; 0 for none.
        seed: of halves and shadows, for tests; None for fresh draws.
        device: to train shadows on; default: that of the release's settings.
        watch: called after every shadow model.
    """
    _require_fitting(release, data)
    pool = _pooled(data)
    member = np.arange(len(pool)) < len(data.train)
    target = confidence(release.scores(pool.x), pool.y)
    found = {"loss": roc(target[member], target[~member])}
    if shadows:
        settings = replace(settings_of(release.trust, device=device), canaries=0)
        plan = plan_of(release.trust)
        confidences, halves = shadowed(
            settings, plan, data, pool, models=shadows, seed=seed, watch=watch
        )
        ratios = lira(np.vstack([confidences, target]), np.vstack([halves, member]))[-1]
        known = np.isfinite(ratios)
        found["lira"] = roc(ratios[member & known], ratios[~member & known])
    return found


def shadowed(
    settings: Settings,
    plan: Plan,
    data: Dataset,
    pool: Split,
    *,
    models: int,
    seed: int | None,
    watch: Watch,
) -> tuple[Scores, NDArray[np.bool_]]:
    """Confidences (models, records) of models trained on random halves, and the halves."""
    if models < LEAST_SHADOWS:
        raise InputError(
            "too few shadow models", got=models, expected=f"at least {LEAST_SHADOWS}, better 64"
        )
    coins = np.random.default_rng(None if seed is None else [seed, 0])
    halves = (coins.random((models, pool.n_units)) < 0.5)[:, pool.unit_of_record]
    found = np.empty(halves.shape)
    for k in range(models):
        own = replace(settings, noise_seed=None if seed is None else seed + k)
        half = data.training_on(pool.part(halves[k]), nominal_size=data.nominal_size)
        found[k] = confidence(_shadow(half, own, plan).scores(pool.x), pool.y)
        watch(k + 1, models)
    return found, halves


def _shadow(half: Dataset, settings: Settings, plan: Plan) -> Release:
    """In memory only; nothing is charged, and nothing is stated of it."""
    randomness = fresh_randomness(settings)
    trainer = build(half, settings, plan, randomness=randomness, account=Unpaid())
    take_steps(trainer, settings, None, None)
    assert settings.model is not None
    config = release_config(half, settings.model)
    return Release(model=trainer.released_model(), config=config, trust={})


def require_trained_on(trust: Mapping[str, Any], data: Dataset, ledger: Ledger) -> bool:
    """Refuse records that the release was not trained on; False where the ledger cannot tell."""
    run = trust["provenance"]["run"]
    if not ledger.knows(run):
        return False
    digest = ledger.commitment(set_digest(data, ledger.digest_key), run, facts=trust["data"])
    if digest != trust["provenance"]["data_digest"]:
        raise InputError(
            "the release was trained on other records",
            got=f"'{data.name}'",
            expected="the records whose digest its card states",
            fix="say which: --data, --data-dir",
        )
    return True


def _require_fitting(release: Release, data: Dataset) -> None:
    ours = (tuple(release.config["shape"]), tuple(release.config["classes"]))
    if (data.shape, tuple(data.classes)) != ours:
        raise InputError(
            "the data do not fit the release",
            got=f"'{data.name}': shape {data.shape}, {len(data.classes)} classes",
            expected=f"shape {ours[0]}, {len(ours[1])} classes of the same names",
        )


def _pooled(data: Dataset) -> Split:
    """Training records, and test records behind them; units of both are different people."""
    train, test = data.train, data.test
    units = None
    if train.units is not None:
        units = np.concatenate([train.units, train.n_units + test.unit_of_record])
    return Split(
        x=np.concatenate([train.x, test.x]), y=np.concatenate([train.y, test.y]), units=units
    )
