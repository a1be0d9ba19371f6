"""Low-rank adaptation: train two thin matrices beside each frozen one.

Hu et al., "LoRA: low-rank adaptation of large language models" (2021); privately, Yu et al. (2022).
The noise of private training grows with the number of trained entries, so few of them help.

| symbol  | here          | meaning                                         |
|---------|---------------|-------------------------------------------------|
| W_0     | `base.weight` | frozen, (out, in)                               |
| A       | `down.weight` | trained, (r, in), random at first               |
| B       | `up.weight`   | trained, (out, r), zero at first                |
| r       | `rank`        | at most the smaller side of W_0                 |
| alpha/r | `scale`       | how much the product counts                     |

W = W_0 + (alpha / r) B A. A and B are plain `nn.Linear` layers, so the fast clipping rules apply.
"""

import copy
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.finetune import freeze, named_by
from privet.models.replacing import replaced


class LoraLinear(nn.Module):
    """A frozen linear layer plus a trained product of two thin ones."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        place = {"device": base.weight.device, "dtype": base.weight.dtype}
        rank = min(rank, base.in_features, base.out_features)
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, **place)
        self.up = nn.Linear(rank, base.out_features, bias=False, **place)
        nn.init.zeros_(self.up.weight)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """W x + bias, the two parts apart."""
        y: Tensor = self.base(x) + self.scale * self.up(self.down(x))
        return y

    @property
    def weight(self) -> Tensor:
        """W: some modules (TransformerEncoderLayer in evaluation) read weights, not layers."""
        return self.base.weight + self.scale * self.up.weight @ self.down.weight

    @property
    def bias(self) -> Tensor | None:
        """That of the frozen layer."""
        return self.base.bias


def with_lora(
    model: nn.Module,
    rank: int,
    *,
    targets: Iterable[str] | None = None,
    also_train: Iterable[str] = (),
    alpha: float | None = None,
) -> nn.Module:
    """A copy in which chosen linear layers are adapted, and everything else is frozen.

        model = with_lora(pretrained, 8, targets=["*.linear1", "*.linear2"], also_train=["head"])

    It computes what the original computes until it is trained. The frozen weights must be public.

    Args:
        model: any network.
        rank: of each update.
        targets: names or patterns of modules, of which the plain `nn.Linear` layers inside are
            adapted; default: all of them. The projections of `nn.MultiheadAttention` are not
            among them: it reads their weights without calling them.
        also_train: names or patterns of what is trained in full, such as a new head; these are
            not adapted.
        alpha: scale of the update times the rank; default: the rank, so that the scale is one.
    """
    if rank < 1:
        raise InputError("no low-rank update", got=f"rank {rank}", expected="at least 1")
    if any(isinstance(layer, LoraLinear) for layer in model.modules()):
        raise InputError("the model is adapted already", fix="fold that in first: merge_lora")
    adapted = copy.deepcopy(model)
    in_full = named_by(also_train, [name for name, _ in adapted.named_parameters()])
    kept = [p for name, p in adapted.named_parameters() if name in in_full]
    layers = [layer for layer in _chosen(adapted, targets) if not _any_of(layer, kept)]
    freeze(adapted)
    for parameter in kept:
        parameter.requires_grad_(True)
    scale = 1.0 if alpha is None else alpha / rank
    return replaced(adapted, {layer: LoraLinear(layer, rank, scale) for layer in layers})


def merge_lora(model: nn.Module) -> nn.Module:
    """A copy of plain layers that computes the same: what to release."""
    merged = copy.deepcopy(model)
    found = [layer for layer in merged.modules() if isinstance(layer, LoraLinear)]
    return replaced(merged, {layer: _folded(layer) for layer in found})


def _folded(layer: LoraLinear) -> nn.Linear:
    with torch.no_grad():
        layer.base.weight.copy_(layer.weight)
    return layer.base


def _any_of(layer: nn.Module, parameters: list[nn.Parameter]) -> bool:
    return any(p is q for p in layer.parameters() for q in parameters)


def _chosen(model: nn.Module, targets: Iterable[str] | None) -> list[nn.Linear]:
    """The layers to adapt; every target must name at least one that can be."""
    modules = dict(model.named_modules(remove_duplicate=False))
    # Exact types only: a subclass may compute something else.
    plain = {name: layer for name, layer in modules.items() if type(layer) is nn.Linear}
    chosen: dict[str, nn.Linear] = {}
    for target in ["*"] if targets is None else targets:
        names = named_by([target], list(modules))
        fitting = {name: layer for name, layer in plain.items() if name in names}
        if not fitting:
            raise _refusal(target, {name: modules[name] for name in names}, model)
        chosen |= fitting
    return list(dict.fromkeys(chosen.values()))


def _refusal(target: str, found: Mapping[str, nn.Module], model: nn.Module) -> InputError:
    attention = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    uncalled = any(layer is m.out_proj for layer in found.values() for m in attention)
    reason = "; MultiheadAttention reads its out_proj without calling it" if uncalled else ""
    kinds = sorted({type(layer).__name__ for layer in found.values()})
    return InputError(
        "no layer here can be adapted",
        got=f"target '{target}', which names {', '.join(kinds)}{reason}",
        expected="plain nn.Linear layers",
        fix="name others, or train it in full: also_train=[...]",
    )
