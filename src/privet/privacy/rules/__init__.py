"""How a layer's per-example gradients follow from its input and its output's gradient.

A rule takes (layer, input a, output gradient b), both with rows on the first axis, and returns for
each of the layer's parameters a `PerExample`: the gradients of all rows, in a form that yields
their norms and a weighted sum without forming more than it must. It knows nothing of views or
units: forms can be folded.

| layer                            | weight                                     | bias        |
|----------------------------------|--------------------------------------------|-------------|
| Linear, 2-d in                   | b a^T                                      | b           |
| Linear, n-d in                   | sum_t b_t a_t^T                            | sum_t b_t   |
| Conv1d, Conv2d, Conv3d           | sum_t b_t (patch of a at t)^T              | sum_t b_t   |
| ConvTranspose1d, ...2d, ...3d    | sum_t a_t (patch of b at t)^T              | sum_t b_t   |
| Embedding                        | row v_t += b_t                             |             |
| LayerNorm, GroupNorm, RMSNorm, InstanceNorm | sum_t b_t * (normalised a_t)    | sum_t b_t   |

A layer that is more than one product is *expanded* while recording: computed by plain products
that are recorded one by one (MultiheadAttention; LSTM, GRU, RNN and their cells, step by step over
time). Any other module gets its gradients by `torch.func` on that module alone (`fallback`).
"""

from privet.privacy.rules import attention, convolution, plain, recurrent  # noqa: F401 - register
from privet.privacy.rules.forms import (
    FLOAT32,
    Dense,
    LookUp,
    OuterSum,
    PerExample,
    RankOne,
    Rounding,
    Stacked,
    half_bit,
    safe_squares,
    sum_of,
)
from privet.privacy.rules.registry import (
    EXPANSIONS,
    RULES,
    WITH_OUTPUT,
    Book,
    Booked,
    expansion,
    has_rule,
    kept,
    own_parameters,
    rule,
    why_no_rule,
)
from privet.privacy.rules.windowed import Windowed

__all__ = [
    "EXPANSIONS",
    "FLOAT32",
    "RULES",
    "WITH_OUTPUT",
    "Book",
    "Booked",
    "Dense",
    "LookUp",
    "OuterSum",
    "PerExample",
    "RankOne",
    "Rounding",
    "Stacked",
    "Windowed",
    "expansion",
    "half_bit",
    "has_rule",
    "kept",
    "own_parameters",
    "rule",
    "safe_squares",
    "sum_of",
    "why_no_rule",
]
