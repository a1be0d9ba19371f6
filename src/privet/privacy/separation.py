"""Does the model treat the examples of a batch apart? Clipping one at a time assumes it.

Two checks: known layers by name, with the replacement offered, and a probe that catches the rest:
change one made-up example and see whether another one's output moves, or a buffer remembers it.
Each in turn (what reads a batch as a sequence only looks back), in training and in evaluation mode,
at the weights given and at made-up ones (a last layer of zeros hides everything).
"""

from collections.abc import Iterable, Iterator
from typing import Final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.privacy.probing import make_up_weights, undisturbed

CROWD: Final = 16  # times the probe

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
    for name, layer in model.named_modules():
        fix = repair_of_mixing(layer)
        if fix:
            raise InputError(
                f"layer '{name}' mixes the examples of a batch, so no per-example clipping is "
                "possible",
                got=type(layer).__name__,
                expected="layers that treat every example apart",
                fix=fix,
            )
    with undisturbed(model):
        for _ in range(2):
            for training in (True, False):
                model.train(training)
                _probe_outputs(model, probe, range(len(probe)))
                # Some mixing begins only in a crowd (experts of limited capacity).
                crowd = probe.repeat(CROWD, *[1] * (probe.dim() - 1))
                _probe_outputs(model, crowd, (0, len(crowd) - 1))
            make_up_weights(model)


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
    tolerance = 1e-5 * float(outputs.abs().nan_to_num(0.0, 0.0, 0.0).max())
    for i in places:
        others = torch.arange(len(probe), device=probe.device) != i
        if any(
            not torch.allclose(
                outputs[others], now[others], rtol=1e-4, atol=tolerance, equal_nan=True
            )
            for now in _outputs_after_changing(model, probe, i)
        ):
            raise InputError(
                "the model mixes the examples of a batch",
                got="an output that moved when only another example changed",
                expected="outputs that depend on their own example alone",
                fix="remove what crosses the first axis (batch statistics, attention over the batch"
                ", a recurrent layer without batch_first=True)",
            )
    moved = [name for name, value in _state(model) if not torch.equal(value, before[name])]
    if moved:
        raise InputError(
            "the model remembers what it saw, outside the private update",
            got=f"{moved[0]} changed in a forward pass",
            expected="buffers and parameters that stay constant",
        )


def _state(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Whatever could carry something from one pass to the next."""
    buffers = [(f"buffer '{name}'", buffer) for name, buffer in model.named_buffers()]
    return buffers + [(f"parameter '{name}'", p.detach()) for name, p in model.named_parameters()]


def _outputs_after_changing(model: nn.Module, probe: Tensor, i: int) -> Iterator[Tensor]:
    for other in (1.0 - probe[i], torch.zeros_like(probe[i]), torch.ones_like(probe[i])):
        changed = probe.clone()
        changed[i] = other
        yield _seeded_forward(model, changed)


def _seeded_forward(model: nn.Module, x: Tensor) -> Tensor:
    torch.manual_seed(0)  # the same dropout masks in every pass
    with torch.no_grad():
        outputs: Tensor = model(x.clone())  # the model may work in place
    if outputs.shape[:1] != x.shape[:1]:
        raise InputError(
            "the model does not return one output for each example",
            got=f"outputs of shape {tuple(outputs.shape)} for {len(x)} examples",
        )
    return outputs
