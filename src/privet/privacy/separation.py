"""Does the model treat the examples of a batch apart? Clipping one at a time assumes it.

Known layers are refused by name, with the replacement offered. A probe catches the rest:

- Mixing: change one made-up example and see whether another one's output moves, or a buffer
  remembers it. Each in turn (what reads a batch as a sequence only looks back), in training and in
  evaluation mode, at the weights given and at made-up ones (a last layer of zeros hides
  everything), and under many seeds where the model draws (it may mix at times only).
- Randomness that examples share, such as one coin for all of a pass. Large batches are clipped in
  pieces, and one unit more moves others to the next piece, under another coin: all of these
  gradients change. Identical examples are fed under many seeds. If each has randomness of its own,
  their outputs differ inside a pass as much as from pass to pass.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.privacy.probing import draws, exact, make_up_weights, seed_all, undisturbed

CROWD: Final = 16  # times the probe
SEEDS: Final = 32  # what happens in every tenth pass escapes them with probability 0.03
TWINS: Final = 16  # identical examples
TOGETHER: Final = 12.0
"""Ratio of variances above which twins share randomness; without any it is about 1.

Whatever the distribution: to reach 12 by chance, eight of the rare events that make up a variance
would have to fall into one pass of 32 and none into the others.
"""


MIXING_LAYERS: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._BatchNorm,
    nn.LazyBatchNorm1d,
    nn.LazyBatchNorm2d,
    nn.LazyBatchNorm3d,
)


def require_separate_examples(model: nn.Module, probe: Tensor) -> None:
    """Refuse a model in which one example's output depends on another.

    `probe` holds at least two made-up inputs; private data must never be used here.
    """
    for name, layer in _when_trained(model):
        fix = repair_of_mixing(layer)
        if fix:
            raise InputError(
                f"layer '{name}' mixes the examples of a batch, so no per-example clipping is "
                "possible",
                got=type(layer).__name__,
                expected="layers that treat every example apart",
                fix=fix,
            )
    with undisturbed(model), exact():
        for _ in range(2):
            for training in (True, False):
                model.train(training)
                _probe_outputs(model, probe, range(len(probe)))
                # Some mixing begins only in a crowd (experts of limited capacity).
                crowd = _repeated(probe, CROWD)
                _probe_outputs(model, crowd, (0, len(crowd) - 1))
                if draws(model, probe):
                    _probe_draws(model, probe)
            make_up_weights(model)


def _when_trained(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers that are not constant in the mode that training puts each one in."""
    constant = constant_layers(model)
    return [(name, layer) for name, layer in model.named_modules() if layer not in constant]


def constant_layers(model: nn.Module) -> set[nn.Module]:
    """Each BatchNorm that evaluates while the model trains, as in a frozen part: a fixed scale."""
    modes = [(layer, layer.training) for layer in model.modules()]
    try:
        model.train()
        return {layer for layer, _ in modes if _is_constant(layer)}
    finally:
        for layer, mode in modes:
            layer.training = mode


def _is_constant(layer: nn.Module) -> bool:
    """Whether a BatchNorm stays in evaluation mode, as in a frozen front: a fixed scale."""
    batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
    return batch_norm and not _why_not_constant(layer)


def _why_not_constant(layer: nn.Module) -> str:
    """What makes a pass through a BatchNorm hang on the batch; "" if nothing does."""
    if layer.training:
        return "training mode"
    if any(kept is None for kept in (layer.running_mean, layer.running_var)):
        return "no running statistics"
    return "" if layer.track_running_stats else "running statistics that are not tracked"


@contextmanager
def kept_constant(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Each pass through these layers is refused unless they are still constant at that moment.

    A model may change a layer's mode inside its own forward pass, and for large batches only, what
    no probe sees. Or nobody called `model.train()`, which would have frozen it: a private step
    takes the model in the mode that it is in. The check is gone afterwards, so that no
    copy and no release has it.
    """
    with ExitStack() as hooks:
        for layer in layers:
            handle = layer.register_forward_pre_hook(_require_constant)
            hooks.callback(handle.remove)
        yield


def _require_constant(layer: nn.Module, _: Any) -> None:
    why = _why_not_constant(layer)
    if why:
        raise InputError(
            f"a frozen {type(layer).__name__} came to mix the examples of a batch",
            got=why,
            expected="evaluation mode with running statistics in every pass of private training",
            fix="call model.train() first, if that is what sets its mode, and do not change it in"
            " forward(); or use GroupNorm: privet.models.without_batchnorm(model)",
        )


def repair_of_mixing(layer: nn.Module) -> str:
    """What to do about a layer that is known to mix examples; "" if it is not."""
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        return "set track_running_stats=False" if layer.track_running_stats else ""
    if isinstance(layer, MIXING_LAYERS):
        return "use GroupNorm; privet.models.without_batchnorm(model) replaces every one"
    return ""


def _probe_outputs(model: nn.Module, probe: Tensor, places: Iterable[int]) -> None:
    before = {name: value.clone() for name, value in _state(model)}
    outputs = _seeded_forward(model, probe)
    for i in places:
        for changed in _changed(probe, i):
            now = _seeded_forward(model, changed)
            if not _same_but_for(i, outputs, now):
                raise _mixing(outputs, _seeded_forward(model, probe))
    moved = [name for name, value in _state(model) if not torch.equal(value, before[name])]
    if moved:
        raise InputError(
            "the model remembers what it saw, outside the private update",
            got=f"{moved[0]} changed in a forward pass",
            expected="buffers and parameters that stay constant",
        )


def _probe_draws(model: nn.Module, probe: Tensor) -> None:
    """Of a model that draws: mixing that is drawn, and what is drawn for all at once."""
    for seed in range(1, SEEDS):
        i = seed % len(probe)
        outputs = _seeded_forward(model, probe, seed)
        now = _seeded_forward(model, next(_changed(probe, i)), seed)
        if not _same_but_for(i, outputs, now):
            raise _mixing(outputs, _seeded_forward(model, probe, seed))
    _require_own_randomness(model, probe[:1])
    dropouts = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    if any(dropout.training for dropout in dropouts):
        for dropout in dropouts:  # which would drown a coin that falls for all
            dropout.eval()
        if draws(model, probe):
            _require_own_randomness(model, probe[:1])


def _require_own_randomness(model: nn.Module, example: Tensor) -> None:
    twins = _repeated(example, TWINS)
    if drawn_together(lambda seed: _seeded_forward(model, twins, seed)):
        raise InputError(
            "the model draws random numbers that the examples of a pass share",
            got="outputs of identical examples that vary together from seed to seed",
            expected="randomness of its own for every example: large batches are clipped in pieces,"
            " and one example more moves others to another piece",
            fix="draw it row by row (stochastic depth: one coin for each row, mode='row')",
        )


def drawn_together(passed: Callable[[int], Tensor]) -> bool:
    """Whether what comes of identical examples hangs on draws that they share.

    One-way analysis of variance, grouped by pass: `passed` gives for a seed the outputs of `TWINS`
    identical examples, a row each.
    """
    means, inside = [], torch.zeros(())
    for seed in range(SEEDS):
        outputs = passed(seed).flatten(1).double().nan_to_num(0.0, 0.0, 0.0)
        means.append(outputs.mean(0))
        inside = inside.to(outputs) + outputs.var(0) / SEEDS
    by_pass = torch.stack(means)
    across = TWINS * by_pass.var(0)
    rounding = (1e-5 * by_pass.abs().amax(0)) ** 2
    return bool((across > TOGETHER * inside + rounding).any())


def _mixing(outputs: Tensor, again: Tensor) -> InputError:
    """The reason of a difference: `again` is the unchanged batch under the same seed."""
    if not bool(_same(outputs, again).all()):
        return InputError(
            "the model draws from a generator of its own, or remembers earlier examples",
            got="other outputs for the same examples under the same seed",
            expected="outputs that hang on the example, the weights and torch's global generator",
            fix="draw from torch's global generator; keep nothing between two passes",
        )
    return InputError(
        "the model mixes the examples of a batch",
        got="an output that moved when only another example changed",
        expected="outputs that depend on their own example alone",
        fix="remove what crosses the first axis (batch statistics, attention over the batch"
        ", a recurrent layer without batch_first=True)",
    )


def _same_but_for(i: int, outputs: Tensor, now: Tensor) -> bool:
    same = _same(outputs, now)
    same[i] = True
    return bool(same.all())


def _same(outputs: Tensor, now: Tensor) -> Tensor:
    """Element by element, up to rounding.

    Each column is measured by itself: one masked score of -1e9 must not excuse the others. And by
    its median: nor must that of another example.
    """
    column = outputs.abs().nan_to_num(0.0, 0.0, 0.0).median(0).values
    close = torch.isclose(now, outputs, rtol=1e-4, atol=0.0, equal_nan=True)
    return close | ((now - outputs).abs() <= 1e-5 * column)


def _state(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Whatever could carry something from one pass to the next."""
    buffers = [(f"buffer '{name}'", buffer) for name, buffer in model.named_buffers()]
    return buffers + [(f"parameter '{name}'", p.detach()) for name, p in model.named_parameters()]


def _repeated(rows: Tensor, times: int) -> Tensor:
    return rows.repeat(times, *[1] * (rows.dim() - 1))


def _changed(probe: Tensor, i: int) -> Iterator[Tensor]:
    """The batch with other values in place i."""
    for other in (1.0 - probe[i], torch.zeros_like(probe[i]), torch.ones_like(probe[i])):
        changed = probe.clone()
        changed[i] = other
        yield changed


def _seeded_forward(model: nn.Module, x: Tensor, seed: int = 0) -> Tensor:
    seed_all(seed)  # the same dropout masks whatever the examples are
    with torch.no_grad():
        outputs: Tensor = model(x.clone())  # the model may work in place
    if outputs.shape[:1] != x.shape[:1]:
        raise InputError(
            "the model does not return one output for each example",
            got=f"outputs of shape {tuple(outputs.shape)} for {len(x)} examples",
        )
    return outputs
