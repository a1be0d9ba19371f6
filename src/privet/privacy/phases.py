"""Models that learn one thing after the other: what they compute hangs on a phase.

A plan has one sequence of steps, all accounted alike. In which phase a step is follows from its
number alone: public, and the same for every data set.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from torch import nn

ONLY: Final = "only"


class Phased(nn.Module, ABC):
    """A model whose pass depends on `phase`, one of its `phases`; nothing else may change it."""

    phases: tuple[str, ...]
    phase: str

    @abstractmethod
    def phase_at(self, step: int, steps: int) -> str:
        """Of one of so many steps; a function of these two numbers and constants."""


def phases_of(model: nn.Module) -> tuple[str, ...]:
    """All phases of a model."""
    return model.phases if isinstance(model, Phased) else (ONLY,)


def phase_of(model: nn.Module) -> str:
    """The phase that a model is in."""
    return model.phase if isinstance(model, Phased) else ONLY


def enter_phase(model: nn.Module, step: int, steps: int) -> None:
    """Put a model into the phase of a step."""
    if isinstance(model, Phased):
        model.phase = model.phase_at(step, steps)


@contextmanager
def in_phase(model: nn.Module, phase: str) -> Iterator[None]:
    """A model in one of its phases, for a while."""
    if not isinstance(model, Phased):
        yield
        return
    before, model.phase = model.phase, phase
    try:
        yield
    finally:
        model.phase = before
