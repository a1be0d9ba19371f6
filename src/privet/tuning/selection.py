"""The best of a random number of runs, charged as one event.

Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy" (2022), Theorem 2.

| paper             | here                                                             |
|-------------------|------------------------------------------------------------------|
| Q                 | a trial: draw a candidate, train it, score it with noise         |
| K ~ D_(eta,gamma) | `Repetitions.draw`; secret                                       |
| A                 | `_select`: K trials, of which the best alone is kept             |
| (lambda, eps)     | any point of the Renyi curve of one run, `plan.event()`          |

Theorem. If Q is (a, e)-Renyi private and (b, f)-Renyi private, then the best of K outputs of Q, in
any fixed order of its outputs, is (a, e')-Renyi private with

    e' = e + (1 + eta) ((1 - 1/b) f + log(1/gamma) / b) + log(E[K]) / (a - 1).

Guarantee: what leaves the house (weights and settings of the best trial) is covered by
`Selected.event(plan.event())`, add/remove neighbours. Proof note, for neighbours x and x with u:

- Who is held out is drawn once, for each unit by itself. Fix the draws of all others and of u, in
  which x and x with u then agree. If u trains, all trials score by the same units: a trial is a
  run, and the rest is post-processing. If u is held out, all trials train alike, and a trial is one
  Gaussian release of a sum in which u counts at most 1; its noise is such (`score_noise`) that its
  curve lies below the run's at every whole order. The theorem's bound grows with the curve, so the
  run's curve serves in both cases. Averaging over the draws keeps it: Renyi divergence is jointly
  quasi-convex.
- Given those draws, trials are independent and alike: own keys, own candidate, the same event
  (`search` says why the candidates must share it).
- K is at least 1, does not depend on the records, and is told to nobody. Nor is anything that it
  could be read from: losing trials are dropped at once, and the card is dated by the beginning.
- The order is by noisy score; of equal scores the first wins. Trials being exchangeable, that is as
  if each had drawn a number to break ties by, which costs nothing and makes the order total.

The winning score may be published by the same theorem. It is not: being the luckiest of many, it
flatters the model.

The paper leaves open how a trial is scored; holding units out is ours, with the proof above.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from privet.data.dataset import Dataset
from privet.data.identity import entered_in_ledger
from privet.engine.arguments import require_dataset, require_ledger
from privet.engine.handover import private_figures
from privet.engine.origin import Origin
from privet.engine.ranks import Ranks
from privet.engine.tuned import Selected, Tuning, score_noise
from privet.errors import InputError
from privet.files import write_json
from privet.ledger import Ledger, default_ledger_path, new_run_id
from privet.release import Release
from privet.training import dpsgd
from privet.training.books import ledger_of, require_begun
from privet.training.recipes import settings_of, tuning_of
from privet.training.registry import find_method, require_target
from privet.training.run_folder import RunFolder
from privet.training.settings import Settings
from privet.tuning.checkpoint import Best, Standing
from privet.tuning.rehearsal import rehearse
from privet.tuning.repetitions import Repetitions
from privet.tuning.scoring import correct_answers, hold_out, noisy
from privet.tuning.search import Search
from privet.tuning.task import Task


def tune(
    method: str,
    data: Dataset,
    *,
    epsilon: float,
    delta: float = 1e-5,
    search: Mapping[str, Any],
    trials: float = 10.0,
    shape: float = 1.0,
    holdout: float = 0.1,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    watch: dpsgd.Watcher | None = None,
    reference: dict[str, Any] | None = None,
    **settings: Any,
) -> Release:
    """Train with settings that are chosen on the private records, and charge for the choice.

    Args:
        method: see `privet methods`.
        data: from `privet.data.load`, or a `Dataset` of your own.
        epsilon: target for everything: all trials, their scores and the choice.
        delta: of the target.
        search: lists of candidates, as in `{"learning_rate": [0.1, 0.5], "epochs": 20}`; settings
            with one value are fixed.
        trials: expected number of trials.
        shape: of its distribution; 1 is geometric, 0 logarithmic.
        holdout: share of the units that score the trials and train none.
        out: folder of the release.
        ledger: the user's own by default.
        watch: called with the trainer after each step.
        reference: how to load the data again when a killed search is resumed.
        settings: further settings of the method, with one value each.
    """
    require_target(find_method(method), epsilon, delta)
    if method != Settings.method:
        raise InputError(
            "settings of this method cannot be searched privately",
            got=f"'{method}'",
            expected=f"'{Settings.method}'",
        )
    if "attacker" in {*settings, *search}:
        raise InputError(
            "a search takes no network that attacks",
            got="attacker",
            fix="train with settings of your own: privet train dpsgd",
        )
    require_dataset(data)
    require_ledger(ledger)
    _require_alone()
    if out is not None:
        RunFolder(Path(out)).require_free()
    # What the scores' noise must be follows from that of a run; `_planned` puts it in.
    asked = Selected(mean=trials, shape=shape, holdout=holdout, score_multiplier=1.0)
    given = {"epsilon": epsilon, "delta": delta, **settings}
    chosen = Search.of(search, _recipe_of(settings, search, data) | given)
    ledger = ledger if ledger is not None else Ledger(default_ledger_path())
    record = _planned(chosen, asked, data, ledger) | {"method": method, "data": reference}
    with entered_in_ledger(data, ledger):
        # Who is held out is drawn by place: resuming needs the records in the same order.
        record["data_digest"] = Origin.of(data).sealed(ledger, record["run"])
        folder = None if out is None else RunFolder.create(out, record)
        task = Task.of(record, data, ledger, folder)
        try:
            task.reserve()
        except BaseException:
            if folder is not None:
                folder.discard()
            raise
    with contextlib.nullcontext() if folder is None else folder.locked():
        standing = Standing(randomness=dpsgd.fresh_randomness(task.search.base))
        task.remember(standing)
        return _finish(task, standing, watch)


def resume(
    out: str | Path,
    data: Dataset,
    *,
    ledger: Ledger | None = None,
    watch: dpsgd.Watcher | None = None,
) -> Release:
    """Go on with a killed search: finished trials stand, the unfinished one is run again.

    That one is not charged again. It has the same keys, so it is what it would have been; and
    nothing of what it was has left the house: the theorem speaks of the best trial alone.
    """
    _require_alone()
    folder, _ = RunFolder.open(out)
    with folder.locked():  # before anything is read: another process may be writing it
        folder, record = RunFolder.open(out)
        ledger = ledger if ledger is not None else ledger_of(record)
        if folder.is_saved:  # killed after the release was written: only the cleaning up is left
            ledger.settle(record["run"])
            folder.forget_keys()
            return Release.load(folder.folder)
        task = Task.of(record, data, ledger, folder)
        _require_kept_keys(task)
        require_begun(folder, record, ledger)
        dpsgd.set_as_begun(record, data, ledger)
        task.require_reserved()
        device = dpsgd.require_device(task.search.base.device)
        return _finish(task, Standing.load(folder.checkpoint, device), watch)


def _recipe_of(
    settings: Mapping[str, Any], search: Mapping[str, Any], data: Dataset
) -> dict[str, Any]:
    """The settings of the recipe that is named, less those that are searched or given."""
    name = settings.get("recipe")
    if name is None:
        return {}
    if tuning_of(name, data.name, {}).kind == "uncharged":
        raise InputError(
            f"recipe '{name}' was tuned on these records at no charge",
            expected="a search whose every choice is charged",
            fix="leave the recipe out",
        )
    return settings_of(name, {*settings, *search}, data.nominal_size)


def _planned(chosen: Search, asked: Selected, data: Dataset, ledger: Ledger) -> dict[str, Any]:
    """Calibrate, rehearse on made-up records, and write down all that is fixed."""
    size = Tuning(kind="charged", detail="", selected=asked).training_size(data.nominal_size)
    public = replace(data, nominal_size=size)
    chosen = chosen.filled(chosen.base.filled_for(public))
    dpsgd.require_device(chosen.base.device)
    plan = chosen.base.plan_for(public, whole=asked.event)
    noise = score_noise(plan.sampler.turn_rate, plan.noise_multiplier, plan.turns)
    rehearse(chosen, plan, public)
    return {
        "settings": asdict(chosen.base),
        "search": {name: list(values) for name, values in chosen.axes.items()},
        "plan": plan.to_json(),
        "selected": asdict(replace(asked, score_multiplier=noise)),
        "ledger": str(ledger.path.resolve()),
        "run": new_run_id(),
        "threads": torch.get_num_threads(),
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _require_alone() -> None:
    with Ranks.joined() as ranks:
        if ranks.size > 1:
            raise InputError(
                "a search runs in one process", got=f"{ranks.size}", fix="start it without torchrun"
            )


def _require_kept_keys(task: Task) -> None:
    if not task.search.base.keep_keys:
        raise InputError(
            "a search whose keys were not kept cannot be resumed",
            got=f"run {task.run_id}",
            expected="keys: without them its trials cannot be told apart from new ones",
            fix="search again; what was charged stays charged",
        )


def _finish(task: Task, standing: Standing, watch: dpsgd.Watcher | None) -> Release:
    task.ledger.charge(task.run_id, 0)
    release = _select(task, standing, watch).release
    if task.folder is not None:
        write_json(task.folder.figures, private_figures(release, task.data), private=True)
        release.save(task.folder.folder)
    # Only now: killed before this line, the search can still be resumed.
    task.ledger.settle(task.run_id)
    if task.folder is not None:
        task.folder.forget_keys()
    return release


def _select(task: Task, standing: Standing, watch: dpsgd.Watcher | None) -> Best:
    """A: run Q K times, keep the best."""
    keys, best = standing.randomness, standing.best
    count = Repetitions(mean=task.selected.mean, shape=task.selected.shape).draw(keys.sampling)
    training, scoring = hold_out(task.data.train, task.selected.holdout, keys.sampling)
    size = task.tuning.training_size(task.data.nominal_size)
    part = task.data.training_on(training, nominal_size=size)
    for trial in range(standing.done, count):
        settings = task.search.draw(trial, keys.sampling)
        trainer = task.trainer(part, settings, trial, keys)
        dpsgd.take_steps(trainer, settings, None, watch)
        right = correct_answers(task.model(trainer, settings), scoring)
        score = noisy(right, task.selected.score_multiplier, trial=trial, stream=keys.noise)
        if best is None or score > best.score:
            best = Best(score=score, release=task.state(trainer, settings))
        task.remember(Standing(randomness=keys, done=trial + 1, best=best))
    assert best is not None  # K >= 1
    return best
