"""The hub of a phone (FLSys: FL Phone Manager): models, turns, sensors, and answers for apps.

Requests to join rounds of several models may be under way at once; training is one model after the
other. Apps see neither data nor weights: they show their key and get scores, also during training.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, final

from torch import Tensor

from privet.errors import CheckFailed, InputError
from privet.federation.phone.model import ModelOnPhone
from privet.federation.phone.policies import Waiting, order_of
from privet.federation.phone.stages import AT_WORK, Stage
from privet.federation.phone.talking import Me, app_digest
from privet.federation.phone.training import scores

REFRESH: Final = 3600.0  # seconds of its clock between looks for newer versions
WAIT_FOR_TURN: Final = 60.0  # seconds of its clock until a model that waits is looked at again


class Senses(Protocol):
    """What collects and processes beside training."""

    def act(self, now: float) -> float:
        """Take in what there is; when to be called again."""


@final
class Phone:
    """One phone with all its models.

    Args:
        folder: its own.
        models: by name.
        apps: who may ask for which models' answers.
        senses: its sensors; None: its records are given.
    """

    def __init__(
        self,
        folder: Path,
        models: Mapping[str, ModelOnPhone],
        apps: Sequence[Me],
        senses: Senses | None = None,
    ) -> None:
        self.folder, self.models, self.apps, self.senses = folder, dict(models), apps, senses
        self._due = dict.fromkeys(self.models, 0.0)
        self._sense_at = 0.0 if senses is not None else float("inf")
        self._refresh_at = 0.0
        self._answering = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether no model has anything left to train."""
        return all(model.over for model in self.models.values())

    def act(self, now: float) -> float:
        """Whatever is due does one thing; when something will be due again."""
        if self.senses is not None and self._sense_at <= now:
            self._sense_at = self.senses.act(now)
        busy = self._busy
        for name, model in self.models.items():
            if self._due[name] <= now:
                self._due[name] = self._one(model, now)
        if self._refresh_at <= now:
            self._refresh(now)
        if busy and not self._busy:
            self._wake_who_waits(now)
        return min(self._sense_at, self._refresh_at, *self._due.values())

    def answer(self, app_key: str, model: str, x: Tensor) -> Tensor:
        """Scores for an app's examples, by the newest version that is here."""
        known = [me for me in self.apps if me.app == app_digest(app_key)]
        if not known:
            raise CheckFailed("no app of this phone has this key", fix="register the app")
        if not any(model in me.models for me in known) or model not in self.models:
            raise InputError("the app does not have this model", got=model)
        asked = self.models[model]
        if asked.standing.version < 0:
            raise InputError("no version of the model is here yet", got=model)
        with self._answering:
            asked.uses += 1
            return _answered(asked, x)

    def _refresh(self, now: float) -> None:
        """Apps that use a model get its newest version also where the phone does not train it."""
        self._refresh_at = now + REFRESH
        for model in self.models.values():
            if model.uses:
                model.refresh(now)

    def _one(self, model: ModelOnPhone, now: float) -> float:
        held = model.standing.ticket
        if model.standing.stage is not Stage.QUEUED or held is None or now >= held.deadline:
            return model.act(now)
        if model.name == self._next_in_turn():
            return model.act(now)
        return min(held.deadline, now + WAIT_FOR_TURN)

    @property
    def _busy(self) -> bool:
        return any(model.standing.stage in AT_WORK for model in self.models.values())

    def _next_in_turn(self) -> str | None:
        """Who trains next; nobody while somebody trains."""
        if self._busy:
            return None
        waiting = [
            Waiting(
                model=model.name,
                uses=model.uses,
                deadline=model.standing.held.deadline,
                took=model.standing.took,
            )
            for model in self.models.values()
            if model.standing.stage is Stage.QUEUED
        ]
        return order_of(waiting)[0].model if waiting else None

    def _wake_who_waits(self, now: float) -> None:
        name = self._next_in_turn()
        if name is not None:
            self._due[name] = now


def _answered(model: ModelOnPhone, x: Tensor) -> Tensor:
    """By the newest version; once more, if it was replaced just now."""
    version = model.standing.version
    try:
        return scores(model.network, model.weights(version), x)
    except InputError:
        if model.standing.version == version:
            raise
    return scores(model.network, model.weights(model.standing.version), x)
