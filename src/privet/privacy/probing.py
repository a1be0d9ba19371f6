"""Trying a model out on made-up inputs and weights, and leaving it as it was."""

import math
import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Modes, weights, buffers and the global random states are afterwards what they were."""
    modes = {module: module.training for module in model.modules()}
    tensors = [*model.parameters(), *model.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    pythons, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(pythons)
            np.random.set_state(numpys)
            for module, training in modes.items():
                module.training = training
            with torch.no_grad():
                for tensor, values in zip(tensors, before, strict=True):
                    tensor.copy_(values)


@contextmanager
def exact() -> Iterator[None]:
    """Without cuDNN and without TF32.

    TF32 products differ by more than the tolerances from one batch size to another, and cuDNN's
    recurrent layers draw dropout masks of their own.
    """
    products = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=False, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(products)


@contextmanager
def in_double(model: nn.Module) -> Iterator[None]:
    """The model in double precision; the very tensors that it had come back."""
    tensors = [t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    before = [tensor.data for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.data = tensor.data.double()
        yield
    finally:
        for tensor, values in zip(tensors, before, strict=True):
            tensor.data = values


def make_up_weights(model: nn.Module) -> None:
    """Move every trainable weight off its start: a last layer of zeros hides what is below it."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                fan_in = parameter.shape[1:].numel()
                draw = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.5 / math.sqrt(max(1, fan_in)) * draw.to(parameter.device))


def seed_all(seed: int) -> None:
    """Every generator that a model may draw from without holding one: the same masks again."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def draws(model: nn.Module, x: Tensor) -> bool:
    """Whether a pass in the present mode draws from any global generator."""
    seed_all(0)
    before = _random_states(x.device)
    with torch.no_grad():
        model(x.clone())  # the model may work in place
    return _random_states(x.device) != before


def _random_states(device: torch.device) -> list[bytes]:
    tensors = [torch.get_rng_state()]
    if device.type == "cuda":
        tensors.append(torch.cuda.get_rng_state(device))
    states = [tensor.numpy().tobytes() for tensor in tensors]
    return [*states, pickle.dumps((random.getstate(), np.random.get_state()))]
