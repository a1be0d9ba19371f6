"""Which layers have a rule or an expansion, and which of their variants.

Exact types only: a subclass may compute something else. So may a layer with re-parametrised
weights, or with a forward method of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from privet.errors import InputError
from privet.privacy.rules.forms import PerExample

Rule = Callable[..., dict[str, PerExample]]
"""(layer, input a, output gradient b), rows on the first axis -> forms by parameter name.

One that was registered with `with_output` takes the layer's output too.
"""

Limit = Callable[[Any], str]
"""Why a variant of a layer is not covered; "" where it is."""

Booked = list[tuple[Tensor, PerExample]]
"""Parameters and forms; a parameter may come twice."""

Book = Callable[[Sequence[Tensor]], Booked]
"""From the gradients of the watched outputs to forms of the parameters behind them."""


class Tape(Protocol):
    """What an expansion records on."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product x W^T + bias, recorded; rows on the first axis."""

    def watch(self, outputs: Sequence[Tensor], book: Book) -> None:
        """Record that `book` explains the parameters' gradients by those of the outputs."""


def kept(layer: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """A layer's input for later, refused if it was changed in the meantime.

    Autograd would notice only where it needs the input again; the books always do.
    """
    value, version = x.detach(), x._version

    def again() -> Tensor:
        if value._version != version:
            raise InputError(
                f"the input of a {type(layer).__name__} was changed after its use",
                fix="do not work in place on it",
            )
        return value

    return again


Expansion = Callable[..., Any]
"""(layer, tape, *arguments of forward) -> what forward returns, with its products recorded."""

RULES: dict[type[nn.Module], Rule] = {}
EXPANSIONS: dict[type[nn.Module], Expansion] = {}
WITH_OUTPUT: set[type[nn.Module]] = set()
_LIMITS: dict[type[nn.Module], Limit] = {}


def rule(
    *layers: type[nn.Module], limit: Limit | None = None, with_output: bool = False
) -> Callable[[Rule], Rule]:
    """Register the rule of one or more layer types; `limit` names variants it does not cover."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(layers, function))
        WITH_OUTPUT.update(layers if with_output else ())
        _LIMITS.update(dict.fromkeys(layers, limit) if limit else {})
        return function

    return register


def expansion(
    *layers: type[nn.Module], limit: Limit | None = None
) -> Callable[[Expansion], Expansion]:
    """Register how a layer that is more than one product is computed while recording."""

    def register(function: Expansion) -> Expansion:
        EXPANSIONS.update(dict.fromkeys(layers, function))
        _LIMITS.update(dict.fromkeys(layers, limit) if limit else {})
        return function

    return register


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters that the module itself holds."""
    own = module._parameters.items()  # named_parameters is slow, and this runs in every step
    return {name: p for name, p in own if p is not None and p.requires_grad}


def why_no_rule(module: nn.Module) -> str:
    """Why neither a rule nor an expansion covers a module; "" where one does."""
    kind = type(module)
    if kind not in RULES and kind not in EXPANSIONS:
        return f"no rule for {kind.__name__}"
    if "forward" in vars(module):
        return "a forward method of its own"
    extra = set(own_parameters(module)) - _plain_names(module)
    if extra:
        return f"an extra parameter '{min(extra)}'"
    limit = _LIMITS.get(kind)
    return limit(module) if limit else ""


def has_rule(module: nn.Module) -> bool:
    """Whether the books cover the module: a plain known layer, or one without parameters."""
    return not own_parameters(module) or not why_no_rule(module)


def _plain_names(module: nn.Module) -> set[str]:
    if isinstance(module, nn.RNNBase):
        return {name for names in module._all_weights for name in names}
    if isinstance(module, nn.RNNCellBase):
        return {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    if isinstance(module, nn.MultiheadAttention):
        projections = {f"{letter}_proj_weight" for letter in "qkv"}
        return projections | {"in_proj_weight", "in_proj_bias", "bias_k", "bias_v"}
    return {"weight", "bias"}
