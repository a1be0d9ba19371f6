"""What per-example clipping makes of each layer of a model: a plan to show before training.

| treatment | meaning                                                                        |
|-----------|--------------------------------------------------------------------------------|
| rule      | book-keeping in the one backward pass                                          |
| module    | `torch.func` on that module alone, in the same step                            |
| model     | `torch.func` on the whole model (slower): the layer works without being called |
| refused   | no clipping possible; `fix` says what to do                                    |

The plan is what the layer's type promises. `make_clipper` tries it on made-up inputs, and may still
turn to the whole model.
"""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList

from privet.errors import InputError
from privet.privacy.rules import own_parameters, why_no_rule
from privet.privacy.separation import constant_layers, repair_of_mixing

Treatment = Literal["rule", "module", "model", "refused"]
Plan = tuple[Treatment, str, str]
"""(treatment, why, fix)."""


@final
@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: how its gradients are found, or why not and what to do."""

    name: str
    kind: str
    parameters: int
    treatment: Treatment
    why: str = ""
    fix: str = ""


def describe(model: nn.Module) -> list[Layer]:
    """Every layer with trainable parameters of its own, and every layer that is refused.

    A BatchNorm of a frozen part, which evaluates while the rest trains, is neither.
    """
    layers, constant = [], constant_layers(model)
    for name, module in model.named_modules():
        if module in constant and not own_parameters(module):
            continue
        refusal = _refusal(module)
        if refusal or own_parameters(module):
            treatment, why, fix = refusal or _treatment(module)
            sizes = [0 if is_lazy(p) else p.numel() for p in own_parameters(module).values()]
            layers.append(
                Layer(
                    name=name,
                    kind=type(module).__name__,
                    parameters=sum(sizes),
                    treatment=treatment,
                    why=why,
                    fix=fix,
                )
            )
    return layers


def require_supported(model: nn.Module) -> None:
    """Refuse a model with a layer that no clipper can treat, by name and with the fix."""
    for layer in describe(model):
        if layer.treatment == "refused":
            raise InputError(
                f"layer '{layer.name}' cannot be trained with per-example clipping: {layer.why}",
                got=layer.kind,
                fix=layer.fix,
            )


def _treatment(module: nn.Module) -> Plan:
    why = why_no_rule(module)
    if not why:
        return "rule", "", ""
    if isinstance(module, ParametrizationList | nn.MultiheadAttention):
        return "model", why, ""
    return "module", why, ""


def _refusal(module: nn.Module) -> Plan | None:
    """Of a layer that cannot be trained privately at all."""
    reason = _reason(module)
    return ("refused", *reason) if reason else None


def _reason(module: nn.Module) -> tuple[str, str] | None:
    """(why, fix) of a refusal."""
    mixing = repair_of_mixing(module)
    if mixing:
        return "it mixes the examples of a batch", mixing
    if any(is_lazy(p) for p in module.parameters(recurse=False)):
        return "its shape is not known yet", "pass one made-up batch through the model first"
    if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized")):
        return "quantised weights have no gradients", "train in float32, quantise the release"
    for name, parameter in own_parameters(module).items():
        if parameter.dtype not in (torch.float32, torch.float64):
            return f"parameter '{name}' is {parameter.dtype}", "train in float32: model.float()"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return _embedding_refusal(module)
    return None


def _embedding_refusal(layer: nn.Embedding | nn.EmbeddingBag) -> tuple[str, str] | None:
    if layer.max_norm is not None:
        # Frozen or not: the weights hold what was looked up.
        return "max_norm changes weights in the forward pass, unaccounted", "set max_norm=None"
    if not own_parameters(layer):
        return None
    if layer.scale_grad_by_freq:
        return "frequencies are counted over the batch", "set scale_grad_by_freq=False"
    if layer.sparse:
        return "private gradients are never sparse", "set sparse=False"
    return None
