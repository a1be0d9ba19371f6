"""Recurrent layers, step by step over time (never over examples), their products recorded.

For each layer, direction and step: x_t W_ih^T + b_ih is one recorded product over all steps, and
h_(t-1) W_hh^T + b_hh is watched at every step.

| cell | h_t                                                                              |
|------|----------------------------------------------------------------------------------|
| RNN  | tanh or relu(x + h)                                                              |
| LSTM | o * tanh(c_t), c_t = f * c + i * g; i, f, g, o from x + h                        |
| GRU  | (1 - z) * n + z * h; r, z from x + h, n = tanh(x_n + r * h_n)                    |

With `proj_size`, an LSTM's h_t is multiplied by W_hr, watched as well.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from privet.errors import InputError
from privet.privacy.rules.plain import product, shift
from privet.privacy.rules.registry import Booked, Tape, expansion

State = tuple[Tensor, ...]
"""(h,), or (h, c) for an LSTM; each (n, hidden)."""
Step = Callable[[Tensor, Tensor, State], State]
"""(x part, h part, state) -> next state."""


def _lstm_step(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, dim=1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru_step(x: Tensor, h: Tensor, state: State) -> State:
    x_r, x_z, x_n = x.chunk(3, dim=1)
    h_r, h_z, h_n = h.chunk(3, dim=1)
    n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
    z = torch.sigmoid(x_z + h_z)
    return ((1 - z) * n + z * state[0],)


def _step_of(layer: nn.Module) -> Step:
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _lstm_step
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _gru_step
    squash = torch.tanh if getattr(layer, "nonlinearity", "tanh") == "tanh" else torch.relu
    return lambda x, h, state: (squash(x + h),)


@expansion(nn.LSTM, nn.GRU, nn.RNN)
def recurrent(layer: nn.RNNBase, tape: Tape, input: Any, hx: Any = None) -> tuple[Tensor, Any]:
    """Layer by layer, direction by direction."""
    if isinstance(input, PackedSequence) or input.dim() != 3:
        raise InputError(
            "a recurrent layer on a packed or unbatched sequence",
            got=type(input).__name__,
            expected="a tensor with 3 axes",
            fix="pad the sequences and mask the loss",
        )
    x: Tensor = input if layer.batch_first else input.transpose(0, 1)
    firsts = _first_states(layer, x, hx)
    lasts: list[State] = []
    for depth in range(layer.num_layers):
        outputs = []
        for backwards in range(1 + layer.bidirectional):
            own = firsts[len(lasts)]
            y, last = _run(layer, tape, x, own, f"l{depth}" + "_reverse" * backwards)
            outputs.append(y)
            lasts.append(last)
        x = torch.cat(outputs, dim=2)
        if layer.training and layer.dropout > 0 and depth + 1 < layer.num_layers:
            x = _dropped(x, layer.dropout)
    states = tuple(torch.stack(parts) for parts in zip(*lasts, strict=True))
    y = x if layer.batch_first else x.transpose(0, 1)
    return y, states if isinstance(layer, nn.LSTM) else states[0]


def _dropped(x: Tensor, p: float) -> Tensor:
    """Dropout with time first in memory: PyTorch's draws come in that order."""
    return F.dropout(x.transpose(0, 1).contiguous(), p).transpose(0, 1)


def _first_states(layer: nn.RNNBase, x: Tensor, hx: Any) -> list[State]:
    """One state for each layer and direction."""
    count = layer.num_layers * (1 + layer.bidirectional)
    if hx is None:
        h = x.new_zeros(len(x), layer.proj_size or layer.hidden_size)
        c = x.new_zeros(len(x), layer.hidden_size)
        return [(h, c) if isinstance(layer, nn.LSTM) else (h,)] * count
    given = hx if isinstance(layer, nn.LSTM) else (hx,)
    return list(zip(*(part.unbind(0) for part in given), strict=True))


def _run(
    layer: nn.RNNBase, tape: Tape, x: Tensor, state: State, suffix: str
) -> tuple[Tensor, State]:
    """One direction of one layer over all steps: outputs (n, t, hidden) and the last state."""
    w_ih, w_hh, b_ih, b_hh, w_hr = (
        getattr(layer, f"{name}_{suffix}", None)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    )
    step = _step_of(layer)
    recurrence, projection = _Watch(w_hh, b_hh), _Watch(w_hr, None)
    parts = tape.linear(x, cast(Tensor, w_ih), b_ih).unbind(1)
    backwards = suffix.endswith("_reverse")
    outputs = []
    for part in reversed(parts) if backwards else parts:
        state = step(part, recurrence(state[0]), state)
        if w_hr is not None:
            state = (projection(state[0]), state[1])
        outputs.append(state[0])
    recurrence.close(tape)
    projection.close(tape)
    return torch.stack(outputs[::-1] if backwards else outputs, dim=1), state


class _Watch:
    """One product at every step, recorded as one over all steps."""

    def __init__(self, weight: Tensor | None, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.inputs.append(x.detach())
        self.outputs.append(F.linear(x, cast(Tensor, self.weight), self.bias))
        return self.outputs[-1]

    def close(self, tape: Tape) -> None:
        if self.outputs:
            tape.watch(self.outputs, self._book)

    def _book(self, b: Sequence[Tensor]) -> Booked:
        gradients = torch.stack(list(b), dim=1)
        form = product(torch.stack(self.inputs, dim=1), gradients)
        booked: Booked = [(cast(Tensor, self.weight), form)]
        return booked if self.bias is None else [*booked, (self.bias, shift(gradients))]


@expansion(nn.LSTMCell, nn.GRUCell, nn.RNNCell)
def cell(layer: nn.RNNCellBase, tape: Tape, input: Tensor, hx: Any = None) -> Any:
    """One step."""
    if input.dim() != 2:
        raise InputError("a recurrent cell without a batch axis", got=f"shape {tuple(input.shape)}")
    is_lstm = isinstance(layer, nn.LSTMCell)
    zero = input.new_zeros(len(input), layer.hidden_size)
    state: State = (zero,) * (1 + is_lstm) if hx is None else hx if is_lstm else (hx,)
    x = tape.linear(input, layer.weight_ih, layer.bias_ih)
    h = tape.linear(state[0], layer.weight_hh, layer.bias_hh)
    following = _step_of(layer)(x, h, state)
    return following if is_lstm else following[0]
