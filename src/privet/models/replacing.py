"""Putting other layers in the place of some."""

from collections.abc import Mapping

from torch import nn


def replaced(model: nn.Module, others: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """`model`, changed in place, with others for some of its layers, or for itself.

    A layer in two places stays one layer.
    """
    for parent in list(model.modules()):
        for name, child in parent._modules.items():  # named_children skips second names
            if child is not None and child in others:
                setattr(parent, name, others[child])
    return others.get(model, model)
