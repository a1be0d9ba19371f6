"""Trying a model out on made-up inputs and weights, and leaving it as it was."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Modes, weights, buffers and the global random state are afterwards what they were."""
    modes = {module: module.training for module in model.modules()}
    tensors = [*model.parameters(), *model.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training
            with torch.no_grad():
                for tensor, values in zip(tensors, before, strict=True):
                    tensor.copy_(values)


def make_up_weights(model: nn.Module) -> None:
    """Move every trainable weight off its start: a last layer of zeros hides what is below it."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                fan_in = parameter[0].numel() if parameter.dim() > 0 else 1
                draw = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.5 / math.sqrt(max(1, fan_in)) * draw.to(parameter.device))
