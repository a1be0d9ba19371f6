"""Whether a model is as the private steps left it.

What a release states holds for weights that private updates alone have made. PyTorch counts the
changes that are made to a tensor in place. A change between two steps, such as a plain optimiser
step that was left in a loop, shows in these counts; so does a layer that was exchanged, or a
parameter that was frozen or freed. What goes past the counts (`parameter.data`) does not show: the
card names it as an assumption.
"""

import weakref
from collections.abc import Mapping
from typing import Final, final

from torch import nn

from privet.errors import InputError
from privet.privacy.geometry import trainable

_TRAINED: Final[weakref.WeakValueDictionary[int, nn.Parameter]] = weakref.WeakValueDictionary()


@final
class Untouched:
    """Notes a model's layers and the counts of its parameters, and compares them later."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._layers = dict(model.named_modules())
        self._trained = dict(trainable(model))
        self._counts: dict[str, int] = {}
        self.note()

    def note(self) -> None:
        """What was changed up to now was meant."""
        self._counts = {name: p._version for name, p in self._model.named_parameters()}

    def require(self) -> None:
        """Refuse a model that something else than the trainer has changed."""
        _require_same(dict(self._model.named_modules()), self._layers, "layer")
        _require_same(dict(trainable(self._model)), self._trained, "trained parameter")
        for name, parameter in self._model.named_parameters():
            if parameter._version != self._counts.get(name):
                raise InputError(
                    f"parameter '{name}' was changed outside of trainer.step",
                    expected="weights that nothing but private updates have made",
                    fix="take the other update out of the loop; what reads weights alone, such as"
                    " a bound on them, belongs into the optimiser's step",
                )


def _require_same(now: Mapping[str, object], then: Mapping[str, object], what: str) -> None:
    odd = [name for name in {**then, **now} if now.get(name) is not then.get(name)]
    if odd:
        raise InputError(
            f"a {what} was exchanged, frozen or freed during the run",
            got=f"'{odd[0]}'",
            expected="the model that was checked when the run was prepared",
            fix="build the model first, then make_private; a changed one is a new run",
        )


def mark_trained(model: nn.Module) -> None:
    """Its weights are no longer public."""
    _TRAINED.update({id(p): p for p in trainable(model).values()})


def require_fresh(model: nn.Module) -> None:
    """Refuse first weights that an earlier run in this process has learned."""
    for name, parameter in trainable(model).items():
        if _TRAINED.get(id(parameter)) is parameter:
            raise InputError(
                f"parameter '{name}' was trained by an earlier run",
                expected="first weights that were not learned from records: a card states what"
                " its own run has cost",
                fix="build the model anew; to train for longer, plan more epochs",
            )
