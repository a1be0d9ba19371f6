"""Training a part of a network: what is frozen needs no gradient, no clipping and no noise.

What is frozen must be public: the guarantee of a run covers what the run learned, not what the
first weights already knew.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from torch import nn

from privet.errors import InputError

M = TypeVar("M", bound=nn.Module)


def freeze(model: M, except_: Iterable[str] = ()) -> M:
    """Freeze every parameter of `model`, in place, but those that are named.

        freeze(model, except_=["head", "*.norm*"])

    Args:
        model: any network.
        except_: names or patterns (`*`, `?`, `[...]`) of parameters or of modules; naming a module
            names all that is in it.
    """
    trained = named_by(except_, [name for name, _ in model.named_parameters()])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    return model


def named_by(patterns: Iterable[str], names: list[str]) -> set[str]:
    """The dotted names that a pattern fits, in full or in their first parts.

    A pattern that fits none is refused: it is a slip, and would leave something frozen unnoticed.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        fitting = {
            name
            for name in names
            if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
        }
        if not fitting:
            raise InputError(
                "a pattern that fits nothing in the model",
                got=f"'{pattern}'",
                expected=f"a name or pattern among {_shortened(names)}",
            )
        chosen |= fitting
    return chosen


@dataclass(frozen=True, kw_only=True)
class Trainable:
    """Which parameters are trained, and which are frozen: names and numbers of entries."""

    trained: dict[str, int]
    frozen: dict[str, int]

    def __str__(self) -> str:
        trained, total = self.entries
        return f"{trained:,} of {total:,} parameters are trained, in {len(self.trained)} tensors"

    @property
    def entries(self) -> tuple[int, int]:
        """Trained, and in all."""
        trained = sum(self.trained.values())
        return trained, trained + sum(self.frozen.values())


def trainable_report(model: nn.Module) -> Trainable:
    """What training would change; a parameter in several places counts once."""
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return Trainable(
        trained={name: size for name, size in sizes.items() if name in trained},
        frozen={name: size for name, size in sizes.items() if name not in trained},
    )


def _shortened(names: list[str], most: int = 8) -> str:
    names = [name for name in names if name]  # the model itself has none
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
