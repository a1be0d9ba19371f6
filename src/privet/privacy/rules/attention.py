"""Multi-head attention, computed through recorded projections.

| PyTorch                          | here                                                       |
|----------------------------------|------------------------------------------------------------|
| in_proj_weight, or q/k/v_proj_weight | three products, watched together                       |
| bias_k, bias_v                   | one more position for each row, watched                    |
| out_proj                         | one recorded product (PyTorch never calls the module)      |

Same numbers as `nn.MultiheadAttention`, with time first in memory as there: dropout, here and in
what follows, draws in that order.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.privacy.rules.forms import Dense, Stacked
from privet.privacy.rules.plain import product, shift
from privet.privacy.rules.registry import Booked, Tape, expansion, kept


@expansion(nn.MultiheadAttention)
def multihead_attention(
    layer: nn.MultiheadAttention,
    tape: Tape,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Project, attend, project."""
    if query.dim() != 3:
        raise InputError(
            "attention without a batch axis", got=f"shape {tuple(query.shape)}", expected="3 axes"
        )
    inputs = [v if layer.batch_first else v.transpose(0, 1) for v in (query, key, value)]
    q, k, v = _projected(layer, tape, inputs)
    mask = _mask(layer, q, k, attn_mask, key_padding_mask)
    k, v, mask = _extended(layer, tape, k, v, mask)
    out, weights = _attend(layer, q, k, v, mask, need_weights)
    out = tape.linear(out, layer.out_proj.weight, layer.out_proj.bias).transpose(0, 1).contiguous()
    if weights is not None and average_attn_weights:
        weights = weights.mean(dim=1)
    return out.transpose(0, 1) if layer.batch_first else out, weights


def _projected(layer: nn.MultiheadAttention, tape: Tape, inputs: Sequence[Tensor]) -> list[Tensor]:
    """q, k and v, each (n, t, embed_dim)."""
    packed: Tensor | None = layer.in_proj_weight
    bias: Tensor | None = layer.in_proj_bias
    separate = [layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight]
    weights = separate if packed is None else packed.chunk(3)
    shifts = [None] * 3 if bias is None else bias.chunk(3)
    outputs = [F.linear(x, w, s) for x, w, s in zip(inputs, weights, shifts, strict=True)]
    again = [kept(layer, x) for x in inputs]

    def book(b: Sequence[Tensor]) -> Booked:
        products = [product(x(), bi) for x, bi in zip(again, b, strict=True)]
        if packed is None:
            booked: Booked = list(zip(separate, products, strict=True))
        else:
            booked = [(packed, Stacked(tuple(products)))]
        if bias is not None:
            booked.append((bias, Stacked(tuple(shift(bi) for bi in b))))
        return booked

    tape.watch(outputs, book)
    return outputs


def _mask(
    layer: nn.MultiheadAttention,
    q: Tensor,
    k: Tensor,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
) -> Tensor | None:
    """Both masks as one that is added to the scores, (n or 1, heads or 1, t, s)."""
    mask = None
    if attn_mask is not None:
        shape = (1, 1) if attn_mask.dim() == 2 else (len(q), layer.num_heads)
        mask = _additive(attn_mask, q).reshape(*shape, q.shape[1], k.shape[1])
    if key_padding_mask is not None:
        padding = _additive(key_padding_mask, q)[:, None, None, :]
        mask = padding if mask is None else mask + padding
    return mask


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


def _extended(
    layer: nn.MultiheadAttention, tape: Tape, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """With the learned position (bias_k, bias_v) and the zero one, where the layer has them."""
    n, width = len(k), k.shape[2]
    if layer.bias_k is not None and layer.bias_v is not None:
        learned = (layer.bias_k, layer.bias_v)
        more = [p.reshape(1, 1, width).repeat(n, 1, 1) for p in learned]
        tape.watch(
            more, lambda b: [(p, Dense(g[:, None])) for p, g in zip(learned, b, strict=True)]
        )
        k, v = torch.cat([k, more[0]], dim=1), torch.cat([v, more[1]], dim=1)
        mask = None if mask is None else F.pad(mask, (0, 1))
    if layer.add_zero_attn:
        zero = k.new_zeros(n, 1, width)
        k, v = torch.cat([k, zero], dim=1), torch.cat([v, zero], dim=1)
        mask = None if mask is None else F.pad(mask, (0, 1))
    return k, v, mask


def _attend(
    layer: nn.MultiheadAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot products, head by head; the weights (n, heads, t, s) only on request."""
    n, t, width = q.shape
    q, k, v = (x.reshape(n, x.shape[1], layer.num_heads, -1).transpose(1, 2) for x in (q, k, v))
    dropout = layer.dropout if layer.training else 0.0
    weights = None
    if need_weights:
        scores = (q / math.sqrt(q.shape[3])) @ k.transpose(2, 3)
        weights = F.softmax(scores if mask is None else scores + mask, dim=3)
        weights = F.dropout(weights, dropout) if dropout > 0 else weights
        out = weights @ v
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return out.transpose(1, 2).reshape(n, t, width), weights
