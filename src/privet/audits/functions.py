"""Anybody's training function under audit: it is called, and its model is asked; nothing else.

    def train(x, y, seed):      # x: float32 in [0, 1], (n, *shape); y: int64, (n,)
        ...
        return predict          # predict(x) -> (n, classes), class scores before the softmax

| audit       | trainings | what is compared                                                  |
|-------------|-----------|-------------------------------------------------------------------|
| one run     | 1         | canaries that took part with such that did not                    |
| many runs   | many      | models with one canary with models without it                     |
| shadows     | many      | every record under models with it and without it: LiRA            |

The first two bound epsilon from below. The seed is all that a function may draw from; one that
ignores it and is deterministic shows no randomness, and every bound is then infinite in truth.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from privet.audits.inputs import InputCanaries
from privet.audits.membership import Scores, confidence
from privet.data.dataset import Dataset
from privet.errors import InputError

LEAST_SHADOWS: Final = 8
LEAST_RUNS: Final = 10

Predict = Callable[[NDArray[np.float32]], Any]
Watch = Callable[[int, int], object]
"""Told how many trainings of how many are done."""


class Train(Protocol):
    """A training function; see above."""

    def __call__(self, x: NDArray[np.float32], y: NDArray[np.int64], seed: int) -> Predict:
        """Train on these examples; the answer classifies."""


def open_function(path: str) -> Train:
    """The function that `package.module:name` names, found from the current folder too."""
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise InputError(
            "no such function",
            got=f"'{path}'",
            expected="package.module:name",
            fix="my.module:train",
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Train = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise InputError(
            "no such module",
            got=f"'{error.name}'",
            fix="run this in the folder that holds it, or install it",
        ) from None
    except AttributeError:
        raise InputError("no such function", got=f"'{name}' in {module}") from None
    if not callable(found):
        raise InputError("not a function", got=f"{module}:{name}, {type(found).__name__}")
    return found


def in_one_run(
    train: Train, data: Dataset, *, kind: str, m: int, seed: int
) -> tuple[Scores, NDArray[np.bool_]]:
    """Scores of `m` canaries after one training, and which of them took part."""
    canaries = InputCanaries.drawn(kind, m, data, np.random.default_rng([seed, 0]))
    x, y = _records(data)
    chosen = canaries.included
    # Another stream than that of the coins: a function that knew them would refute anything.
    predict = _trained(
        train,
        np.concatenate([x, canaries.x[chosen]]),
        np.concatenate([y, canaries.y[chosen]]),
        next(_seeds(seed)),
    )
    return _confidence(predict, canaries.x, canaries.y), chosen


def in_many_runs(
    train: Train, data: Dataset, *, kind: str, runs: int, seed: int, watch: Watch = lambda *_: None
) -> tuple[Scores, Scores]:
    """Scores of one canary under models trained without it and with it, `runs` of each."""
    if runs < LEAST_RUNS:
        raise InputError("too few runs", got=runs, expected=f"at least {LEAST_RUNS} in each world")
    canary = InputCanaries.drawn(kind, 1, data, np.random.default_rng([seed, 0]))
    x, y = _records(data)
    both = np.concatenate([x, canary.x]), np.concatenate([y, canary.y])
    scores = np.empty((2, runs))
    for run, draw in zip(range(runs), _seeds(seed), strict=False):
        for included, (inputs, labels) in enumerate([(x, y), both]):
            predict = _trained(train, inputs, labels, draw + included)
            scores[included, run] = _confidence(predict, canary.x, canary.y)[0]
            watch(2 * run + included + 1, 2 * runs)
    return scores[0], scores[1]


def with_shadows(
    train: Train, data: Dataset, *, models: int, seed: int, watch: Watch = lambda *_: None
) -> tuple[Scores, NDArray[np.bool_]]:
    """Confidences (models, records) of models trained on random halves, and which half it was."""
    if models < LEAST_SHADOWS:
        raise InputError(
            "too few shadow models", got=models, expected=f"at least {LEAST_SHADOWS}, better 64"
        )
    x, y = _records(data)
    member = np.random.default_rng([seed, 0]).random((models, len(y))) < 0.5
    found = np.empty(member.shape)
    for k, draw in zip(range(models), _seeds(seed), strict=False):
        found[k] = _confidence(_trained(train, x[member[k]], y[member[k]], draw), x, y)
        watch(k + 1, models)
    return found, member


def _records(data: Dataset) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    return data.bounds.clamp_and_scale(data.train.x), data.train.y


def _seeds(seed: int) -> Iterator[int]:
    """Even numbers below 2^32, none twice, so that each has an odd one for the other world."""
    rng, given = np.random.default_rng([seed, 1]), set[int]()
    while True:
        drawn = 2 * int(rng.integers(0, 2**31))
        if drawn not in given:  # two equal runs would not be independent
            given.add(drawn)
            yield drawn


def _trained(train: Train, x: NDArray[np.float32], y: NDArray[np.int64], seed: int) -> Predict:
    predict = _asked(lambda: train(x, y, seed), "the training function failed")
    if not callable(predict):
        raise InputError(
            "the training function returns no model",
            got=type(predict).__name__,
            expected="a function from inputs to class scores",
        )
    return predict  # type: ignore[no-any-return]


def _asked(question: Callable[[], Any], failed: str) -> Any:
    """Anybody's code: whatever it raises is bad input, in one line."""
    try:
        return question()
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        raise InputError(failed, got=f"{type(error).__name__}: {said}") from error


def _confidence(predict: Predict, x: NDArray[np.float32], y: NDArray[np.int64]) -> Scores:
    scores = _asked(
        lambda: np.asarray(predict(x), dtype=float), "the training function's model failed"
    )
    if scores.ndim != 2 or len(scores) != len(x):
        raise InputError(
            "the training function's model does not classify",
            got=f"an answer of shape {scores.shape} for {len(x)} examples",
            expected="(n, classes)",
        )
    if not np.isfinite(scores).all():
        raise InputError("the training function's model gives scores that are not finite")
    return confidence(scores, y)
