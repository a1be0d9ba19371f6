"""Replace what private training cannot take."""

import copy

from torch import nn

from privet.models.replacing import replaced


def without_batchnorm(model: nn.Module, groups: int = 8) -> nn.Module:
    """A copy in which every BatchNorm is a GroupNorm of the same width.

    BatchNorm mixes the examples of a batch; GroupNorm normalises each one by itself. The learned
    scale and shift are kept, the running statistics (which hold what they saw) are dropped.
    """
    repaired = copy.deepcopy(model)
    mixing = [m for m in repaired.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    return replaced(repaired, {layer: _group_norm(layer, groups) for layer in mixing})


def _group_norm(layer: nn.modules.batchnorm._BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    if isinstance(layer, nn.BatchNorm1d):
        groups = 1  # on vectors a group of one feature would be normalised to a constant
    fitting = max(g for g in range(1, min(groups, channels) + 1) if channels % g == 0)
    replacement = nn.GroupNorm(fitting, channels, eps=layer.eps, affine=layer.affine)
    replacement.train(layer.training)
    if layer.affine:
        # The parameters themselves: device, precision and frozenness stay.
        replacement.weight, replacement.bias = layer.weight, layer.bias
    return replacement
