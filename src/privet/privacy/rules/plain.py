"""Rules of layers that are one product or one scaling: Linear, Embedding, the norms."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.privacy.rules.forms import Dense, LookUp, OuterSum, PerExample, RankOne
from privet.privacy.rules.registry import rule


def product(a: Tensor, b: Tensor) -> PerExample:
    """Gradient of W in a W^T, given the output's gradient b, in whose precision it is taken."""
    a = a.to(b.dtype)
    if a.dim() == 2:
        return RankOne(b, a)
    a, b = a.flatten(1, -2), b.flatten(1, -2)
    return OuterSum(b[:, None], a[:, None], torch.Size((b.shape[2], a.shape[2])))


def shift(b: Tensor) -> Dense:
    """Gradient of a bias on the last axis."""
    return Dense(b if b.dim() == 2 else b.flatten(1, -2).sum(1))


@rule(nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
def linear(layer: nn.Linear, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Linear on vectors, or on sequences of any depth."""
    return {"weight": product(a, b)} | ({} if layer.bias is None else {"bias": shift(b)})


def _embedding_limit(layer: nn.Embedding) -> str:
    if layer.max_norm is not None:
        return "max_norm changes weights in the forward pass"
    return "scale_grad_by_freq counts over the batch" if layer.scale_grad_by_freq else ""


@rule(nn.Embedding, limit=_embedding_limit)
def embedding(layer: nn.Embedding, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Each token's row gets its output's gradient; the padding row gets none."""
    indices = a.reshape(len(a), -1)
    gradients = b.reshape(*indices.shape, -1)
    if layer.padding_idx is not None:
        padding = (indices == layer.padding_idx)[..., None]
        gradients = torch.where(padding, torch.zeros_like(gradients), gradients)
    return {"weight": LookUp(indices, gradients, layer.num_embeddings)}


@rule(nn.LayerNorm)
def layer_norm(layer: nn.LayerNorm, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Scale and shift over the last axes."""
    normal = F.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    return _scaled(layer, normal, b, len(layer.normalized_shape))


@rule(nn.RMSNorm)
def rms_norm(layer: nn.RMSNorm, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Scale over the last axes."""
    normal = F.rms_norm(a, list(layer.normalized_shape), eps=layer.eps)
    return _scaled(layer, normal, b, len(layer.normalized_shape))


def _scaled(layer: nn.Module, normal: Tensor, b: Tensor, axes: int) -> dict[str, PerExample]:
    """Gradients of y = normal * weight + bias, both of the last `axes` axes' shape."""
    positions = tuple(range(1, b.dim() - axes))

    def total(values: Tensor) -> Dense:
        return Dense(values.sum(positions) if positions else values)

    forms: dict[str, PerExample] = {"weight": total(b * normal)}
    if getattr(layer, "bias", None) is not None:
        forms["bias"] = total(b)
    return forms


@rule(nn.GroupNorm)
def group_norm(layer: nn.GroupNorm, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Scale and shift of each channel."""
    return _by_channel(F.group_norm(a, layer.num_groups, eps=layer.eps), b)


def _instance_norm_limit(layer: nn.InstanceNorm1d) -> str:
    return "running statistics" if layer.track_running_stats else ""


@rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, limit=_instance_norm_limit)
def instance_norm(layer: nn.InstanceNorm1d, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Scale and shift of each channel."""
    return _by_channel(F.instance_norm(a, eps=layer.eps), b)


def _by_channel(normal: Tensor, b: Tensor) -> dict[str, PerExample]:
    n, channels = b.shape[:2]

    def total(values: Tensor) -> Dense:
        return Dense(values.reshape(n, channels, -1).sum(2))

    return {"weight": total(b * normal), "bias": total(b)}
