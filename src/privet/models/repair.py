"""Replace what private training cannot take."""

import copy

from torch import nn


def without_batchnorm(model: nn.Module, groups: int = 8) -> nn.Module:
    """A copy in which every BatchNorm is a GroupNorm of the same width.

    BatchNorm mixes the examples of a batch; GroupNorm normalises each one by itself. The learned
    scale and shift are kept, the running statistics (which hold what they saw) are dropped.
    """
    repaired = copy.deepcopy(model)
    if isinstance(repaired, nn.modules.batchnorm._BatchNorm):
        return _group_norm(repaired, groups)
    for parent in list(repaired.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                setattr(parent, name, _group_norm(child, groups))
    return repaired


def _group_norm(layer: nn.modules.batchnorm._BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    fitting = max(g for g in range(1, min(groups, channels) + 1) if channels % g == 0)
    replacement = nn.GroupNorm(fitting, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        replacement.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    return replacement
